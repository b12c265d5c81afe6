"""The OpenAI-compatible endpoint, `POST /v1/send` and `POST /mcp`. Agent ids are the models. See docs/api.md.

A call is a message like any other: it is stored first, then answered in its own turn, even if the client disconnects. Calls
with an `Idempotency-Key` are idempotent: a retry gets the answer of the first call.
"""

import base64
import binascii
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

import orjson
import structlog
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette import routing
from starlette.responses import StreamingResponse

from channels.api.channel import ApiChannel
from channels.message import Attachment, Chat, File, MessageContext, Place, Sender
from channels.web.admission import is_own_origin
from gateway.config.channels import ChannelsConfig, place_in
from gateway.config.root import Config
from gateway.http import mcp
from gateway.http.bodies import Bodies, Unreadable, declared_size
from gateway.http.calls import POLL_SECONDS, Answering, ApiCall, ApiError, check_pictures, parsed
from gateway.http.request import Guesses, answer_json, served
from gateway.inbox.intake import Intake
from gateway.outbox.messenger import Sends, file_of, sending
from gateway.outbox.outbox import idempotency_key
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable, outage_of
from gateway.store.sends import SendOutcome
from gateway.store.sessions import message_in
from gateway.turns.attachments import FILES_MAX
from tools.attachment import safe_name

log = structlog.get_logger()

HOLD_SECONDS = 10.0
"""Wait this long for the first words before a stream starts, so that an early failure keeps its status."""
KEY_CHARS_MAX = 255

TokenRoute: TypeAlias = Callable[[Request, str], Awaitable[Response]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiDoor:
    runtime: Runtime
    intake: Intake
    guesses: Guesses
    bodies: Bodies

    def routes(self) -> list[routing.Route]:
        found = (
            ("/v1/models", self.models, "GET"),
            ("/v1/models/{model}", self.model, "GET"),
            ("/v1/chat/completions", self.completions, "POST"),
            ("/v1/send", self.send, "POST"),
            ("/mcp", self.mcp, "GET", "POST", "DELETE"),
            ("/v1/{rest:path}", self.unknown, "GET", "POST", "PUT", "PATCH", "DELETE"),
        )
        return [served(path, self._authorised(route), *methods) for path, route, *methods in found]

    async def models(self, request: Request, name: str) -> Response:
        return answer_json({"object": "list", "data": [_model(agent) for agent in self._open(name)]})

    async def model(self, request: Request, name: str) -> Response:
        return answer_json(_model(self._known(request.path_params["model"], name)))

    async def unknown(self, request: Request, name: str) -> Response:
        there = "an agent answers POST /v1/chat/completions"
        raise ApiError(404, f"There is no {request.method} {request.url.path[:100]} here: {there}.", code="unknown_url")

    def _authorised(self, route: TokenRoute) -> Callable[[Request], Awaitable[Response]]:
        async def authorised(request: Request) -> Response:
            try:
                return await route(request, self._admit(request))
            except ApiError as error:
                return _refusal(error)
            except Unreadable as unreadable:
                return _refusal(ApiError(unreadable.status, f"The request could not be read: {unreadable.reason}."))
            except StoreUnavailable as error:
                log.error("api_unavailable", error=repr(error))
                sentence = f"{outage_of(error.fault, '').sentence} Try again in a moment."
                return _refusal(ApiError(503, sentence, type_="server_error", code="unavailable", retry_seconds=5))

        return authorised

    def _admit(self, request: Request) -> str:
        headers = request.headers.getlist("authorization")
        secret = (headers[0] if len(headers) == 1 else "").encode("latin-1")
        scheme, _, token = secret.partition(b" ")
        if scheme.lower() != b"bearer" or not token:
            raise ApiError(401, "Send a token of server.api.tokens: Authorization: Bearer …", code="invalid_api_key")
        tokens = self.runtime.setup.config.server.api.open
        # Compare all tokens, to leak nothing by timing.
        matches = [name for name, it in tokens.items() if hmac.compare_digest(token.strip(), it.encode())]
        if matches:
            return matches[0]
        if wait := self.guesses.wait(request.scope):
            sentence = f"Too many wrong tokens from this address. A wrong one is looked at in {wait} s."
            raise ApiError(429, sentence, type_="rate_limit_error", code="too_many_attempts", retry_seconds=wait)
        log.warning("token_refused", reason="wrong api token")
        raise ApiError(401, "The token is wrong.", code="invalid_api_key")

    async def completions(self, request: Request, name: str) -> Response:
        body = await self._body(request)
        session = request.headers.get("x-clawgate-session", "").encode("latin-1").decode(errors="replace").strip()
        call = parsed(body, session or None)
        answering = self._answering(call, name, _message_id(request, name, body))
        answering.context = replace(answering.context, attachments=await self._kept(call.pictures))
        ignored = {"x-clawgate-ignored": ", ".join(call.ignored)} if call.ignored else {}
        if call.stream:
            return await self._streamed(answering, ignored)
        async with aclosing(answering.pieces()) as pieces:
            async for _ in pieces:
                if await request.is_disconnected():  # the turn continues
                    return Response(status_code=499)
        return answer_json(completion(answering), 200, **ignored)

    async def _body(self, request: Request) -> bytes:
        limits, longest = self.runtime.setup.config.server, bytes_max(self.runtime.setup.config)
        size = min(declared_size(request, longest), longest)
        seconds = limits.body_timeout_seconds * max(1.0, size / limits.max_body_bytes)
        async with self.bodies.reserved(size):
            return await self.bodies.read(request, bytes_max=longest, seconds=seconds)

    async def send(self, request: Request, name: str) -> Response:
        if not self.runtime.setup.config.server.api.may_send(name):
            sentence = f"This token may not send: server.api.tokens.{name} has no send: true."
            raise ApiError(403, sentence, type_="permission_error", code="may_not_send")
        body = await self._body(request)
        status, content = await self._sent(body, _message_id(request, name, body))
        return answer_json(content, status)

    async def _sent(self, body: bytes, id_: str) -> tuple[int, dict[str, object]]:
        setup = self.runtime.setup
        place, text, files = send_of(body, setup.config.channels, setup.limits.file_bytes)
        stored = [await self.runtime.store.files.put(it, self.runtime.now()) for it in files]
        return send_answer(id_, await Sends(self.runtime).send(sending(place, text, id_, stored)))

    async def mcp(self, request: Request, name: str) -> Response:
        """Answer an MCP client, which asks one of our agents or sends a message."""
        url = self.runtime.setup.config.server.public_url
        if not is_own_origin(request.headers.items(), urlsplit(url).netloc if url else None):
            sentence = "The request comes from a page of another site (Origin)."
            raise ApiError(403, sentence, type_="permission_error", code="foreign_origin")
        if request.method != "POST":  # neither server-initiated messages nor sessions
            return Response(status_code=405, headers={"allow": "POST"})
        body = await self._body(request)

        async def ask(call: ApiCall) -> Answering:
            return self._answering(call, name, _message_id(request, name, body))

        async def send(message: bytes) -> dict[str, object]:
            return (await self._sent(message, _message_id(request, name, body)))[1]

        setup = self.runtime.setup
        may_send = setup.config.server.api.may_send(name)
        return await mcp.answered(request, body, self._open(name), ask, send if may_send else None)

    def _answering(self, call: ApiCall, name: str, message_id: str) -> Answering:
        setup = self.runtime.setup
        chars = setup.limits.message_chars
        self._known(call.agent, name)
        if len(call.caller.instructions) > chars:
            raise ApiError(400, f"The instructions are longer than {chars:,} characters (limits.messageChars).")
        channel = setup.channels.get((ApiChannel.name, name))
        if self.runtime.control.draining or not isinstance(channel, ApiChannel):
            raise ApiError(503, "The gateway is stopping.", type_="server_error", code="stopping", retry_seconds=5)
        context = MessageContext(
            channel=ApiChannel.name,
            account=name,
            chat=Chat(id=f"session-{call.session}" if call.session else f"call-{message_id}", kind="direct"),
            message_id=message_id,
            sender=Sender(id=name, name=name),
            text=call.text,
            sent_at=datetime.fromtimestamp(self.runtime.now(), UTC),
            mentioned=True,
        )
        return Answering(
            runtime=self.runtime,
            intake=self.intake,
            channel=channel,
            context=context,
            call=call,
            created=int(self.runtime.now()),
        )

    async def _kept(self, pictures: tuple[File, ...]) -> tuple[Attachment, ...]:
        check_pictures(pictures, self.runtime.setup.limits.file_bytes)
        files, now = self.runtime.store.files, self.runtime.now()
        stored = [await files.put(it, now) for it in pictures]
        return tuple(Attachment(kind="image", key=it.id, name=it.name, type=it.type) for it in stored)

    async def _streamed(self, answering: Answering, ignored: Mapping[str, str]) -> Response:
        pieces = answering.pieces()
        first, silent_seconds = "", 0.0
        async for first in pieces:
            if first or silent_seconds >= HOLD_SECONDS:
                break
            silent_seconds += POLL_SECONDS

        async def all_of_them() -> AsyncIterator[str]:
            yield first
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece

        body = chunks(answering, all_of_them())
        headers = {"cache-control": "no-store", "x-accel-buffering": "no", **ignored}
        return StreamingResponse(body, headers=headers, media_type="text/event-stream")

    def _open(self, name: str) -> list[str]:
        message = message_in(ApiChannel.name, name, Chat(id="", kind="direct"), name)
        return [it for it in self.runtime.setup.runners if self.runtime.is_open(it, message)]

    def _known(self, agent: str, name: str) -> str:
        if agent in (there := self._open(name)):
            return agent
        agents = ", ".join(there)
        sentence = f"There is no agent {agent[:64]!r}; there is: {agents}."
        raise ApiError(404, sentence, param="model", code="model_not_found")


def bytes_max(config: Config) -> int:
    """Return the maximum size of a call: its text, and pictures up to one file's limit in base64."""
    return config.server.max_body_bytes + config.limits.file_bytes * 4 // 3


def _message_id(request: Request, name: str, body: bytes) -> str:
    key = request.headers.get("idempotency-key", "")
    if len(key) > KEY_CHARS_MAX:
        raise ApiError(400, f"Idempotency-Key: at most {KEY_CHARS_MAX} characters.", param="Idempotency-Key")
    if not key:
        return str(uuid4())
    session = request.headers.get("x-clawgate-session", "")
    return idempotency_key("api", name, key, session, request.url.path, body.decode(errors="replace"))


def _model(agent: str) -> dict[str, object]:
    return {"id": agent, "object": "model", "created": 0, "owned_by": "clawgate"}


def _refusal(error: ApiError) -> Response:
    headers = {} if error.retry_seconds is None else {"retry-after": str(error.retry_seconds)}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.final:  # the official client would retry, and so repeat the turn
        headers["x-should-retry"] = "false"
    return answer_json({"error": error.body}, error.status, **headers)


DONE = b"data: [DONE]\n\n"


def completion(answering: Answering) -> Mapping[str, Any]:
    message = {"role": "assistant", "content": answering.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(answering.final)}
    return _about(answering, "chat.completion") | {"choices": [choice], "usage": _usage(answering)}


async def chunks(answering: Answering, pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    def chunk(delta: Mapping[str, Any] | None, reason: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
        about = _about(answering, "chat.completion.chunk")
        return b"data: " + orjson.dumps(about | {"choices": choices} | more) + b"\n\n"

    yield chunk({"role": "assistant", "content": ""})
    try:
        async for piece in pieces:
            yield chunk({"content": piece}) if piece else b": alive\n\n"
    except ApiError as error:
        yield b"data: " + orjson.dumps({"error": error.body}) + b"\n\n"
        return
    yield chunk({}, _reason(answering.final))
    if answering.call.with_usage:
        yield chunk(None, usage=_usage(answering))
    yield DONE


def _about(answering: Answering, kind: str) -> dict[str, Any]:
    model, created = answering.call.agent, answering.created
    return {"id": f"chatcmpl-{answering.id}", "object": kind, "created": created, "model": model}


def _reason(final: Mapping[str, Any]) -> str:
    if final["outcome"] == "declined":
        return "content_filter"
    return "length" if final.get("reason") == "cut" else "stop"


def _usage(answering: Answering) -> Mapping[str, Any]:
    tokens: Mapping[str, int] = answering.final.get("tokens", {})
    prompt, output = sum(tokens.get(it, 0) for it in ("input", "cache_read", "cache_write")), tokens.get("output", 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": tokens.get("cache_read", 0)},
        "completion_tokens_details": {"reasoning_tokens": tokens.get("reasoning", 0)},
    }


class SentFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    data: str
    """The bytes in base64."""


class SendBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    to: str
    text: str = ""
    files: list[SentFile] = []


def send_of(raw: bytes, channels: ChannelsConfig, file_bytes: int) -> tuple[Place, str, list[File]]:
    """Parse the body into chat, text and files. Raises ApiError."""
    try:
        body = SendBody.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = ".".join(map(str, first["loc"]))
        raise ApiError(400, f"{param or 'The body'}: {first['msg']}", param=param or None) from None
    try:
        place = place_in(channels, body.to)
    except ValueError as error:
        raise ApiError(400, f"to: {error}", param="to", code="unknown_place") from None
    if not body.text.strip() and not body.files:
        raise ApiError(400, "The message is empty: give text, files, or both.", param="text")
    if len(body.files) > FILES_MAX:
        raise ApiError(400, f"A message has at most {FILES_MAX} files.", param="files")
    return place, body.text, [_file(it, number, file_bytes) for number, it in enumerate(body.files)]


def _file(sent: SentFile, number: int, file_bytes: int) -> File:
    param = f"files.{number}.data"
    try:
        data = base64.b64decode(sent.data, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, f"{param}: expected base64.", param=param) from None
    if not data or len(data) > file_bytes:
        what = f"larger than {file_bytes:,} bytes (limits.fileBytes)" if data else "empty"
        raise ApiError(413 if data else 400, f"{param}: the file is {what}.", param=param)
    return file_of(safe_name(sent.name), data)


def send_answer(id_: str, outcome: SendOutcome) -> tuple[int, dict[str, object]]:
    """Return status and content: 200 if sent, 202 while retries continue. Raises ApiError if refused."""
    if outcome.state == "refused":
        message = f"It was not sent: {outcome.reason}"
        raise ApiError(502, message, type_="server_error", code="not_delivered", final=True)
    content: dict[str, object] = {
        "id": id_,
        "object": "message",
        "state": outcome.state,
        "message_ids": [*outcome.message_ids],
    }
    return 200 if outcome.state == "sent" else 202, content
