"""Calls that a model with native tools wrote as text instead, because it or its server slipped.

An answer that is nothing but calls of offered tools becomes those calls; nothing else does, for a model may also talk
about calls. What is unmistakably call text but cannot be made a call is kept from people. The request is not touched.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence

from agents.messages import AssistantMessage
from agents.providers.provider import ModelEvent, ModelRequest, Provider
from agents.providers.textcalls.answer import DONE_WELL, Answer, Everything, Said
from agents.providers.textcalls.forms import bare_forms, tag_forms
from agents.providers.textcalls.gate import PAYLOAD_BYTES_MAX, Gate
from agents.providers.textcalls.grammar import NAME_CHARS_MAX, WrittenCall, written_calls
from agents.providers.textcalls.rewriting import rewritten
from agents.providers.textcalls.scanner import Marked, Scanner
from agents.providers.textcalls.visible import Cut, Shown, Visible


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
        def said(start: int) -> Said:
            return _Said(request, start) if request.tools else Everything(start)

        return rewritten(self._inner.stream(request), lambda: Answer(request, said))

    async def warm_up(self) -> None:
        await self._inner.warm_up()

    async def close(self) -> None:
        await self._inner.close()


class _Said:
    """First the gate; once it is open, what is visible."""

    def __init__(self, request: ModelRequest, start: int) -> None:
        self._request = request
        self._tools = {tool.name: tool for tool in request.tools if len(tool.name) <= NAME_CHARS_MAX}
        tags, bare = tag_forms(), bare_forms(self._tools)
        self._gate = Gate(Scanner((*tags, *bare), quoting="fences and spans"), self._qualifies, start=start)
        self._visible = Visible(Scanner(tags, quoting="fences and spans"), start=start)

    @property
    def cuts(self) -> Sequence[Cut]:
        return self._gate.cuts or self._visible.cuts

    def feed(self, piece: str) -> Iterator[Shown]:
        passed = piece if self._gate.is_open else self._gate.feed(piece)
        if passed:
            yield from self._visible.feed(passed)

    def finish(self, message: AssistantMessage) -> Iterator[Shown]:
        if not self._gate.is_open:
            may_call = not message.calls and message.stop_reason in DONE_WELL and self._request.tool_choice != "none"
            yield from self._visible.feed(self._gate.finish(may_call=may_call))
        yield from self._visible.finish()

    def calls(self, cut: Cut) -> Sequence[WrittenCall]:
        return self._written(cut) if self._gate.cuts else ()

    def _qualifies(self, marked: Marked) -> bool:
        if len(marked.text) > PAYLOAD_BYTES_MAX or len(marked.text.encode(errors="replace")) > PAYLOAD_BYTES_MAX:
            return False
        calls = self._written(marked)
        return bool(calls) and all(call.name in self._tools and call.arguments is not None for call in calls)

    def _written(self, stretch: Marked | Cut) -> Sequence[WrittenCall]:
        match stretch.kind:
            case "space" | "thoughts":
                return ()
            case kind:
                return written_calls(kind, stretch.text, self._tools)
