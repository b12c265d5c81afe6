"""The archive of the web chat in the gateway's database, with the same statements on SQLite and PostgreSQL.

`channels.web.archive.ChatHistory` documents what the channel needs. Each method is one transaction. On PostgreSQL,
adding and erasing take a lock: a reader who has seen number 17 must never miss a 16 that is committed later, and an
answer must not outlive its conversation. The commit also wakes the other replicas, whose pages watch too.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import orjson
from sqlalchemy import Connection, text

from channels.message import Button
from channels.web.admission import OPERATOR
from channels.web.archive import VERSIONS_MAX, Kept, MessageBody, Sized, Unkept, WebConversation, WebMessage
from gateway.store import memory
from gateway.store.approvals import forget_approvals
from gateway.store.branches import begins_branch, gaps_shown, own_above, place, words_json
from gateway.store.errors import NOTIFY_CHANNEL
from gateway.store.holdings import HOLDINGS
from gateway.store.later import forget_asked
from gateway.store.operations import Database, Lock, lock, reads, run, writes
from gateway.store.operations import is_shared as _is_shared
from gateway.store.operations import run as _run
from gateway.store.sessions import CHOICE
from gateway.store.statements import NEVER
from gateway.store.tasks import children_of, forget_tasks

WEB_NOTICE = "web"
"""The notice that replicas send each other about a new message; no session has this name."""
CONVERSATIONS_MAX = 500
TITLE_CHARS = 60
ROWS_AT_ONCE = 16
STEP_ROWS = 200

_TURNS = """
SELECT turn FROM transcript WHERE sid IN :sessions
UNION SELECT id FROM inbox WHERE sid IN :sessions AND status <> 0 LIMIT :most
"""
_FORGET_ACCEPTED = "DELETE FROM inbox WHERE status <> 0 AND id IN :turns"
_FORGET_MESSAGES = """
DELETE FROM web_message WHERE number IN (SELECT number FROM web_message WHERE chat = :chat LIMIT :most)
"""
_CHANGE = """
UPDATE web_conversation SET title = COALESCE(:title, title), pinned = COALESCE(:pinned, pinned),
    archived = COALESCE(:archived, archived)
WHERE id = :chat
"""
_CONVERSATION = """
SELECT id, title, agent, at, owner, pinned, archived, CASE WHEN tip > 0 THEN tip ELSE COALESCE((
    SELECT max(number) FROM web_message WHERE chat = web_conversation.id AND follows IS NOT NULL
), 0) END AS branch
FROM web_conversation WHERE id = :chat
"""
"""`branch` changes whenever a different branch is shown; 0 if there is only one."""
_CONVERSATIONS = """
SELECT id, title, agent, at, owner, pinned, archived, CASE WHEN tip > 0 THEN tip ELSE COALESCE((
    SELECT max(number) FROM web_message WHERE chat = web_conversation.id AND follows IS NOT NULL
), 0) END AS branch
FROM web_conversation WHERE owner = :owner AND archived = :archived AND (pinned, at, id) < (:pinned, :at, :id)
ORDER BY pinned DESC, at DESC, id DESC LIMIT :limit
"""
_SINCE = """
SELECT number, octet_length(words) AS bytes FROM web_message
WHERE number > :number AND chat IN (SELECT id FROM web_conversation WHERE owner = :owner) ORDER BY number LIMIT :limit
"""
_SINCE_SQLITE = """
SELECT number, length(CAST(words AS BLOB)) AS bytes FROM web_message
WHERE number > :number AND chat IN (SELECT id FROM web_conversation WHERE owner = :owner) ORDER BY number LIMIT :limit
"""
_PAGE = """
SELECT number, octet_length(words) AS bytes FROM (
    SELECT number, words, CASE WHEN author = 'you' THEN number ELSE COALESCE(under, (
        SELECT max(o.number) FROM web_message o WHERE o.chat = :chat AND o.author = 'you' AND o.number < m.number
    ), number) END AS place
    FROM web_message m WHERE chat = :chat AND number < :before
) AS shown WHERE NOT EXISTS (
    SELECT 1 FROM jsonb_array_elements(CAST(:gaps AS JSONB)) AS gap
    WHERE place > CAST(gap ->> 0 AS BIGINT) AND place < CAST(gap ->> 1 AS BIGINT)
) ORDER BY number DESC LIMIT :limit
"""
_PAGE_SQLITE = """
SELECT number, length(CAST(words AS BLOB)) AS bytes FROM (
    SELECT number, words, CASE WHEN author = 'you' THEN number ELSE COALESCE(under, (
        SELECT max(o.number) FROM web_message o WHERE o.chat = :chat AND o.author = 'you' AND o.number < m.number
    ), number) END AS place
    FROM web_message m WHERE chat = :chat AND number < :before
) AS shown WHERE NOT EXISTS (
    SELECT 1 FROM json_each(:gaps) AS gap
    WHERE place > json_extract(gap.value, '$[0]') AND place < json_extract(gap.value, '$[1]')
) ORDER BY number DESC LIMIT :limit
"""
_KEEP_CONVERSATION = """
INSERT INTO web_conversation (id, title, agent, at, owner) VALUES (:chat, :title, :agent, :at, :owner)
ON CONFLICT (id) DO UPDATE SET agent = excluded.agent, archived = 0,
    title = CASE web_conversation.title WHEN '' THEN excluded.title ELSE web_conversation.title END
"""
"""A different agent may have been chosen. A new message also unarchives the conversation."""


_PLACE = re.compile(r"([01])~(\d{1,12}(?:\.\d{1,9})?)~([\w-]{1,80})", re.ASCII)


def place_of(conversation: WebConversation) -> str:
    """Return the position of a conversation in its list."""
    return f"{int(conversation.pinned)}~{conversation.at!r}~{conversation.id}"


class DatabaseArchive(Database):
    @writes
    def keep(
        self,
        connection: Connection,
        chat: str,
        key: str,
        words: MessageBody,
        at: float,
        *,
        owner: str = OPERATOR,
        names: bool = True,
        versions_max: int = VERSIONS_MAX,
    ) -> Kept | Unkept:
        lock(connection, Lock.ARCHIVE)
        known = _find(connection, chat)
        if known and known.owner != owner:
            return "not theirs"
        follows = place(connection, chat, key, words.instead, versions_max)
        if isinstance(follows, str):
            return follows
        first = _title(words.text) or (words.files[0].name if words.files else "") or "…"
        title = first if names else ""
        row = {"chat": chat, "title": title, "agent": words.agent, "at": at, "owner": owner}
        _run(connection, _KEEP_CONVERSATION, **row)
        if _say(connection, chat, key, "you", words, at, follows) and follows is not None:
            _run(connection, "UPDATE web_conversation SET tip = 0 WHERE id = :chat", chat=chat)
        conversation = _conversations(connection, _CONVERSATION, chat=chat)[0]
        return Kept(conversation=conversation, begins=begins_branch(connection, chat, key))

    @writes
    def answer(self, connection: Connection, chat: str, key: str, words: MessageBody, at: float) -> bool:
        lock(connection, Lock.ARCHIVE)
        if _find(connection, chat) is None:
            return False
        _say(connection, chat, key, "agent", words, at)
        return True

    @writes
    def replace(self, connection: Connection, chat: str, key: str, text: str, buttons: tuple[Button, ...]) -> bool:
        lock(connection, Lock.ARCHIVE)
        known = (
            "SELECT number, words, at, under FROM web_message WHERE chat = :chat AND key = :key AND author = 'agent'"
        )
        if (row := _run(connection, known, chat=chat, key=key).one_or_none()) is None:
            return False
        before = words_json.validate_json(row.words)
        if (before.text, before.buttons) != (text, buttons):
            _run(connection, "DELETE FROM web_message WHERE number = :number", number=row.number)
            words = replace(
                before, text=text, buttons=buttons, folded=None, form=None, place=before.place or row.number
            )
            _insert(connection, chat, key, "agent", words, row.at, under=row.under)
        return True

    @reads
    def conversations(
        self, connection: Connection, owner: str = OPERATOR, *, archived: bool = False, behind: str = ""
    ) -> Sequence[WebConversation]:
        """Return one page of a user's conversations: pinned ones, then by newest message. `behind` is the `place_of`
        the last one on the previous page."""
        pinned, at, id_ = found.groups() if (found := _PLACE.fullmatch(behind)) else ("2", "0", "")
        whose = {"owner": owner, "archived": int(archived), "limit": CONVERSATIONS_MAX}
        return _conversations(connection, _CONVERSATIONS, **whose, pinned=int(pinned), at=float(at), id=id_)

    @reads
    def archived(self, connection: Connection, owner: str) -> int:
        """Return the number of a user's archived conversations."""
        return _number(
            connection, "SELECT count(*) FROM web_conversation WHERE owner = :owner AND archived = 1", owner=owner
        )

    @reads
    def conversation(self, connection: Connection, chat: str) -> WebConversation | None:
        return _find(connection, chat)

    @writes
    def change(
        self,
        connection: Connection,
        chat: str,
        *,
        title: str | None = None,
        pinned: bool | None = None,
        archived: bool | None = None,
    ) -> WebConversation | None:
        """Rename, pin or archive a conversation. Pinning unarchives it, and archiving unpins it."""
        new: dict[str, object] = {} if title is None else {"title": _title(title) or "…"}
        new |= {name: int(given) for name, given in (("pinned", pinned), ("archived", archived)) if given is not None}
        new |= {"archived": 0} if pinned else {"pinned": 0} if archived else {}
        if new:
            _run(connection, _CHANGE, **dict.fromkeys(("title", "pinned", "archived")) | new, chat=chat)
        return _find(connection, chat)

    @reads
    def agents(self, connection: Connection, chat: str) -> Sequence[str]:
        """List the agents that were asked in a conversation, including those no longer configured."""
        spoken = text("SELECT words FROM web_message WHERE chat = :chat AND author = 'you'")
        rows = connection.scalars(spoken.execution_options(yield_per=ROWS_AT_ONCE), {"chat": chat})
        return sorted({words_json.validate_json(it).agent for it in rows})

    @reads
    def newest_turn(self, connection: Connection, session: str) -> int:
        """Return the number of the newest message that was accepted in a session, 0 without any."""
        return _number(connection, "SELECT max(id) FROM inbox WHERE sid = :sid", sid=session)

    async def erase(self, chat: str, sessions: Sequence[str]) -> bool:
        """Erase a conversation with its messages and files, and the transcripts, replies and finished messages of
        its `sessions`. Return False if it does not exist. It runs in short steps so that other writers do not wait
        long; the last step removes the conversation itself. A message that a running turn still needs is removed at
        the dedupe horizon."""
        while not (ended := await self._erase_some(chat, sessions)):
            if ended is None:
                return False
        return True

    @writes
    def _erase_some(self, connection: Connection, chat: str, sessions: Sequence[str]) -> bool | None:
        """Run one step. Return True after the last one, and None if there is no such conversation."""
        lock(connection, Lock.ARCHIVE)
        if _find(connection, chat) is None:
            return None
        asked = (it for sid in sessions for it in children_of(connection, sid, -1, NEVER))
        sessions = [*sessions, *asked]
        names = {"chat": chat, "sessions": sessions}
        turns = _run(connection, _TURNS, **names, most=STEP_ROWS).scalars().all()
        forget_approvals(connection, turns)
        forget_asked(connection, turns)
        for table in ("transcript", "spoken", "outbox", "layer"):
            _run(connection, HOLDINGS[table].by_turn, turns=turns)
        _run(connection, _FORGET_ACCEPTED, turns=turns)
        said = _run(connection, _FORGET_MESSAGES, **names, most=STEP_ROWS).rowcount
        more = sum(memory.forget(connection, sid) for sid in sessions)
        if more or turns or said:
            return False
        _run(connection, "DELETE FROM file WHERE chat = :chat", **names)
        _run(connection, "DELETE FROM web_conversation WHERE id = :chat", **names)
        _run(connection, "DELETE FROM mark WHERE sid IN :sessions", **names)
        forget_tasks(connection, sessions)
        chosen = [CHOICE + it for it in sessions]
        _run(connection, "DELETE FROM mark WHERE sid IN :chosen", chosen=chosen)
        _run(connection, "DELETE FROM gap WHERE sid IN :sessions", **names)
        _run(connection, "UPDATE session SET revision = revision + 1 WHERE id IN :sessions", **names)
        _run(connection, "DELETE FROM session WHERE id IN :sessions AND pending = 0", **names)
        return True

    @reads
    def page(
        self, connection: Connection, chat: str, *, before: int | None, limit: int, bytes_max: int
    ) -> Sequence[Sized]:
        """Return the newest messages of the visible branch below number `before`, newest first. `bytes_max` works as
        in `since`."""
        names = {"chat": chat, "before": NEVER if before is None else before}
        page = _PAGE if _is_shared(connection) else _PAGE_SQLITE
        return _sized(connection, page, limit, bytes_max, **names, gaps=json.dumps(gaps_shown(connection, chat)))

    @reads
    def since(
        self, connection: Connection, number: int, owner: str = OPERATOR, *, limit: int, bytes_max: int
    ) -> Sequence[Sized]:
        theirs = _SINCE if _is_shared(connection) else _SINCE_SQLITE
        return _sized(connection, theirs, limit, bytes_max, number=number, owner=owner)

    @reads
    def messages(self, connection: Connection, numbers: Sequence[int]) -> Sequence[WebMessage]:
        wanted = "SELECT number, chat, author, key, words, at FROM web_message WHERE number IN :numbers ORDER BY number"
        rows = _run(connection, wanted, numbers=numbers).mappings()
        return [WebMessage(**{**row, "words": words_json.validate_json(row["words"])}) for row in rows]

    @reads
    def last(self, connection: Connection) -> int:
        return _number(connection, "SELECT max(number) FROM web_message")


def _number(connection: Connection, statement: str, **names: object) -> int:
    return int(_run(connection, statement, **names).scalar() or 0)


def _say(
    connection: Connection, chat: str, key: str, author: str, words: MessageBody, at: float, follows: int | None = None
) -> bool:
    if not _insert(connection, chat, key, author, words, at, follows=follows):
        return False
    _run(connection, "UPDATE web_conversation SET at = :at WHERE id = :chat", chat=chat, at=at)
    keys = [it.id for it in words.files]
    _run(connection, "UPDATE file SET chat = :chat WHERE id IN :keys", chat=chat, keys=keys)
    return True


def _insert(
    connection: Connection,
    chat: str,
    key: str,
    author: str,
    words: MessageBody,
    at: float,
    *,
    follows: int | None = None,
    under: int | None = None,
) -> bool:
    """Insert a message. Return False if the key exists."""
    new = """
        INSERT INTO web_message (chat, key, author, words, at, follows, under)
        VALUES (:chat, :key, :author, :words, :at, CAST(:follows AS BIGINT), CAST(:under AS BIGINT))
        ON CONFLICT (chat, key) DO NOTHING RETURNING number
    """
    row = {"chat": chat, "key": key, "author": author, "words": words_json.dump_json(words).decode(), "at": at}
    if author == "agent" and under is None:
        under = own_above(connection, chat, words.reply_to)
    if _run(connection, new, **row, follows=follows, under=under).scalar() is None:
        return False
    if _is_shared(connection):
        _run(connection, "SELECT pg_notify(:channel, :what)", channel=NOTIFY_CHANNEL, what=WEB_NOTICE)
    return True


def _find(connection: Connection, chat: str) -> WebConversation | None:
    return next(iter(_conversations(connection, _CONVERSATION, chat=chat)), None)


def _conversations(connection: Connection, statement: str, **names: object) -> list[WebConversation]:
    rows = _run(connection, statement, **names).mappings()
    moved = ({**row, "pinned": bool(row["pinned"]), "archived": bool(row["archived"])} for row in rows)
    return [WebConversation(**row) for row in moved]


def _sized(connection: Connection, statement: str, limit: int, bytes_max: int, **names: object) -> list[Sized]:
    """Measure rows in the database, so that nothing too large is loaded. SQLite must read the text for that, as far
    as requested."""
    found: list[Sized] = []
    total = 0
    with _run(connection, statement, limit=limit, **names) as rows:
        for row in rows:
            found.append(Sized(number=row.number, bytes=row.bytes))
            if total > bytes_max:
                break
            total += row.bytes
    return found


def _title(words: str) -> str:
    """Return the first words on one line, without characters that databases or screens reject."""
    line = re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", words).strip()
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def has_all(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(it in folded for it in words)


class WebHit(NamedTuple):
    """A message that matches a search."""

    number: int
    author: str
    at: float
    text: str


class DatabaseSearch(Database):
    @reads
    def hits(self, connection: Connection, chat: str, words: Sequence[str], *, limit: int) -> Sequence[WebHit]:
        """Return the newest messages that contain all of the casefolded `words`. Neither database folds case beyond
        ASCII."""
        newest = "SELECT number, author, at, words FROM web_message WHERE chat = :chat ORDER BY number DESC"
        spoken = text(newest).execution_options(yield_per=ROWS_AT_ONCE)
        with connection.execute(spoken, {"chat": chat}) as rows:
            read = (WebHit(it.number, it.author, it.at, str(orjson.loads(it.words)["text"])) for it in rows)
            return list(islice((it for it in read if has_all(it.text, words)), limit))


class DatabaseSessions(Database):
    @writes
    def begin(self, connection: Connection, key: str, *, ends: float, at: float, instead_of: Sequence[str]) -> None:
        run(connection, "DELETE FROM web_session WHERE ends <= :at OR key IN :keys", at=at, keys=instead_of)
        run(connection, "INSERT INTO web_session (key, ends) VALUES (:key, :ends)", key=key, ends=ends)

    @writes
    def end(self, connection: Connection, keys: Sequence[str]) -> None:
        run(connection, "DELETE FROM web_session WHERE key IN :keys", keys=keys)

    @reads
    def hold(self, connection: Connection, keys: Sequence[str], at: float) -> bool:
        held = "SELECT EXISTS (SELECT 1 FROM web_session WHERE key IN :keys AND ends > :at)"
        return bool(run(connection, held, keys=keys, at=at).scalar())
