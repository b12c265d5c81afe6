"""Telegram's Bot API on loopback, as strict as the real one and now and then stricter, for tests, demo and rehearsals.

It refuses what Telegram refuses, in Telegram's words, and keeps ledgers of what it was told. What people do is in
`emulator_updates`, how the bot hears of it in `emulator_delivery`, what it says in `emulator_sending`. Albums, rich
messages and Markdown are not here.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.emulators.telegram.requests import Asked, read_call
from tests.emulators.telegram.rules import (
    PARAMETERS,
    Refusal,
    bad_request,
    check_action,
    check_callback_answer,
    check_commands,
    check_reaction,
)
from tests.emulators.telegram.sending import Sending
from tests.emulators.telegram.subscription import Described

ABILITIES = (
    "can_read_all_group_messages supports_guest_queries supports_inline_queries can_connect_to_business "
    "has_main_web_app has_topics_enabled allows_users_to_create_topics can_manage_bots supports_join_request_queries"
)
SCOPES = frozenset(
    {
        "default",
        "all_private_chats",
        "all_group_chats",
        "all_chat_administrators",
        "chat",
        "chat_administrators",
        "chat_member",
    }
)

Handler: TypeAlias = Callable[[Asked], Awaitable[Any]]


@dataclass(kw_only=True, slots=True)
class Failure:
    """Answers to give instead of the right ones."""

    method: str
    times: int
    status: int
    description: str
    parameters: Mapping[str, int]
    headers: Mapping[str, str]
    lose_answer: bool
    """Do what was asked, and then hang up without saying so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """The bot was seen typing, or the like."""

    chat_id: int
    action: str
    thread: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reaction:
    """`emoji` is None where the bot took its reaction back."""

    chat_id: int
    message_id: int
    emoji: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CallbackAnswer:
    callback_query_id: str
    text: str
    show_alert: bool


@dataclass(kw_only=True)
class TelegramEmulator(Sending):
    """One emulated bot. `app` is the ASGI app of the platform's API; `messages` is the ledger of what was sent."""

    requests: list[Asked] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    reactions: list[Reaction] = field(default_factory=list)
    callback_answers: list[CallbackAnswer] = field(default_factory=list)
    commands: dict[tuple[str, str], list[dict[str, str]]] = field(default_factory=dict)
    """The bot's menus, by scope (`default`, `chat 500000011`) and language."""
    _failures: list[Failure] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        handlers: dict[str, Handler] = {
            "getMe": self._get_me,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "getWebhookInfo": self._get_webhook_info,
            "getUpdates": self._get_updates,
            "sendMessage": self._send_message,
            "sendPhoto": self._send_photo,
            "sendDocument": self._send_document,
            "sendMessageDraft": self._send_draft,
            "editMessageText": self._edit_text,
            "editMessageReplyMarkup": self._edit_markup,
            "deleteMessage": self._delete_message,
            "sendChatAction": self._send_action,
            "setMessageReaction": self._set_reaction,
            "setMyCommands": self._set_commands,
            "getMyCommands": self._get_commands,
            "getChat": self._get_chat,
            "answerCallbackQuery": self._answer_callback,
            "getFile": self._get_file,
        }
        self._handlers = {name.lower(): (name, handler) for name, handler in handlers.items()}
        routes = [
            Route("/bot{token}/{method}", self._call, methods=["GET", "POST"]),
            Route("/file/bot{token}/{path:path}", self._download, methods=["GET"]),
            Route("/{path:path}", self._nothing, methods=["GET", "POST"]),
        ]
        self.app = Starlette(routes=routes)

    def fail_next(
        self,
        method: str = "",
        *,
        times: int = 1,
        status: int = 500,
        description: str = "Internal Server Error",
        parameters: Mapping[str, int] | None = None,
        headers: Mapping[str, str] | None = None,
        lose_answer: bool = False,
    ) -> None:
        """Answer the next `times` calls of a method, of "download" or of any with this, or lose the answer to them."""
        failure = Failure(
            method=method.lower(),
            times=times,
            status=status,
            description=description,
            parameters=parameters or {},
            headers=headers or {},
            lose_answer=lose_answer,
        )
        self._failures.append(failure)

    # the way of a call

    async def _call(self, request: Request) -> Response:
        try:
            self._check_token(request.path_params["token"])
            name, handler = self._handlers.get(request.path_params["method"].lower(), ("", None))
            if handler is None:
                raise Refusal(404, "Not Found: method not found")
            asked = await read_call(request, name)
            self.requests.append(asked)
            failure = self._failure(name)
            if failure is not None and not failure.lose_answer:
                raise Refusal(
                    failure.status, failure.description, parameters=failure.parameters, headers=failure.headers
                )
            asked.check_names(PARAMETERS[name])
            result = await _unless_gone(request, handler(asked))
        except Refusal as refusal:
            return _refused(refusal)
        if failure is not None:
            return Response("<html><h1>502 Bad Gateway</h1></html>", status_code=502, media_type="text/html")
        if isinstance(result, Described):
            return JSONResponse({"ok": True, "result": result.result, "description": result.description})
        return JSONResponse({"ok": True, "result": result})

    def _check_token(self, token: str) -> None:
        if not re.fullmatch(r"\d+:[A-Za-z0-9_-]{35}", token):
            raise Refusal(404, "Not Found")
        if not secrets.compare_digest(token, self.token):
            raise Refusal(401, "Unauthorized")

    def _failure(self, method: str) -> Failure | None:
        for failure in self._failures:
            if failure.method in ("", method.lower()) and failure.times > 0:
                failure.times -= 1
                return failure
        return None

    async def _download(self, request: Request) -> Response:
        try:
            self._check_token(request.path_params["token"])
            if failure := self._failure("download"):
                raise Refusal(failure.status, failure.description)
            content = self.files.download(request.path_params["path"])
            if content is None:
                raise Refusal(404, "Not Found")
        except Refusal as refusal:
            return _refused(refusal)
        return Response(content, media_type="application/octet-stream")

    async def _nothing(self, request: Request) -> Response:
        return _refused(Refusal(404, "Not Found"))

    # the small methods

    async def _get_me(self, asked: Asked) -> dict[str, Any]:
        return {**dict.fromkeys(ABILITIES.split(), False), "can_join_groups": True, **self.bot}

    async def _send_action(self, asked: Asked) -> bool:
        action = check_action(asked.text("action"))
        chat = self.chat_named(asked.parameters.get("chat_id"))
        thread = self.thread_named(chat, asked.number("message_thread_id"), general=True)
        self.actions.append(Action(chat_id=chat.id, action=action, thread=thread))
        await self._tell()
        return True

    async def _set_reaction(self, asked: Asked) -> bool:
        emoji = check_reaction(asked.rows("reaction") or [])
        asked.flag("is_big")
        chat = self.chat_named(asked.parameters.get("chat_id"))
        message_id = asked.needed_number("message_id")
        if (chat.id, message_id) not in self.known:
            raise bad_request("message to react not found")
        self.reactions.append(Reaction(chat_id=chat.id, message_id=message_id, emoji=emoji))
        await self._tell()
        return True

    async def _set_commands(self, asked: Asked) -> bool:
        rows = asked.rows("commands")
        if rows is None:
            raise bad_request("wrong parameter commands in request")
        self.commands[self._menu(asked)] = check_commands(rows)
        return True

    async def _get_commands(self, asked: Asked) -> list[dict[str, str]]:
        return self.commands.get(self._menu(asked), [])

    def _menu(self, asked: Asked) -> tuple[str, str]:
        scope = asked.object("scope", frozenset({"type", "chat_id", "user_id"})) or {"type": "default"}
        if scope.get("type") not in SCOPES:
            raise bad_request("can't parse BotCommandScope: type of the scope is not known")  # our wording
        if "chat_id" in scope:
            self.chat_named(scope["chat_id"])
        words = [str(scope[name]) for name in ("type", "chat_id", "user_id") if name in scope]
        return " ".join(words), asked.text("language_code") or ""

    async def _get_chat(self, asked: Asked) -> dict[str, Any]:
        chat = self.chat_named(asked.parameters.get("chat_id"))
        gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels")
        full = {"accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": dict.fromkeys(gifts, False)}
        return dict(chat.public) | full

    async def _answer_callback(self, asked: Asked) -> bool:
        """Once, and in time."""
        query, text = asked.text("callback_query_id") or "", check_callback_answer(asked.text("text"))
        show_alert = asked.flag("show_alert")
        if self.queries.pop(query, None) is None:
            raise bad_request("query is too old and response timeout expired or query ID is invalid")
        self.callback_answers.append(CallbackAnswer(callback_query_id=query, text=text, show_alert=show_alert))
        return True

    async def _get_file(self, asked: Asked) -> dict[str, Any]:
        return self.files.get(asked.text("file_id"))


async def _unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """The result of `work`; a poll whose bot has hung up ends at once."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hangup(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
    if not working.done():
        working.cancel()
        await asyncio.wait({working})
        raise Refusal(499, "Client Closed Request")
    return working.result()


async def _hangup(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _refused(refusal: Refusal) -> Response:
    answer: dict[str, Any] = {"ok": False, "error_code": refusal.code, "description": refusal.description}
    answer |= {"parameters": refusal.parameters} if refusal.parameters else {}
    return JSONResponse(answer, status_code=refusal.code, headers=refusal.headers)
