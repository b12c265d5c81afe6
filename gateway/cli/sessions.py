"""`sessions list | show | export | erase`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gateway.cli.options import CONFIG, AsJson, ConfigOption, Yes, load, number_of
from gateway.observe.terminal import confirm, escaped, print_list, print_text
from gateway.program import OperatorError

sessions_app = typer.Typer(
    no_args_is_help=True,
    help="What is kept of conversations: to be listed, read, exported and erased, also while the gateway serves.",
)
NO_SESSION = "no session: {} — `sessions list` shows them"
SessionId = Annotated[str, typer.Argument(metavar="ID", help="A session, as `sessions list` names it.")]


@sessions_app.command("list")
def list_sessions(as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """List the sessions, the last active one at the end."""
    from gateway.operate.sessions import listed, summary

    loaded = load(config, stored=True).config
    sessions = [summary(it, loaded.server.zone) for it in listed(loaded)]

    def line(it: dict[str, Any]) -> str:
        within = "".join(f" {name} {it[name]}" for name in ("thread", "sender") if it[name] is not None)
        chat = f"{it['agent']}  {it['channel']}:{it['account']}:{it['chat']}{within}"
        return f"{it['id']}  {it['last']}  {chat}  turns {it['turns']}  tokens {it['tokens']}"

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
