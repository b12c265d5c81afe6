"""`channels.web.admission.Sessions` in the gateway's own database: every replica knows who has signed out."""

from collections.abc import Sequence

from sqlalchemy import delete, exists, or_, select

from gateway.store.archive import Run
from gateway.store.tables import web_session


class DatabaseSessions:
    """`read` and `write` may be the same."""

    def __init__(self, *, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def begin(self, key: str, *, ends: float, at: float, instead_of: Sequence[str]) -> None:
        over = delete(web_session).where(or_(web_session.c.ends <= at, web_session.c.key.in_(instead_of)))
        new = web_session.insert().values(key=key, ends=ends)
        await self._write(lambda c: (c.execute(over), c.execute(new)))

    async def end(self, keys: Sequence[str]) -> None:
        await self._write(lambda c: c.execute(delete(web_session).where(web_session.c.key.in_(keys))))

    async def hold(self, keys: Sequence[str], at: float) -> bool:
        held = select(exists().where(web_session.c.key.in_(keys), web_session.c.ends > at))
        return await self._read(lambda c: bool(c.scalar(held)))
