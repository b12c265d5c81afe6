"""`dead-letters list | replay`."""

from typing import Annotated

import typer

from gateway.cli.options import CONFIG, AsJson, ConfigOption, load, number_of
from gateway.observe.terminal import print_list, print_text
from gateway.program import OperatorError

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
