"""The portions of sessions that erasing removes: which turns and messages they are, found before anything is deleted.

A number is the inbox's and is never reused, so it names a turn in every table.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import Connection

from gateway.records.sessions import all_beside, conversation, session_parts
from gateway.store.statements import NEVER, WAITS
from gateway.store.tasks import children_of
from gateway.store.writer import run

_SPAN = "sid IN :sids AND {0} > :after AND {0} <= :until"
_IS_COPY = """EXISTS (
    SELECT 1 FROM spoken e WHERE e.sid = s.sid AND e.message = s.message AND e.turn <= :after AND e.parts > 0
)"""
_MESSAGES = f"SELECT s.message FROM spoken s WHERE {_SPAN.format('s.turn')} AND s.parts > 0 AND NOT {_IS_COPY}"
"""The messages of some turns; not those that they answer once more."""
_AGAIN = f"""
SELECT DISTINCT turn FROM spoken WHERE sid = :sid AND turn > :until AND parts > 0 AND message <> ''
AND message IN ({_MESSAGES.replace("sid IN :sids", "s.sid = :sid")})
"""
"""The later turns that answer one of these messages once more, such as together with its neighbour on another branch."""
_SAID = "SELECT sid, turn, message, direct FROM spoken WHERE person = :person AND how <> 'heard'"
_SENT = "SELECT id, sid, turn, body FROM inbox WHERE person = :person"
_COPIES = "SELECT id, sid, turn, body FROM inbox WHERE sid IN :sids AND again IS NOT NULL AND body LIKE :named"


@dataclass(kw_only=True, slots=True)
class Portion:
    """The part of a session to erase: turns by number and messages by id. `all_between`: every turn above one and up to
    another, with settings and summaries; None for one person's messages in a group. `again` are later turns that
    answer its messages once more. `direct`: only that person speaks there. `whole`: nothing is left there afterwards."""

    sid: str
    numbers: set[int] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)
    all_between: tuple[int, int] | None = None
    again: Sequence[int] = ()
    direct: bool = False
    whole: bool = False

    @property
    def sids(self) -> list[str]:
        return [self.sid, *all_beside(self.sid)]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Its turns that go whole, each from above one number up to another."""
        return [*([self.all_between] if self.all_between else ()), *((it - 1, it) for it in self.again)]


def spans_of(connection: Connection, sid: str, after: int, until: int | None) -> list[Portion]:
    """All of a session between two turns, with the later ones that answer its messages once more, and of the tasks that
    were asked for in them."""
    last = NEVER if until is None else until
    again = list(run(connection, _AGAIN, sid=sid, after=after, until=last).scalars())
    own = Portion(sid=sid, all_between=(after, last), again=again)
    asked = [it for span in own.spans for it in children_of(connection, sid, *span)]
    portions = [own, *(Portion(sid=it, all_between=(-1, NEVER)) for it in asked)]
    for portion in portions:
        _fill(connection, portion)
    return portions


def portions_of(connection: Connection, channel: str, person: str) -> list[Portion]:
    """Finds everything of a person: their own sessions, and the turns in groups that answer them."""
    portions: dict[str, Portion] = {}
    named, who = f'%"id":{orjson.dumps(person).decode()}%', f"{channel}:{person}"

    def found(row: Any, numbers: Iterable[int], message: str, direct: bool) -> None:
        sid = conversation(row.sid)
        portion = portions.setdefault(sid, Portion(sid=sid))
        portion.numbers.update(numbers)
        portion.messages |= {message} - {""}
        portion.direct = portion.direct or direct

    for row in run(connection, _SAID, person=who):
        found(row, [row.turn], row.message, bool(row.direct))
    sent = run(connection, _SENT, person=who).all()
    sids = {*portions, *(row.sid for row in sent)}
    sids |= {beside for it in sids for beside in all_beside(conversation(it))}
    for row in (*sent, *run(connection, _COPIES, sids=sorted(sids), named=named)):
        body = orjson.loads(row.body) if row.body else {"context": {"chat": {}}}
        context = body["context"]
        if row in sent or person in [it["sender"]["id"] for it in (context, *body.get("together", ()))]:
            found(
                row,
                {row.id, row.turn or row.id},
                context.get("message_id", ""),
                context["chat"].get("kind") == "direct",
            )
    for portion in portions.values():
        if portion.direct or session_parts(portion.sid).sender == person:
            portion.all_between = (-1, NEVER)
        _fill(connection, portion)
    return list(portions.values())


def _fill(connection: Connection, portion: Portion) -> None:
    for after, until in portion.spans:
        names = {"sids": portion.sids, "after": after, "until": until}
        turns = run(connection, f"SELECT DISTINCT turn FROM transcript WHERE {_SPAN.format('turn')}", **names)
        portion.numbers.update(turns.scalars())
        portion.messages.update(run(connection, _MESSAGES, **names).scalars())
        ended, waits = (f"SELECT id, body FROM inbox WHERE {_SPAN.format('id')} AND {it} {WAITS}" for it in ("NOT", ""))
        for row in run(connection, f"{ended} UNION ALL {waits}", **names):
            portion.numbers.add(row.id)
            with suppress(orjson.JSONDecodeError):
                portion.messages.add(orjson.loads(row.body)["context"]["message_id"])
    kept = run(connection, "SELECT DISTINCT turn FROM transcript WHERE sid = :sid", sid=portion.sid).scalars()
    waiting = run(connection, f"SELECT id FROM inbox WHERE sid = :sid AND {WAITS}", sid=portion.sid).scalars()
    portion.whole = {*kept, *waiting} <= portion.numbers
