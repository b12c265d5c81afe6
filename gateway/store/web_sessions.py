"""The sign-ins of the web chat: `channels.web.admission.Sessions` on the gateway's own database."""

from collections.abc import Sequence

from sqlalchemy import Connection

from gateway.store.writer import Database, reads, run, writes


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
