"""Telegram's Bot API on loopback, as strict as the real one and now and then stricter, for tests, demo and rehearsals.

It refuses what Telegram refuses and keeps ledgers of what it received. What people do is in `updates`, how the bot hears
of it in `delivery`, what it sends in `sending`. Albums, rich messages and texts with tags are not here.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.emulators.telegram import models
from tests.emulators.telegram.requests import Received, read_call
from tests.emulators.telegram.rules import Refusal, bad_request
from tests.emulators.telegram.sending import Sending
from tests.emulators.telegram.subscription import Described

ABILITIES = (
    "can_read_all_group_messages supports_guest_queries supports_inline_queries can_connect_to_business "
    "has_main_web_app has_topics_enabled allows_users_to_create_topics can_manage_bots supports_join_request_queries"
)


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


@dataclass(kw_only=True)
class TelegramEmulator(Sending):
    """One emulated bot. `app` is the ASGI app of the platform's API; `messages` is the ledger of what was sent."""

    requests: list[Received] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    reactions: list[Reaction] = field(default_factory=list)
    callback_answers: list[models.AnswerCallbackQuery] = field(default_factory=list)
    commands: dict[tuple[str, str], list[dict[str, str]]] = field(default_factory=dict)
    """The bot's menus, by scope (`default`, `chat 500000011`) and language."""
    _failures: list[Failure] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        handlers: dict[str, tuple[type[models.Call], Callable[..., Awaitable[Any]]]] = {
            "getMe": (models.Call, self._get_me),
            "setWebhook": (models.SetWebhook, self._set_webhook),
            "deleteWebhook": (models.DeleteWebhook, self._delete_webhook),
            "getWebhookInfo": (models.Call, self._get_webhook_info),
            "getUpdates": (models.GetUpdates, self._get_updates),
            "sendMessage": (models.SendMessage, self._send_message),
            "sendPhoto": (models.SendFile, self._send_photo),
            "sendDocument": (models.SendFile, self._send_document),
            "sendVoice": (models.SendFile, self._send_voice),
            "sendMediaGroup": (models.SendMediaGroup, self._send_group),
            "sendPoll": (models.SendPoll, self._send_poll),
            "sendMessageDraft": (models.SendMessageDraft, self._send_draft),
            "editMessageText": (models.EditMessageText, self._edit_text),
            "editMessageReplyMarkup": (models.EditMessageReplyMarkup, self._edit_markup),
            "deleteMessage": (models.AtMessage, self._delete_message),
            "sendChatAction": (models.SendChatAction, self._send_action),
            "setMessageReaction": (models.SetMessageReaction, self._set_reaction),
            "setMyCommands": (models.SetMyCommands, self._set_commands),
            "getMyCommands": (models.GetMyCommands, self._get_commands),
            "getChat": (models.InChat, self._get_chat),
            "leaveChat": (models.InChat, self._leave_chat),
            "getChatMember": (models.OfMember, self._get_chat_member),
            "answerCallbackQuery": (models.AnswerCallbackQuery, self._answer_callback),
            "getFile": (models.GetFile, self._get_file),
        }
        self.left: list[int] = []
        self.members: dict[tuple[int, int], str] = {}
        """The status of a person in a group."""
        self._handlers = {name.lower(): (name, *handler) for name, handler in handlers.items()}
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
            if (found := self._handlers.get(request.path_params["method"].lower())) is None:
                raise Refusal(404, "Not Found: method not found")
            name, shape, handler = found
            received = await read_call(request, name)
            self.requests.append(received)
            failure = self._failure(name)
            if failure is not None and not failure.lose_answer:
                raise Refusal(
                    failure.status, failure.description, parameters=failure.parameters, headers=failure.headers
                )
            call = received.parsed(shape)
            result = await _unless_gone(
                request,
                handler(call, received.files) if shape in (models.SendFile, models.SendMediaGroup) else handler(call),
            )
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

    async def _get_me(self, call: models.Call) -> dict[str, Any]:
        return {**dict.fromkeys(ABILITIES.split(), False), "can_join_groups": True, **self.bot}

    async def _send_action(self, call: models.SendChatAction) -> bool:
        chat = self.chat_named(call.chat_id)
        thread = self.thread_named(chat, call.message_thread_id, general=True)
        self.actions.append(Action(chat_id=chat.id, action=call.action, thread=thread))
        await self._notify()
        return True

    async def _set_reaction(self, call: models.SetMessageReaction) -> bool:
        chat = self.chat_named(call.chat_id)
        if (chat.id, call.message_id) not in self.known:
            raise bad_request("message to react not found")
        emoji = call.reaction[0].emoji if call.reaction else None
        self.reactions.append(Reaction(chat_id=chat.id, message_id=call.message_id, emoji=emoji))
        await self._notify()
        return True

    async def _set_commands(self, call: models.SetMyCommands) -> bool:
        self.commands[self._menu(call)] = [command.model_dump() for command in call.commands]
        return True

    async def _get_commands(self, call: models.GetMyCommands) -> list[dict[str, str]]:
        return self.commands.get(self._menu(call), [])

    def _menu(self, call: models.GetMyCommands) -> tuple[str, str]:
        scope = call.scope
        if scope.chat_id is not None:
            self.chat_named(scope.chat_id)
        words = [str(word) for word in (scope.type, scope.chat_id, scope.user_id) if word is not None]
        return " ".join(words), call.language_code

    async def _get_chat(self, call: models.InChat) -> dict[str, Any]:
        gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels")
        full = {"accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": dict.fromkeys(gifts, False)}
        return dict(self.chat_named(call.chat_id).public) | full

    async def _leave_chat(self, call: models.InChat) -> bool:
        self.left.append(self.chat_named(call.chat_id).public["id"])
        return True

    async def _get_chat_member(self, call: models.OfMember) -> dict[str, Any]:
        chat = self.chat_named(call.chat_id).public["id"]
        if (status := self.members.get((chat, call.user_id))) is None:
            raise bad_request("member not found")
        user = {"id": call.user_id, "is_bot": False, "first_name": "Somebody"}
        return {"user": user, "status": status.removesuffix("-in")} | (
            {"is_member": status.endswith("-in")} if status.startswith("restricted") else {}
        )

    async def _answer_callback(self, call: models.AnswerCallbackQuery) -> bool:
        """Once, and in time."""
        if self.queries.pop(call.callback_query_id, None) is None:
            raise bad_request("query is too old and response timeout expired or query ID is invalid")
        self.callback_answers.append(call)
        return True

    async def _get_file(self, call: models.GetFile) -> dict[str, Any]:
        return self.files.get(call.file_id)


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
