"""Feishu on loopback, as strict as the real one, for tests, the demo and rehearsals.

It refuses what Feishu refuses, with Feishu's codes, and keeps a ledger of what it received. The other half of the
platform, which pushes events to a gateway, is in `events`.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.emulators.feishu.cardkit import CardKit
from tests.emulators.feishu.documents import DocumentsServer
from tests.emulators.feishu.events import Known
from tests.emulators.feishu.login import PeopleLogins
from tests.emulators.feishu.registration import AppRegistrations
from tests.emulators.feishu.resources import ResourceSource, Upload
from tests.emulators.feishu.rules import (
    Card,
    CardUpdate,
    Credentials,
    Edit,
    Members,
    MembersListQuery,
    MembersQuery,
    MessageQuery,
    NewFile,
    NewImage,
    NewMessage,
    NewReaction,
    NewReply,
    ReactionQuery,
    Refusal,
    ResourceQuery,
    card_of,
    check_content,
    parsed,
    sent_card,
)
from tests.emulators.feishu.socket import LongConnections
from tests.emulators.feishu.workplace import Workplace
from tests.emulators.telegram.requests import parse_multipart

_REACTIONS = "/open-apis/im/v1/messages/{message_id}/reactions"
EMOJI = frozenset(
    ("Typing", "OnIt", "OneSecond", "Get", "OK", "DONE", "THINKING", "GLANCE", "SMILE", "THUMBSUP", "HEART")
)
_CARDS = "/open-apis/cardkit/v1/cards"
SCOPES = (
    *("im:message.p2p_msg:readonly", "im:message.group_at_msg:readonly", "im:message:send_as_bot"),
    *("im:message:readonly", "contact:user.base:readonly", "im:chat:readonly", "cardkit:card:write", "im:resource"),
)
"""What the channel's README has one ask for."""
TOKEN_SECONDS = 7_200
TOKEN_RENEW_SECONDS = 1_800
UUID_SECONDS = 3_600
CHAT_PER_SECOND_MAX = 5
EDITS_MAX = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """A message that the app sent. `text` is what a person reads; `reply_to` is None for a plain message."""

    message_id: str
    chat_id: str
    reply_to: str | None
    thread: bool
    msg_type: str
    text: str
    uuid: str | None
    card: bool = False
    """It shows a card of CardKit, whose id is the text."""


@dataclass(kw_only=True, slots=True)
class Failure:
    """Answers to give instead of the right ones."""

    path: str
    times: int
    status: int
    code: int
    headers: Mapping[str, str]
    lose_answer: bool = False
    """Do what was asked, and then hang up without saying so."""
    says: bytes = b""
    """Only requests that hold this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    method: str
    path: str
    query: Mapping[str, str]
    body: Any


@dataclass(kw_only=True)
class FeishuEmulator(ResourceSource):
    """One emulated app. `app` is the ASGI app of the platform's API; `messages` is the ledger of what was sent."""

    app_secret: str
    limit_rates: bool = False
    """Enforce five messages a second and chat, as Feishu does."""
    users: dict[str, str] = field(default_factory=dict)
    """Names by open id, of the people in the app's contact range."""
    messages: list[Sent] = field(default_factory=list)
    updates: list[str] = field(default_factory=list)
    """The cards that were changed, by message id, as often as they were."""
    requests: list[Received] = field(default_factory=list)
    scopes: set[str] = field(default_factory=lambda: set(SCOPES))
    """Those that the tenant has granted, beside one that waits."""
    subscription: dict[str, Any] | None = None
    """The app's events, as far as it may read about itself; None where it lacks the scope for that."""
    bot_status: int = 2
    tokens: dict[str, float] = field(default_factory=dict)
    """Live tenant tokens and when they end."""
    token_fetches: int = 0
    reactions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Those that stand there, by id, as a listing says them, with their message."""
    reacted: list[tuple[str, str]] = field(default_factory=list)
    """Every message that the app reacted to, and the emoji."""
    registrations: AppRegistrations = field(default_factory=AppRegistrations)
    _failures: list[Failure] = field(default_factory=list)
    _uuids: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    _sent_at: dict[str, list[float]] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self.socket = LongConnections(app_id=self.app_id, app_secret=self.app_secret)
        self.cardkit = CardKit(now=self.now)
        self.logins = PeopleLogins(app_id=self.app_id, app_secret=self.app_secret, users=self.users, clock=self.now)
        self.workplace = Workplace(logins=self.logins, live=lambda token: self.tokens.get(token, 0) > self.now())
        self.documents = DocumentsServer(workplace=self.workplace)
        self.app = Starlette(
            routes=[
                *self.documents.routes(),
                *self.socket.routes(),
                *self.registrations.routes(),
                *self.logins.routes(),
                *self.workplace.routes(),
                Route("/open-apis/auth/v3/tenant_access_token/internal", self._token, methods=["POST"]),
                Route("/open-apis/application/v6/scopes", self._guarded(self._scopes), methods=["GET"]),
                Route("/open-apis/application/v6/applications/{app_id}", self._guarded(self._application)),
                Route("/open-apis/bot/v3/info", self._guarded(self._bot), methods=["GET"]),
                Route("/open-apis/contact/v3/users/{user_id}", self._guarded(self._user), methods=["GET"]),
                Route("/open-apis/im/v1/chats/{chat_id}", self._guarded(self._chat), methods=["GET"]),
                Route("/open-apis/im/v1/chats/{chat_id}/members", self._guarded(self._leave), methods=["DELETE"]),
                Route("/open-apis/im/v1/chats/{chat_id}/members", self._guarded(self._list_members), methods=["GET"]),
                Route("/open-apis/im/v1/messages/{message_id}", self._guarded(self._message), methods=["GET"]),
                Route("/open-apis/im/v1/messages/{message_id}", self._guarded(self._update_card), methods=["PATCH"]),
                Route("/open-apis/im/v1/messages/{message_id}", self._guarded(self._edit), methods=["PUT"]),
                Route("/open-apis/im/v1/messages/{message_id}/reply", self._guarded(self._reply), methods=["POST"]),
                Route("/open-apis/im/v1/messages/{message_id}/resources/{file_key}", self._guarded(self._resource)),
                Route(_REACTIONS, self._guarded(self._react), methods=["POST"]),
                Route(_REACTIONS, self._guarded(self._reacted), methods=["GET"]),
                Route(f"{_REACTIONS}/{{reaction_id}}", self._guarded(self._unreact), methods=["DELETE"]),
                Route("/open-apis/im/v1/images", self._guarded(self._take_image), methods=["POST"]),
                Route("/open-apis/im/v1/files", self._guarded(self._take_file), methods=["POST"]),
                Route(f"{_CARDS}", self._guarded(self._on_card(self.cardkit.create)), methods=["POST"]),
                Route(f"{_CARDS}/{{card_id}}", self._guarded(self._on_card(self.cardkit.replace)), methods=["PUT"]),
                Route(
                    f"{_CARDS}/{{card_id}}/elements/{{element_id}}/content",
                    self._guarded(self._on_card(self.cardkit.write)),
                    methods=["PUT"],
                ),
                Route("/open-apis/im/v1/messages/{message_id}", self._guarded(self._delete), methods=["DELETE"]),
                Route("/open-apis/im/v1/messages", self._guarded(self._send), methods=["POST"]),
            ]
        )

    # what a test says

    def card(self, message_id: str) -> Card:
        """A card as people see it now."""
        return card_of(self.known[message_id].content)

    def fail_next(
        self,
        path: str,
        *,
        times: int = 1,
        status: int = 200,
        code: int = 0,
        headers: Mapping[str, str] | None = None,
        lose_answer: bool = False,
        says: str = "",
    ) -> None:
        """Answer the next `times` requests whose path holds `path`, and whose body holds `says`, with this code, or lose
        the answer to them."""
        failure = Failure(
            path=path,
            times=times,
            status=status,
            code=code,
            headers=headers or {},
            lose_answer=lose_answer,
            says=says.encode(),
        )
        self._failures.append(failure)

    def recall(self, message_id: str) -> None:
        """The author withdraws a message."""
        self.known[message_id].recalled = True

    def expire_tokens(self) -> None:
        """Every token so far ends now."""
        self.tokens.clear()

    async def sent(self, count: int, *, timeout_seconds: float = 30.0) -> list[Sent]:
        """Wait until so many messages have been sent. Raises TimeoutError."""
        async with asyncio.timeout(timeout_seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.messages) >= count)
        return self.messages

    def shown(self, chat_id: str) -> list[str]:
        """What people can read of the app in a chat now."""
        own = [it for it in self.messages if it.chat_id == chat_id and not self.known[it.message_id].recalled]
        return [self.reads(it) for it in own]

    def reads(self, it: Sent) -> str:
        """What a message says now."""
        if it.card:
            return self.cardkit.cards[it.text].states[-1]
        return self.card(it.message_id).shown if it.msg_type == "interactive" else it.text

    # the API

    def _guarded(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def guarded(request: Request) -> Response:
            raw = await request.body()
            received = Received(
                method=request.method,
                path=request.url.path,
                query=dict(request.query_params),
                body=orjson.loads(raw) if raw and not _is_form(request) else None,
            )
            self.requests.append(received)
            failure = self._failure(request.url.path, raw)
            if failure is not None and not failure.lose_answer:
                return _code(failure.code, status=failure.status, headers=failure.headers)
            try:
                self._check_access(request)
                answer: Response = await handler(request)
            except Refusal as refusal:
                return _code(refusal.code, status=refusal.status, message=refusal.message, headers=refusal.headers)
            if failure is not None:
                return Response(status_code=502)
            return answer

        return guarded

    def _failure(self, path: str, body: bytes = b"") -> Failure | None:
        for failure in self._failures:
            if failure.path in path and failure.says in body and failure.times > 0:
                failure.times -= 1
                return failure
        return None

    def _check_access(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not token:
            raise Refusal(99991661, "Missing access token for authorization.")
        if self.tokens.get(token, 0) <= self.now():
            raise Refusal(99991663, "Invalid access token for authorization.")
        is_json = request.headers.get("content-type", "").startswith("application/json")
        if request.method in ("POST", "PATCH") and not is_json and not _is_form(request):
            raise Refusal(99992402, "content type must be application/json")

    async def _token(self, request: Request) -> Response:
        self.token_fetches += 1
        body = await request.body()
        if failure := self._failure(request.url.path):
            return _code(failure.code, status=failure.status, headers=failure.headers)
        try:
            given = parsed(Credentials, body, code=10003)
        except Refusal as refusal:
            return _code(refusal.code, status=200)
        if (given.app_id, given.app_secret) != (self.app_id, self.app_secret):
            return _code(10014, status=200)
        token, ends = max(self.tokens.items(), key=lambda item: item[1], default=("", 0.0))
        if ends - self.now() < TOKEN_RENEW_SECONDS:
            token, ends = f"t-{secrets.token_hex(20)}", self.now() + TOKEN_SECONDS
            self.tokens[token] = ends
        expire = int(ends - self.now())
        return JSONResponse({"code": 0, "msg": "ok", "tenant_access_token": token, "expire": expire})

    async def _bot(self, request: Request) -> Response:
        bot = {
            "activate_status": self.bot_status,
            "app_name": self.bot_name,
            "ip_white_list": [],
            "open_id": self.bot_open_id,
        }
        return JSONResponse({"code": 0, "msg": "ok", "bot": bot})

    async def _scopes(self, request: Request) -> Response:
        found = [{"scope_name": name, "grant_status": 1, "scope_type": "tenant"} for name in sorted(self.scopes)]
        found.append({"scope_name": "contact:contact", "grant_status": 2, "scope_type": "tenant"})
        users = sorted({"im:message", *self.logins.scopes})
        found += [{"scope_name": name, "grant_status": 1, "scope_type": "user"} for name in users]
        return _data({"scopes": found})

    async def _application(self, request: Request) -> Response:
        if request.query_params.get("lang") not in ("zh_cn", "en_us", "ja_jp"):
            raise Refusal(99992402, "lang is required")
        if request.path_params["app_id"] != self.app_id:
            raise Refusal(210504, "no such application")
        if self.subscription is None:
            raise Refusal(99991672, "Access denied. One of the following scopes is required: [application:...]")
        return _data({"app": {"app_id": self.app_id, "status": 1, "event": self.subscription}})

    async def _user(self, request: Request) -> Response:
        user_id = request.path_params["user_id"]
        if request.query_params.get("user_id_type") != "open_id":
            raise Refusal(99992402, "user_id_type must be open_id here")
        if user_id not in self.users:
            raise Refusal(41050, "no user authority error", status=403)
        return _data({"user": {"open_id": user_id, "name": self.users[user_id], "en_name": ""}})

    async def _chat(self, request: Request) -> Response:
        chat_id = request.path_params["chat_id"]
        if chat_id not in self.chats:
            raise Refusal(230002, "Bot/User can NOT be out of the chat.")
        return _data({"name": self.chats[chat_id], "chat_mode": "group", "user_count": "3", "bot_count": "1"})

    async def _leave(self, request: Request) -> Response:
        """Of the app itself alone."""
        parsed(MembersQuery, dict(request.query_params))
        if parsed(Members, await request.body()).id_list != [self.app_id]:
            raise Refusal(232014, "The token used in the request does NOT have the permissions necessary.")
        if self.chats.pop(request.path_params["chat_id"], None) is None:
            raise Refusal(232011, "Operator can NOT be out of the chat.")
        return _data({"invalid_id_list": []})

    async def _list_members(self, request: Request) -> Response:
        """In pages, without bots."""
        query = parsed(MembersListQuery, dict(request.query_params))
        if (chat_id := request.path_params["chat_id"]) not in self.chats:
            raise Refusal(232011, "Operator can NOT be out of the chat.")
        there, first = self.members.get(chat_id, []), int(query.page_token or 0)
        last = first + int(query.page_size)
        items = [
            {"member_id_type": "open_id", "member_id": it, "name": self.users.get(it, ""), "tenant_key": "tenant0001"}
            for it in there[first:last]
        ]
        more = last < len(there)
        page = {"has_more": more, "page_token": str(last) if more else ""}
        return _data({"items": items, "member_total": len(there), **page})

    async def _message(self, request: Request) -> Response:
        message_id = request.path_params["message_id"]
        found = self.known.get(message_id)
        if found is None:
            raise Refusal(99992354, "The request you send is not a valid {message_id} or not exists")
        inside = {message_id: found}
        for key, it in self.known.items():  # a bundle's messages are later than it is, and those of one within it
            if it.upper in inside:
                inside[key] = it
        return _data({"items": [_item(key, it) for key, it in inside.items()]})

    async def _resource(self, request: Request) -> Response:
        """The bytes as they are; only errors are JSON."""
        query = parsed(ResourceQuery, dict(request.query_params))
        found = self.resource(**request.path_params, wanted=query.type)
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(found.name, safe='')}"}
        return Response(found.data, media_type=found.media_type, headers=headers)

    async def _take_image(self, request: Request) -> Response:
        fields, upload, data = await _form(request, "image")
        parsed(NewImage, fields, code=234001)
        return _data({"image_key": self.take("image", upload, data)})

    async def _take_file(self, request: Request) -> Response:
        fields, upload, data = await _form(request, "file")
        file = parsed(NewFile, fields, code=234001)
        return _data({"file_key": self.take(file.file_type, replace(upload, name=file.file_name), data)})

    def _on_card(self, change: Callable[[Request], Awaitable[dict[str, Any]]]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            data = await change(request)
            async with self._changed:
                self._changed.notify_all()
            return _data(data)

        return answer

    async def _react(self, request: Request) -> Response:
        """The same reaction of the same app twice is there once."""
        message_id, emoji = (
            request.path_params["message_id"],
            parsed(NewReaction, await request.body()).reaction_type.emoji_type,
        )
        found = self.known.get(message_id)
        if found is None or found.recalled:
            raise Refusal(231003, "The message is not found.")
        if emoji not in EMOJI:
            raise Refusal(231001, "reaction type is invalid.")
        self.reacted.append((message_id, emoji))
        same = [it for it in self._on(message_id) if it["reaction_type"]["emoji_type"] == emoji]
        return _data(same[0] if same else self.reaction(message_id, emoji, self.app_id))

    def reaction(self, message_id: str, emoji: str, by: str) -> dict[str, Any]:
        """Somebody, or the app, reacts to a message."""
        kind = "app" if by == self.app_id else "user"
        made: dict[str, Any] = {
            "reaction_id": secrets.token_urlsafe(20),
            "operator": {"operator_id": by, "operator_type": kind},
            "action_time": str(int(self.now() * 1000)),
            "reaction_type": {"emoji_type": emoji},
        }
        self.reactions[made["reaction_id"]] = made | {"message_id": message_id}
        return made

    def _on(self, message_id: str) -> list[dict[str, Any]]:
        return [it for it in self.reactions.values() if it["message_id"] == message_id]

    async def _reacted(self, request: Request) -> Response:
        wanted = parsed(ReactionQuery, dict(request.query_params)).reaction_type
        items = [
            it for it in self._on(request.path_params["message_id"]) if it["reaction_type"]["emoji_type"] == wanted
        ]
        items = [{key: value for key, value in it.items() if key != "message_id"} for it in items]
        return _data({"items": items, "has_more": False})

    async def _unreact(self, request: Request) -> Response:
        found = self.reactions.get(request.path_params["reaction_id"])
        if found is None or found["message_id"] != request.path_params["message_id"]:
            raise Refusal(231011, "The reaction is not found.")
        if found["operator"]["operator_id"] != self.app_id:
            raise Refusal(231007, "No permission to delete the reaction.")
        return _data(self.reactions.pop(found["reaction_id"]))

    async def _delete(self, request: Request) -> Response:
        message_id = request.path_params["message_id"]
        found = self.known.get(message_id)
        if found is None or found.sender != self.app_id:
            raise Refusal(230026, "No permission to recall this message.")
        found.recalled = True
        return _data({})

    async def _send(self, request: Request) -> Response:
        message = parsed(NewMessage, await request.body())
        chat_id = message.receive_id
        if parsed(MessageQuery, dict(request.query_params)).receive_id_type == "open_id":
            if chat_id not in self.users and chat_id not in self.direct:
                raise Refusal(230013, "Bot has NO availability to this user.")
            chat_id = self.direct.setdefault(chat_id, f"oc_{secrets.token_hex(16)}")
            self.chats.setdefault(chat_id, "")
        if chat_id not in self.chats:
            raise Refusal(230002, "Bot/User can NOT be out of the chat.")
        return await self._place(message, chat_id=chat_id, reply_to=None)

    async def _update_card(self, request: Request) -> Response:
        """Of the app's own cards alone. The same content again changes nothing, and is taken."""
        update, message_id = parsed(CardUpdate, await request.body()), request.path_params["message_id"]
        found = self.known.get(message_id)
        if found is None:
            raise Refusal(99992354, "The request you send is not a valid {message_id} or not exists")
        if found.sender != self.app_id:
            raise Refusal(230071, "The operator is not the sender of the message.")
        if found.msg_type != "interactive":
            raise Refusal(230054, "This operation is not supported for this message type.")
        if found.recalled:
            raise Refusal(230011, "The message was recalled.")
        check_content("interactive", update.content)
        self._check_rate(message_id)
        async with self._changed:
            found.content = update.content
            self.updates.append(message_id)
            self._changed.notify_all()
        return _data({})

    async def _edit(self, request: Request) -> Response:
        """Of the app's own texts and posts, twenty times."""
        edit, message_id = parsed(Edit, await request.body()), request.path_params["message_id"]
        found = self.known.get(message_id)
        if found is None or found.sender != self.app_id or found.msg_type not in ("text", "post"):
            raise Refusal(230071, "The operator is not the sender of the message.")
        if found.recalled or (edits := self.updates.count(message_id)) >= EDITS_MAX:
            raise Refusal(230011 if found.recalled else 230072, f"recalled, or edited {EDITS_MAX} times")
        text = check_content(edit.msg_type, edit.content)
        async with self._changed:
            found.msg_type, found.content = edit.msg_type, edit.content
            self.messages = [replace(it, text=text) if it.message_id == message_id else it for it in self.messages]
            self.updates.append(message_id)
            self._changed.notify_all()
        return _data({"message_id": message_id, "edits": edits + 1})

    async def _reply(self, request: Request) -> Response:
        reply, message_id = parsed(NewReply, await request.body()), request.path_params["message_id"]
        found = self.known.get(message_id)
        if found is None or not message_id.startswith("om_"):
            raise Refusal(99992354, "The request you send is not a valid {message_id} or not exists")
        if found.recalled:
            raise Refusal(230011, "The message was recalled.")
        return await self._place(reply, chat_id=found.chat_id, reply_to=message_id)

    async def _place(self, message: NewReply, *, chat_id: str, reply_to: str | None) -> Response:
        card, uuid = sent_card(message), message.uuid
        text = card or check_content(message.msg_type, message.content)
        if message.msg_type in ("image", "file", "audio"):
            self.check_upload(message.msg_type, text)
        first = self._uuids.get(uuid or "")
        if uuid and first and self.now() - first[0] < UUID_SECONDS:
            return _data(first[1])
        self._check_rate(chat_id)
        if card:
            self.cardkit.send(card)
        sent = Sent(
            message_id=f"om_{secrets.token_hex(16)}",
            chat_id=chat_id,
            reply_to=reply_to,
            thread=message.reply_in_thread,
            msg_type=message.msg_type,
            text=text,
            uuid=uuid,
            card=bool(card),
        )
        self.known[sent.message_id] = Known(
            chat_id=chat_id, sender=self.app_id, msg_type=sent.msg_type, content=message.content
        )
        data: dict[str, Any] = {"message_id": sent.message_id, "chat_id": chat_id, "msg_type": sent.msg_type}
        data |= {"body": {"content": message.content}} | ({"parent_id": reply_to} if reply_to else {})
        if uuid:
            self._uuids[uuid] = (self.now(), data)
        async with self._changed:
            self.messages.append(sent)
            self._changed.notify_all()
        return _data(data)

    def _check_rate(self, chat_id: str) -> None:
        if not self.limit_rates:
            return
        recent = [moment for moment in self._sent_at.get(chat_id, ()) if self.now() - moment < 1.0]
        if len(recent) >= CHAT_PER_SECOND_MAX:
            raise Refusal(230020, "This operation triggers the frequency limit.")
        self._sent_at[chat_id] = [*recent, self.now()]


def _is_form(request: Request) -> bool:
    is_upload = request.url.path.endswith(("/images", "/files"))
    return is_upload and request.headers.get("content-type", "").startswith("multipart/form-data; boundary=")


async def _form(request: Request, part: str) -> tuple[dict[str, str], Upload, bytes]:
    """The fields of a form, and the one file in it."""
    fields, files = parse_multipart(request.headers["content-type"], await request.body())
    if set(files) != {part}:
        raise Refusal(234001, "Invalid request param.")
    file = files[part]
    return fields, Upload(name=file.name, media_type=file.mime_type), file.content


def _data(data: Mapping[str, Any]) -> Response:
    return JSONResponse({"code": 0, "msg": "success", "data": dict(data)}, headers={"x-tt-logid": secrets.token_hex(8)})


def _code(code: int, *, status: int = 400, message: str = "", headers: Mapping[str, str] | None = None) -> Response:
    extra = {"x-tt-logid": secrets.token_hex(8), **(headers or {})}
    return JSONResponse({"code": code, "msg": message or "failed"}, status_code=status, headers=extra)


def _item(message_id: str, known: Known) -> dict[str, Any]:
    sender = {"id": known.sender, "id_type": "open_id", "sender_type": "user"}
    if known.app:
        sender = {"id": known.app, "id_type": "app_id", "sender_type": "app"}
    item: dict[str, Any] = {
        "message_id": message_id,
        "msg_type": known.msg_type,
        "chat_id": known.chat_id,
        "sender": sender,
    }
    item |= {"upper_message_id": known.upper} if known.upper else {}
    item |= {"create_time": known.created} if known.created else {}
    item |= {"mentions": known.mentions} if known.mentions else {}
    return item | {"deleted": known.recalled, "body": {"content": known.content}}
