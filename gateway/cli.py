"""The command line. Each command imports what it needs when it runs; errors are one line each, exit code 1, or 2 for what
must not be open to the network."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

if TYPE_CHECKING:
    from gateway.config.load import Loaded
    from gateway.config.root import Config

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Clawgate: a small, durable gateway between chat channels and model agents.",
)

dead_letters_app = typer.Typer(
    no_args_is_help=True, help="Messages that were given up, and reply parts that could not be delivered."
)
app.add_typer(dead_letters_app, name="dead-letters")
sessions_app = typer.Typer(
    no_args_is_help=True,
    help="What is kept of conversations: to be listed, read, exported and erased, also while the gateway serves.",
)
app.add_typer(sessions_app, name="sessions")
pairing_app = typer.Typer(
    no_args_is_help=True,
    help="Who may write to the bot where dmPolicy is pairing: to be listed, approved and revoked, also while it serves.",
)
app.add_typer(pairing_app, name="pairing")
approvals_app = typer.Typer(
    no_args_is_help=True,
    help="Calls that wait for a person's approval, and what was allowed for good; also while the gateway serves.",
)
app.add_typer(approvals_app, name="approvals")
routes_app = typer.Typer(no_args_is_help=True, help="Who answers what.")
app.add_typer(routes_app, name="routes")


SessionId = Annotated[str, typer.Argument(metavar="ID", help="A session, as `sessions list` names it.")]
ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The config file.", show_default=True)]

AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def _print_version(wanted: bool) -> None:
    from gateway.config.report import VERSION

    if wanted:
        typer.echo(VERSION)
        raise typer.Exit


@app.callback()
def every_command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def serve(
    config: ConfigOption = Path("config.yaml"),
    host: Annotated[str | None, typer.Option(help="Listen here instead of server.host.")] = None,
    port: Annotated[int | None, typer.Option(help="Listen here instead of server.port.", min=0, max=65535)] = None,
) -> None:
    """Serve the page and the channels until Ctrl-C or SIGTERM."""
    from gateway import logs
    from gateway.config.report import greeting
    from gateway.gateway import Gateway
    from gateway.reload import Reload
    from gateway.scrubber import Scrubber, secrets_of
    from gateway.serve import AddressInUse, harden, listen, run
    from gateway.store.migrate import DatabaseUnusable
    from gateway.store.opening import open_store
    from gateway.store.store import StoreUnavailable

    loaded = _load(config)
    server = loaded.config.server
    host, port = host or server.host, server.port if port is None else port
    settings = loaded.listening(host, port).config
    if reason := settings.server.exposure:
        _fail(reason, code=2)
    scrubber = Scrubber()

    def log_as_in(current: "Config") -> None:
        scrubber.learn(secrets_of(current))
        logs.configure(level=current.logging.level, output=current.logging.format, scrubber=scrubber)

    log_as_in(settings)
    sys.excepthook = logs.crashed
    harden()
    try:
        listener = listen(host, port)
        gateway = Gateway(settings, loaded.environment, store=open_store(settings.database), scrubber=scrubber)
    except (AddressInUse, DatabaseUnusable, OSError) as error:
        _fail(str(error))
    for line in greeting(loaded.listening(host, listener.getsockname()[1]), link=gateway.offer_link()):
        typer.echo(line, err=True)
    try:
        run(gateway, listener, Reload(gateway, config, environment(), loaded, applied=log_as_in))
    except StoreUnavailable as error:
        _fail(f"database.url: {error}")


@app.command()
def check(
    config: ConfigOption = Path("config.yaml"),
    online: Annotated[
        bool, typer.Option("--online", help="Also try what it stands on, as `doctor` does: platforms, providers, disk.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the config file: every mistake on a line of its own, exit code 1 if there is one."""
    from gateway.config.report import report

    if as_json:
        _examine(config, lambda probe: online or probe == "config", as_json=True)
        return
    loaded = _load(config)
    for line in report(loaded):
        typer.echo(line)
    if reason := loaded.config.server.exposure:
        _fail(reason, code=2)
    typer.echo(f"{config}: ok")
    if online:
        _examine(config, lambda probe: probe != "config", as_json=False)


@app.command()
def doctor(config: ConfigOption = Path("config.yaml"), as_json: AsJson = False) -> None:
    """Try what the gateway stands on, also while it serves: credentials, scopes, webhooks, keys, models, clock, database,
    disk, folders, sandbox. Each finding with its fix; exit code 1 if there is an error. Nothing is sent to anybody."""
    _examine(config, bool, as_json=as_json)


def _examine(path: Path, wanted: Callable[[str], bool], *, as_json: bool) -> None:
    import asyncio

    from gateway import doctor, logs
    from gateway.config.load import load
    from gateway.config.problems import ConfigErrors
    from gateway.scrubber import Scrubber, secrets_of

    scrubber = Scrubber()
    logs.configure(level="error", output="console", scrubber=scrubber)
    try:
        loaded = load(path, environment())
    except ConfigErrors as errors:
        findings = doctor.misread(errors.problems)
    else:
        scrubber.learn(secrets_of(loaded.config))
        findings = asyncio.run(doctor.examine(loaded, wanted=wanted))
    for line in [doctor.as_json(findings)] if as_json else doctor.lines(findings):
        typer.echo(line)
    if any(it.status == "error" for it in findings):
        raise typer.Exit(1)


@routes_app.callback()
def routes() -> None:
    """Which agent answers what, and why."""


@routes_app.command("explain")
def explain_route(
    channel: Annotated[str, typer.Option(help="Such as feishu, telegram or web.")],
    account: Annotated[str, typer.Option(help="The account on the channel.")] = "default",
    chat: Annotated[str | None, typer.Option(help="The id of the chat; of a direct one the sender will do.")] = None,
    chat_type: Annotated[
        Literal["direct", "group"] | None, typer.Option(help="Where unset, a chat that is not the sender is a group.")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="The id of a topic inside the chat.")] = None,
    sender: Annotated[str | None, typer.Option(help="The id of who writes; where unset, somebody on no list.")] = None,
    config: ConfigOption = Path("config.yaml"),
    as_json: AsJson = False,
) -> None:
    """What would become of a message: agent, session, binding, access, model, tools and skills, and why."""
    import json
    import time

    from gateway import routes
    from gateway.store.migrate import DatabaseUnusable

    loaded = _load(config)
    try:
        context = routes.message_to(loaded.config, channel, account, chat, chat_type, thread, sender)
        found = routes.explained(loaded, context, time.time())
    except (DatabaseUnusable, routes.NoSuchPlace) as error:
        _fail(str(error))
    for line in [json.dumps(routes.as_json(found), ensure_ascii=False, indent=2)] if as_json else routes.lines(found):
        typer.echo(line)


@app.command("letters", hidden=True)  # its name in earlier versions
@dead_letters_app.command("list")
def list_dead_letters(as_json: AsJson = False, config: ConfigOption = Path("config.yaml")) -> None:
    """List the dead letters, oldest first."""
    import json
    from dataclasses import asdict
    from datetime import UTC, datetime

    from gateway.store.dead_letters import dead_letters
    from gateway.store.migrate import DatabaseUnusable

    try:
        found = dead_letters(_load(config).config.database)
    except DatabaseUnusable as error:
        _fail(str(error))
    times = [datetime.fromtimestamp(it.at, tz=UTC).isoformat(timespec="seconds") for it in found]
    if as_json:
        facts = [{"name": it.name} | asdict(it) | {"at": at} for it, at in zip(found, times, strict=True)]
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    for it, at in zip(found, times, strict=True):
        doubt = f", {it.ambiguous} of them may have arrived" if it.ambiguous else ""
        typer.echo(f"{it.name}  {at}  {it.session}  attempts {it.attempts}{doubt}  {it.reason}".rstrip())
    typer.echo(f"{len(found)} dead letter{'' if len(found) == 1 else 's'}", err=True)


@app.command("replay", hidden=True)
@dead_letters_app.command("replay")
def replay_dead_letters(
    names: Annotated[
        list[str] | None, typer.Argument(help="Dead letters as `list` names them: message-12 part-7.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    config: ConfigOption = Path("config.yaml"),
) -> None:
    """Give dead letters another chance; a running gateway takes them up within seconds."""
    from gateway.store.dead_letters import dead_letters, replay
    from gateway.store.migrate import DatabaseUnusable

    if bool(names) == everything:
        _fail("name what to replay, such as part-7 (see `dead-letters list`), or say --all")
    database = _load(config).config.database
    try:
        wanted = [it.name for it in dead_letters(database)] if everything else list(names or [])
        replayed = replay(database, wanted)
    except DatabaseUnusable as error:
        _fail(str(error))
    for name in replayed:
        typer.echo(f"{name}: queued again")
    if missing := [name for name in wanted if name not in replayed]:
        _fail(f"no dead letter: {', '.join(missing)} — `dead-letters list` shows them")


@sessions_app.command("list")
def list_sessions(
    as_json: AsJson = False,
    config: ConfigOption = Path("config.yaml"),
) -> None:
    """List the sessions, the one that was last active at the end."""
    import json

    from gateway.sessions import listed, summary
    from gateway.store.migrate import DatabaseUnusable

    loaded = _load(config).config
    try:
        found = [summary(it, loaded.server.zone) for it in listed(loaded)]
    except DatabaseUnusable as error:
        _fail(str(error))
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=2))
        return
    for it in found:
        within = "".join(f" {name} {it[name]}" for name in ("thread", "sender") if it[name] is not None)
        chat = f"{it['agent']}  {it['channel']}:{it['account']}:{it['chat']}{within}"
        typer.echo(f"{it['id']}  {it['last']}  {chat}  turns {it['turns']}  tokens {it['tokens']}")
    typer.echo(f"{len(found)} session{'' if len(found) == 1 else 's'}", err=True)


@sessions_app.command("show")
def show_session(name: SessionId, as_json: AsJson = False, config: ConfigOption = Path("config.yaml")) -> None:
    """Print a session: who wrote what and when, and which tools were called."""
    _export(name, "json" if as_json else "md", config)


@sessions_app.command("export")
def export_session(
    name: SessionId,
    form: Annotated[
        Literal["md", "json"], typer.Option("--format", help="md is to be read; json has every row as it is kept.")
    ] = "md",
    config: ConfigOption = Path("config.yaml"),
) -> None:
    """Write a session to standard output: `sessions export ID --format md > session.md`."""
    _export(name, form, config)


def _export(name: str, form: str, config: Path) -> None:
    from gateway.sessions import exported, found, markdown
    from gateway.store.migrate import DatabaseUnusable

    loaded = _load(config).config
    try:
        it = found(loaded, name)
    except DatabaseUnusable as error:
        _fail(str(error))
    if it is None:
        _fail(f"no session: {name} — `sessions list` shows them")
    session, entries, marks = it
    if form == "json":
        typer.echo(exported(session, entries, marks, loaded.server.zone))
    else:
        typer.echo("\n".join(markdown(session, entries, loaded.server.zone)))


@sessions_app.command("erase")
def erase_sessions(
    name: Annotated[str | None, typer.Argument(metavar="ID", help="A session, as `sessions list` names it.")] = None,
    person: Annotated[
        str | None,
        typer.Option(metavar="CHANNEL:ID", help="All of a person, such as feishu:ou_…: /whoami prints it."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = Path("config.yaml"),
) -> None:
    """Remove a session, or all that is kept of a person, for good: messages, answers, files. Nothing brings it back."""
    from gateway.sessions import StillAnswered, erase, listed, portions
    from gateway.store.migrate import DatabaseUnusable

    channel, _, who = (person or "").partition(":")
    if (name is None) == (person is None) or (person is not None and not (channel and who)):
        _fail("say what to erase: a session's ID (see `sessions list`), or --person channel:id, such as feishu:ou_…")
    loaded = _load(config).config
    wanted = (channel, who) if person else None
    try:
        session = next((it for it in listed(loaded) if it.id == name), None)
        if name is not None and session is None:
            _fail(f"no session: {name} — `sessions list` shows them")
        meant = portions(loaded, session=session, person=wanted)
        for it in meant:
            what = "" if it.all_between else ", what answers this person"
            typer.echo(f"{it.sid}{what}: {len(it.numbers)} turns and commands", err=True)
        if not yes and not typer.confirm("Erase this for good?", err=True):
            _fail("nothing was erased")
        erased = erase(loaded, session=session, person=wanted)
    except (DatabaseUnusable, StillAnswered, OSError) as error:
        _fail(str(error))
    counts = ", ".join(f"{table} {count}" for table, count in sorted(erased.removed.items()))
    typer.echo(f"erased: {counts or 'nothing, since nothing is kept'}")
    for path in erased.emptied:
        typer.echo(f"emptied: {path}")
    for path in erased.left:
        typer.echo(f"not touched: {path} — look there for what the agent wrote")


@pairing_app.command("list")
def list_contacts(
    as_json: AsJson = False,
    config: ConfigOption = Path("config.yaml"),
) -> None:
    """List who waits with a code, and who may write."""
    import json

    from gateway.contacts import lines, listed

    _contacts(lambda it: [json.dumps(listed(it), indent=2)] if as_json else lines(listed(it)), config)


@pairing_app.command("approve")
def approve_contact(
    who: Annotated[str, typer.Argument(metavar="CODE", help="The code that they were given; or channel:id.")],
    config: ConfigOption = Path("config.yaml"),
) -> None:
    """Let somebody write to the bot, on all replicas from now on. They are notified within seconds."""
    from gateway.contacts import approve

    _contacts(lambda it: approve(it, who), config)


@pairing_app.command("revoke")
def revoke_contact(
    who: Annotated[str, typer.Argument(metavar="CHANNEL:ID", help="Such as feishu:ou_…, or telegram:ACCOUNT:123456.")],
    config: ConfigOption = Path("config.yaml"),
) -> None:
    """Take the permission back, from the next message on. What is in allowFrom and owners stays as it is."""
    from gateway.contacts import revoke

    _contacts(lambda it: revoke(it, who), config)


def _contacts(work: Callable[["Config"], Iterable[str]], config: Path) -> None:
    from gateway.contacts import UnknownContact
    from gateway.store.migrate import DatabaseUnusable

    try:
        for line in work(_load(config).config):
            typer.echo(line)
    except (DatabaseUnusable, UnknownContact) as error:
        _fail(str(error))


@approvals_app.command("list")
def list_approvals(
    as_json: AsJson = False,
    config: ConfigOption = Path("config.yaml"),
) -> None:
    """List what waits for a decision, and what was allowed for good, oldest first."""
    import json
    import time

    from gateway.approvals.report import facts, line
    from gateway.store.approvals import listed
    from gateway.store.migrate import DatabaseUnusable
    from gateway.store.opening import connected

    loaded = _load(config).config
    try:
        with connected(loaded.database) as connection:
            waiting, grants = listed(connection, time.time())
    except DatabaseUnusable as error:
        _fail(str(error))
    found = [facts(it, loaded.server.zone) for it in waiting] + [facts(it, loaded.server.zone) for it in grants]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for it in found:
        typer.echo(line(it))
    typer.echo(f"{len(waiting)} waiting, {len(grants)} allowed for good", err=True)


@approvals_app.command("revoke")
def revoke_approvals(
    name: Annotated[str | None, typer.Argument(metavar="ID", help="A grant or a request, as `list` names it.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that was allowed for good.")] = False,
    config: ConfigOption = Path("config.yaml"),
) -> None:
    """End what was allowed for good, or cancel a request that waits; a running gateway heeds it at once."""
    import time

    from gateway.approvals.approvals import id_of
    from gateway.store.approvals import revoke
    from gateway.store.migrate import DatabaseUnusable
    from gateway.store.opening import connected

    if (name is None) != everything:
        _fail("name what to revoke, such as K7QF-2M9X-D3TA (see `approvals list`), or say --all")
    try:
        with connected(_load(config).config.database) as connection:
            revoked = revoke(connection, None if name is None else id_of(name), by="command line", at=time.time())
    except DatabaseUnusable as error:
        _fail(str(error))
    for it in revoked:
        typer.echo(f"{it}: revoked")
    if name is not None and not revoked:
        _fail(f"nothing to revoke: {name} — `approvals list` shows what there is")


def _load(path: Path) -> "Loaded":
    from gateway.config.load import load
    from gateway.config.problems import ConfigErrors

    try:
        return load(path, environment())
    except ConfigErrors as errors:
        for problem in errors.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(1) from None


def _fail(message: str, code: int = 1) -> NoReturn:
    typer.echo(message, err=True)
    sys.exit(code)


def environment() -> Mapping[str, str]:
    """A copy of the environment as it is now; undecodable bytes are replaced, so that every value is text."""
    return {name: value.encode(errors="surrogateescape").decode(errors="replace") for name, value in os.environ.items()}
