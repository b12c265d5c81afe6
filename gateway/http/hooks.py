"""Hooks: an event of another system becomes a message to a chat or a turn of an agent (`POST /hooks/NAME`, docs/hooks.md).

The proof is checked in constant time before the body is parsed. An event is answered with 202 once its row in the inbox is
committed; a redelivery, to any replica, finds that row. Event content is untrusted: plain text in a message, fenced in a
turn.
"""

import asyncio
import hashlib
import hmac
import math
import secrets
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import orjson
import structlog
from fastapi import Request, Response

from agents.prompt.fences import external
from channels.channel import Rejected
from channels.message import Chat, Origin, Place
from channels.plain import Where, plain
from channels.wire import DEPTH_MAX, is_deep
from gateway.config.budgets import Rate
from gateway.config.channels import kind_of, place_in
from gateway.config.hooks import Event, HookConfig, Template
from gateway.config.root import route
from gateway.http.bodies import Bodies, Unreadable
from gateway.http.request import ACCEPT_SECONDS, Guesses, Unserved, answer_json, catch_errors, problem
from gateway.outbox.messenger import Saying
from gateway.outbox.outbox import idempotency_key
from gateway.state.runtime import Runtime
from gateway.store.errors import DatabaseFault, StoreUnavailable
from gateway.store.inbound import Inbound
from gateway.store.records import Delivery
from gateway.store.sessions import message_in
from gateway.turns.batch import origin_delivery

WINDOW_SECONDS = 300
"""Maximum clock difference of a signed event, in either direction."""
FULL_SECONDS = 30
"""The `retry-after` if too many messages wait in the chat."""
KEY_CHARS_MAX = 255
VALUE_CHARS_MAX = 16_000
"""Characters of a value in a task."""

log = structlog.get_logger()


class Hooks:
    def __init__(self, runtime: Runtime, guesses: Guesses, bodies: Bodies) -> None:
        self._runtime = runtime
        self._bodies = bodies
        self._config = runtime.setup.config
        self._rates = {name: Window(hook.limit) for name, hook in self._config.hooks.items()}
        self.post = catch_errors(self._counted, guesses)

    async def _counted(self, request: Request) -> Response:
        name: str = request.path_params["name"]
        hook = name if name in self._config.hooks else "unknown"
        outcome = "unavailable"
        try:
            response = await self._answered(request, name)
            outcome = {202: "accepted", 409: "refused"}.get(response.status_code, "too-often")
        except Rejected:
            outcome = "rejected"
            raise
        except (Unserved, Unreadable):
            outcome = "refused"
            raise
        finally:
            self._runtime.metrics.hooks.labels(hook, outcome).inc()
        return response

    async def _answered(self, request: Request, name: str) -> Response:
        hook, now = self._config.hooks.get(name), self._runtime.now()
        if hook is None:
            raise Unserved(404, "unknown-hook", "There is no such hook.")
        proof = Proof(request, hook, now)
        limits = self._config.server
        body = await self._bodies.read(request, bytes_max=limits.max_body_bytes, seconds=limits.body_timeout_seconds)
        signature = proof.check(body)
        key = _key(request, hook)
        id_ = idempotency_key("hook", name, key or signature) if key or signature else str(uuid4())
        origin = Origin(kind="hook", id=name, run=id_, by_operator=True, external=True)
        # A replay attack may use another key, or another hook with the same secret.
        proven = (f"hook:{signature}",) if signature else ()
        # Before the rate limit: a redelivery must not use it up.
        if await self._runtime.store.has_arrived(origin.key, *proven):
            log.info("hook_called", hook=name, id=id_, again=True)
            return answer_json({"id": id_}, 202)
        if self._runtime.choices.rests(name, hook.to, now):
            log.warning("hook_chat_gone", hook=name)
            sentence = f"The chat of this hook is out of reach. Change hooks.{name}.to, or wait a day."
            return problem(409, "chat-gone", sentence)
        if (wait := self._rates[name].wait(now)) > 0:
            log.warning("hook_too_often", hook=name, rate=hook.rate)
            sentence = f"This hook takes {hook.rate} events (hooks.{name}.rate)."
            return problem(429, "too-often", sentence, retry_seconds=math.ceil(wait))
        delivery = self._delivery(hook, Event(body=_parsed(request, body), headers=dict(request.headers)), origin)
        delivery = replace(delivery, dedupe=(*delivery.dedupe, *proven))
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                if await self._runtime.store.later.own_waiting(delivery.sid) >= self._config.limits.pending_origins:
                    log.warning("hook_chat_full", hook=name)
                    sentence = "Too many messages wait in this hook's chat already (limits.pendingOrigins)."
                    return problem(429, "too-many-waiting", sentence, retry_seconds=FULL_SECONDS)
                acceptance = await self._runtime.accept(delivery)
        except TimeoutError:
            fault: DatabaseFault = self._runtime.store.failing or "slow"
            raise StoreUnavailable("the event was not stored in time", fault) from None
        if acceptance.turn is None:
            self._rates[name].give_back(now)
        log.info("hook_called", hook=name, id=id_, again=acceptance.turn is None)
        return answer_json({"id": id_}, 202)

    def _delivery(self, hook: HookConfig, event: Event, origin: Origin) -> Delivery:
        place = place_in(self._config.channels, hook.to)
        if hook.say is not None:
            saying = Saying(place=place, text=Template(hook.say).filled(event, plain), origin=origin)
            return saying.delivery(self._config, self._runtime.now())
        return self._task(hook, place, event, origin)

    def _task(self, hook: HookConfig, place: Place, event: Event, origin: Origin) -> Delivery:
        template, boundary = Template(hook.task or ""), secrets.token_hex(8)
        room = self._runtime.setup.limits.message_chars - len(template.text)
        chars = max(1, min(VALUE_CHARS_MAX, room // (2 * max(1, template.places))))

        def fenced(value: str, where: Where) -> str:
            return external(value[:chars], f"hook {origin.id}", boundary)

        chat = Chat(id=place.chat, kind=kind_of(self._config.channels, place), thread=place.thread)
        context = replace(
            message_in(place.channel, place.account, chat, ""),
            text=template.filled(event, fenced),
            sent_at=datetime.fromtimestamp(self._runtime.now(), UTC),
            origin=origin,
        )
        agent = hook.agent or route(self._config.routes, self._config.agents, context)
        return origin_delivery(self._runtime, Inbound(agent=agent, context=context), origin.key)


class Proof:
    """Authentication of an event by its headers, before its body is read. Raises Rejected."""

    def __init__(self, request: Request, hook: HookConfig, now: float) -> None:
        self._secret = hook.secret.get_secret_value().encode()
        self._verify = hook.verify
        self._time = b""
        if not self._secret:
            raise Rejected("no secret is configured", sentence="This hook has no secret yet.")
        match hook.verify:
            case "token":
                given = _header(request, "authorization")
                scheme, _, token = given.partition(b" ")
                if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._secret):
                    raise Rejected("wrong token", guess=bool(token), sentence=_WRONG)
            case "hmac":
                self._given = _header(request, "x-clawgate-signature")
                self._time = _header(request, "x-clawgate-timestamp")
                if not (self._time.isdigit() and len(self._time) <= 12):
                    raise Rejected("no timestamp", sentence="X-Clawgate-Timestamp: expected the seconds since 1970.")
                if abs(now - int(self._time)) > WINDOW_SECONDS:
                    raise Rejected("too old", sentence=f"X-Clawgate-Timestamp: more than {WINDOW_SECONDS} s from now.")
            case "github":
                self._given = _header(request, "x-hub-signature-256")

    def check(self, body: bytes) -> str:
        """Return the digest of the signature if it identifies the event, else "". Raises Rejected."""
        if self._verify == "token":
            return ""
        signed = self._time + b"." + body if self._verify == "hmac" else body
        digest = hmac.new(self._secret, signed, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(self._given, f"sha256={digest}".encode()):
            raise Rejected("wrong signature", guess=bool(self._given), sentence=_WRONG)
        return digest if self._verify == "hmac" else ""


_WRONG = "The secret or the signature is missing or wrong."


@dataclass(slots=True)
class Window:
    """Sliding-window rate limit: the times of the newest events."""

    rate: Rate
    taken: deque[float]

    def __init__(self, rate: Rate) -> None:
        self.rate, self.taken = rate, deque(maxlen=rate.count)

    def wait(self, now: float) -> float:
        """Count an event. Return the seconds to wait if it exceeds the rate, else 0."""
        full = len(self.taken) == self.rate.count
        if full and 0 < (wait := self.taken[0] + self.rate.seconds - now) <= self.rate.seconds:
            return wait
        self.taken.append(now)
        return 0.0

    def give_back(self, taken: float) -> None:
        """Uncount the event counted at `taken`, since it was a redelivery."""
        with suppress(ValueError):
            self.taken.remove(taken)


def _header(request: Request, name: str) -> bytes:
    values = request.headers.getlist(name)
    return values[0].encode("latin-1") if len(values) == 1 else b""


def _key(request: Request, hook: HookConfig) -> str:
    key = request.headers.get("x-github-delivery", "") if hook.verify == "github" else ""
    key = key or request.headers.get("idempotency-key", "")
    if len(key) > KEY_CHARS_MAX:
        raise Unserved(400, "key-too-long", f"Idempotency-Key: at most {KEY_CHARS_MAX} characters.")
    return key


def _parsed(request: Request, body: bytes) -> Any:
    try:
        parsed = orjson.loads(body)
        if is_deep(parsed):
            raise Unserved(400, "too-deep", f"The body is nested deeper than {DEPTH_MAX} levels.")
        return parsed
    except orjson.JSONDecodeError:
        if "json" in request.headers.get("content-type", ""):
            raise Unserved(400, "not-json", "The body is not the JSON that its content-type says.") from None
        return body.decode(errors="replace")
