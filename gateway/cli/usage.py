"""`usage`: tokens and money of the turns that are kept."""

from typing import Annotated, Literal

import typer

from gateway.cli.options import CONFIG, AsJson, ConfigOption, language, load
from gateway.observe.terminal import print_json, print_text
from gateway.program import OperatorError


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
