"""Tools for a model that has none: the prompt describes them, and the model writes its calls as text between tags.

Same loop, same policy, same history as with native tools; only what goes over the wire differs. A call that cannot be
read is passed on as one without arguments, so that the toolbox answers it; after two answers in a row that were nothing
but such calls no tool is offered any more, and the model must finish in words.
"""

from collections.abc import AsyncGenerator, Sequence

from agents.messages import AssistantMessage, Message, Thinking, ToolCall, UserMessage
from agents.providers.provider import ModelEvent, ModelRequest, Provider
from agents.providers.textcalls.answer import Cut
from agents.providers.textcalls.forms import prompted_forms
from agents.providers.textcalls.grammar import written_calls
from agents.providers.textcalls.preview import Preview
from agents.providers.textcalls.request import Offer, translated
from agents.providers.textcalls.rewriting import rewritten

MISTAKES_MAX = 2

_FORMS = prompted_forms()
_INVENTED = "<tool_response"


class PromptedTools:
    """A `Provider` around another, whose model gets its tools in no other way."""

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
        return rewritten(self._inner.stream(translated(request, offer)), request, _Style(request, offer))

    async def warm_up(self) -> None:
        await self._inner.warm_up()

    async def close(self) -> None:
        await self._inner.close()


class _Style:
    """Calls are made where tools were offered, and are never shown. What follows the first of them as its result was
    invented, and so is all behind that."""

    def __init__(self, request: ModelRequest, offer: Offer) -> None:
        self._offered = offer == "tools"
        self._tools = {tool.name: tool for tool in request.tools}

    def preview(self) -> Preview:
        return Preview(_FORMS)

    def cuts(self, words: str, message: AssistantMessage) -> Sequence[Cut]:
        cuts: list[Cut] = []
        for found in _FORMS.among_words(words, in_spans=True):
            if cuts and (invented := words.find(_INVENTED, cuts[-1].end, found.start)) >= 0:
                return [*cuts, Cut(start=invented, end=len(words))]
            calls = written_calls(found.kind, found.text, self._tools)
            if found.kind == "never" or any(self._offered or call.arguments is not None for call in calls):
                cuts.append(Cut(start=found.start, end=found.end, calls=calls if self._offered else ()))
        if cuts and (invented := words.find(_INVENTED, cuts[-1].end)) >= 0:
            cuts.append(Cut(start=invented, end=len(words)))
        return cuts


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
    parts = [part for part in message.content if not isinstance(part, Thinking)]
    return bool(parts) and all(isinstance(part, ToolCall) and part.arguments is None for part in parts)
