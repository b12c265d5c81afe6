"""The tables that hold data of people: one record a table, for `/mydata`, erasure and retention.

A table is registered here or its migration fails a test (tests/gateway/store/test_holdings.py), and a registered table
fails the matrix of erasures (tests/stories/operate/test_privacy.py) until that test writes a row of it and finds it gone.
What hangs on a turn is `by_turn` and is deleted with it; what is kept for a person apart from turns has a `forget`. `rows`
are for the person's copy. `gateway.store.erasure` deletes what takes more than one statement.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from channels.bilingual import Bilingual
from gateway.store import contacts, logins, memory
from gateway.store.operations import run
from gateway.store.sessions import is_of_person
from tools.tool import turn_source

Forget = Callable[[Connection, str, str], int]
"""Delete what a table holds of a person, given as channel and id, and return the number of rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """A table with data of people. `title` names its rows to a reader.

    `rows` selects a person's rows for their copy by `:channel`, `:person`, `:who` (`channel:id`), `:names` (each
    `channel:account:id` of theirs), `:sids` (their own conversations) or `:turns` (some of the turns there); empty if the
    copy has them already. `by_turn` deletes the rows of `:turns`, or of `:answers`, which are their names as sources;
    `counted` if an erasure reports how many. `aged` deletes what is no turn's by `:place` (`channel:account:chat`) and
    `:before`, and `places` selects its chats."""

    title: Bilingual
    rows: str = ""
    by_turn: str = ""
    counted: bool = True
    forget: Forget | None = None
    aged: str = ""
    places: str = ""


_MESSAGES, _INTERNAL = Bilingual("messages", "条消息"), Bilingual("internal rows", "条内部记录")
HOLDINGS: Mapping[str, Holding] = {
    "transcript": Holding(title=_MESSAGES, by_turn="DELETE FROM transcript WHERE turn IN :turns"),
    "spoken": Holding(title=_INTERNAL, by_turn="DELETE FROM spoken WHERE turn IN :turns", counted=False),
    "layer": Holding(
        title=Bilingual("records of answers", "条回答过程记录"),
        rows="SELECT turn, agent, outcome, at, content FROM layer WHERE turn IN :turns ORDER BY turn",
        by_turn="DELETE FROM layer WHERE turn IN :turns",
        counted=False,
    ),
    "inbox": Holding(
        title=Bilingual("received messages", "条已接收的消息"),
        rows="SELECT id, at, body FROM inbox WHERE person = :who AND body <> '' ORDER BY id",
    ),
    "outbox": Holding(
        title=Bilingual("sent messages", "条已发送的消息"),
        rows="SELECT turn, part, created, payload FROM outbox WHERE turn IN :turns ORDER BY turn, part",
        by_turn="DELETE FROM outbox WHERE turn IN :turns",
    ),
    "mark": Holding(
        title=Bilingual("settings and summaries", "条设置与摘要"),
        rows="SELECT kind, turn, at, content FROM mark WHERE sid IN :sids ORDER BY turn",
    ),
    "word": Holding(title=Bilingual("words of the search index", "条检索索引")),
    "web_conversation": Holding(
        title=Bilingual("conversations of the page", "个网页对话"),
        rows="SELECT id, title, agent, at FROM web_conversation WHERE :channel = 'web' AND owner = :person ORDER BY at",
    ),
    "web_message": Holding(
        title=Bilingual("messages of the page", "条网页消息"),
        rows="""
        SELECT chat, author, words, at FROM web_message WHERE chat IN (
            SELECT id FROM web_conversation WHERE :channel = 'web' AND owner = :person
        ) ORDER BY number
        """,
    ),
    "file": Holding(
        title=Bilingual("files", "个文件"),
        rows="""
        SELECT id, name, type, at FROM file WHERE chat = '@' || CAST(:person AS TEXT) AND :channel = 'web' OR chat IN (
            SELECT id FROM web_conversation WHERE :channel = 'web' AND owner = :person
        ) ORDER BY at
        """,
    ),
    "approval": Holding(
        title=Bilingual("requests for approval", "条审批请求"),
        rows="SELECT id, tool, agent, request, state, created, decided_at FROM approval WHERE requester = :who",
    ),
    "task": Holding(
        title=Bilingual("tasks", "个任务"),
        rows="SELECT id, title, agent, started, state, ended, result FROM task WHERE person = :who ORDER BY started",
    ),
    "later": Holding(
        title=Bilingual("reminders and schedules", "个提醒与定时任务"),
        rows="""
        SELECT id, kind, due, place, state, CASE WHEN kind = 'handover' THEN '{}' ELSE body END AS body, since
        FROM later WHERE owner IN :names AND kind <> 'login'
        """,  # the body of a handover names the colleague
    ),
    "note": Holding(
        title=Bilingual("notes", "条笔记"),
        rows="SELECT agent, number, text, at FROM note WHERE sender IN :names AND text <> '' ORDER BY agent, number",
        forget=memory.forget_notes,
    ),
    "login": Holding(
        title=Bilingual("logins", "个登录"),
        rows="SELECT account, name, scopes, since, ended FROM login WHERE channel = :channel AND person = :person",
        forget=lambda connection, channel, person: len(logins.forget(connection, channel, person)),
    ),
    "contact": Holding(
        title=Bilingual("entries of who may write", "条访问许可"),
        rows="""
        SELECT account, name, asked, approved_at, owner FROM contact WHERE channel = :channel AND person = :person
        """,
        forget=contacts.forget,
    ),
    "wrong_code": Holding(title=Bilingual("wrong codes", "条错误码记录")),
    "claim": Holding(title=Bilingual("claim codes", "个认领码")),
    "chatter": Holding(
        title=Bilingual("lines of groups", "条群消息"),
        rows="SELECT chat, thread, message, body, at FROM chatter WHERE sender IN :names ORDER BY at",
        aged="DELETE FROM chatter WHERE chat = :place AND at < :before",
        places="SELECT DISTINCT chat FROM chatter",
        by_turn="DELETE FROM chatter WHERE sender IN :answers",
    ),
    "usage": Holding(
        title=Bilingual("days of usage", "天的用量"),
        rows="SELECT day, tokens, cost FROM usage WHERE scope IN :scopes ORDER BY day",
    ),
}
"""Every table with data of people, by its name."""
OTHERS: Mapping[str, str] = {
    "alembic_version": "the version of the schema",
    "session": "a lane by its id; erased with the last turn of its conversation",
    "worker": "a process",
    "web_session": "the hash of a cookie and its end; no person",
    "notice": "the cause of a notice to the owners and its time",
    "indexed": "a conversation's id and how far its words are indexed; erased with `word`",
    "gap": "numbers of turns; erased with its conversation",
    "approval_token": "hashes of buttons; erased with their `approval`",
    "approval_grant": "what an approver allowed for good, which is the operator's record",
    "approval_audit": "who decided what, which nobody can change: the operator's record",
    "mcp_tool": "descriptions of tools, and which owner accepted them",
    "layer_text": "the operator's prompts and tools by hash; erased with the last `layer` that names one",
}
"""Every other table, and why it is no person's."""
_NAMES = """
SELECT sender FROM note UNION SELECT sender FROM chatter UNION SELECT owner FROM later WHERE owner IS NOT NULL
UNION SELECT substr(scope, 8) FROM usage WHERE scope LIKE 'sender:%'
"""
TURNS_AT_ONCE = 500


def names_of(connection: Connection, channel: str, person: str) -> list[str]:
    """Return the names of a person in tables that name people as `channel:account:id`."""
    return [it for it in run(connection, _NAMES).scalars() if is_of_person(it, channel, person)]


def forget_turns(connection: Connection, turns: Sequence[int]) -> Counter[str]:
    """Delete the rows of these turns."""
    removed = Counter[str]()
    for name, holding in HOLDINGS.items():
        if holding.by_turn:
            answers = [turn_source(it) for it in turns]
            gone = run(connection, holding.by_turn, turns=list(turns), answers=answers).rowcount
            removed[name] += gone if holding.counted else 0
    return removed


def forget_aged(connection: Connection, place: str, before: float) -> None:
    """Delete what is no turn's of a chat and older."""
    for holding in HOLDINGS.values():
        if holding.aged:
            run(connection, holding.aged, place=place, before=before)


def places(connection: Connection) -> list[str]:
    """Return the chats that have something which is no turn's."""
    return [it for holding in HOLDINGS.values() if holding.places for it in run(connection, holding.places).scalars()]


def forget(connection: Connection, channel: str, person: str) -> Counter[str]:
    """Delete what the registered tables hold of a person apart from turns."""
    return Counter({name: it.forget(connection, channel, person) for name, it in HOLDINGS.items() if it.forget})


def rows_of(
    connection: Connection, channel: str, person: str, *, sids: Sequence[str], turns: Sequence[int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a person's rows, each with the name of its table. `turns` are those of their own conversations, `sids`."""
    names = names_of(connection, channel, person)
    scopes = [f"sender:{it}" for it in names]
    who = {"channel": channel, "person": person, "who": f"{channel}:{person}", "names": names, "scopes": scopes}
    for table, holding in HOLDINGS.items():
        chunks = range(0, len(turns), TURNS_AT_ONCE) if ":turns" in holding.rows else range(1)
        for first in chunks if holding.rows else ():
            some = list(turns[first : first + TURNS_AT_ONCE])
            for row in run(connection, holding.rows, **who, sids=list(sids), turns=some).mappings():
                yield table, dict(row)
