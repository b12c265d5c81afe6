"""Tools of MCP servers as owners have reviewed them: the accepted definition, and the pending one.

The first listing of a server is accepted, because the operator has just configured it. Later, new or changed tools are
pending. A tool that disappears keeps its row, so that it cannot return as a different one.
"""

import hashlib
from collections.abc import Mapping

from sqlalchemy import Connection

from gateway.store.operations import Database, Lock, lock, reads, run, writes
from tools.mcp.server import Review

FIRST = "first listing"
"""The reviewer of a server's first listing."""
_ACCEPT = """
INSERT INTO mcp_tool (server, tool, accepted, pending, hash, accepted_at, accepted_by)
VALUES (:server, :tool, :text, '', :hash, :at, :by)
ON CONFLICT (server, tool) DO UPDATE SET accepted = excluded.accepted, pending = '', hash = excluded.hash,
    accepted_at = excluded.accepted_at, accepted_by = excluded.accepted_by
"""
_WAIT = """
INSERT INTO mcp_tool (server, tool, pending) VALUES (:server, :tool, :text)
ON CONFLICT (server, tool) DO UPDATE SET pending = excluded.pending
"""


class DatabaseReviews(Database):
    async def record(self, server: str, listed: Mapping[str, str], at: float) -> Mapping[str, Review]:
        """Store a server's listing and return its reviews."""
        known = await self.of(server)
        differing = {tool: text for tool, text in listed.items() if text != (known.get(tool) or Review()).accepted}
        return known if known and _waiting(known) == differing else await self._record(server, listed, at)

    @reads
    def of(self, connection: Connection, server: str) -> Mapping[str, Review]:
        """Return the server's reviews by tool name."""
        return reviewed(connection, server)

    @writes
    def _record(
        self, connection: Connection, server: str, listed: Mapping[str, str], at: float
    ) -> Mapping[str, Review]:
        lock(connection, Lock.REVIEWS)  # or replicas that start together could both see the first listing
        known = reviewed(connection, server)
        for tool, text in listed.items():
            if not known:
                _accept(connection, server, tool, text, at=at, by=FIRST)
            elif text != (known.get(tool) or Review()).accepted:
                run(connection, _WAIT, server=server, tool=tool, text=text)
        for tool, review in known.items():
            if review.pending and listed.get(tool) in (None, review.accepted):
                run(connection, _WAIT, server=server, tool=tool, text="")
        return reviewed(connection, server)

    @writes
    def accept(self, connection: Connection, server: str, *, by: str, at: float, digest: str | None) -> list[str]:
        """Accept the pending tools if they still match `digest`, or in any case without one. Return the tools.
        Idempotent per user and `digest`."""
        known = reviewed(connection, server)
        if digest is not None and digest != digest_of(known):
            return _accepted_before(connection, server, by, digest)
        waiting = _waiting(known)
        for tool, text in waiting.items():
            _accept(connection, server, tool, text, at=at, by=by)
        return sorted(waiting)


def digest_of(known: Mapping[str, Review]) -> str:
    """Return the digest of the pending tools."""
    return _digest(_waiting(known))


def _waiting(known: Mapping[str, Review]) -> dict[str, str]:
    return {tool: it.pending for tool, it in known.items() if it.pending}


def _digest(texts: Mapping[str, str]) -> str:
    joined = "\0".join(f"{tool}\0{text}" for tool, text in sorted(texts.items()))
    return hashlib.sha256(joined.encode(errors="replace")).hexdigest()[:16]


def _accepted_before(connection: Connection, server: str, by: str, digest: str) -> list[str]:
    """Return the tools that a user accepted together under that digest."""
    accepted: dict[float, dict[str, str]] = {}
    theirs = "SELECT tool, accepted, accepted_at FROM mcp_tool WHERE server = :server AND accepted_by = :by"
    for row in run(connection, theirs, server=server, by=by):
        accepted.setdefault(row.accepted_at, {})[row.tool] = row.accepted
    return next((sorted(tools) for tools in accepted.values() if _digest(tools) == digest), [])


def reviewed(connection: Connection, server: str) -> dict[str, Review]:
    rows = run(connection, "SELECT tool, accepted, pending FROM mcp_tool WHERE server = :server", server=server)
    return {row.tool: Review(accepted=row.accepted, pending=row.pending) for row in rows}


def _accept(connection: Connection, server: str, tool: str, text: str, *, at: float, by: str) -> None:
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    run(connection, _ACCEPT, server=server, tool=tool, text=text, hash=digest, at=at, by=by)
