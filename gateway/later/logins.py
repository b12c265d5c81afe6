"""Users' logins: the tokens with which tools act as them (`tools.identity.Identities`), and their refresh.

A turn acts as the one user that it serves, found by the message that it answers and never by the chat. A refresh token
works once: one worker refreshes at a time, in a task that no stop of a turn cancels, and the next pair is stored before
it is used. `pending` has what starts a login and what follows from one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import structlog

from channels.abilities import can
from channels.channel import DeliveryError
from channels.login import LoginFailed, LogsIn
from channels.message import DocumentLink, MessageContext
from gateway.approvals.display import value
from gateway.approvals.notices import Notice, Notices
from gateway.later.pending import PendingLogins, WaitingTurn, login_error, sealed, stored_at_last
from gateway.observe.logs import logged
from gateway.state.runtime import Runtime
from gateway.state.seal import Seal, Unsealable
from gateway.store.errors import StoreUnavailable
from gateway.store.later import Later
from gateway.store.logins import Login
from gateway.store.sessions import parent_of
from gateway.turns.tasks import wordless
from tools.identity import NEEDS_LOGIN, NEEDS_PERSON
from tools.tool import Call, ToolError

EARLY_SECONDS = 60.0
"""A token that is valid for less than this is refreshed before it is used."""
CLAIM_SPARE_SECONDS = 10.0
"""A claim ends this long after the request that it is for."""
LOOK_SECONDS = 0.2
log = structlog.get_logger()


class Logins:
    """The logins of all accounts. `serve` connects it to its gateway."""

    def serve(self, runtime: Runtime, seal: Seal, wake: Callable[[], None]) -> None:
        self._runtime, self._seal, self._store = runtime, seal, runtime.store.logins
        self._work: set[asyncio.Task[Any]] = set()
        self._refreshing: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self.pending = PendingLogins(runtime, seal, wake)

    async def close(self) -> None:
        """Wait for requests whose answer must be stored."""
        while self._work:
            await asyncio.wait(self._work)

    def address(self, account: str) -> str:
        return self._channel(account).address

    def links(self, account: str, text: str) -> tuple[DocumentLink, ...]:
        return self._channel(account).links(text)

    async def app_token(self, account: str, refused: str = "") -> str:
        return await self._app_token(self._channel(account), refused)

    async def token(
        self, call: Call, account: str, *, person: bool, scopes: Sequence[str] = (), refused: str = ""
    ) -> str:
        channel = self._channel(account)
        if not person:
            return await self._app_token(channel, refused)
        key = (channel.name, account, whose(call, channel))
        try:
            login = await self._store.get(*key)
            if login is None or login.ended is not None or not login.granted.issuperset(scopes):
                raise await self._needed(call, channel, login, scopes)
            if (token := await self._current(channel, login, refused)) is None:
                raise await self._needed(call, channel, login, scopes)
        except StoreUnavailable as error:
            log.warning("login_not_found", error=repr(error))
            raise ToolError("UNAVAILABLE", "the database does not answer now", retryable=True) from error
        except OSError as error:
            log.error("secret_key_unusable", error=type(error).__name__)
            raise ToolError("UNAVAILABLE", "the gateway cannot read its key for logins; tell the user") from error
        self._runtime.scrubber.hold(token)
        return token

    async def missing(self, call: Call, account: str, scopes: Sequence[str]) -> ToolError:
        channel = self._channel(account)
        try:
            login = await self._store.get(channel.name, account, whose(call, channel))
            return await self._needed(call, channel, login, scopes)
        except ToolError as error:
            return error
        except (StoreUnavailable, OSError):
            return ToolError("UNAVAILABLE", "the login cannot be asked for now", retryable=True)

    async def app_lacks(self, account: str, scopes: Sequence[str]) -> ToolError:
        link, named = self._channel(account).login.grant_link(scopes), ", ".join(map(value, scopes))
        notice = Notice(
            cause=f"scopes {account} {' '.join(scopes)}",
            once=f"scopes {account} {' '.join(scopes)}",
            en=f"The app of `{account}` lacks the permission {named}. Grant it and publish a version: {link}",
            zh=f"应用（`{account}`）缺少权限 {named}。请开通并发布版本：{link}",
        )
        with logged("owners_not_told"):
            await Notices(self._runtime).tell(notice)
        message = (
            f"the bot's app itself lacks the permission {', '.join(scopes)}, so nothing ran. Its administrator can grant it "
            f"at {link} and publish a version; tell the user"
        )
        return ToolError("APP_LACKS_SCOPE", message)

    def channel_of(self, context: MessageContext) -> LogsIn | None:
        """Return the channel of a message if people can log in there."""
        channel = self._runtime.setup.channel(context)
        return channel if channel is not None and can(channel, LogsIn) else None

    async def of(self, context: MessageContext) -> Login | None:
        """Return the login of a message's sender. Raises StoreUnavailable."""
        return await self._store.get(context.channel, context.account, context.sender.id)

    def poll(self, row: Later) -> None:
        """Ask the platform about a login that waits; this worker has taken its row."""
        self._spawn(self.pending.poll(row))

    async def _app_token(self, channel: LogsIn, refused: str) -> str:
        try:
            token = await channel.app_token(refused)
        except DeliveryError as error:
            log.warning("app_token_missing", account=channel.account, code=error.code)
            message = f"{channel.name} gives the app no token now: {error}"
            raise ToolError("UNAVAILABLE", message, retryable=True) from error
        self._runtime.scrubber.hold(token)
        return token

    async def _needed(self, call: Call, channel: LogsIn, login: Login | None, scopes: Sequence[str]) -> ToolError:
        """Show the login card to the person, and return the error for the model."""
        lane, context = self._runtime.control.lanes.get(call.session), call.message
        home = parent_of(call.session)  # a task's own conversation is over by then
        waiting = WaitingTurn(
            session=home,
            turn=lane.number if lane and home == call.session else 0,
            context=wordless(context),
            tainted=call.tainted or (context.origin is not None and context.origin.is_foreign),
        )
        try:
            shown = await self.pending.begin(channel, context, scopes, login=login, waiting=waiting)
        except LoginFailed as error:
            if error.reason == "app_lacks":
                return await self.app_lacks(channel.account, scopes)
            return login_error(error)
        except DeliveryError as error:
            return login_error(error)
        if not shown:
            return ToolError("UNAVAILABLE", "the login has just been finished; call it again", retryable=True)
        message = (
            "the person must log in first, so nothing has run. The gateway has sent them the login in their direct chat and "
            "continues this conversation by itself once they are logged in. Do not call it again now, and write no link: "
            "end with one sentence that says what you will do then"
        )
        return ToolError(NEEDS_LOGIN, message, login=channel.name)

    async def _current(self, channel: LogsIn, login: Login, refused: str) -> str | None:
        """Return a valid access token other than `refused`, refreshed if need be; None if the login has ended."""
        while True:
            now = self._runtime.now()
            access = self._opened(login, "access")
            if access and access != refused and now < login.access_until - EARLY_SECONDS:
                return access
            if not access or not login.refresh or now >= login.refresh_until:
                if access and access != refused and now < login.access_until:
                    return access
                await self._store.end(login, now)
                log.info("login_ended", account=login.account, person=login.person)
                return None
            if (task := self._refreshing.get(login.key)) is None:
                task = self._refreshing[login.key] = self._spawn(self._refresh(channel, login))
                task.add_done_callback(partial(self._refreshed, login.key))
            await asyncio.shield(task)
            found = await self._store.get(*login.key)
            if found is None or found.ended is not None:
                return None
            if found.revision == login.revision:  # another worker refreshes it
                await asyncio.sleep(LOOK_SECONDS)
            login = found

    async def _refresh(self, channel: LogsIn, login: Login) -> None:
        """Refresh a login in the state that was read, unless another worker does. Raises ToolError if the platform
        does not."""
        seconds = channel.login.seconds + CLAIM_SPARE_SECONDS
        refresh, now = self._opened(login, "refresh"), self._runtime.now()
        if not await self._store.claim(login, now=now, seconds=seconds):
            return
        if refresh is None:
            await self._store.end(login, now)
            return
        try:
            tokens = await channel.login.refresh(refresh)
        except (LoginFailed, DeliveryError) as error:
            log.warning("login_not_refreshed", account=login.account, person=login.person, error=str(error))
            if isinstance(error, LoginFailed) and error.reason in ("ended", "lost"):
                await self._store.end(login, now)
                return
            await self._store.release(login)
            raise login_error(error) from error
        following = sealed(self._seal, login, tokens, now)
        await stored_at_last(lambda: self._store.refreshed(following))

    def _refreshed(self, key: tuple[str, str, str], task: asyncio.Task[None]) -> None:
        del self._refreshing[key]

    def _opened(self, login: Login, column: str) -> str | None:
        text = login.access if column == "access" else login.refresh
        try:
            return self._seal.unseal(text, *login.key, column) if text else None
        except Unsealable:
            log.warning("login_unreadable", account=login.account, person=login.person)
            return None

    def _channel(self, account: str) -> LogsIn:
        for (_, name), channel in self._runtime.setup.channels.items():
            if name == account and can(channel, LogsIn):
                return channel
        raise ToolError("UNAVAILABLE", f"no account {account!r} that people can log in to is configured")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled():
            task.exception()  # its caller has it


def whose(call: Call, channel: LogsIn) -> str:
    """Return the id of the one user that the turn serves, on the channel's account. Raises ToolError."""
    message = call.message
    if (message.channel, message.account) != (channel.name, channel.account) or not message.sender.id:
        raise ToolError(NEEDS_PERSON, "this turn serves no person of that account, so nobody's login may be used")
    if call.several:
        raise ToolError(NEEDS_PERSON, "this turn answers several people, so nobody's login may be used")
    return message.sender.id
