"""The command line. Each command imports what it needs when it runs; errors are one line each, exit code 1."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

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

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The config file.", show_default=True)]


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
    from gateway.serve import AddressInUse, listen, run
    from gateway.store.migrate import DatabaseUnusable
    from gateway.store.opening import open_store
    from gateway.store.store import StoreUnavailable

    loaded = _load(config)
    server = loaded.config.server
    host, port = host or server.host, server.port if port is None else port
    settings = loaded.listening(host, port).config
    secrets: set[str] = set()

    def log_as_in(current: "Config") -> None:
        """What was a secret stays one: it may still be in what is logged."""
        secrets.update(logs.secrets_of(current), logs.secrets_of(current.database.password))
        logs.configure(level=current.logging.level, output=current.logging.format, secrets=secrets)

    log_as_in(settings)
    try:
        listener = listen(host, port)
        gateway = Gateway(settings, loaded.environment, store=open_store(settings.database))
    except (AddressInUse, DatabaseUnusable, OSError) as error:
        _fail(str(error))
    for line in greeting(loaded.listening(host, listener.getsockname()[1]), link=gateway.offer_link()):
        typer.echo(line, err=True)
    try:
        run(gateway, listener, Reload(gateway, config, environment(), loaded, applied=log_as_in))
    except StoreUnavailable as error:
        _fail(f"database.url: {error}")


@app.command()
def check(config: ConfigOption = Path("config.yaml")) -> None:
    """Check the config file: every mistake on a line of its own, exit code 1 if there is one."""
    from gateway.config.report import report

    for line in report(_load(config)):
        typer.echo(line)
    typer.echo(f"{config}: ok")


@app.command("letters", hidden=True)  # its name in earlier versions
@dead_letters_app.command("list")
def list_dead_letters(config: ConfigOption = Path("config.yaml")) -> None:
    """List the dead letters, oldest first."""
    from datetime import UTC, datetime

    from gateway.store.dead_letters import dead_letters
    from gateway.store.migrate import DatabaseUnusable

    try:
        found = dead_letters(_load(config).config.database)
    except DatabaseUnusable as error:
        _fail(str(error))
    for it in found:
        at = datetime.fromtimestamp(it.at, tz=UTC).isoformat(timespec="seconds")
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


def _load(path: Path) -> "Loaded":
    from gateway.config.load import load
    from gateway.config.problems import ConfigErrors

    try:
        return load(path, environment())
    except ConfigErrors as errors:
        for problem in errors.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(1) from None


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    sys.exit(1)


def environment() -> Mapping[str, str]:
    """A copy of the environment as it is now; undecodable bytes are replaced, so that every value is text."""
    return {name: value.encode(errors="surrogateescape").decode(errors="replace") for name, value in os.environ.items()}
