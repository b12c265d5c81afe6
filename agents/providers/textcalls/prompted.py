"""Tools for a model that has none: told of them in the prompt, it writes its calls as text between tags.

Same loop, same policy, same history as with native tools; only what goes over the wire differs. A call that cannot be
read is passed on as one without arguments, so that the toolbox answers it; after two answers in a row that were nothing
but such calls no tool is offered any more, and the model must finish in words.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence

from agents.messages import AssistantMessage, Message, Thinking, ToolCall, UserMessage
from agents.providers.provider import ModelEvent, ModelRequest, Provider
from agents.providers.textcalls.answer import Answer, Said
from agents.providers.textcalls.forms import prompted_forms
from agents.providers.textcalls.grammar import WrittenCall, written_calls
from agents.providers.textcalls.request import Offer, translated
from agents.providers.textcalls.rewriting import rewritten
from agents.providers.textcalls.scanner import Scanner
from agents.providers.textcalls.visible import Cut, Shown, Visible

MISTAKES_MAX = 2


class PromptedTools:
    """A `Provider` around another, whose model is never told of tools in any other way."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def api(self) -> str:
        return self._inner.api

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        offer = _offer(request)

        def said(start: int) -> Said:
            return _Said(request, offer, start)

        return rewritten(self._inner.stream(translated(request, offer)), lambda: Answer(request, said))

    async def warm_up(self) -> None:
        await self._inner.warm_up()

    async def close(self) -> None:
        await self._inner.close()


class _Said:
    """Tags are never shown; they are calls where tools were offered."""

    def __init__(self, request: ModelRequest, offer: Offer, start: int) -> None:
        self._tools = {tool.name: tool for tool in request.tools} if offer == "tools" else {}
        self._visible = Visible(Scanner(prompted_forms(), quoting="fences"), start=start)

    @property
    def cuts(self) -> Sequence[Cut]:
        return self._visible.cuts

    def feed(self, piece: str) -> Iterator[Shown]:
        return self._visible.feed(piece)

    def finish(self, message: AssistantMessage) -> Iterator[Shown]:
        return self._visible.finish()

    def calls(self, cut: Cut) -> Sequence[WrittenCall]:
        return written_calls("tool_call", cut.text, self._tools) if self._tools and cut.kind == "tool_call" else ()


def _offer(request: ModelRequest) -> Offer:
    if not request.tools:
        return "no tools"
    if _mistakes(request.messages) >= MISTAKES_MAX:
        return "they do not work"
    return "not now" if request.tool_choice == "none" else "tools"


def _mistakes(messages: Sequence[Message]) -> int:
    """How many of the running turn's last answers were nothing but calls that could not be read."""
    count = 0
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage):
            if not _unreadable(message):
                break
            count += 1
    return count


def _unreadable(message: AssistantMessage) -> bool:
    said = [part for part in message.content if not isinstance(part, Thinking)]
    return bool(said) and all(isinstance(part, ToolCall) and part.arguments is None for part in said)
