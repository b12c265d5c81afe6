"""`rehearse`: replay past turns with another config before it takes effect."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import CONFIG, AsJson, ConfigOption, Feedback, Yes, language, load, load_file, of_this_folder
from gateway.observe.terminal import confirm, print_json, print_text
from gateway.program import OperatorError

if TYPE_CHECKING:
    from agents.language import Language
    from gateway.config.load import Loaded
    from gateway.config.root import Config
    from gateway.observe.secrets import Scrubber
    from gateway.rehearse.kept import Picked
    from gateway.rehearse.rehearsal import Rehearsed


def rehearse(
    config: ConfigOption = CONFIG,
    in_force: Annotated[
        Path,
        typer.Option(
            help="The config in force: its database has the turns. Without one, it is that of --config.",
            callback=of_this_folder,
        ),
    ] = CONFIG,
    last: Annotated[int, typer.Option(help="The number of turns, from the newest back.", min=1, max=1000)] = 50,
    agent: Annotated[str, typer.Option(help="Only turns of this agent.")] = "",
    feedback: Annotated[Feedback | None, typer.Option(help="Only turns that people rated so.")] = None,
    turn: Annotated[
        list[int] | None, typer.Option(help="This turn, as `turns list` numbers it; may be repeated.", metavar="ID")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Ask no more once that has been spent, in the unit of the prices.", min=0.0)
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Replay past turns with another config and show the differences. The models are called and cost money; tools
    answer from the journal; nothing is sent or written. Exit code 0 if all turns are the same, 1 if not, 2 if it
    could not run."""
    import asyncio

    from gateway.observe import logs
    from gateway.observe.secrets import Scrubber, secrets_of
    from gateway.rehearse.kept import picked
    from gateway.store.layers import DatabaseLayers
    from gateway.store.opening import offline

    try:
        loaded = load_file(config)
        present = load(in_force).config if in_force != CONFIG or in_force.exists() else loaded.config
        scrubber = Scrubber((*secrets_of(loaded.config), *secrets_of(present)))
        logs.configure(level="error", output="console", scrubber=scrubber)
        read = offline(present.database, access="read")
        layers = DatabaseLayers(read=read, write=read)
        chosen = asyncio.run(picked(layers, last=last, agent=agent, feedback=feedback or "", numbers=turn or ()))
        _agree(chosen, loaded.config, language(config), yes=yes)
        results = asyncio.run(
            _rehearsed(chosen, loaded, present, scrubber, max_cost, None if as_json else language(config))
        )
    except OperatorError as error:
        error.code = 2
        raise
    if as_json:
        _print_json(chosen, results, loaded.config, scrubber)
    if any(it.verdict != "same" for it in results):
        raise typer.Exit(1)


def _agree(picked: "Picked", config: "Config", spoken: "Language", *, yes: bool) -> None:
    """Print what will be requested and ask for consent. Raises NotRehearsed."""
    from gateway.rehearse.kept import NotRehearsed
    from gateway.rehearse.report import NO_TURNS, forecast, skipped

    for line in skipped(picked, spoken):
        print_text(line, err=True)
    if not picked.turns:
        raise NotRehearsed(NO_TURNS(spoken))
    print_text(forecast(picked, config, spoken), err=True)
    agreed = yes
    if not yes:
        with suppress(typer.Abort):
            agreed = confirm("Ask the models?")
    if not agreed:
        raise NotRehearsed("nothing was asked — --yes agrees beforehand")


async def _rehearsed(
    picked: "Picked",
    loaded: "Loaded",
    present: "Config",
    scrubber: "Scrubber",
    most: float | None,
    spoken: "Language | None",
) -> "list[Rehearsed]":
    """Rehearses one turn after the other, and prints each in the language, if there is one."""
    from gateway.rehearse.rehearsal import opened
    from gateway.rehearse.report import lines, totals

    results = []
    async with opened(loaded, present, scrubber, most) as rehearsal:
        for kept in picked.turns:
            results.append(await rehearsal.run(kept))
            for line in lines(results[-1], loaded.config, spoken) if spoken else ():
                print_text(scrubber.scrub(line))
    if spoken:
        print_text(totals(picked, results, loaded.config, spoken))
    return results


def _print_json(picked: "Picked", results: "list[Rehearsed]", config: "Config", scrubber: "Scrubber") -> None:
    from gateway.operate.turns import cleaned
    from gateway.rehearse.report import as_json

    print_json(cleaned(as_json(picked, results, config), scrubber.scrub))
