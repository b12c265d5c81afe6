"""The answer to a call: waited for while it grows, and found in the store, whichever replica gave it.

Text that was shown is never taken back: a piece goes out only if it continues the pieces before. The text of a failed
attempt stays shown, so the next attempt waits until it says more than that, or is over.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from channels.api.channel import ApiChannel, WaitingCall
from channels.message import MessageContext
from gateway.api.call import ApiCall, ApiError
from gateway.inbox.intake import Intake
from gateway.outbox.outbox import payload_json
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.store.records import StoredAnswer
from gateway.store.sessions import session_key

POLL_SECONDS = 1.0
"""Seconds between two looks into the store, for an answer that another replica gives."""

log = structlog.get_logger()


@dataclass(kw_only=True)
class Answering:
    """One call, accepted as soon as the first piece is asked for. `final` and `text` are there once the pieces are over."""

    runtime: Runtime
    intake: Intake
    channel: ApiChannel
    context: MessageContext
    call: ApiCall
    created: int
    final: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def id(self) -> str:
        return self.context.message_id.replace("-", "")

    @property
    def bill(self) -> tuple[int, int, int, int, int]:
        """All requests of the turn together: tokens of prompt, answer, read from and written to a cache, of reasoning."""
        tokens: dict[str, int] = self.final.get("tokens", {})
        new, read, written, output, reasoning = (
            tokens.get(it, 0) for it in ("input", "cache_read", "cache_write", "output", "reasoning")
        )
        return new + read + written, output, read, written, reasoning

    async def pieces(self) -> AsyncGenerator[str]:
        """The text as it grows; an empty one now and then. Raises ApiError if the call has failed, and StoreUnavailable."""
        with self.channel.waiting(self.context.message_id) as waiting:
            key = self.context.message_id
            acceptance = await self.intake.accept(self.context, self.call.agent, [key], caller=self.call.caller)
            if acceptance.overflow:
                raise ApiError(
                    429, "Too many calls wait already.", type_="rate_limit_error", code="rate_limit_exceeded"
                )
            shown, look = Shown(), acceptance.turn is None
            control, rules = self.runtime.control, self.runtime.setup.session_rules(self.call.agent)
            session = session_key(self.call.agent, self.context, rules.scope)
            while True:
                leaving = control.draining and session not in control.lanes
                if look and (answer := await self._answer(key)) is not None:
                    self._finish(answer)
                    yield shown.end(self.text)
                    return
                if leaving:
                    sentence = "The gateway is stopping; the answer is continued elsewhere, or after its next start."
                    raise ApiError(503, sentence, type_="server_error", code="stopping", retry_seconds=5)
                look = await self._changed(waiting)
                progress = waiting.progress
                yield shown.more(progress.text, len(progress.tools)) if progress and not look else ""

    async def _changed(self, waiting: WaitingCall) -> bool:
        """Waits for news, and returns whether to look into the store."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await waiting.changed.wait()
        if not waiting.changed.is_set():
            return True
        waiting.changed.clear()
        return waiting.progress is not None and waiting.progress.outcome is not None

    async def _answer(self, key: str) -> StoredAnswer | None:
        """A client who leaves cancels no read, which can hang in its driver. Without the database there is no answer yet."""
        reading = self.runtime.store.answer(f"{self.channel.name}:{self.channel.account}:{key}")
        try:
            return await asyncio.shield(asyncio.ensure_future(reading))
        except StoreUnavailable as error:
            log.error("answer_unavailable", error=repr(error))
            return None

    def _finish(self, answer: StoredAnswer) -> None:
        self.final = json.loads(answer.final)
        self.text = "".join(payload_json.validate_json(it).part.text for it in answer.payloads)
        if self.channel.account not in self.runtime.setup.config.server.api.open:
            raise ApiError(401, "The token was revoked meanwhile.", code="invalid_api_key", final=True)
        if error := _error(self.final["outcome"], self.final.get("reason", ""), self.text):
            raise error


@dataclass(slots=True)
class Shown:
    """The text that a stream has shown: `step` is the turn's newest, after `tools` calls."""

    step: str = ""
    tools: int = 0

    def more(self, text: str, tools: int) -> str:
        """Returns the new text if it continues the text shown; a step after a tool's result begins a new paragraph."""
        text = text.rstrip()
        if text.startswith(self.step):
            new, self.step, self.tools = text[len(self.step) :], text, tools
            return new
        if tools > self.tools and text:
            self.step, self.tools = text, tools
            return f"\n\n{text}"
        return ""

    def end(self, text: str) -> str:
        """The rest of the whole answer; all of it beneath what was shown of another."""
        if text.startswith(self.step):
            return text[len(self.step) :]
        return f"\n\n{text}" if text else ""


def _error(outcome: str, reason: str, text: str) -> ApiError | None:
    """The error of a failed turn; None if it did not fail. Its sentence is the one a person would read."""
    message = text or f"The turn ended without an answer ({outcome})."
    match outcome, reason:
        case (("replied" | "silent" | "declined"), _):
            return None
        case ("over-budget", _) | ("failed", "budget"):
            return ApiError(429, message, type_="insufficient_quota", code="insufficient_quota", final=True)
        case (("too-many" | "too-fast"), _):
            return ApiError(429, message, type_="rate_limit_error", code="rate_limit_exceeded")
        case "failed", ("too_large" | "message_too_long"):
            return ApiError(400, message, code="context_length_exceeded", final=True)
        case "failed", ("not configured" | "agent-closed"):
            return ApiError(404, message, param="model", code="model_not_found", final=True)
        case "failed", ("internal" | "attempts" | "stuck"):
            return ApiError(500, message, type_="server_error", code=reason, final=True)
        case "failed", _:
            return ApiError(502, message, type_="server_error", code=reason or None, final=True)
        case _:
            return ApiError(409, message, type_="server_error", code=outcome, final=True)
