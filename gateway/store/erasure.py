"""What erasing removes from the database, on either engine, in one transaction: the rows of turns, by their numbers.

Numbers are the inbox's and never come again, so one names a turn in every table. Of an inbox row its keys stay until they
expire, without whose it was: a redelivery is still recognised. Whoever erases has made sure that nobody works on the
sessions (`hold`); what was deleted is overwritten, and `scrub` leaves no copy of it in SQLite's file.
"""

import re
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import SQLAlchemyError

from agents.prompt.inbound import HEARD
from gateway.config.root import DatabaseConfig
from gateway.routing import control_session, conversation, place_of
from gateway.store import contacts, memory
from gateway.store.approvals import forget_approvals
from gateway.store.archive import UNSENT
from gateway.store.migrate import DatabaseUnusable
from gateway.store.statements import InboxStatus
from gateway.store.store import CHOICE, NOTIFY_CHANNEL
from gateway.store.writer import is_shared, run

NEVER = 2**62
ROWS_AT_ONCE = 500
SCRUB_SECONDS = 60.0
UNSCRUBBED = """{file}: all of it was removed, but the file could not be written anew ({reason}): \
copies may be left in its free pages. Then type: sqlite3 {file} 'VACUUM; PRAGMA wal_checkpoint(TRUNCATE)'"""
_BLOCK = r"^{} \(untrusted metadata\):\n```json\n(.*)\n```$"
_INFO, _QUOTE, _HEARD = (
    re.compile(_BLOCK.format(it), re.MULTILINE) for it in ("Conversation info", "Replied message", HEARD)
)
_IN_SPAN = "sid IN :sids AND {0} > :after AND {0} <= :until"
_NUMBERS = " UNION ".join(
    f"SELECT {column} AS number FROM {table} WHERE {_IN_SPAN.format(column)}"
    for table, column in (("transcript", "turn"), ("inbox", "id"), ("outbox", "turn"))
)
_SPOKEN = "SELECT sid, seq, turn, content FROM transcript WHERE kind IN ('user', 'steered')"
_FORGET = f"""
UPDATE inbox SET body = '', sid = '', sender = NULL, turn = NULL, status = {InboxStatus.OVERFLOW:d} WHERE id IN :numbers
"""
_STOP = """
UPDATE session SET stopped = COALESCE((SELECT max(id) + 1 FROM inbox WHERE sid = session.id AND status = 0), stopped)
WHERE id IN :sids
"""
_SETTLE = """
UPDATE session SET owner = NULL,
    pending = (SELECT count(*) FROM inbox WHERE inbox.sid = session.id AND inbox.status = 0)
WHERE id IN :sids
"""
_ERASED = """
INSERT INTO mark (sid, kind, turn, content, at) VALUES (:sid, 'erased', 0, :content, :at)
ON CONFLICT (sid, kind, turn) DO UPDATE SET content = excluded.content
"""


@dataclass(kw_only=True, slots=True)
class Portion:
    """What goes of one session key: turns, by number, and the messages that are meant, by id. `all_between`: everything
    behind one turn and up to another, settings and summaries included; else what one person wrote in a group. `direct`:
    only he speaks there. `whole` once it is erased: nothing is left there."""

    sid: str
    numbers: set[int] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)
    all_between: tuple[int, int] | None = None
    direct: bool = False
    whole: bool = False

    @property
    def sids(self) -> list[str]:
        return [self.sid, control_session(self.sid)]


def span_of(connection: Connection, sid: str, after: int, until: int | None) -> Portion:
    """All of a session between two turns."""
    portion = Portion(sid=sid, all_between=(after, NEVER if until is None else until))
    _fill(connection, portion)
    return portion


def portions_of(connection: Connection, channel: str, person: str) -> list[Portion]:
    """All that is kept of a person: the sessions that are his alone, and the turns in groups that answer him."""
    portions: dict[str, Portion] = {}

    def found(sid: str, number: int, message: str, *, direct: bool) -> None:
        portion = portions.setdefault(conversation(sid), Portion(sid=conversation(sid)))
        portion.numbers.add(number)
        portion.messages |= {message} - {""}
        portion.direct = portion.direct or direct

    for row in run(connection, _SPOKEN):
        if row.sid.split(":")[2:3] == [channel]:
            for info in infos(_object(row.content)):
                if info.get("sender_id") == person:
                    found(row.sid, row.turn, info.get("message_id", ""), direct=not info.get("is_group_chat"))
    for row in run(connection, "SELECT id, sid, turn, sender, body FROM inbox WHERE sid <> ''"):
        context = orjson.loads(row.body)["context"] if row.body else {}
        his = bool(context) and (context["channel"], context["sender"]["id"]) == (channel, person)
        if his or (not context and _is_of(row.sender or "", channel, person)):
            for number in {row.id, row.turn or row.id}:
                direct = his and context["chat"]["kind"] == "direct"
                found(row.sid, number, context.get("message_id", ""), direct=direct)
    for portion in portions.values():
        if portion.direct or place_of(portion.sid).sender == person:
            portion.all_between = (-1, NEVER)
            _fill(connection, portion)
    return list(portions.values())


def hold(connection: Connection, sids: Iterable[str], *, served: bool) -> list[str]:
    """Keep every worker from these sessions until the commit; those that one works on now. `served`: whether a gateway runs
    on a SQLite file."""
    held = run(
        connection, "UPDATE session SET pending = pending WHERE id IN :sids RETURNING id, owner", sids=list(sids)
    )
    owners = {row.id: row.owner for row in held if row.owner is not None}
    if not is_shared(connection):
        return list(owners) if served else []
    living = "SELECT id FROM worker WHERE id IN :owners AND NOT pg_try_advisory_xact_lock(lock_key)"
    alive = {row.id for row in run(connection, living, owners=sorted(set(owners.values())))}
    return [sid for sid, owner in owners.items() if owner in alive]


def stop(connection: Connection, portions: Iterable[Portion]) -> None:
    """Stop what runs and waits in sessions that are to go up to their end."""
    sids = [sid for it in portions if it.all_between and it.all_between[1] == NEVER for sid in it.sids]
    run(connection, _STOP, sids=sids)
    if is_shared(connection):
        for sid in sids:
            run(connection, "SELECT pg_notify(:channel, :sid)", channel=NOTIFY_CHANNEL, sid=sid)


def erase(connection: Connection, portions: Iterable[Portion], person: tuple[str, str] | None) -> Counter[str]:
    """Remove their rows; how many, by what they were. `person` is a channel and an id."""
    removed: Counter[str] = Counter()
    for portion in portions:
        files: set[str] = set()
        for numbers in _chunks(sorted(portion.numbers)):
            payloads = run(connection, "SELECT payload FROM outbox WHERE turn IN :numbers", numbers=numbers)
            files.update(it["id"] for row in payloads for it in orjson.loads(row.payload)["part"].get("files", ()))
            kept = "SELECT count(*) FROM inbox WHERE body <> '' AND id IN :numbers"
            removed["inbox"] += run(connection, kept, numbers=numbers).scalar() or 0
            run(connection, _FORGET, numbers=numbers)
            removed.update(forget_approvals(connection, numbers))
            for table in ("transcript", "outbox"):
                removed[table] += run(
                    connection, f"DELETE FROM {table} WHERE turn IN :numbers", numbers=numbers
                ).rowcount
        left = "SELECT 1 FROM transcript WHERE sid = :sid UNION ALL SELECT 1 FROM inbox WHERE sid = :sid AND status = 0"
        portion.whole = run(connection, f"{left} LIMIT 1", sid=portion.sid).first() is None
        removed["mark"] += _forget_marks(connection, portion)
        memory.forget(connection, portion.sids)  # what stays is found again when somebody looks for it
        if portion.whole and portion.all_between:
            run(connection, "DELETE FROM session WHERE id IN :sids", sids=portion.sids)
            place = place_of(portion.sid)
            scope = f"chat:{place.channel}:{place.account}:{place.chat}"
            spent = "DELETE FROM usage WHERE scope = :scope"
            removed["usage"] += run(connection, spent, scope=scope).rowcount
            chat = scope.partition(":")[2]
            removed["chatter"] += run(connection, "DELETE FROM chatter WHERE chat = :chat", chat=chat).rowcount
        else:
            run(connection, _SETTLE, sids=portion.sids)
            if not portion.whole:
                run(connection, _ERASED, sid=portion.sid, content=secrets.token_hex(8), at=time.time())
            _forget_quotes(connection, portion)
        if place_of(portion.sid).channel == "web":
            files |= _forget_web(connection, portion, removed)
        removed["file"] += run(connection, "DELETE FROM file WHERE id IN :files", files=sorted(files)).rowcount
    scopes = [row.scope for row in run(connection, "SELECT DISTINCT scope FROM usage WHERE scope LIKE 'sender:%'")]
    his = [it for it in scopes if person and _is_of(it.removeprefix("sender:"), *person)]
    removed["usage"] += run(connection, "DELETE FROM usage WHERE scope IN :his", his=his).rowcount
    if person:
        removed["note"] += memory.forget_notes(connection, *person)
        removed["contact"] += contacts.forget(connection, *person)
        if person[0] == "web":
            unsent = "DELETE FROM file WHERE chat = :chat"
            removed["file"] += run(connection, unsent, chat=UNSENT + person[1]).rowcount
        removed["chatter"] += _forget_chatter(connection, *person)
    return removed


def scrub(config: DatabaseConfig) -> None:
    """Write SQLite's file anew, without what was deleted, and empty its log. Raises DatabaseUnusable."""
    engine = create_engine(config.url, connect_args={"timeout": SCRUB_SECONDS})
    deadline = time.monotonic() + SCRUB_SECONDS
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM")
            while connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar():
                if time.monotonic() > deadline:
                    raise DatabaseUnusable(UNSCRUBBED.format(file=config.path, reason="its log is in use"))
                time.sleep(0.05)
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or error
        raise DatabaseUnusable(UNSCRUBBED.format(file=config.path, reason=reason)) from error
    finally:
        engine.dispose()


def _fill(connection: Connection, portion: Portion) -> None:
    after, until = portion.all_between or (0, 0)
    names = {"sids": portion.sids, "after": after, "until": until}
    portion.numbers.update(row.number for row in run(connection, _NUMBERS, **names))
    for row in run(connection, f"{_SPOKEN} AND {_IN_SPAN.format('turn')}", **names):
        portion.messages.update(it["message_id"] for it in infos(_object(row.content)) if it.get("message_id"))
    for row in run(connection, f"SELECT body FROM inbox WHERE body <> '' AND {_IN_SPAN.format('id')}", **names):
        portion.messages.add(orjson.loads(row.body)["context"]["message_id"])


def _forget_marks(connection: Connection, portion: Portion) -> int:
    """Where others' turns stay, those that a summary stood for are read again: it may have had his words."""
    after, until = portion.all_between or (min(portion.numbers) - 1, NEVER)
    kinds = ["summary", "settings", "undone"] if portion.all_between else ["summary"]
    names: dict[str, Any] = {"sid": portion.sid, "after": after, "until": until, "kinds": kinds}
    if portion.whole:
        sids = [portion.sid, CHOICE + portion.sid]
        return run(connection, "DELETE FROM mark WHERE sid IN :sids", sids=sids).rowcount
    gone = "DELETE FROM mark WHERE sid = :sid AND kind IN :kinds AND turn > :after AND turn <= :until"
    return run(connection, gone, **names).rowcount


def _forget_quotes(connection: Connection, portion: Portion) -> None:
    """What others quoted of these messages, where they answered them."""

    def unquoted(found: re.Match[str]) -> str:
        return "" if orjson.loads(found[1]).get("message_id") in portion.messages else found[0]

    for row in run(connection, f"{_SPOKEN} AND sid = :sid", sid=portion.sid).all():
        if any(it in row.content for it in portion.messages) and (spoken := _object(row.content)):
            spoken["metadata"] = _QUOTE.sub(unquoted, spoken.get("metadata", ""))
            names = {"sid": row.sid, "seq": row.seq, "content": orjson.dumps(spoken).decode()}
            run(connection, "UPDATE transcript SET content = :content WHERE sid = :sid AND seq = :seq", **names)
    bodies = "SELECT id, body FROM inbox WHERE body <> '' AND sid IN :sids"
    for row in run(connection, bodies, sids=portion.sids).all():
        inbound = orjson.loads(row.body)
        if (inbound["context"].get("reply_to") or {}).get("message_id") in portion.messages:
            inbound["context"]["reply_to"] = None
            body = orjson.dumps(inbound).decode()
            run(connection, "UPDATE inbox SET body = :body WHERE id = :id", body=body, id=row.id)


def _forget_chatter(connection: Connection, channel: str, person: str) -> int:
    """What he said beside the bot, and all that turns of that channel were given of such words: nothing reads it again."""
    for row in run(connection, f"{_SPOKEN} AND content LIKE :heard", heard=f"%{HEARD}%").all():
        if row.sid.split(":")[2:3] == [channel] and (spoken := _object(row.content)):
            spoken["metadata"] = _HEARD.sub("", spoken.get("metadata", ""))
            names = {"sid": row.sid, "seq": row.seq, "content": orjson.dumps(spoken).decode()}
            run(connection, "UPDATE transcript SET content = :content WHERE sid = :sid AND seq = :seq", **names)
    senders = [it.sender for it in run(connection, "SELECT DISTINCT sender FROM chatter")]
    his = [it for it in senders if _is_of(it, channel, person)]
    return run(connection, "DELETE FROM chatter WHERE sender IN :his", his=his).rowcount


def _forget_web(connection: Connection, portion: Portion, removed: Counter[str]) -> set[str]:
    """What the web chat shows of it; the files in it. A conversation of which no agent remembers anything goes whole."""
    chat, files, gone = place_of(portion.sid).chat, set[str](), list[int]()
    sids = [row.sid for row in run(connection, "SELECT DISTINCT sid FROM transcript WHERE sid LIKE 'agent:%'")]
    empty = not any((place_of(sid).channel, place_of(sid).chat) == ("web", chat) for sid in sids)
    rows = run(connection, "SELECT number, key, words FROM web_message WHERE chat = :chat", chat=chat).all()
    read = [(row, orjson.loads(row.words)) for row in rows]
    direct = {row.key for row, words in read if words.get("reply_to") in portion.messages}
    concerned = portion.messages | direct  # a press is answered under an answer
    for row, words in read:
        if empty or concerned & {row.key, words.get("reply_to")}:
            gone.append(row.number)
            files.update(it["id"] for it in words.get("files", ()))
    for numbers in _chunks(gone):
        names = {"numbers": numbers}
        removed["web_message"] += run(connection, "DELETE FROM web_message WHERE number IN :numbers", **names).rowcount
    if empty:
        run(connection, "DELETE FROM web_conversation WHERE id = :chat", chat=chat)
        removed["file"] += run(connection, "DELETE FROM file WHERE chat = :chat", chat=chat).rowcount
    elif gone:  # its title are the first words
        run(connection, "UPDATE web_conversation SET title = '…' WHERE id = :chat", chat=chat)
    return files


def infos(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the metadata says of each of the messages that one row of a transcript holds."""
    return [orjson.loads(it) for it in _INFO.findall(message.get("metadata", ""))]


def _object(content: str) -> dict[str, Any]:
    """Empty where the row cannot be read."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_of(scope: str, channel: str, person: str) -> bool:
    """Whether `channel:account:id`, or without an account, is of that person."""
    return scope == f"{channel}:{person}" or (scope.startswith(f"{channel}:") and scope.endswith(f":{person}"))


def _chunks(numbers: list[int]) -> Iterator[list[int]]:
    for at in range(0, len(numbers), ROWS_AT_ONCE):
        yield numbers[at : at + ROWS_AT_ONCE]
