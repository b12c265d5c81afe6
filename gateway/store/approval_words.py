"""The words in approvals and in the messages about them: what an erasure and a recall take of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection

from gateway.store.statements import WAITS
from gateway.store.writer import run

_WORDLESS: Mapping[str, Any] = {"text": "", "attachments": [], "reply_to": None}


def forget_approvals(connection: Connection, turns: Sequence[int]) -> Mapping[str, int]:
    """Leaves only the audit of these turns, which holds no words; what was sent to the approvers goes. Rows by table."""
    found = run(connection, "SELECT id, surfaces FROM approval WHERE turn IN :turns", turns=list(turns)).all()
    for row in found:
        names = {"notices": _notices(row)}
        run(connection, "DELETE FROM outbox WHERE turn IN (SELECT id FROM inbox WHERE dedupe IN :notices)", **names)
        run(connection, f"UPDATE inbox SET body = '' WHERE dedupe IN :notices AND NOT {WAITS}", **names)
        run(connection, "DELETE FROM approval_token WHERE approval = :id", id=row.id)
        run(connection, "DELETE FROM approval WHERE id = :id", id=row.id)
    return {"approval": len(found)} if found else {}


def forget_words(connection: Connection, turn: int) -> None:
    """Keeps what was asked in a turn, without the words of the message that the turn answered."""
    for row in run(connection, "SELECT id, origin, surfaces FROM approval WHERE turn = :turn", turn=turn).all():
        surfaces = _json([it | {"context": it["context"] | _WORDLESS} for it in orjson.loads(row.surfaces)])
        names = {"origin": _json(orjson.loads(row.origin) | _WORDLESS), "surfaces": surfaces, "id": row.id}
        run(connection, "UPDATE approval SET origin = :origin, surfaces = :surfaces WHERE id = :id", **names)
        notices = "SELECT id, body FROM inbox WHERE dedupe IN :notices AND body <> ''"
        for notice in run(connection, notices, notices=_notices(row)).all():
            inbound = orjson.loads(notice.body)
            body = _json(inbound | {"context": inbound["context"] | _WORDLESS})
            run(connection, "UPDATE inbox SET body = :body WHERE id = :id", body=body, id=notice.id)


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


def _notices(row: Any) -> list[str]:
    """The dedupe keys of what an approval has people told."""
    purposes = [f"{it}:{number}" for number in range(len(orjson.loads(row.surfaces))) for it in ("ask", "settled")]
    return [f"gateway:approval:{row.id}:{it}" for it in ("decided", *purposes)]
