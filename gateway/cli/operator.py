"""The operator's commands on what is stored: who may write, sessions, schedules, dead letters, usage, skills and backups.

All of them work also while the gateway serves.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gateway.cli.options import CONFIG, AsJson, ConfigOption, Yes, environment, language, load, number_of
from gateway.observe.terminal import confirm, escaped, print_json, print_list, print_text
from gateway.program import OperatorError, program

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.root import Config
    from gateway.operate.skills import AddedSkills
    from gateway.store.approvals import DatabaseApprovals


pairing_app = typer.Typer(
    no_args_is_help=True,
    help="Who may write to the bot if dmPolicy is pairing: list, approve and revoke them, also while it serves.",
)
approvals_app = typer.Typer(
    no_args_is_help=True,
    help="Calls that wait for a person's approval, and what was allowed for good; also while the gateway serves.",
)


@pairing_app.command("list")
def list_contacts(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """List the people who wait with a code, and those who may write."""
    from gateway.operate.contacts import line, listed

    contacts, spoken = listed(load(config, stored=True).config), language(config)
    waiting = sum(it["approvedBy"] is None for it in contacts)
    approved = len(contacts) - waiting
    total = (
        f"等待批准 {waiting} 人，已批准 {approved} 人" if spoken == "zh" else f"{waiting} waiting, {approved} approved"
    )
    print_list(contacts, partial(line, language=spoken), total, as_json=as_json)


@pairing_app.command("approve")
def approve_contact(
    who: Annotated[str, typer.Argument(metavar="CODE", help="The code that they were given; or channel:id.")],
    config: ConfigOption = CONFIG,
) -> None:
    """Let a person write to the bot, on all replicas from now on. They are notified within seconds."""
    from gateway.operate.contacts import approve

    print_text("\n".join(approve(load(config, stored=True).config, who)))


@pairing_app.command("revoke")
def revoke_contact(
    who: Annotated[str, typer.Argument(metavar="CHANNEL:ID", help="Such as feishu:ou_…, or telegram:ACCOUNT:123456.")],
    config: ConfigOption = CONFIG,
) -> None:
    """Revoke the permission, from the next message on. Entries of allowFrom and owners are unchanged."""
    from gateway.operate.contacts import revoke

    print_text("\n".join(revoke(load(config, exact=True).config, who)))


def _approvals(config: "Config") -> "DatabaseApprovals":
    from gateway.store.approvals import DatabaseApprovals
    from gateway.store.opening import offline

    return DatabaseApprovals(read=offline(config.database), write=offline(config.database))


@approvals_app.command("list")
def list_approvals(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """List what waits for a decision, and what was allowed for good, oldest first."""
    import asyncio
    import time

    from gateway.approvals.display import facts, line

    loaded = load(config, stored=True).config
    waiting, grants = asyncio.run(_approvals(loaded).listed(time.time()))
    rows = [facts(it, loaded.server.zone) for it in waiting] + [facts(it, loaded.server.zone) for it in grants]
    print_list(rows, line, f"{len(waiting)} waiting, {len(grants)} allowed for good", as_json=as_json)


@approvals_app.command("revoke")
def revoke_approvals(
    name: Annotated[str | None, typer.Argument(metavar="ID", help="A grant or a request, as `list` names it.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that was allowed for good.")] = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Revoke a standing approval, or cancel a pending request; effective immediately in a running gateway."""
    import asyncio
    import time

    from gateway.approvals.approvals import id_of

    if (name is None) != everything:
        raise OperatorError("name what to revoke, such as K7QF-2M9X-D3TA (see `approvals list`), or say --all")
    ended = _approvals(load(config, stored=True).config).revoke(
        None if name is None else id_of(name), by="command line", at=time.time()
    )
    revoked = asyncio.run(ended)
    for it in revoked:
        print_text(f"{it}: revoked")
    if name is not None and not revoked:
        raise OperatorError(f"nothing to revoke: {name} — `approvals list` shows what there is")


dead_letters_app = typer.Typer(
    no_args_is_help=True, help="Messages that were given up, and reply parts that could not be delivered."
)


@dead_letters_app.command("list")
def list_dead_letters(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """List the dead letters, oldest first."""
    from dataclasses import asdict

    from channels.moment import iso
    from gateway.store.dead_letters import dead_letters

    loaded = load(config, stored=True).config
    letters = [
        {"name": it.name} | asdict(it) | {"at": iso(it.at, loaded.server.zone)} for it in dead_letters(loaded.database)
    ]

    def line(it: dict[str, object]) -> str:
        doubt = f", {it['ambiguous']} of them may have arrived" if it["ambiguous"] else ""
        return f"{it['name']}  {it['at']}  {it['session']}  attempts {it['attempts']}{doubt}  {it['reason']}".rstrip()

    print_list(letters, line, number_of(letters, "dead letter"), as_json=as_json)


@dead_letters_app.command("replay")
def replay_dead_letters(
    names: Annotated[
        list[str] | None, typer.Argument(help="Dead letters as `list` names them: message-12 part-7.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Give dead letters another chance; a running gateway takes them up within seconds."""
    from gateway.store.dead_letters import dead_letters, replay

    if bool(names) == everything:
        raise OperatorError("name what to replay, such as part-7 (see `dead-letters list`), or say --all")
    database = load(config, stored=True).config.database
    chosen = [it.name for it in dead_letters(database)] if everything else list(names or [])
    replayed = replay(database, chosen)
    for name in replayed:
        print_text(f"{name}: queued again")
    if missing := [name for name in chosen if name not in replayed]:
        raise OperatorError(f"no dead letter: {', '.join(missing)} — `dead-letters list` shows them")


schedules_app = typer.Typer(
    no_args_is_help=True,
    help="Reminders of people and schedules of the config: list, run, pause and cancel them, also while it serves.",
)
ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="As `schedules list` names it.")]


@schedules_app.command("list")
def list_schedules(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """List what is to come, what is paused, and what is over since a week at most."""
    from gateway.operate.schedules import line, listed

    schedules, spoken = listed(load(config, stored=True).config), language(config)
    total = number_of(schedules, "schedule", "个定时", spoken)
    print_list(schedules, partial(line, language=spoken), total, as_json=as_json)


@schedules_app.command("run")
def run_schedule(name: ScheduleId, as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """Run it now, in addition to its times; a running gateway starts immediately."""
    from gateway.operate.schedules import run

    _change(run, name, "due now", as_json, config)


@schedules_app.command("pause")
def pause_schedule(name: ScheduleId, as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """Pause it; run the command again to resume at its next time."""
    from gateway.operate.schedules import pause

    _change(pause, name, "", as_json, config)


@schedules_app.command("cancel")
def cancel_schedule(name: ScheduleId, as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """End a person's for good. One of the config is removed there."""
    from gateway.operate.schedules import cancel

    _change(cancel, name, "", as_json, config)


def _change(
    change: "Callable[[Config, str], dict[str, Any]]", name: str, words: str, as_json: bool, config: ConfigOption
) -> None:
    import asyncio

    loaded = load(config, stored=True).config
    after = change(loaded, name)
    if loaded.database.path is not None:  # PostgreSQL has told every replica
        from gateway.config.exposure import operator_proof
        from gateway.http.reach import wake_at

        asyncio.run(wake_at(loaded.server.address, operator_proof(loaded)))
    due = f", due {after['due']}" if after["due"] else ""
    if as_json:
        print_json(after)
    else:
        print_text(f"{name}: {words or after['state'] + due}")


sessions_app = typer.Typer(
    no_args_is_help=True,
    help="What is kept of conversations: to be listed, read, exported and erased, also while the gateway serves.",
)
NO_SESSION = "no session: {} — `sessions list` shows them"
SessionId = Annotated[str, typer.Argument(metavar="ID", help="A session, as `sessions list` names it.")]


@sessions_app.command("list")
def list_sessions(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """List the sessions, the last active one at the end."""
    from gateway.operate.sessions import handed_over, listed, summary

    loaded = load(config, stored=True).config
    taken = handed_over(loaded)
    sessions = [
        summary(it, loaded.server.zone) | ({"handedOver": True} if it.until is None and it.sid in taken else {})
        for it in listed(loaded)
    ]

    def line(it: dict[str, Any]) -> str:
        within = "".join(f" {name} {it[name]}" for name in ("thread", "sender") if it[name] is not None)
        chat = f"{it['agent']}  {it['channel']}:{it['account']}:{it['chat']}{within}"
        handed = "  handed over" if "handedOver" in it else ""
        return f"{it['id']}  {it['last']}  {chat}  turns {it['turns']}  tokens {it['tokens']}{handed}"

    print_list(sessions, line, number_of(sessions, "session"), as_json=as_json)


@sessions_app.command("show")
def show_session(name: SessionId, as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """Print a session: who wrote what and when, and which tools were called."""
    _export(name, "json" if as_json else "md", config)


@sessions_app.command("export")
def export_session(
    name: SessionId,
    form: Annotated[
        Literal["md", "json"], typer.Option("--format", help="md is to be read; json has every row as it is kept.")
    ] = "md",
    config: ConfigOption = CONFIG,
) -> None:
    """Write a session to standard output: `sessions export ID --format md > session.md`."""
    _export(name, form, config)


def _export(name: str, form: str, config: Path) -> None:
    from gateway.operate.sessions import exported, found, markdown

    loaded = load(config, stored=True).config
    if (it := found(loaded, name)) is None:
        raise OperatorError(NO_SESSION.format(name))
    session, entries, marks = it
    if form == "json":
        print_text(escaped(exported(session, entries, marks, loaded.server.zone)))
    else:
        print_text("\n".join(markdown(session, entries, marks, loaded.server.zone)))


@sessions_app.command("erase")
def erase_sessions(
    name: Annotated[str | None, typer.Argument(metavar="ID", help="A session, as `sessions list` names it.")] = None,
    person: Annotated[
        str | None, typer.Option(metavar="CHANNEL:ID", help="All of a person, such as feishu:ou_…: /whoami prints it.")
    ] = None,
    yes: Yes = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Remove a session, or all that is kept of a person, for good: messages, answers, files. Nothing brings it back."""
    from gateway.operate.sessions import erase, listed, portions

    channel, _, who = (person or "").partition(":")
    if (name is None) == (person is None) or (person is not None and not (channel and who)):
        raise OperatorError(
            "say what to erase: a session's ID (see `sessions list`), or --person channel:id, such as feishu:ou_…"
        )
    loaded = load(config, exact=True).config
    whose = (channel, who) if person else None
    session = next((it for it in listed(loaded) if it.id == name), None)
    if name is not None and session is None:
        raise OperatorError(NO_SESSION.format(name))
    for it in portions(loaded, session=session, person=whose):
        what = "" if it.all_between else ", what answers this person"
        print_text(f"{it.sid}{what}: {len(it.numbers)} turns and commands", err=True)
    if not yes and not confirm("Erase this for good?"):
        raise OperatorError("nothing was erased")
    try:
        erased = erase(loaded, session=session, person=whose)
    except OSError as error:
        raise OperatorError(str(error)) from None
    counts = ", ".join(f"{table} {count}" for table, count in sorted(erased.removed.items()))
    print_text(f"erased: {counts or 'nothing, since nothing is kept'}")
    for path in erased.emptied:
        print_text(f"emptied: {path}")
    for path in erased.left:
        print_text(f"not touched: {path} — look there for what the agent wrote")


def usage(
    by: Annotated[
        Literal["agent", "chat", "person", "model"], typer.Option(help="What a line of the table is.")
    ] = "agent",
    since: Annotated[
        str, typer.Option(help="30d: from midnight 30 days ago; 12h: the last twelve hours; or a day, 2026-11-01.")
    ] = "30d",
    as_json: AsJson = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Show tokens and cost by agent, chat, person or model, also while the gateway serves."""
    import time

    from gateway.operate.usage import beginning, facts, table
    from gateway.operate.usage import usage as report_of

    loaded = load(config, stored=True).config
    try:
        begin = beginning(since, loaded, time.time())
    except ValueError:
        raise OperatorError(f"--since {since}: expected 30d, 12h or a day such as 2026-11-01") from None
    report = report_of(loaded, by, begin)
    if as_json:
        print_json(facts(report, loaded))
    else:
        print_text("\n".join(table(report, loaded, language(config))))


skills_app = typer.Typer(
    no_args_is_help=True,
    help="Skills from elsewhere: looked at, pinned in skills.lock, and used only as long as they stay as they were.",
)


@skills_app.command("add")
def add_skills(
    source: Annotated[
        str, typer.Argument(metavar="GIT_URL|DIR", help="A git repository, or a folder of this machine.")
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Skills of it; needed if it has several.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every skill that it has.")] = False,
    ref: Annotated[str, typer.Option(metavar="REF", help="A branch or a tag of the repository.")] = "",
    yes: Yes = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Show a skill's files and add it once you agree. Nothing of it runs; agents see it from their next message on."""
    added = _added(config)
    read = added.read(source, ref)
    chosen = added.chosen(read, list(names or []), everything=everything)
    for skill in chosen:
        print_text("\n".join(added.described(skill, read)), err=True)
    if not yes and not confirm(f"Add {number_of(chosen, 'skill')} to {added.folder}?"):
        raise OperatorError("nothing was added")
    for skill in chosen:
        added.add(skill, read, ref)
        agents = ", ".join(added.seen_by(skill)) or "no agent, by their skills.allow"
        print_text(f"{skill.name}: added, seen by {agents}")


@skills_app.command("update")
def update_skills(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Skills, as `skills list` names them.")],
    yes: Yes = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Show what has changed, here or at the source, and take the source's state once you agree."""
    added = _added(config)
    for name in dict.fromkeys(names):
        skill, source = added.newest(name)
        if added.is_current(skill):
            print_text(f"{name}: unchanged")
            continue
        before = added.pin(name)
        print_text(f"{name}: {before.commit[:12] or 'a folder'} -> {source.commit[:12] or 'a folder'}", err=True)
        print_text("\n".join(added.differences(skill)) or "The files are the same; the lock is renewed.", err=True)
        if not yes and not confirm(f"Update {name}?"):
            raise OperatorError(f"{name}: not updated")
        added.add(skill, source, before.ref)
        print_text(f"{name}: updated")


@skills_app.command("list")
def list_skills(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """List the added skills: their state, commit and source. Only those that are ok are used."""
    from gateway.operate.skills import line

    rows, spoken = _added(config, exact=False).listed(), language(config)
    used = sum(it["state"] == "ok" for it in rows)
    total = (
        f"{len(rows)} 个技能，使用其中 {used} 个" if spoken == "zh" else f"{used} of {number_of(rows, 'skill')} used"
    )
    print_list(rows, partial(line, language=spoken), total, as_json=as_json)


@skills_app.command("remove")
def remove_skills(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Skills, as `skills list` names them.")],
    yes: Yes = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Remove added skills, with their folders."""
    added = _added(config)
    for name in dict.fromkeys(names):
        added.pin(name)
    if not yes and not confirm(f"Remove {', '.join(names)} from {added.folder}?"):
        raise OperatorError("nothing was removed")
    for name in dict.fromkeys(names):
        added.remove(name)
        print_text(f"{name}: removed")


def _added(config: "ConfigOption", *, exact: bool = True) -> "AddedSkills":
    from gateway.operate.skills import AddedSkills

    return AddedSkills(load(config, exact=exact))


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write, or a folder for one that is named by the time.")],
    config: ConfigOption = CONFIG,
) -> None:
    """Write everything that the config names into one file: config, .env, database, workspaces, uploads, skills and tools.
    It works next to a serving gateway. The file holds all keys and messages, and only you can read it."""
    from gateway.operate.backup import back_up

    done = back_up(load(config, exact=True), config, file, environment())
    manifest = done.manifest
    files = number_of(manifest.files, "file")
    print_text(f"{done.file}: written and verified, {files}, {done.size:,} bytes")
    for at, place in manifest.moved.items():
        print_text(f"  {place} is in it as {at}")
    if manifest.database is None:
        print_text("  not in it: a database; there is no database yet")
    for line in done.left_out:
        print_text(f"  not in it: {line}")
    if manifest.variables:
        print_text(
            f"  not in it: {', '.join(manifest.variables)}, set outside of .env — keep them elsewhere, or move them there"
        )
    print_text("  It holds the keys, and everything that was said: keep it as you keep .env.")
    for line in done.unread:
        print_text(f"not in it, and it should be: {line}", err=True)
    if done.unread:
        raise typer.Exit(1)


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `backup` wrote.")],
    folder: Annotated[Path, typer.Argument(help="An empty folder, or one that is not there yet.")] = Path(),
    database_url: Annotated[
        str, typer.Option(help="PostgreSQL: the empty database to fill, instead of the one that the config names.")
    ] = "",
) -> None:
    """Restore a backup into an empty folder. Nothing is overwritten, and no gateway is started."""
    from gateway.operate.backup import restore as restore_backup

    done = restore_backup(file, folder, environment(), database_url=database_url)
    manifest = done.manifest
    option = "" if manifest.config == str(CONFIG) else f" --config {manifest.config}"
    print_text(f"{done.folder.absolute()}: restored {number_of(manifest.files, 'file')} of {manifest.made}")
    if done.database:
        print_text(f"  database     {done.database} has its rows")
    for at, place in manifest.moved.items():
        print_text(f"  move         {at} to {place}, or name it in the config where it is")
    if manifest.variables:
        print_text(f"  set          {', '.join(manifest.variables)}: the backup does not have them")
    if database_url:
        print_text("  set          database.url in the config to that database")
    if done.parked.messages or done.parked.parts:
        messages = number_of(range(done.parked.messages), "message")
        parts = number_of(range(done.parked.parts), "reply part")
        print_text(f"  in flight    {messages}, {parts}: the gateway that served went on with them.")
        print_text(f"               Here they are dead letters: {program()} dead-letters list{option}")
    print_text("  stop         the gateway that the backup is of, before you start this one: both would answer")
    start = "" if done.folder.absolute() == Path.cwd() else f"cd {done.folder} && "
    print_text(f"  then         {start}{program()} check{option} && {program()} serve{option}")
