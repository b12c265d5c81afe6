"""The command line, a file for each group of commands. Each command imports what it needs when it runs; errors are one line
each, exit code 1, or 2 for what must not be open to the network."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gateway.cli import chat, dead_letters, init, serving
from gateway.cli.access import approvals_app, pairing_app
from gateway.cli.sessions import sessions_app
from gateway.fault import OperatorError


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OperatorError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(error.code) from None


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Clawgate: a small, durable gateway between chat channels and model agents.",
)
for command in (init.init, serving.serve, chat.chat, serving.check, serving.doctor):
    app.command()(command)
app.add_typer(serving.routes_app, name="routes")
app.add_typer(sessions_app, name="sessions")
app.add_typer(pairing_app, name="pairing")
app.add_typer(approvals_app, name="approvals")
app.add_typer(dead_letters.dead_letters_app, name="dead-letters")
app.command("letters", hidden=True)(dead_letters.list_dead_letters)  # its name in earlier versions
app.command("replay", hidden=True)(dead_letters.replay_dead_letters)


def _print_version(wanted: bool) -> None:
    from gateway.guard import VERSION

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
