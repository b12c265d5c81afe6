"""`schedules list | run | pause | cancel`."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.options import CONFIG, AsJson, ConfigOption, language, load, number_of
from gateway.observe.terminal import print_json, print_list, print_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.root import Config

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
    """Do it now, besides its times; a running gateway begins at once."""
    from gateway.operate.schedules import run

    _change(run, name, "due now", as_json, config)


@schedules_app.command("pause")
def pause_schedule(name: ScheduleId, as_json: AsJson = False, config: ConfigOption = CONFIG) -> None:
    """Pause it; the same again lets it go on, at its next time."""
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
