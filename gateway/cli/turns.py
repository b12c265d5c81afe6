"""`turns list | show`: what happened in each turn, layer by layer."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.options import CONFIG, AsJson, ConfigOption, Feedback, language, load, number_of
from gateway.observe.terminal import print_json, print_list, print_text
from gateway.program import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.root import Config
    from gateway.store.layers import DatabaseLayers

turns_app = typer.Typer(
    no_args_is_help=True,
    help="Each turn layer by layer: event, route, prompt, requests, tool calls and reply; also while the gateway serves.",
)


@turns_app.command("list")
def list_turns(
    agent: Annotated[str, typer.Option(help="Only turns of this agent.")] = "",
    channel: Annotated[str, typer.Option(help="Only turns of this channel, such as feishu.")] = "",
    person: Annotated[str, typer.Option(help="Only turns that answer this person, as channel:id.")] = "",
    outcome: Annotated[str, typer.Option(help="Only turns that ended so, such as failed; or running, waiting.")] = "",
    feedback: Annotated[Feedback | None, typer.Option(help="Only turns that people rated so.")] = None,
    before: Annotated[int, typer.Option(help="Only turns with a smaller number: the next page.", min=0)] = 0,
    as_json: AsJson = False,
    config: ConfigOption = CONFIG,
) -> None:
    """List the newest 50 turns, the newest at the end."""
    import asyncio

    from gateway.commands.report import CHINESE as OUTCOMES
    from gateway.operate.turns import scrubbed, turn_list

    loaded, spoken = load(config, stored=True).config, language(config)
    only = {"agent": agent, "channel": channel, "person": person, "outcome": outcome, "feedback": feedback or ""}
    page = asyncio.run(turn_list(_layers(loaded), before=before or None, only=only, config=loaded))
    turns = scrubbed(page, _scrub(loaded))["turns"][::-1]

    def line(it: dict[str, Any]) -> str:
        took = "" if it["seconds"] is None else f"  {it['seconds']:.1f} {'秒' if spoken == 'zh' else 's'}"
        outcome = OUTCOMES.get(it["outcome"], it["outcome"]) if spoken == "zh" else it["outcome"]
        cost = "" if it["cost"] is None else f"  {loaded.money(it['cost'])}"
        words = " ".join(it["text"].split())[:60]
        return f"{it['id']}  {it['at']}  {it['agent']}  {it['person'] or '-'}  {outcome}{took}{cost}  {words}"

    print_list(turns, line, number_of(turns, "turn", "轮", spoken), as_json=as_json)


@turns_app.command("show")
def show_turn(
    number: Annotated[int, typer.Argument(metavar="ID", help="A turn, as `turns list` numbers it.")],
    as_json: AsJson = False,
    config: ConfigOption = CONFIG,
) -> None:
    """Print one turn, layer by layer; --json has every text whole."""
    import asyncio

    from gateway.operate.turns import lines, record_of, scrubbed

    loaded = load(config, stored=True).config
    turn = asyncio.run(record_of(_layers(loaded), number, loaded))
    if turn is None:
        raise OperatorError(f"no turn: {number} — `turns list` shows them")
    shown = scrubbed(turn, _scrub(loaded))
    if as_json:
        print_json(shown)
    else:
        print_text("\n".join(lines(shown, loaded.money)))


def feedback(
    since: Annotated[str, typer.Option(help="How far back, such as 30d or 12h.")] = "30d",
    as_json: AsJson = False,
    config: ConfigOption = CONFIG,
) -> None:
    """List how people rated answers: by a reaction, or by /good and /bad; the newest at the end."""
    import asyncio
    import time

    from channels.moment import iso
    from gateway.store.chatter import DatabaseChatter
    from gateway.store.opening import offline

    match = re.fullmatch(r"(\d{1,5})([hd])", since)
    if match is None:
        raise OperatorError(f"--since {since}: expected hours or days, such as 12h or 30d")
    loaded = load(config, stored=True).config
    run = offline(loaded.database)
    seconds = int(match[1]) * (86_400.0 if match[2] == "d" else 3_600.0)
    ratings = asyncio.run(DatabaseChatter(read=run, write=run).feedback(time.time() - seconds))[::-1]
    zone, scrub = loaded.server.zone, _scrub(loaded)
    rows = [
        {
            "turn": it.turn,
            "at": iso(it.at, zone),
            "feedback": it.verdict,
            "person": it.by,
            "agent": it.agent,
            "models": list(it.models),
            "prompt": it.prompt,
            "why": scrub(it.why),
        }
        for it in ratings
    ]

    def line(it: dict[str, Any]) -> str:
        models = ", ".join(it["models"]) or "-"
        why = f"  {' '.join(it['why'].split())[:200]}" if it["why"] else ""
        return f"{it['turn']}  {it['at']}  {it['feedback']}  {it['person']}  {it['agent'] or '-'}  {models}{why}"

    bad = sum(it.verdict == "bad" for it in ratings)
    counts = f"👍 {len(ratings) - bad}  👎 {bad}"
    print_list(rows, line, counts, as_json=as_json)


def _layers(config: "Config") -> "DatabaseLayers":
    from gateway.store.layers import DatabaseLayers
    from gateway.store.opening import offline

    run = offline(config.database)
    return DatabaseLayers(read=run, write=run)


def _scrub(config: "Config") -> "Callable[[str], str]":
    from gateway.observe.secrets import Scrubber, secrets_of

    return Scrubber(secrets_of(config)).scrub
