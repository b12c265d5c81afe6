"""`python -m gateway sessions`: list, export and erase stored conversations, even while a gateway serves.

Erasing takes the sessions from their workers, then deletes files first and rows last, in short transactions. It is
idempotent, so an interrupted erasure can be repeated.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson
from sqlalchemy import Connection

from agents.attachments import tag
from agents.prompt.inbound import ID_LINE
from channels.moment import iso, timestamp
from gateway.commands.privacy import uploads_of, workspaces_of
from gateway.config.root import Config
from gateway.observe.terminal import printable
from gateway.program import OperatorError
from gateway.store import conversations, erasure, holdings, later, layers, memory
from gateway.store.changes import quoting_of
from gateway.store.chatter import REACTION
from gateway.store.conversations import Names, Session, names
from gateway.store.erasure import Portion, portions_of, scrub, spans_of
from gateway.store.later import HANDOVER
from gateway.store.opening import connected
from gateway.store.sessions import conversation, session_parts
from gateway.store.sqlite import is_locked
from gateway.turns.handovers import handover_json
from tools.workspace import folder_of, forget_quoted, forget_session, processes_of

T = TypeVar("T")
WAIT_SECONDS = 30.0
WAIT_POLL_SECONDS = 0.2
SHORT_CHARS = 200
DAY_SECONDS = 86_400.0


class StillAnswered(OperatorError):
    """A turn is running there now; nothing was erased. Repeat it in a moment, or write /stop there before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Erased:
    """`removed` counts rows by table, and files; `emptied` and `left` are the emptied and the untouched workspaces."""

    removed: Mapping[str, int]
    emptied: Sequence[str]
    left: Sequence[str]


def place_facts(session: Session) -> dict[str, Any]:
    """Return the id and the chat of a session, which need no read."""
    place = session_parts(session.sid)
    facts: dict[str, Any] = {"id": session.id, "agent": place.agent, "channel": place.channel, "account": place.account}
    return facts | {"chat": place.chat, "thread": place.thread, "sender": place.sender}


def summary(session: Session, zone: tzinfo) -> dict[str, Any]:
    facts = place_facts(session)
    facts |= {"started": iso(session.started, zone), "last": iso(session.last, zone)}
    return facts | {"turns": session.turns, "tokens": session.tokens}


def found(config: Config, name: str) -> tuple[Session, list[dict[str, Any]], list[dict[str, Any]]] | None:
    """Return the session with this id, its rows and its marks. Raise DatabaseUnusable."""
    with connected(config.database) as connection:
        session = next((it for it in conversations.sessions(connection) if it.id == name), None)
        if session is None:
            return None
        entries, marks = conversations.entries(connection, session), conversations.marks(connection, session)
        return conversations.read(connection, session), entries, marks


def listed(config: Config) -> list[Session]:
    """List the sessions with times and tokens, the last active at the end. Raises DatabaseUnusable."""
    with connected(config.database) as connection:
        found = [conversations.read(connection, it) for it in conversations.sessions(connection)]
    return sorted(found, key=lambda it: (it.last, it.id))


def handed_over(config: Config) -> Mapping[str, tuple[str, str]]:
    """Return the user and the colleague, empty if nobody has taken over yet, of each conversation that is handed over.
    Raises DatabaseUnusable."""
    with connected(config.database, access="read") as connection:
        found = [handover_json.validate_json(row.body) for row in later.active(connection, HANDOVER)]
    return {it.session: (it.name, it.by_name) for it in found}


def newest(config: Config) -> list[Session]:
    """List the sessions unread, the one with the newest message first. Raises DatabaseUnusable."""
    with connected(config.database) as connection:
        return conversations.sessions(connection)[::-1]


def read(config: Config, sessions: Sequence[Session]) -> list[Session]:
    """Add times and tokens to these sessions. Raises DatabaseUnusable."""
    with connected(config.database) as connection:
        return [conversations.read(connection, it) for it in sessions]


def named(config: Config) -> Names:
    """Return the display names of users and chats. Raise DatabaseUnusable."""
    with connected(config.database) as connection:
        return names(connection)


def markdown(
    session: Session, entries: Sequence[Mapping[str, Any]], marks: Sequence[Mapping[str, Any]], zone: tzinfo
) -> Iterator[str]:
    """Yield the export line by line. Text of users and models is quoted, so that it cannot forge other lines."""
    reactions = [it for it in marks if it["kind"].startswith(REACTION)]
    facts = summary(session, zone)
    facts |= {"started": timestamp(session.started, zone), "last": timestamp(session.last, zone)}
    yield f"# Session {facts.pop('id')}"
    yield ""
    yield from (f"- {name}: {printable(str(value))}" for name, value in facts.items() if value is not None)
    for entry in entries:
        content = entry["content"]
        if not isinstance(content, dict):
            yield from ("", "*(a row that cannot be read)*")
        elif entry["kind"] == "final":
            for it in (it["content"] for it in reactions if it["turn"] == entry["turn"]):
                yield from ("", f"*({it['emoji']} {printable(it['by'])})*")
            if content.get("outcome") != "replied":
                yield from (
                    "",
                    f"*({content.get('outcome')}{': ' if content.get('reason') else ''}{content.get('reason', '')})*",
                )
        elif entry["kind"] != "drained":
            yield from _message(content, facts["agent"], entry["names"], zone)


def _message(message: Mapping[str, Any], agent: str, names: str, zone: tzinfo) -> Iterator[str]:
    parts = [it for it in message.get("content", ()) if isinstance(it, dict)]
    texts = [it.get("text", "") for it in parts if it.get("type") == "text"]
    pictures = sum(it.get("type") == "image" for it in parts)
    if message.get("role") == "toolResult":
        yield f"- `{printable(message.get('tool', ''))}` gave: {_code(' '.join(texts))}"
        return
    at = timestamp(message.get("timestamp", 0.0), zone)
    yield from ("", f"**{at} · {printable(names) if message.get('role') == 'user' else agent}**", "")
    words = ID_LINE.sub("", "\n".join(texts)) if message.get("role") == "user" else "\n".join(texts)
    yield from (f"> {line}".rstrip() for line in printable(words).splitlines())
    yield from ["> *(a picture)*"] * pictures
    for call in (it for it in parts if it.get("type") == "toolCall"):
        yield f"- `{printable(call.get('name', ''))}` {_code(call.get('arguments_raw', ''))}"


def exported(session: Session, entries: Sequence[Any], marks: Sequence[Any], zone: tzinfo) -> str:
    entries = [{name: it[name] for name in ("turn", "kind", "content")} for it in entries]
    whole = summary(session, zone) | {"entries": entries, "marks": marks}
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode()


def portions(config: Config, *, session: Session | None, person: tuple[str, str] | None) -> list[Portion]:
    """Return the portions that erasing would remove. Raise DatabaseUnusable."""
    with connected(config.database) as connection:
        if session is not None:
            return spans_of(connection, session.sid, session.after, session.until)
        return portions_of(connection, *person) if person else []


def erase(config: Config, *, session: Session | None = None, person: tuple[str, str] | None = None) -> Erased:
    """Erase a session, or everything of a person, given as channel and id. Raise DatabaseUnusable, StillAnswered or
    OSError."""
    removed, emptied, left = Counter[str](), list[str](), set[str]()
    while meant := portions(config, session=session, person=person):
        if not any(it.numbers for it in meant):
            break
        _claim(config, meant)
        for portion in meant:
            emptied += _delete_files(config, portion, person, removed)
            left |= {str(it) for it in workspaces_of(config, portion, person)}
            _erase_rows(config, portion, removed)
    if person:
        with connected(config.database) as connection:
            removed += erasure.forget_person(connection, *person)
    _finish(config, removed)
    counts = {name: count for name, count in removed.items() if count}
    return Erased(removed=counts, emptied=emptied, left=sorted(left - set(emptied)))


def age(config: Config, now: float) -> Counter[str]:
    """Erase the turns that are older than `retention` allows, with what hangs on them, in steps. A conversation in which a
    turn runs is left to the next time. Idempotent. Raise DatabaseUnusable or OSError."""
    removed, limits = Counter[str](), dict[str, float]()
    with connected(config.database, access="read") as connection:
        sids, places = erasure.conversations(connection), holdings.places(connection)
    for sid in map(conversation, sids):
        parts = session_parts(sid)
        if (days := config.kept_days(parts.place, parts.agent)) is not None:
            limits[sid] = now - days * DAY_SECONDS
    for sid, before in limits.items():
        with suppress(StillAnswered):
            while meant := _aged(config, sid, before):
                _claim(config, meant)
                for portion in meant:
                    list(_delete_files(config, portion, None, removed))
                    _erase_rows(config, portion, removed)
    for place in places:
        if (days := config.kept_days(place)) is not None:
            with connected(config.database) as connection:
                holdings.forget_aged(connection, place, now - days * DAY_SECONDS)
    if removed:
        _finish(config, removed)
    return +removed


def _aged(config: Config, sid: str, before: float) -> list[Portion]:
    with connected(config.database, access="read") as connection:
        return erasure.aged(connection, sid, before)


def _finish(config: Config, removed: Counter[str]) -> None:
    with connected(config.database) as connection:
        removed["layer_text"] += layers.forget_texts(connection)
    if config.database.path is not None:
        scrub(config.database)


def _claim(config: Config, meant: Sequence[Portion]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with connected(config.database) as connection:
            active = erasure.claim(connection, meant, served=is_locked(config.database.path))
        if not active:
            return
        if time.monotonic() > deadline:
            raise StillAnswered(f"{', '.join(active)}: {StillAnswered.__doc__}")
        time.sleep(WAIT_POLL_SECONDS)


def _erase_rows(config: Config, portion: Portion, removed: Counter[str]) -> None:
    # The last turns go first: an interrupted erasure finds the rest by the earlier ones.

    def step(operation: Callable[[Connection], T]) -> T:
        with connected(config.database) as connection:
            return operation(connection)

    for numbers in _chunks(sorted(portion.numbers, reverse=True), erasure.TURNS_AT_ONCE):
        removed.update(step(partial(erasure.forget_turns, portion=portion, numbers=numbers)))
    while portion.whole and step(lambda connection: memory.forget(connection, portion.sid)):
        pass
    for messages in () if portion.whole else _chunks(sorted(portion.messages), erasure.ROWS_AT_ONCE):
        step(partial(erasure.forget_quotes, portion=portion, messages=messages))
    removed.update(step(lambda connection: erasure.forget_session(connection, portion)))
    while session_parts(portion.sid).channel == "web" and (gone := step(lambda it: erasure.forget_web(it, portion))):
        removed.update(gone)


def _chunks(these: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    for at in range(0, len(these), count):
        yield these[at : at + count]


def _delete_files(
    config: Config, portion: Portion, person: tuple[str, str] | None, removed: Counter[str]
) -> Iterator[str]:
    # Uploads, and workspaces of this person alone.
    base = Path(config.tools.files.uploads_dir)
    uploads, folders = folder_of(base, portion.sid), uploads_of(config, portion)
    removed["upload"] += sum(path.is_file() for folder in folders for path in folder.rglob("*"))
    if portion.whole:
        forget_session(base, portion.sid)
    if portion.messages and not portion.whole:
        with connected(config.database) as connection:
            quoting = quoting_of(connection, portion.sid, sorted(portion.messages))
        for message in quoting:
            forget_quoted(base, portion.sid, tag(message))
    for folder in (*folders, processes_of(uploads)):  # what runs ends with its record
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
    for workspace in workspaces_of(config, portion, person, own=True):
        for path in workspace.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        yield str(workspace)


def _code(text: str) -> str:
    line = short(text.replace("`", "'"))
    return f"`{line}`" if line else "nothing"


def short(text: str) -> str:
    """Return the text on one line, truncated."""
    line = " ".join(printable(text).split())
    return line if len(line) <= SHORT_CHARS else f"{line[:SHORT_CHARS]}…"
