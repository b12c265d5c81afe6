"""Calls that a model with native tools wrote as text instead, because it or its server slipped.

An answer that is nothing but calls of offered tools becomes those calls; nothing else does, for a model may also talk
about calls. What is unmistakably call text but cannot be made a call is kept from people. The request is not touched.
"""

from collections.abc import AsyncGenerator, Sequence

from agents.messages import AssistantMessage
from agents.providers.provider import ModelEvent, ModelRequest, Provider
from agents.providers.textcalls.answer import DONE_WELL, Cut
from agents.providers.textcalls.forms import all_forms, tag_forms
from agents.providers.textcalls.grammar import NAME_CHARS_MAX, written_calls
from agents.providers.textcalls.preview import Preview
from agents.providers.textcalls.rewriting import rewritten

PAYLOAD_BYTES_MAX = 256_000
"""A longer answer is no call."""

_TAGS = tag_forms()


class RepairedCalls:
    """A `Provider` around another."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def api(self) -> str:
        return self._inner.api

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        return rewritten(self._inner.stream(request), request, _Style(request) if request.tools else _Words())

    async def warm_up(self) -> None:
        await self._inner.warm_up()

    async def close(self) -> None:
        await self._inner.close()


class _Style:
    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._tools = {tool.name: tool for tool in request.tools if len(tool.name) <= NAME_CHARS_MAX}
        self._alone = all_forms(tuple(self._tools))

    def preview(self) -> Preview:
        return Preview(_TAGS, self._alone)

    def cuts(self, words: str, message: AssistantMessage) -> Sequence[Cut]:
        if made := self._calls_alone(words, message):
            return made
        return [Cut(start=found.start, end=found.end) for found in _TAGS.among_words(words, in_spans=False)]

    def _calls_alone(self, words: str, message: AssistantMessage) -> Sequence[Cut]:
        may_call = not message.calls and message.stop_reason in DONE_WELL and self._request.tool_choice != "none"
        stretches = self._alone.alone(words) if may_call else []
        if stretches and len(words.encode(errors="replace")) > PAYLOAD_BYTES_MAX:
            return ()
        cuts: list[Cut] = []
        for found in stretches:
            calls = written_calls(found.kind, found.text, self._tools)
            if not calls or any(call.name not in self._tools or call.arguments is None for call in calls):
                return ()
            cuts.append(Cut(start=found.start, end=found.end, calls=calls))
        return cuts


class _Words:
    """Without tools nothing is a call."""

    def preview(self) -> None:
        return None

    def cuts(self, words: str, message: AssistantMessage) -> Sequence[Cut]:
        return ()
