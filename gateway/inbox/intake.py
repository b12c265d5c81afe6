"""Turn a verified message into a row of the inbox: check access, pick the agent, and compute the session."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TypeAlias

import orjson
import structlog

from agents.attachments import tag
from agents.prompt.inbound import HEARD_CHARS_MAX
from channels.abilities import AnswersPresses, OwnPlatform, ReadsBots, can
from channels.access import BOT, GROUP_DISABLED, GROUP_NOT_ALLOWED, NOT_MENTIONED, NOT_PAIRED, group_refusal, refusal
from channels.channel import (
    AnsweredAtOnce,
    Arrived,
    Channel,
    DeliveryError,
    Edited,
    Ignored,
    Membership,
    Moved,
    NotReady,
    RateLimited,
    Reacted,
    Recalled,
    Receipt,
    Unreachable,
    Voted,
)
from channels.marks import EDITED
from channels.message import MessageContext, Press
from gateway.approvals import pairing
from gateway.approvals.approvals import Approvals
from gateway.approvals.notices import direct_chat
from gateway.commands.catalog import AT_ONCE, command_of
from gateway.commands.own import CLAIM_WORDS
from gateway.config.channels import configured
from gateway.config.commands import SETTINGS, asks_model
from gateway.config.root import route
from gateway.observe.logs import logged
from gateway.observe.secrets import without_tokens
from gateway.outbox.messenger import pressed, voted
from gateway.outbox.outbox import payload_json
from gateway.program import program
from gateway.state.runtime import Runtime
from gateway.store.approvals import Approval
from gateway.store.changes import Recall
from gateway.store.chatter import line_of
from gateway.store.contacts import contact_name, hashed
from gateway.store.inbound import (
    HANDOVER_REPLY,
    INTRODUCTION,
    MISSPELT,
    PRESSED,
    REMEMBERS,
    UNHEARD,
    Caller,
    Inbound,
    inbound_of,
)
from gateway.store.records import Acceptance, BotRounds, Delivery, KeptLine
from gateway.store.sessions import chat_of, control_session, is_control, is_owner, saying_session, session_key
from gateway.turns.batch import answer_others
from gateway.turns.handovers import Handovers
from gateway.turns.lanes import Lanes
from tools.workspace import forget_message, forget_quoted

log = structlog.get_logger()


EVENT_BYTES_MAX = 65_536
"""The largest event that is stored for inspection."""

EDITED_SECONDS_MAX = 172_800.0
"""The maximum age of a message whose edit may start a turn: Telegram allows edits for two days. Finished messages
are remembered longer than that; an older one may have been answered and forgotten."""


class Intake:
    def __init__(self, runtime: Runtime, approvals: Approvals, lanes: Lanes) -> None:
        self._approvals = approvals
        self._runtime = runtime
        self._lanes = lanes
        self._gatekeeper = Gatekeeper(runtime, approvals, self._store)
        self._told = set[tuple[str, str]]()
        """Remembered groups that have their notice, each with the version of the config."""

    async def receive(self, channel: Channel, receipt: Receipt) -> str:
        """Store or reject a channel's receipt. Return `answered`, `accepted`, `duplicate`, `overflow`, or `ignored: …`
        with the access rule or the channel's reason.

        Raises StoreUnavailable, in which case the platform must redeliver. Raises Rejected if the channel cannot store
        it.
        """
        if isinstance(receipt, AnsweredAtOnce):
            return "answered"
        if isinstance(receipt, Ignored):
            facts = {"channel": channel.name, "account": channel.account, "reason": receipt.reason}
            log.info("event_ignored", kind=receipt.kind, **facts)
            return f"ignored: {receipt.reason}"
        if isinstance(receipt, Recalled):
            return await self._recall(channel, receipt)
        if isinstance(receipt, Reacted):
            return await self._react(channel, receipt)
        if isinstance(receipt, Edited):
            return await self._edit(channel, receipt)
        if isinstance(receipt, Voted):
            return await self._vote(channel, receipt)
        if isinstance(receipt, Moved):
            if any(self._listens(channel, it) for it in (receipt.before, receipt.after)):
                await self._runtime.choices.move(channel.name, channel.account, receipt.before, receipt.after)
                place = f"{channel.name}:{channel.account}:"
                await self._runtime.store.later.move(place, receipt.before, receipt.after)
            return "ignored: group migrated"
        if isinstance(receipt, Membership):
            return await self._join(channel, receipt)
        outcome = await self._admit(channel, receipt)
        if receipt.context.press is not None and can(channel, AnswersPresses):
            channel.answer_press(receipt.context)
        return outcome

    async def _join(self, channel: Channel, receipt: Membership) -> str:
        """Notify the owners of a group that the bot was added to, and introduce the bot there, once."""
        context, listens = receipt.context, self._listens(channel, receipt.context.chat.id)
        facts = {"channel": channel.name, "account": channel.account, "chat": context.chat.id, "by": context.sender.id}
        log.info("bot_added" if receipt.joined else "bot_removed", listens=listens, **facts)
        introduces = listens and (channel.access.introduction or channel.access.remembers(context.chat.id))
        if not receipt.joined or not (introduces or self._runtime.setup.config.notify_owners):
            return "ignored: membership"
        agent = route(self._runtime.setup.config.routes, self._runtime.setup.config.agents, context)
        inbound = Inbound(agent=agent, context=context, command=INTRODUCTION, arguments=receipt.dedupe)
        acceptance = await self._store(inbound, [receipt.dedupe])
        return "duplicate" if acceptance.turn is None else "accepted"

    def _listens(self, channel: Channel, chat: str) -> bool:
        switch = self._runtime.choices.listens_in(channel.name, channel.account, chat)
        return group_refusal(channel.access, chat, switch) is None

    async def _recall(self, channel: Channel, receipt: Recalled) -> str:
        """Recall a message: it is no longer answered, whether it is waiting or its turn is running."""
        runtime, scope = self._runtime, f"{channel.name}:{channel.account}:"
        recall = await runtime.store.changes.recall(
            scope + receipt.dedupe, scope + receipt.chat, receipt.message_id, runtime.now()
        )
        if recall is None:
            return "ignored: not known"
        base = Path(runtime.setup.config.tools.files.uploads_dir)
        await asyncio.to_thread(_forget_files, base, recall, receipt.message_id)
        for sid in recall.sids:
            await runtime.control.apply_stop(sid)
            if asked := {turn for it, turn in recall.turns if it == sid}:
                await self._approvals.cancel(sid, recall.number, partial(_is_of, asked))
        for sid, turn in recall.unanswered:
            await answer_others(runtime, sid, turn)
        log.info("message_recalled", message_id=receipt.message_id, state=recall.state)
        return "recalled"

    async def _react(self, channel: Channel, receipt: Reacted) -> str:
        for sent in await self._runtime.store.sent_parts(ext_id=receipt.message_id):
            to = payload_json.validate_json(sent.payload)
            here = (to.channel, to.account) == (channel.name, channel.account)
            if here and sent.part >= 0 and not is_control(sent.sid) and receipt.chat in ("", to.part.target.chat):
                sender = f"{channel.name}:{channel.account}:{receipt.sender}"
                chatter, rated = self._runtime.store.chatter, (sent.sid, sent.turn, sender, receipt.emoji)
                if receipt.withdrawn:
                    await chatter.unreact(*rated)
                    return "reaction withdrawn"
                await chatter.react(*rated, self._runtime.now())
                log.info("answer_reacted_to", turn=sent.turn, session=sent.sid)
                return "reacted"
        return "ignored: not our answer"

    async def _vote(self, channel: Channel, receipt: Voted) -> str:
        """Deliver a vote in an agent's poll to the poll's conversation, like a press of its button, if the voter may
        use that agent there. Other votes are ignored silently."""
        if found := await voted(self._runtime.store, receipt):
            sid, inbound = found
            if self._may_answer(inbound, sid):
                arrived = replace(receipt.arrived, context=inbound.context, agent=inbound.agent)
                return await self._admit(channel, arrived)
        log.info("vote_ignored", channel=channel.name, account=channel.account, poll=receipt.poll)
        return "ignored: not our poll"

    async def _joins_vote(self, context: MessageContext, sid: str) -> bool:
        """Add a group's vote to the waiting turn of another user's vote, so that many simultaneous votes start few
        turns. Return False if the vote starts a turn itself."""
        chatter = self._runtime.store.chatter
        if context.chat.kind != "group":
            return False
        if await chatter.holds(context):
            return True  # a redelivery
        waiting = [inbound_of(it).context for it in await chatter.unbegun(sid)]
        voters = {it.sender.id for it in waiting if it.is_vote}
        if not voters or context.sender.id in voters:  # a person's own votes are collected as their messages are
            return False
        question = context.reply_to.text if context.reply_to else ""
        heard = f"{context.text} (poll: {question})"[:HEARD_CHARS_MAX]
        await chatter.keep(replace(context, text=heard, reply_to=None), self._runtime.now())
        return True

    async def _edit(self, channel: Channel, receipt: Edited) -> str:
        """Update a waiting message. If its turn is running, queue a message about the change. In a group, an edit
        that adds a mention of the bot is answered like a new message."""
        arrived, scope = receipt.arrived, f"{channel.name}:{channel.account}:"
        context, (change, name) = arrived.context, arrived.dedupe
        if context.chat.kind == "group" and channel.access.remembers(context.chat.id):
            await self._runtime.store.chatter.amend(line_of(context))
        changed = await self._runtime.store.changes.edit(scope + name, context.sender.id, context.text)
        if changed is None and context.mentioned and context.chat.kind == "group":
            if self._runtime.now() - context.sent_at.timestamp() >= EDITED_SECONDS_MAX:
                return "ignored: edit"
            return await self._admit(channel, arrived)
        if changed is None or changed.state == "finished" or context.sender.is_bot:
            return "ignored: edit"
        log.info("message_edited", message_id=context.message_id, state=changed.state)
        if changed.state == "running":
            edited = f"{EDITED}\n"
            context = replace(context, text=edited + context.text, mark=edited + context.mark, attachments=())
            return await self._admit(channel, replace(arrived, context=context, dedupe=(change,)), receipt.number)
        return "edited"

    async def _admit(self, channel: Channel, receipt: Arrived, replays: int = 0) -> str:
        if receipt.context.sender.is_bot:
            receipt = replace(receipt, context=await self._of_bot(channel, receipt.context))
        if (inbound := await self._parse(channel, receipt, replays)) is None:
            return "ignored: no command"
        context, agent = inbound.context, inbound.agent
        facts = {"channel": context.channel, "account": context.account, "message_id": context.message_id}
        line = await self._line(channel, inbound)
        if reason := await self._gatekeeper.refusal(channel, inbound, receipt.dedupe):
            if reason == NOT_PAIRED:
                who = contact_name(context.channel, context.account, context.sender.id)
                facts["approve"] = f"{program()} pairing approve {quote(who)}"
            if reason == NOT_MENTIONED and channel.access.history_in(context.chat.id):
                heard = replace(context, text=context.text[: HEARD_CHARS_MAX + 1], attachments=(), reply_to=None)
                await self._runtime.store.chatter.keep(heard, self._runtime.now())
            if line:
                await self._runtime.store.chatter.remember(line)
            log.info("message_not_admitted", reason=reason, sender=context.sender.id, chat=context.chat.id, **facts)
            return f"ignored: {reason}"
        context = await self._runtime.languages.found(context, self._runtime.setup.config.language)
        if can(channel, OwnPlatform):
            shown = replace(context, text=f"/{CLAIM}") if inbound.command == CLAIM else context
            sets = inbound.command in SETTINGS and bool(inbound.arguments)  # no conversation is called by a setting
            context = replace(await channel.keep(shown, agent, names=not sets), text=context.text)
        sid = self._session(agent, context)
        if context.is_vote and await self._joins_vote(context, sid):
            log.info("vote_heard", session=sid, **facts)
            return "accepted"
        event = "" if inbound.command else self._event(receipt)
        inbound = replace(inbound, context=context, event=event)
        acceptance = await self._store(inbound, receipt.dedupe, sid, line)
        if acceptance.out_of_rounds:
            log.info("message_not_admitted", reason=BOT_ROUNDS, sender=context.sender.id, chat=context.chat.id, **facts)
            return f"ignored: {BOT_ROUNDS}"
        outcome = "duplicate" if acceptance.turn is None else "overflow" if acceptance.overflow else "accepted"
        log.info("message_" + outcome, turn=acceptance.turn, session=sid, **facts)
        return outcome

    async def _parse(self, channel: Channel, receipt: Arrived, replays: int) -> Inbound | None:
        """Parse the session's chat, the agent and the command of a message. Return None for a menu entry that names
        no command."""
        context, named, runtime = receipt.context, receipt.agent or "", self._runtime
        if context.press is not None and not context.press.label:
            context, named = await self._pressed(channel, context, context.press, named)
        command, arguments = command_of(context)
        if command is None and (found := await Handovers().serve(runtime).of_reply(context)):
            command, arguments = HANDOVER_REPLY, f"{found[0]} {found[1]}"
            context = replace(context, mentioned=True, reply_to=None)  # what it quotes is the person's
        if receipt.is_menu:
            if command in (None, MISSPELT):
                return None
            context = replace(context, chat=await direct_chat(runtime, context))
        if command == CLAIM and arguments and arguments.split()[0].lower() not in CLAIM_WORDS:
            arguments = hashed(arguments.split()[-1]) or "none"  # what is stored of it can claim nothing
            context = replace(context, text=f"/{CLAIM} {arguments}")
        is_ours = named and context.press and context.press.label  # a button's or a poll's agent is open to its presser
        agent = named if is_ours else runtime.agent(context, named)  # the page's sender can name any
        return Inbound(agent=agent, context=context, command=command, arguments=arguments, replays=replays)

    async def _of_bot(self, channel: Channel, context: MessageContext) -> MessageContext:
        """Find out whether a bot's message is from a bot of this gateway, if it would then be answered. Raises NotReady if
        the platform cannot be asked now."""
        switch, setup = self._runtime.choices.listens(context), self._runtime.setup
        others = {it.kind.bot(it.config) for it in configured(setup.config.channels) if it.kind.name == channel.name}
        best = replace(context, sender=replace(context.sender, is_peer=len(others) > 1), mentioned=True)
        passes = [refusal(channel.access, it, switch=switch) is None for it in (context, best)]
        if passes != [False, True]:
            return context
        bot, mentioned = context.sender.id, context.mentioned
        if can(channel, ReadsBots):
            try:
                bot, mentioned = await channel.read_bot(context)
            except (Unreachable, RateLimited) as error:
                raise NotReady(str(error)) from error
            except DeliveryError as error:
                log.info("bot_not_read", channel=channel.name, account=channel.account, error=str(error))
        return replace(context, sender=replace(context.sender, is_peer=bot in others), mentioned=mentioned)

    def _event(self, receipt: Arrived) -> str:
        """Return the event as stored; empty if layers are not kept or it cannot be serialised. A message is never
        lost because of it."""
        if receipt.event is None or not self._runtime.setup.config.console.keep_days:
            return ""
        with suppress(TypeError):
            written = orjson.dumps(without_tokens(receipt.event))
            if len(written) <= EVENT_BYTES_MAX:
                return self._runtime.scrubber.scrub(written.decode())
            return orjson.dumps({"omitted": f"{len(written):,} bytes"}).decode()
        return ""

    async def _pressed(
        self, channel: Channel, context: MessageContext, press: Press, named: str
    ) -> tuple[MessageContext, str]:
        """Turn the press of an agent's button into a message to the button's conversation, if the sender may use
        that agent there; on our own page it becomes the user's message. Any other press is a command in its
        message's chat."""
        if found := await pressed(self._runtime.store, context, press):
            sid, inbound = found
            if self._may_answer(inbound, sid):
                own = replace(inbound.context, press=None) if can(channel, OwnPlatform) else inbound.context
                return own, inbound.agent
        return context if press.placed else await self._placed(context, press), named

    def _may_answer(self, inbound: Inbound, sid: str) -> bool:
        """Return whether the sender of a press or vote may use the agent, and whether it belongs to the agent's
        conversation there."""
        may = self._runtime.is_open(inbound.agent, inbound.context)
        return may and self._session(inbound.agent, inbound.context) == sid

    async def accept(self, context: MessageContext, agent: str, name: str, caller: Caller) -> Acceptance:
        """Accept an API client's message for an agent, without the channel's access rules; it is never a command.
        `name` is its dedupe key within the channel account. Raises StoreUnavailable."""
        return await self._store(Inbound(agent=agent, context=context, asked=caller), (name,))

    async def _line(self, channel: Channel, inbound: Inbound) -> KeptLine | None:
        """Return a person's message as its group keeps it, if the config has the bot remember the group. Send the
        group its notice before the first one."""
        context = inbound.context
        is_said = not (inbound.command or context.sender.is_bot or context.press or context.is_vote)
        if context.chat.kind != "group" or not is_said or not channel.access.remembers(context.chat.id):
            return None
        if not self._listens(channel, context.chat.id):
            return None
        group = chat_of(context), self._runtime.config_state.version
        if group not in self._told and not await self._runtime.store.chatter.has_said(group[0]):
            context = await self._runtime.languages.found(context, self._runtime.setup.config.language)
            about = replace(context.wordless, message_id="", mentioned=False)
            told = Inbound(agent=inbound.agent, context=about, command=INTRODUCTION, arguments=REMEMBERS)
            await self._store(told, [f"{REMEMBERS}:{inbound.context.message_id}"])
        self._told.add(group)
        return line_of(inbound.context)

    async def _store(
        self, inbound: Inbound, dedupe: Sequence[str], sid: str = "", line: KeptLine | None = None
    ) -> Acceptance:
        agent, context, command = inbound.agent, inbound.context, inbound.command
        sid = sid or self._session(agent, context)
        delivery = Delivery.of(
            inbound,
            sid=saying_session(sid) if command == INTRODUCTION else control_session(sid) if command else sid,
            names=dedupe,
            at=self._runtime.now(),
            chat=chat_of(context),
            rates=self._runtime.setup.config.rates.by_whom if asks_model(command) and not inbound.asked else {},
            at_once=command in AT_ONCE,
            line=line,
            repeatable=inbound.asked is not None,
            rounds=self._rounds(context) if context.sender.is_bot else None,
            interrupts=command is None and self._runtime.queue(sid, agent, context).mode == "interrupt",
        )
        acceptance = await self._lanes.accept(delivery)
        if acceptance.rate_limited_by:
            self._runtime.metrics.refusals.labels(f"{acceptance.rate_limited_by}-rate").inc()
        return acceptance

    async def _placed(self, context: MessageContext, press: Press) -> MessageContext:
        """Locate a press in the chat of its message, if that is known; otherwise treat it as in a group."""
        for found in await self._runtime.store.sent_parts(ext_id=press.message_id):
            sent = payload_json.validate_json(found.payload)
            if (sent.channel, sent.account) == (context.channel, context.account):
                break
        else:
            return context
        target, chat = sent.part.target, inbound_of(found.body).context.chat if found.body else None
        if target.chat == context.sender.id:
            return replace(context, chat=replace(context.chat, kind="direct"))
        if chat is None or not target.chat == context.chat.id == chat.id:
            return context
        return replace(context, chat=replace(context.chat, kind=chat.kind, thread=target.thread))

    def _rounds(self, context: MessageContext) -> BotRounds:
        """Return the bound for a bot's message: it counts in all conversations that the bots of this gateway have there."""
        accounts = [account for name, account in self._runtime.setup.channels if name == context.channel]
        found = [conversations_there(self._runtime, replace(context, account=it)) for it in accounts]
        sessions, members = ([sid for it in found for sid in it[which]] for which in (0, 1))
        place = f"{context.channel}:{context.chat.id}#{context.chat.thread or ''}"
        most = self._runtime.setup.limits.bot_rounds
        return BotRounds(place=place, sessions=sessions, members=members, most=most)

    def _session(self, agent: str, context: MessageContext) -> str:
        return session_key(
            agent, self._runtime.choices.before_migration(context), self._runtime.setup.session_rules(agent).scope
        )


def conversations_there(runtime: Runtime, context: MessageContext) -> tuple[list[str], list[str]]:
    """Return the conversations that agents may have in the chat or topic of a message, and what those of single members
    begin with."""
    there, agents = runtime.choices.before_migration(context), list(runtime.setup.runners)
    keys = {it: session_key(it, there, "chat") for it in agents}
    return list(keys.values()), [
        f"{keys[it]}:sender:" for it in agents if runtime.setup.session_rules(it).scope == "sender"
    ]


def _forget_files(base: Path, recall: Recall, message: str) -> None:
    """Delete the files of a recalled message, including where other messages quoted it. Blocking."""
    with logged("uploads_not_deleted"):
        for sid in recall.sids:
            forget_message(base, sid, tag(message))
        for sid, quoting in recall.quoting:
            forget_quoted(base, sid, tag(quoting))


def _is_of(turns: Collection[int], approval: Approval) -> bool:
    return approval.turn in turns


BOT_ROUNDS = "bot-rounds"
CLAIM, LISTENING = "claim", ("listen", "unlisten")
Keep: TypeAlias = Callable[[Inbound, Sequence[str]], Awaitable[Acceptance]]
"""Store a message of the gateway itself under the dedupe keys of the message that it answers."""


class Gatekeeper:
    """Decide why a message starts no turn, before any of it is stored. An unknown sender gets a code and one
    reminder while waiting. Owners may claim the bot and switch a group on where other senders get no reaction."""

    def __init__(self, runtime: Runtime, approvals: Approvals, keep: Keep) -> None:
        self._runtime = runtime
        self._approvals = approvals
        self._keep = keep

    async def refusal(self, channel: Channel, inbound: Inbound, dedupe: Sequence[str]) -> str | None:
        """Return why the message starts no turn; None if it does. The database is queried only for pairing and
        claimed owners."""
        context, command, owners = inbound.context, inbound.command, self._runtime.setup.owners
        await owners.claimed.verify(context)
        owns = is_owner(owners, context)
        switch = self._runtime.choices.listens(context)
        reason = refusal(channel.access, context, is_owner=owns, switch=switch)
        if context.sender.is_bot:
            return BOT if command or context.press or context.is_vote else reason
        if reason == NOT_MENTIONED and context.chat.thread and channel.access.follows_topics(context.chat.id):
            there = conversations_there(self._runtime, context)
            reason = None if await self._runtime.store.chatter.has_answered(*there) else reason
        decides = command in (PRESSED, "approve", "approvals") and (
            self._approvals.may_decide_any(context) or (reason is not None and await self._approvals.awaits(context))
        )
        claims = command == CLAIM and context.chat.kind == "direct" and await self._may_claim()
        if reason and (decides or claims):  # an approver can be asked, so they may answer; a claim is for strangers
            return refusal(channel.access, context, is_owner=True, switch=switch)
        if reason and owns and context.chat.kind == "group":
            return await self._of_owner(inbound, dedupe, reason)
        return await self._of_stranger(inbound, dedupe) if reason == NOT_PAIRED else reason

    async def _may_claim(self) -> bool:
        """Return whether the bot has no owner yet, or an owner has an open code for another account."""
        runtime = self._runtime
        return not runtime.setup.owners.is_owned or await runtime.store.owners.is_inviting(runtime.now())

    async def _of_owner(self, inbound: Inbound, dedupe: Sequence[str], reason: str) -> str | None:
        """Let owners' listening commands pass in a group that is off; reply to a mention there with one line."""
        if inbound.command in LISTENING and reason in (GROUP_NOT_ALLOWED, GROUP_DISABLED, NOT_MENTIONED):
            return None
        context = inbound.context
        if reason in (GROUP_NOT_ALLOWED, GROUP_DISABLED) and context.mentioned and context.press is None:
            spoken = await self._runtime.languages.found(context, self._runtime.setup.config.language)
            kept = replace(context.wordless, language=spoken.language)
            await self._keep(Inbound(agent=inbound.agent, context=kept, command=UNHEARD, arguments=reason), dedupe)
        return reason

    async def _of_stranger(self, inbound: Inbound, dedupe: Sequence[str]) -> str | None:
        """Give a code to an unknown sender without a recent one, and one reminder to one who waits. Their language
        is stored, never their text."""
        context, runtime = inbound.context, self._runtime
        place = context.channel, context.account, context.sender.id
        state = await runtime.store.contact_state(*place, runtime.now())
        if state == "paired":
            return None
        if state in ("new", "waiting") and context.press is None:
            spoken = await runtime.languages.found(context, runtime.setup.config.language)
            request = pairing.request(spoken, inbound.agent, again=state == "waiting")
            acceptance = await self._keep(request, dedupe)
            # Register now: pending requests are capped, also while no lane is free.
            if acceptance.turn is not None and state == "new":
                await pairing.register(runtime, acceptance.turn, request)
            elif acceptance.turn is not None:
                await runtime.store.contacts.remind(*place, turn=acceptance.turn)
        return NOT_PAIRED
