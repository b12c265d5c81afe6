"""The command line, a file for each group of commands. Each command imports what it needs when it runs; errors are one line
each, exit code 1, or 2 for what must not be open to the network."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gateway.cli import chat, checks, operator, start
from gateway.cli.mcp import mcp_app
from gateway.cli.operator import (
    approvals_app,
    backup,
    pairing_app,
    restore,
    schedules_app,
    sessions_app,
    skills_app,
    usage,
)
from gateway.cli.options import terminal_language
from gateway.cli.rehearse import rehearse
from gateway.cli.send import send
from gateway.cli.service import service_app
from gateway.cli.turns import feedback, turns_app
from gateway.observe.terminal import print_text
from gateway.program import COMMAND, OperatorError, program


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OperatorError as error:
            print_text(error.text(terminal_language()), err=True)
            raise typer.Exit(error.code) from None


app = typer.Typer(
    cls=_Commands,
    add_completion=program() == COMMAND,  # a shell completes the words of a command, not of a module
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Clawgate: a small, durable gateway between chat channels and model agents. Without a command it serves "
    "./config.yaml, in a clone bot/config.yaml, and writes one first if there is none.",
)
for command in (
    start.init,
    start.serve,
    chat.chat,
    send,
    checks.check,
    checks.status,
    usage,
    checks.doctor,
    rehearse,
    feedback,
    backup,
    restore,
):
    app.command()(command)
app.add_typer(service_app, name="service")
app.add_typer(checks.routes_app, name="routes")
app.add_typer(sessions_app, name="sessions")
app.add_typer(schedules_app, name="schedules")
app.add_typer(turns_app, name="turns")
app.add_typer(pairing_app, name="pairing")
app.add_typer(approvals_app, name="approvals")
app.add_typer(mcp_app, name="mcp")
app.add_typer(operator.dead_letters_app, name="dead-letters")
app.add_typer(skills_app, name="skills")
app.command("letters", hidden=True)(operator.list_dead_letters)  # its name in earlier versions
app.command("replay", hidden=True)(operator.replay_dead_letters)


def _print_version(wanted: bool) -> None:
    from gateway.program import VERSION

    if wanted:
        print_text(VERSION)
        raise typer.Exit


@app.callback()
def every_command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        start.start()
