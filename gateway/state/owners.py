"""The owners of the bot: the people whom `owners` in the config names, and those whom a claim code made owners. One of
these may be the page at this machine, which the owner keeps; alone, it does not own the bot.

This is the one place that knows both. The claimed ones are few, so every worker has them in memory; the worker that
makes one notifies the other workers. A revocation on the command line notifies nobody, so a claimed owner is looked up
again before an owner's right is used.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from channels.message import MessageContext
from gateway.store.contacts import hashed, new_code
from gateway.store.owners import DatabaseOwners
from gateway.store.sessions import LOCAL_PERSON

OWNERS_NOTICE = "owners"
"""The notice by which workers tell each other of a new owner; no session has this name."""


@dataclass(eq=False)
class Claimed:
    """The people whom a claim code made owners, as this worker last read them."""

    stored: DatabaseOwners
    people: Sequence[str] = field(default=(), init=False)
    changed: Callable[[], object] | None = field(default=None, init=False)
    """Is called when there are others."""
    _code: str = field(default="", init=False)
    """The claim code of this process, which alone knows it: the database has its hash."""

    async def load(self) -> None:
        """Raises StoreUnavailable."""
        before, self.people = self.people, await self.stored.claimed()
        if self.changed and {*self.people} != {*before}:
            self.changed()

    async def verify(self, context: MessageContext) -> None:
        """Reads them again if the sender counts as one. Raises StoreUnavailable."""
        if f"{context.channel}:{context.sender.id}" in self.people:
            await self.load()

    async def code(self, at: float) -> str | None:
        """A code that still makes a person an owner; None if the bot is claimed. Raises StoreUnavailable."""
        if self._code and await self.stored.is_offered(hashed(self._code) or "", at):
            return self._code
        self._code = new_code()
        return self._code if await self.stored.offer(hashed(self._code) or "", at) else None


@dataclass(frozen=True, slots=True)
class Owners(Collection[str]):
    """All owners, as `channel:id`; those of the config come first. `claimed` may grow and shrink."""

    named: Sequence[str]
    claimed: Claimed

    def __contains__(self, person: object) -> bool:
        return person in self.named or person in self.claimed.people

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.named, *self.claimed.people)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    async def claim_code(self, at: float) -> str | None:
        """The code with which a person becomes the owner; None if there is one. Raises StoreUnavailable."""
        await self.claimed.load()
        return None if self.is_owned else await self.claimed.code(at)

    @property
    def is_owned(self) -> bool:
        """False while the claim code of the start counts."""
        return bool(self.named) or any(it != LOCAL_PERSON for it in self.claimed.people)

    @property
    def reachable(self) -> Sequence[str]:
        """The people who hear of what an owner should know; without an owner, the person at this machine."""
        return [*iter(self)] or [LOCAL_PERSON]
