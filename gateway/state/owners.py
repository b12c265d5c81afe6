"""The owners of the bot: those named by `owners` in the config, and those added by a claim code. One of the latter may
be this machine's page; on its own it does not own the bot.

Only this module knows both kinds. Claimed owners are few, so every worker keeps them in memory, and the worker that
adds one notifies the others. A revocation on the command line sends no notice, so a claimed owner is read again before
an owner's right is used.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from channels.message import MessageContext
from gateway.store.contacts import hashed, new_code
from gateway.store.owners import DatabaseOwners
from gateway.store.sessions import LOCAL_PERSON

OWNERS_NOTICE = "owners"
"""The notice by which workers announce a new owner; no session has this name."""


@dataclass(eq=False)
class Claimed:
    """The owners added by a claim code, as this worker last read them."""

    stored: DatabaseOwners
    people: Sequence[str] = field(default=(), init=False)
    changed: Callable[[], object] | None = field(default=None, init=False)
    """Called when the owners have changed."""
    _code: str = field(default="", init=False)
    """The claim code of this process, in memory only: the database has its hash."""

    async def load(self) -> None:
        """Reload the claimed owners. Raises StoreUnavailable."""
        before, self.people = self.people, await self.stored.claimed()
        if self.changed and {*self.people} != {*before}:
            self.changed()

    async def verify(self, context: MessageContext) -> None:
        """Reload them if the sender counts as one. Raises StoreUnavailable."""
        if f"{context.channel}:{context.sender.id}" in self.people:
            await self.load()

    async def code(self, at: float) -> str | None:
        """Return a valid claim code; None if the bot is claimed. Raises StoreUnavailable."""
        if self._code and await self.stored.is_offered(hashed(self._code) or "", at):
            return self._code
        self._code = new_code()
        return self._code if await self.stored.offer(hashed(self._code) or "", at) else None


@dataclass(frozen=True, slots=True)
class Owners(Collection[str]):
    """All owners as `channel:id`, those of the config first. `claimed` changes at run time."""

    named: Sequence[str]
    claimed: Claimed

    def __contains__(self, person: object) -> bool:
        return person in self.named or person in self.claimed.people

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.named, *self.claimed.people)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    async def claim_code(self, at: float) -> str | None:
        """Return the code that makes its sender the owner; None if there is one. Raises StoreUnavailable."""
        await self.claimed.load()
        return None if self.is_owned else await self.claimed.code(at)

    @property
    def is_owned(self) -> bool:
        """False while the startup claim code is valid."""
        return bool(self.named) or any(it != LOCAL_PERSON for it in self.claimed.people)

    @property
    def reachable(self) -> Sequence[str]:
        """The users who get notices for owners; without an owner, the user at this machine."""
        return [*iter(self)] or [LOCAL_PERSON]
