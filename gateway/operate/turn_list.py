"""The list of turns, for the operator: each as its row, the journal's last one and the inbox tell it."""

from collections.abc import Mapping
from datetime import tzinfo

import orjson

from channels.moment import iso
from gateway.operate.turn_layers import TurnList, TurnSummary, TurnTokens
from gateway.records.inbound import Inbound, inbound_of, is_readable
from gateway.records.sessions import person_of, session_parts
from gateway.store.layers import FILTERS, TURNS_MAX, DatabaseLayers, ListedTurn

PREVIEW_CHARS = 200


async def turn_list(
    layers: DatabaseLayers, *, before: int | None, only: Mapping[str, str], zone: tzinfo, keep_days: float
) -> TurnList:
    """The newest turns below `before` that are as `only` says: agent, channel, person, outcome."""
    only = {name: only[name] for name in FILTERS if only.get(name)}
    is_open = only.get("outcome") in ("waiting", "running")
    found = [] if is_open else await layers.listed(before=before, only=only)
    unfinished = await layers.unfinished() if before is None and (is_open or "outcome" not in only) else []
    turns = [it for it in (summary(it, zone) for it in unfinished) if _is_meant(it, only)]
    turns += [summary(it, zone) for it in found]
    return TurnList(turns=tuple(turns), before=found[-1].turn if len(found) == TURNS_MAX else None, keep_days=keep_days)


def _is_meant(turn: TurnSummary, only: Mapping[str, str]) -> bool:
    return all(getattr(turn, name) == wanted for name, wanted in only.items())


def summary(turn: ListedTurn, zone: tzinfo) -> TurnSummary:
    place, final = session_parts(turn.sid), orjson.loads(turn.final) if turn.final else {}
    inbound = read_inbound(turn.body or "")
    ended = turn.at if turn.outcome else None
    accepted = turn.accepted or ended or 0.0
    tokens = final.get("tokens") or {}
    return TurnSummary(
        id=turn.turn,
        session=turn.sid,
        agent=place.agent,
        channel=place.channel,
        account=place.account,
        chat=place.chat,
        thread=place.thread,
        person=turn.person or (person_of(inbound.context) if inbound and inbound.context.sender.id else ""),
        name=turn.name or (inbound.context.sender.name or "" if inbound else ""),
        text=inbound.context.text[:PREVIEW_CHARS] if inbound else "",
        outcome=turn.outcome or ("running" if turn.begun else "waiting"),
        reason=final.get("reason", ""),
        at=iso(accepted, zone),
        seconds=None if ended is None or turn.accepted is None else round(ended - turn.accepted, 3),
        model=next(reversed(final.get("models") or {"": None})),
        requests=final.get("requests", 0),
        calls=len(orjson.loads(turn.content).get("calls", ())),
        tokens=TurnTokens(**tokens),
        cost=final.get("cost"),
    )


def read_inbound(body: str) -> Inbound | None:
    return inbound_of(body) if body and is_readable(body) else None
