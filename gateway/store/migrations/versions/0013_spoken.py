"""The speakers in transcript rows, revisions of conversations, and an index of words that forgets a turn exactly."""

import json
import re
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ROWS_AT_ONCE = 500
_BLOCK = r"^{} \(untrusted metadata\):\n```json\n(.*)\n```$"
_INFO, _QUOTE, _HEARD = (
    re.compile(_BLOCK.format(it), re.MULTILINE)
    for it in ("Conversation info", "Replied message", "Chat history since your last reply")
)
_NOBODY: dict[str, Any] = {"message": "", "person": "", "name": "", "direct": 0, "parts": 0}
_ID = re.compile(r"\[message_id: ([^\]\n]*)\]\n")


def upgrade() -> None:
    # counts what was taken out of the conversation: whoever has read an older one writes nothing more
    op.add_column("session", sa.Column("revision", _BigId, nullable=False, server_default="0"))
    op.add_column("inbox", sa.Column("person", sa.Text))  # channel:id of its sender; NULL for the gateway's own
    op.add_column("inbox", sa.Column("again", _BigId))  # 1: the gateway's own copy of a message that came before
    op.add_column("note", sa.Column("sid", sa.Text))  # the conversation it was made from; NULL where it was dictated
    spoken = op.create_table(
        "spoken",
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("seq", _BigId, nullable=False),  # the row of the transcript
        sa.Column("place", _BigId, nullable=False),  # among the messages of that row
        sa.Column("turn", _BigId, nullable=False),
        sa.Column("message", sa.Text, nullable=False),  # its id on the platform
        sa.Column("person", sa.Text, nullable=False),  # channel:id; empty where nobody is named
        sa.Column("name", sa.Text, nullable=False),  # as the channel had it
        sa.Column("direct", _BigId, nullable=False),  # 1: nobody else reads that chat
        sa.Column("how", sa.Text, nullable=False),  # said; quoted or heard: then it stands in the metadata
        sa.Column("parts", _BigId, nullable=False),  # of the row's content; 0 for the metadata
        sa.PrimaryKeyConstraint("sid", "seq", "place"),
    )
    connection = op.get_bind()
    for rows in _chunks(_spoken(connection)):
        connection.execute(spoken.insert(), rows)
    op.create_index("spoken_message", "spoken", ["message", "sid"])
    op.create_index("spoken_person", "spoken", ["person"])
    op.create_index("spoken_turn", "spoken", ["turn"])
    op.create_index("transcript_turn", "transcript", ["turn"])  # with `sid` it would be taken for a history as well
    if connection.dialect.name == "sqlite":
        rest = "substr(sender, instr(sender, ':') + 1)"
        person = f"substr(sender, 1, instr(sender, ':')) || substr({rest}, instr({rest}, ':') + 1)"
    else:
        person = r"regexp_replace(sender, '^([^:]*):[^:]*:', '\1:')"
    op.execute(f"UPDATE inbox SET person = {person} WHERE sender IS NOT NULL")
    op.execute(
        "UPDATE inbox SET again = 1 WHERE dedupe LIKE '%:command:%' OR dedupe LIKE '%:recalled:%' "
        "OR dedupe LIKE 'gateway:approval:%' OR dedupe LIKE 'replay:%'"
    )
    op.execute("UPDATE note SET sid = (SELECT sid FROM inbox WHERE id = note.turn AND sid NOT LIKE 'aside:%')")
    op.create_index("note_session", "note", ["sid"])
    op.create_index("approval_turn", "approval", ["turn"])
    _index("inbox_ended", ["sid", "id"], "status <> 0")
    _index("inbox_person", ["person"], "person IS NOT NULL")
    _index("inbox_joined", ["turn"], "turn IS NOT NULL")
    _index("inbox_again", ["sid", "id"], "again IS NOT NULL")
    op.execute("DELETE FROM mark WHERE kind = 'erased'")
    op.drop_table("word")
    op.execute("DELETE FROM indexed")
    op.create_table(  # made again when somebody searches
        "word",
        sa.Column("scope", sa.BigInteger, nullable=False),  # a hash of the session
        sa.Column("term", sa.Text, nullable=False),  # by tools.memory.terms
        sa.Column("turn", _BigId, nullable=False),
        sa.PrimaryKeyConstraint("scope", "term", "turn"),
        sqlite_with_rowid=False,
    )


def _spoken(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    """Yields what the prompts of old rows say, read once and for all."""
    last = ("", -1)
    while True:
        rows = connection.execute(
            sa.text(
                "SELECT sid, seq, turn, content FROM transcript WHERE kind IN ('user', 'steered') "
                "AND (sid > :sid OR sid = :sid AND seq > :seq) ORDER BY sid, seq LIMIT :limit"
            ),
            {"sid": last[0], "seq": last[1], "limit": _ROWS_AT_ONCE},
        ).all()
        for row in rows:
            for place, facts in enumerate(_facts(row.sid.split(":")[2:3], row.content)):
                yield {"sid": row.sid, "seq": row.seq, "turn": row.turn, "place": place, **facts}
        if not rows:
            return
        last = (rows[-1].sid, rows[-1].seq)


def _facts(channel: list[str], content: str) -> Iterator[dict[str, Any]]:
    try:
        message = json.loads(content)
        metadata = message.get("metadata", "")
        infos, quotes = ([json.loads(it) for it in found.findall(metadata)] for found in (_INFO, _QUOTE))
        senders = {it["message_id"]: it for it in infos if it.get("message_id")}
        texts = [(it.get("text") or "") if it.get("type") == "text" else "" for it in message["content"]]
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    said: list[dict[str, Any]] = []
    for text in texts:
        if found := _ID.match(text):
            info = senders.get(found[1], {})
            person = f"{''.join(channel)}:{info['sender_id']}" if info.get("sender_id") else ""
            facts = {"person": person, "name": info.get("sender") or "", "how": "said", "parts": 1}
            said.append({"message": found[1], "direct": int(bool(person) and not info.get("is_group_chat")), **facts})
        elif said:
            said[-1]["parts"] += 1
    yield from said
    for quote in quotes:
        yield _NOBODY | {"message": quote.get("message_id") or "", "how": "quoted"}
    if _HEARD.search(metadata):  # the lines named nobody by an id
        yield _NOBODY | {"how": "heard"}


def _chunks(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    chunk: list[dict[str, Any]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == _ROWS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _index(name: str, columns: list[str], where: str) -> None:
    op.create_index(name, "inbox", columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
