"""The judgement on a message before it is stored: why it starts no turn, and what its sender gets instead.

A stranger gets a code, and one more line while they wait. Some things only a future or present owner may: a claim, while
nobody owns the bot or an owner adds another account, and the commands that switch a group on. Other people get nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from channels.access import GROUP_DISABLED, GROUP_NOT_ALLOWED, NOT_MENTIONED, NOT_PAIRED, refusal
from channels.channel import Arrived, Channel
from channels.message import MessageContext
from gateway.approvals import pairing
from gateway.approvals.approvals import Approvals
from gateway.commands.catalog import command_of
from gateway.commands.own import CLAIM_WORDS
from gateway.state.runtime import Runtime
from gateway.store.contacts import hashed
from gateway.store.inbound import PRESSED, UNHEARD, Inbound
from gateway.store.records import Acceptance
from gateway.store.sessions import is_owner

CLAIM, LISTENING = "claim", ("listen", "unlisten")
Keep: TypeAlias = Callable[[Inbound, Sequence[str]], Awaitable[Acceptance]]
"""Stores one of the gateway's own messages under the names of the message that it answers."""


def is_claim(context: MessageContext) -> bool:
    return (command_of(context) or ("",))[0] == CLAIM


def sealed(context: MessageContext) -> MessageContext:
    """The message with a claim code's hash in the place of the code: what is stored of it can claim nothing."""
    name, arguments = command_of(context) or ("", "")
    if name != CLAIM or not arguments or arguments.split()[0].lower() in CLAIM_WORDS:
        return context
    return replace(context, text=f"/{CLAIM} {hashed(arguments.split()[-1]) or 'none'}")


class Gatekeeper:
    def __init__(self, runtime: Runtime, approvals: Approvals, keep: Keep) -> None:
        self._runtime = runtime
        self._approvals = approvals
        self._keep = keep

    async def refusal(self, channel: Channel, receipt: Arrived, agent: str) -> str | None:
        """Says why the message starts no turn. The database is asked only if pairing decides, or about a claimed owner."""
        context, owners = receipt.context, self._runtime.setup.owners
        await owners.claimed.verify(context)
        owns = is_owner(owners, context)
        switch = self._runtime.choices.listens(context)
        reason = refusal(channel.access, context, is_owner=owns, switch=switch)
        command, _ = command_of(context) or ("", "")
        decides = command in (PRESSED, "approve", "approvals") and self._approvals.may_decide_any(context)
        claims = command == CLAIM and context.chat.kind == "direct" and await self._may_claim()
        if reason and (decides or claims):  # an approver can be asked, so they may answer; a claim is for strangers
            return refusal(channel.access, context, is_owner=True, switch=switch)
        if reason and owns and context.chat.kind == "group":
            return await self._of_owner(receipt, agent, reason, command)
        return await self._of_stranger(receipt, agent) if reason == NOT_PAIRED else reason

    async def _may_claim(self) -> bool:
        """True while nobody owns the bot, or an owner waits for another account of theirs."""
        runtime = self._runtime
        return not runtime.setup.owners.is_owned or await runtime.store.owners.is_inviting(runtime.now())

    async def _of_owner(self, receipt: Arrived, agent: str, reason: str, command: str) -> str | None:
        """Lets the commands that switch listening on pass, in a group without it; a mention there gets a line."""
        if command in LISTENING and reason in (GROUP_NOT_ALLOWED, GROUP_DISABLED, NOT_MENTIONED):
            return None
        context = receipt.context
        if reason in (GROUP_NOT_ALLOWED, GROUP_DISABLED) and context.mentioned and context.press is None:
            spoken = await self._runtime.languages.found(context, self._runtime.setup.config.language)
            kept = replace(context.wordless, language=spoken.language)
            await self._keep(Inbound(agent=agent, context=kept, command=UNHEARD, arguments=reason), receipt.dedupe)
        return reason

    async def _of_stranger(self, receipt: Arrived, agent: str) -> str | None:
        """Give a code to a stranger who has had none lately, and one more line to one who waits. Their language is stored,
        never their text."""
        context, runtime = receipt.context, self._runtime
        place = context.channel, context.account, context.sender.id
        state = await runtime.store.contact_state(*place, runtime.now())
        if state == "paired":
            return None
        if state in ("new", "waiting") and context.press is None:
            spoken = await runtime.languages.found(context, runtime.setup.config.language)
            request = pairing.request(spoken, agent, again=state == "waiting")
            acceptance = await self._keep(request, receipt.dedupe)
            # At once: a crowd finds the places taken even while no lane is free.
            if acceptance.turn is not None and state == "new":
                await pairing.register(runtime, acceptance.turn, request)
            elif acceptance.turn is not None:
                await runtime.store.contacts.remind(*place, turn=acceptance.turn)
        return NOT_PAIRED
