"""People's logins at a platform, and the logins that wait to be finished.

Tokens are here sealed only: the room above seals and opens them. Replicas refresh one at a time: a claim on the row with
an end, by the database's clock, and every later write names the revision that was read. A login that waits is a row of
`later`, one a person, which is changed under a lock.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from sqlalchemy import Connection

from gateway.store import later
from gateway.store.later import Change, Later
from gateway.store.operations import Database, is_shared, reads, records, run, value, writes

PENDING = "login"
"""The kind of a row of `later` that waits for a person to log in."""
_GET = "SELECT * FROM login WHERE channel = :channel AND account = :account AND person = :person"
_ALL = "SELECT * FROM login ORDER BY channel, account, person"
_SET = """
INSERT INTO login (channel, account, person, name, scopes, access, refresh, access_until, refresh_until, revision, since,
    ended)
VALUES (:channel, :account, :person, :name, :scopes, :access, :refresh, :access_until, :refresh_until, 1, :since, NULL)
ON CONFLICT (channel, account, person) DO UPDATE SET name = excluded.name, scopes = excluded.scopes,
    access = excluded.access, refresh = excluded.refresh, access_until = excluded.access_until,
    refresh_until = excluded.refresh_until, revision = login.revision + 1, since = excluded.since, ended = NULL,
    busy_until = NULL
"""
_CLAIM = """
UPDATE login SET busy_until = :until
WHERE channel = :channel AND account = :account AND person = :person AND revision = :revision AND ended IS NULL
AND (busy_until IS NULL OR busy_until < :now) RETURNING person
"""
_REFRESHED = """
UPDATE login SET access = :access, refresh = :refresh, access_until = :access_until, refresh_until = :refresh_until,
    scopes = :scopes, revision = revision + 1, busy_until = NULL
WHERE channel = :channel AND account = :account AND person = :person AND revision = :revision AND ended IS NULL
RETURNING person
"""
_RELEASE = """
UPDATE login SET busy_until = NULL
WHERE channel = :channel AND account = :account AND person = :person AND revision = :revision
"""
_END = """
UPDATE login SET access = NULL, refresh = NULL, busy_until = NULL, revision = revision + 1, ended = :at
WHERE channel = :channel AND account = :account AND person = :person AND revision = :revision AND ended IS NULL
"""
_FORGET = """
DELETE FROM login WHERE channel = :channel AND person = :person AND (:account = '' OR account = :account) RETURNING name
"""
_FORGET_PENDING = "DELETE FROM later WHERE kind = 'login' AND owner = :owner"
_OWNERS_PENDING = "SELECT DISTINCT owner FROM later WHERE kind = 'login' AND owner LIKE :channel"
_CLOCK = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """A person's login. `access` and `refresh` are sealed, and None once it has `ended`. The tokens end at the times
    `access_until` and `refresh_until`. `scopes` are separated by blanks."""

    channel: str
    account: str
    person: str
    name: str = ""
    scopes: str = ""
    access: str | None = field(default=None, repr=False)
    refresh: str | None = field(default=None, repr=False)
    access_until: float = 0.0
    refresh_until: float = 0.0
    revision: int = 0
    since: float = 0.0
    ended: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.channel, self.account, self.person

    @property
    def granted(self) -> frozenset[str]:
        return frozenset(self.scopes.split())

    @property
    def whose(self) -> str:
        """The person as the database names people."""
        return ":".join(self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingChange(Change):
    login: Login | None = None


class DatabaseLogins(Database):
    @reads
    def get(self, connection: Connection, channel: str, account: str, person: str) -> Login | None:
        return _login(connection, channel, account, person)

    @writes
    def claim(self, connection: Connection, login: Login, *, now: float, seconds: float) -> bool:
        """Claim the refresh of a login in the state that was read, for at most so many seconds. Return False if
        another worker has it or the login has changed."""
        if not is_shared(connection):  # the one process knows what it does, and a claim of one that died blocks nobody
            return run(connection, _CLAIM, **asdict(login), now=now, until=0.0).first() is not None
        at: float = value(connection, _CLOCK)
        return run(connection, _CLAIM, **asdict(login), now=at, until=at + seconds).first() is not None

    @writes
    def refreshed(self, connection: Connection, login: Login) -> bool:
        """Store the next pair over the revision that was read; False if the login was ended or forgotten meanwhile."""
        return run(connection, _REFRESHED, **asdict(login)).first() is not None

    @writes
    def release(self, connection: Connection, login: Login) -> None:
        """Let others try to refresh it."""
        run(connection, _RELEASE, **asdict(login))

    @writes
    def end(self, connection: Connection, login: Login, at: float) -> None:
        """Forget the tokens of a login that the platform refuses, and keep its name and scopes for the next one."""
        run(connection, _END, **asdict(login), at=at)

    @writes
    def forget(self, connection: Connection, channel: str, account: str, person: str) -> bool:
        """Delete a login, with the one that waits; True if there was one."""
        return bool(forget(connection, channel, person, account))

    @writes
    def hasten(self, connection: Connection, now: float) -> None:
        """Make the logins that wait due, if no other process may be asking about them."""
        if not is_shared(connection):
            run(connection, "UPDATE later SET due = :now WHERE kind = 'login' AND due > :now", now=now)

    @writes
    def change(
        self, connection: Connection, id_: str, make: Callable[[Later | None], PendingChange | None]
    ) -> PendingChange | None:
        """Change the row that waits as `make` says, together with a login and messages; None changes nothing."""
        change = later.change(connection, id_, make)
        if change is not None and change.login is not None:
            run(connection, _SET, **asdict(change.login))
        return change


def logins(connection: Connection) -> Sequence[Login]:
    """Return every login, for an operator's report."""
    return records(connection, Login, _ALL)


def forget(connection: Connection, channel: str, person: str, account: str = "") -> Sequence[str]:
    """Delete a person's logins, at every account if `account` is empty, and those that wait; return their names."""
    gone = list(run(connection, _FORGET, channel=channel, person=person, account=account).scalars())
    for owner in run(connection, _OWNERS_PENDING, channel=f"{channel}:%").scalars().all():
        _, at, whose = owner.split(":", 2)
        if whose == person and account in ("", at):
            run(connection, _FORGET_PENDING, owner=owner)
    return gone


def _login(connection: Connection, channel: str, account: str, person: str) -> Login | None:
    return next(iter(records(connection, Login, _GET, channel=channel, account=account, person=person)), None)
