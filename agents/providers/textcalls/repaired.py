"""Calls that a model with native tools wrote as text instead, because it or its server slipped.

An answer that is nothing but calls of offered tools becomes those calls; nothing else does, for a model may also talk
about calls. What is unmistakably call text but cannot be made a call is kept from people. The request is not touched.
"""

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import replace

from agents.providers.provider import ModelEvent, ModelRequest
from agents.providers.textcalls.answer import Rewriting, Style, rewritten
from agents.providers.textcalls.forms import TAGS
from agents.providers.textcalls.written import Stretch, calls_alone, calls_among_words

PAYLOAD_BYTES_MAX = 256_000
"""A longer answer is no call."""


class RepairedCalls(Rewriting):
    """A `Provider` around another."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        return rewritten(self._inner.stream(request), request, _style(request))


def _style(request: ModelRequest) -> Style:
    """Without tools nothing is a call."""
    tools = {tool.name: tool for tool in request.tools}

    def cuts(words: str, may_call: bool) -> Sequence[Stretch]:
        short = len(words.encode(errors="replace")) <= PAYLOAD_BYTES_MAX
        alone = calls_alone(words, tools) if may_call and short and request.tool_choice != "none" else []
        if alone and all(_is_good(found, tools) for found in alone):
            return alone
        return [replace(found, calls=()) for found in calls_among_words(words, TAGS, tools)]

    return Style(forms=TAGS, bare=True, cuts=cuts) if tools else Style(forms=(), bare=False, cuts=lambda *_: ())


def _is_good(found: Stretch, tools: Collection[str]) -> bool:
    return bool(found.calls) and all(call.name in tools and call.arguments is not None for call in found.calls)
