"""Logins that wait to be finished: the card, the polls, and the turns that continue afterwards.

Each is a row of `later`, one a person, that is due at every poll; the worker that moves the row polls, so one replica asks
at a time, also after a crash. The end of the wait is one transaction: the login, the card's last state and the turns that
waited for it, each once.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from math import ceil
from typing import Literal, TypeAlias

import structlog
from pydantic import TypeAdapter

from channels.abilities import can
from channels.channel import DeliveryError, Unreachable
from channels.login import DeviceLogin, LoginFailed, LoginReason, LogsIn, Tokens
from channels.message import Chat, MessageContext, Origin
from gateway.config.root import route
from gateway.observe.logs import logged
from gateway.state.runtime import Runtime
from gateway.state.seal import Seal, Unsealable
from gateway.store.errors import StoreUnavailable
from gateway.store.inbound import LOGIN_CARD, LOGIN_END, Inbound, inbound_of
from gateway.store.later import Later
from gateway.store.logins import PENDING, Login, PendingChange
from gateway.store.records import Delivery
from gateway.store.sessions import (
    agent_of,
    chat_of,
    control_session,
    conversation,
    sender_behind,
    sender_of,
    session_key,
)
from tools.tool import ToolError

LoginEnd: TypeAlias = LoginReason | Literal["done", "stranger", "cancelled", "replaced"]
"""`stranger`: another person logged in. `replaced`: another card follows."""
INTERVAL_MORE_SECONDS, INTERVAL_SECONDS_MAX = 5.0, 60.0
KEEP_TRIES, KEEP_SECONDS = 30, 1.0
"""Tries to store what the platform gives once, and the seconds between two."""
SPARE_SECONDS = 10.0
"""A poll may take this much longer than its request."""
SEALED = "device"
log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingTurn:
    """A turn that continues after the login. `context` is the message that it answered, without text."""

    session: str
    turn: int
    context: MessageContext
    tainted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingLogin:
    """A login that waits. `run` tells it from others of the person, whose direct chat `context` is. `device_code` is
    sealed, and so are the `tokens` that the platform has issued for it: whose they are is asked next. `cards` are the dedupe
    keys of the messages that show it. `again`: it replaces one that a crash lost."""

    run: str
    device_code: str
    user_code: str
    url: str
    scopes: tuple[str, ...]
    interval_seconds: float
    expires: float
    context: MessageContext
    agent: str
    cards: tuple[str, ...] = ()
    waiting: tuple[WaitingTurn, ...] = ()
    again: bool = False
    tokens: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CardEnd:
    """The last state of a card, whose message has the dedupe key `card`."""

    card: str
    end: LoginEnd
    name: str = ""
    link: str = ""


Make: TypeAlias = Callable[[Later | None, PendingLogin | None], PendingChange | None]
pending_json: TypeAdapter[PendingLogin] = TypeAdapter(PendingLogin)
issued_json: TypeAdapter[tuple[float, Tokens]] = TypeAdapter(tuple[float, Tokens])
card_end_json: TypeAdapter[CardEnd] = TypeAdapter(CardEnd)


class PendingLogins:
    def __init__(self, runtime: Runtime, seal: Seal, wake: Callable[[], None]) -> None:
        self._runtime, self._seal, self._wake = runtime, seal, wake
        self._store = runtime.store.logins

    async def begin(
        self,
        channel: LogsIn,
        context: MessageContext,
        scopes: Sequence[str],
        *,
        login: Login | None,
        waiting: WaitingTurn | None = None,
        command: int = 0,
    ) -> bool:
        """Show the sender of `context` the card of the login that waits for them, or of a new one for these scopes and the
        granted ones. `waiting` continues after it; `command` is the number of the message that asked. Return False if the
        login that waited has just ended. Idempotent. Raises LoginFailed, DeliveryError, StoreUnavailable, OSError."""
        id_, now = row_id(context), self._runtime.now()
        card = f"command {command}" if waiting is None else f"turn {waiting.session} {waiting.turn}"
        known, fresh = _read(await self._row(id_)), None
        if known is None or now >= known.expires or not set(known.scopes).issuperset(scopes):
            waits_for = known.scopes if known and now < known.expires else ()
            others = {*(login.granted if login else ()), *waits_for}
            begun, wanted = await _begun(channel, scopes or channel.login.scopes, sorted(others))
            fresh = self._pending(begun, context, wanted, now)

        def make(stored: Later | None, waits: PendingLogin | None) -> PendingChange | None:
            if fresh is not None and (waits is None or waits.run == (known.run if known else "")):
                ended = self._ends(waits, "replaced") if waits else []
                pending = replace(fresh, waiting=waits.waiting if waits else ())
                return self._shown(id_, None, pending, card, waiting, ended)
            if waits is None:
                return None
            if context.chat.kind == "direct":  # their id alone may not have reached them
                waits = replace(waits, context=direct_of(context))
            return self._shown(id_, stored, waits, card, waiting)

        shown = await self._change(id_, make)
        self._wake()
        return shown

    async def cancel(self, context: MessageContext) -> None:
        """End the login that waits for the sender. Idempotent. Raises StoreUnavailable."""
        if waits := _read(await self._row(row_id(context))):
            await self._settle(row_id(context), waits, "cancelled")

    async def get(self, id_: str, run: str) -> PendingLogin | None:
        """Return the login if it still waits. Raises StoreUnavailable."""
        waits = _read(await self._row(id_))
        return waits if waits is not None and waits.run == run else None

    async def poll(self, row: Later) -> None:
        """Ask the platform once whether the login is finished, and do what follows. Raises nothing."""
        with logged("login_not_polled"):
            if (pending := _read(row)) is not None:
                await self._poll(row.id, pending)

    async def _poll(self, id_: str, pending: PendingLogin) -> None:
        end: LoginEnd | None = "expired" if self._runtime.now() >= pending.expires else None
        seconds, login, link = pending.interval_seconds, None, ""
        try:
            login = await self._finished(id_, pending)
            end = "done" if login else "stranger"
        except DeliveryError as error:
            log.info("login_poll_failed", error=type(error).__name__)
        except LoginFailed as error:
            link = error.link
            if error.reason == "slow_down":
                seconds = min(seconds + INTERVAL_MORE_SECONDS, INTERVAL_SECONDS_MAX)
            elif error.reason == "lost" and not pending.again and await self._began_again(id_, pending):
                return None
            elif error.reason not in ("pending", "busy"):
                end = error.reason
        if end is None:
            return await self._update(id_, pending.run, seconds=seconds)
        await stored_at_last(lambda: self._settle(id_, pending, end, login=login, link=link))
        log.info("login_waits_no_more", account=pending.context.account, end=end)
        return None

    async def _finished(self, id_: str, pending: PendingLogin) -> Login | None:
        """Return the login that the person has finished; None if another person has. Raises LoginFailed, DeliveryError."""
        context, channel = pending.context, self._channel(pending)
        if channel is None:
            raise Unreachable("the account is not configured now")
        try:
            if pending.tokens:
                at, tokens = issued_json.validate_json(self._seal.unseal(pending.tokens, id_, SEALED))
            else:
                code, at = self._seal.unseal(pending.device_code, id_, SEALED), self._runtime.now()
                tokens = await channel.login.poll(code)
                text = self._seal.seal(issued_json.dump_json((at, tokens)).decode(), id_, SEALED)
                await stored_at_last(lambda: self._update(id_, pending.run, tokens=text))
        except Unsealable:
            raise LoginFailed("lost") from None
        owner = await channel.login.owner(tokens.access)
        if owner.id != context.sender.id:
            return None
        login = Login(channel=context.channel, account=context.account, person=owner.id, name=owner.name, since=at)
        return sealed(self._seal, login, tokens, at)

    async def _update(self, id_: str, run: str, *, seconds: float = 0.0, tokens: str = "") -> None:
        """Have the row polled again after so many seconds, or keep the tokens that were issued for it."""

        def make(stored: Later | None, waits: PendingLogin | None) -> PendingChange | None:
            if stored is None or waits is None:
                return None
            if tokens:
                return PendingChange(row=_with(stored, replace(waits, tokens=tokens)))
            due = self._runtime.now() + seconds
            return PendingChange(row=_with(replace(stored, due=due), replace(waits, interval_seconds=seconds)))

        await self._change(id_, make, run=run)
        self._wake()

    def next_poll(self, row: Later, now: float) -> float | None:
        """Return the time at which a row is due again if the poll that begins now never ends; None if it cannot be read."""
        pending = _read(row)
        channel = self._channel(pending) if pending else None
        return now + SPARE_SECONDS + (channel.login.seconds if channel else 0.0) if pending else None

    def _channel(self, pending: PendingLogin) -> LogsIn | None:
        channel = self._runtime.setup.channel(pending.context)
        return channel if channel is not None and can(channel, LogsIn) else None

    async def _began_again(self, id_: str, pending: PendingLogin) -> bool:
        """Begin again for a code that is of no use any more: a crash has lost the tokens, or the key is another."""
        if (channel := self._channel(pending)) is None:
            return False
        try:
            begun = await channel.login.begin(pending.scopes)
        except (LoginFailed, DeliveryError):
            return False
        log.warning("login_begun_again", account=channel.account)
        fresh = replace(self._pending(begun, pending.context, pending.scopes, self._runtime.now()), again=True)

        def make(stored: Later | None, waits: PendingLogin | None) -> PendingChange | None:
            if waits is None:
                return None
            ended = self._ends(waits, "replaced")
            return self._shown(id_, None, replace(fresh, waiting=waits.waiting), "again", None, ended)

        await self._change(id_, make, run=pending.run)
        return True

    async def _settle(
        self, id_: str, pending: PendingLogin, end: LoginEnd, *, login: Login | None = None, link: str = ""
    ) -> None:
        """End the wait: store the login, finish the cards, and continue the turns that wait. Once for each run."""
        waiting = (_read(await self._row(id_)) or pending).waiting if login else ()
        dropped = [it for it in waiting if not await self._continues(it)]

        def make(stored: Later | None, waits: PendingLogin | None) -> PendingChange | None:
            if stored is None or waits is None:
                return None
            ended = self._ends(waits, end, login.name if login else "", link)
            turns = [self._continuation(waits, it) for it in waits.waiting if it not in dropped] if login else []
            row = replace(stored, due=None, state="done" if login else "cancelled", body="{}")
            return PendingChange(row=row, deliveries=[*ended, *turns], login=login)

        await self._change(id_, make, run=pending.run)

    async def _row(self, id_: str) -> Later | None:
        return next(iter(await self._runtime.store.later.of_id(id_)), None)

    async def _change(self, id_: str, make: Make, *, run: str = "") -> bool:
        """Change the row as `make` says of it and of the login that waits there; only that of the `run`, if given."""

        def checked(stored: Later | None) -> PendingChange | None:
            waits = _read(stored)
            return None if run and (waits is None or waits.run != run) else make(stored, waits)

        change = await self._store.change(id_, checked)
        for delivery in change.deliveries if change else ():
            self._runtime.expect(delivery.sid)
        return change is not None

    async def _continues(self, it: WaitingTurn) -> bool:
        """Return whether a turn that waits may continue: neither stopped nor recalled nor erased, by a person who may
        still write there."""
        runtime, sid = self._runtime, conversation(it.session)
        if it.turn:
            bodies = await runtime.store.bodies(it.session, it.turn)
            if not bodies or any(inbound_of(body).recalled for body in bodies.values()):
                return False
            if await runtime.store.stopped_at(sid) > it.turn:
                return False
        return await runtime.refusal(it.context, agent_of(it.session)) is None

    def _pending(
        self, begun: DeviceLogin, context: MessageContext, scopes: tuple[str, ...], now: float
    ) -> PendingLogin:
        setup, direct = self._runtime.setup, direct_of(context)
        return PendingLogin(
            run=secrets.token_hex(8),
            device_code=self._seal.seal(begun.device_code, row_id(context), SEALED),
            user_code=begun.user_code,
            url=begun.url,
            scopes=scopes,
            interval_seconds=begun.interval_seconds,
            expires=now + begun.seconds,
            context=direct,
            agent=route(setup.config.routes, setup.config.agents, direct),
        )

    def _shown(
        self,
        id_: str,
        stored: Later | None,
        pending: PendingLogin,
        card: str,
        waiting: WaitingTurn | None,
        ended: Sequence[Delivery] = (),
    ) -> PendingChange:
        """Store the login with a card, in a separate row unless it is `stored`, and with the waiting turn."""
        name = f"gateway:login:{pending.run}:{sha256(card.encode()).hexdigest()[:16]}"
        shows = [self._internal(pending, LOGIN_CARD, f"{id_} {pending.run} {name}", name)]
        turns = {it.session: it for it in (*pending.waiting, *((waiting,) if waiting else ()))}  # the newest of each
        pending = replace(pending, cards=tuple(dict.fromkeys((*pending.cards, name))), waiting=tuple(turns.values()))
        now = self._runtime.now()
        row = stored or Later(
            id=id_,
            kind=PENDING,
            due=now + pending.interval_seconds,
            owner=sender_of(pending.context),
            place=chat_of(pending.context),
            state="active",
            body="",
            since=now,
        )
        return PendingChange(row=_with(row, pending), deliveries=[*ended, *shows])

    def _ends(self, pending: PendingLogin, end: LoginEnd, name: str = "", link: str = "") -> list[Delivery]:
        texts = [
            card_end_json.dump_json(CardEnd(card=it, end=end, name=name, link=link)).decode() for it in pending.cards
        ]
        names = [f"{it}:end" for it in pending.cards]
        return [self._internal(pending, LOGIN_END, text, name) for text, name in zip(texts, names, strict=True)]

    def _internal(self, pending: PendingLogin, command: str, arguments: str, name: str) -> Delivery:
        now, agent = self._runtime.now(), pending.agent
        context = replace(pending.context, sent_at=datetime.fromtimestamp(now, UTC))
        inbound = Inbound(agent=agent, context=context, command=command, arguments=arguments)
        scope = self._runtime.setup.session_rules(agent).scope
        sid = control_session(session_key(agent, context, scope))
        return Delivery.own(inbound, name, sid=sid, at=now, sender=sender_of(context))

    def _continuation(self, pending: PendingLogin, it: WaitingTurn) -> Delivery:
        before, now = it.context.origin, self._runtime.now()
        origin = Origin(
            kind="login",
            id=pending.context.channel,
            run=f"{pending.run}:{it.turn}",
            by_operator=before is not None and before.by_operator,
            external=before is not None and before.external,
            tainted=it.tainted,
        )
        context = replace(it.context, origin=origin, sent_at=datetime.fromtimestamp(now, UTC))
        inbound = Inbound(agent=agent_of(it.session), context=context)
        name = f"gateway:login:{pending.run}:turn:{it.session}:{it.turn}"
        return Delivery.own(inbound, name, sid=it.session, at=now, sender=sender_behind(context))


def row_id(context: MessageContext) -> str:
    """Return the id of the row in which the sender's login waits: one for each person and account."""
    return "L-" + sha256(sender_of(context).encode()).hexdigest()[:24]


def direct_of(context: MessageContext) -> MessageContext:
    """Return the sender's direct chat: the one where they wrote, else the one that their id names on the platform."""
    chat = context.chat if context.chat.kind == "direct" else Chat(id=context.sender.id, kind="direct")
    return replace(context.wordless, chat=chat, message_id="", press=None, origin=None, mentioned=False)


def login_error(error: LoginFailed | DeliveryError) -> ToolError:
    """Return the error that the model reads for a refusal of the platform, or for no answer."""
    if isinstance(error, DeliveryError):
        return ToolError("UNAVAILABLE", f"the login cannot be used now: {error}", retryable=True)
    at = f" at {error.link}" if error.link else ""
    match error.reason:
        case "barred":
            return ToolError("FORBIDDEN", "the platform does not let this person use the bot's app; tell the user")
        case "policy":
            return ToolError("FORBIDDEN", f"a policy of the organisation blocks the login; it can be lifted{at}")
        case "busy" | "slow_down" | "pending":
            return ToolError("UNAVAILABLE", "the platform is busy; try again in a minute", retryable=True)
        case _:
            return ToolError("UNAVAILABLE", f"the platform refuses the login ({error.code or error.reason})")


def sealed(seal: Seal, login: Login, tokens: Tokens, at: float) -> Login:
    """Return the login with these tokens, issued at the time `at`."""
    return replace(
        login,
        access=seal.seal(tokens.access, *login.key, "access"),
        refresh=seal.seal(tokens.refresh, *login.key, "refresh") if tokens.refresh else None,
        access_until=at + tokens.access_seconds,
        refresh_until=at + tokens.refresh_seconds,
        scopes=" ".join(tokens.scopes) or login.scopes,
    )


async def _begun(channel: LogsIn, scopes: Sequence[str], others: Sequence[str]) -> tuple[DeviceLogin, tuple[str, ...]]:
    """Begin a login for these scopes and the `others`, which are granted or waited for, unless the app has lost one of the
    latter."""
    try:
        wanted = tuple(dict.fromkeys((*scopes, *others)))
        return await channel.login.begin(wanted), wanted
    except LoginFailed as error:
        if error.reason != "app_lacks" or not others:
            raise
        return await channel.login.begin(scopes), tuple(scopes)


async def stored_at_last(write: Callable[[], Awaitable[object]]) -> None:
    """Store what the platform will not give again. Raises StoreUnavailable once the tries are used up."""
    for left in reversed(range(KEEP_TRIES)):
        try:
            await write()
            return
        except StoreUnavailable as error:
            log.error("login_not_stored", error=repr(error), tries_left=left)
            if not left:
                raise
            await asyncio.sleep(KEEP_SECONDS)


def _read(row: Later | None) -> PendingLogin | None:
    """Return the login of a row that still waits."""
    if row is None or row.kind != PENDING or row.state != "active":
        return None
    try:
        return pending_json.validate_json(row.body)
    except ValueError:
        log.error("pending_login_unreadable", id=row.id)
        return None


def _with(row: Later, pending: PendingLogin) -> Later:
    return replace(row, body=pending_json.dump_json(pending).decode())


def minutes_left(pending: PendingLogin, now: float) -> int:
    return max(1, ceil((pending.expires - now) / 60))
