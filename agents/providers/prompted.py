"""Tool calls for models without native ones: the prompt describes the tools, calls and results are text in the
history, and the model writes its calls between tags.

Loop, policy and history are the same as with native tools; only the requests differ. An unreadable call becomes one
without arguments, which the toolbox answers. After two consecutive answers of only such calls no tools are offered,
and the model must finish in text.

Requests are deterministic, so that prompt caches work. Results and user text can neither open nor close a tag. The
history must be repaired.
"""

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, takewhile
from typing import Literal, TypeAlias, assert_never

from agents.messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
)
from agents.prompt.fences import TOOL_CALLS
from agents.providers.provider import ModelEvent, ModelRequest, OneTool, SentTurn, System, grown
from agents.providers.request import called_names
from agents.providers.textcalls import Rewriting, Style, rewritten
from agents.providers.textforms import PROMPTED, Stretch, calls_among_words
from tools.tool import Image

Offer: TypeAlias = Literal["tools", "not now", "they do not work", "no tools"]
MISTAKES_MAX = 2

_RULES = """\
You call a tool by writing the call. To call, answer with nothing but the call, in this form:
<tool_call>{"name": "ls", "arguments": {"path": "/tmp"}}</tool_call>
Then stop and wait: the next message brings the result in <tool_response> tags.
- One call or several, each in its own tags.
- `name` is one of the tools below, and there are no others. `arguments` is one JSON object that fits its schema.
- Never write a <tool_response> yourself: it would be invented.
- When you need no tool, answer in words, without these tags."""
_NOT_NOW = "No tools may be called now, even where earlier messages show calls. Answer in words, without any tags."
_NOT_WORKING = """\
Tool calls do not work now: the last ones could not be read. Call no more tools. Tell the user in words what you found,
or what you could not do."""

_TAG = re.compile(r"<(?=\s*/?\s*(?:tool_|think)|\|)", re.IGNORECASE)


class PromptedTools(Rewriting):
    """A `Provider` that offers tools to another one by prompt."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        offer = _offer(request)
        return rewritten(self._inner.stream(translated(request, offer)), request, _style(request, offer))


def _style(request: ModelRequest, offer: Offer) -> Style:
    """Return the style for prompted tools. Calls count only if tools were offered, and are never shown. A tool
    response after them was invented; the rest of the answer is dropped."""
    offered = offer == "tools"
    tools = {tool.name: tool for tool in request.tools}

    def cuts(words: str, may_call: bool) -> Sequence[Stretch]:
        cuts: list[Stretch] = []
        for found in (*calls_among_words(words, PROMPTED, tools, in_spans=True), None):
            invented = words.find("<tool_response", cuts[-1].end, found.start if found else None) if cuts else -1
            if invented >= 0:
                return [*cuts, Stretch(start=invented, end=len(words))]
            if found and (offered or not found.calls or any(call.arguments is not None for call in found.calls)):
                cuts.append(found if offered else replace(found, calls=()))
        return cuts

    return Style(forms=PROMPTED, bare=False, cuts=cuts)


def _offer(request: ModelRequest) -> Offer:
    if not request.tools:
        return "no tools"
    if _mistakes(request.messages) >= MISTAKES_MAX:
        return "they do not work"
    return "not now" if request.tool_choice == "none" else "tools"


def _mistakes(messages: Sequence[Message]) -> int:
    """Count the latest answers of the running turn that were only unreadable calls."""
    turn = takewhile(lambda message: not isinstance(message, UserMessage), reversed(messages))
    answers = (message for message in turn if isinstance(message, AssistantMessage))
    return sum(1 for _ in takewhile(_unreadable, answers))


def _unreadable(message: AssistantMessage) -> bool:
    parts = [part for part in message.content if not isinstance(part, Thinking)]
    return bool(parts) and all(isinstance(part, ToolCall) and part.arguments is None for part in parts)


def translated(request: ModelRequest, offer: Offer) -> ModelRequest:
    """Return the request with tools by prompt; the same object if it has no tools and no calls in its history."""
    if not request.tools and not called_names(request):
        return request
    none: tuple[SentTurn, ...] = ()
    settled = grown(
        request.settled, "prompted", none, lambda before, new: (*before, *(SentTurn(_alternating(it)) for it in new))
    )
    stable = "\n\n".join(part for part in (request.system.stable, _section(request, offer)) if part)
    return replace(
        request,
        system=System(stable=stable, volatile=request.system.volatile),
        messages=(*chain.from_iterable(settled), *_alternating(request.unsettled)),
        settled=settled,
        tools=(),
        tool_choice="auto",
    )


def _section(request: ModelRequest, offer: Offer) -> str:
    match offer:
        case "tools":
            schemas = (json.dumps(dict(it.input_schema), ensure_ascii=False, sort_keys=True) for it in request.tools)
            tools = "\n\n".join(
                f"Tool: {it.name}\n{it.description or it.summary}\nSchema of `arguments`: {schema}"
                for it, schema in zip(request.tools, schemas, strict=True)
            )
            return "\n\n".join(part for part in (f"## {TOOL_CALLS}\n{_RULES}", _demand(request), tools) if part)
        case "not now" | "no tools":
            return f"## {TOOL_CALLS}\n{_NOT_NOW}"
        case "they do not work":
            return f"## {TOOL_CALLS}\n{_NOT_WORKING}"
        case _:
            assert_never(offer)


def _demand(request: ModelRequest) -> str:
    match request.tool_choice:
        case "required":
            return "This time your answer must begin with a tool call."
        case OneTool(name=name) if name in {tool.name for tool in request.tools}:
            return f"This time your answer must begin with a call of `{name}`."
        case _:
            return ""


def _alternating(messages: Sequence[Message]) -> Iterator[Message]:
    """Alternate user and assistant messages, as strict chat templates require."""
    for answers, group in groupby(messages, lambda message: isinstance(message, AssistantMessage)):
        run = list(group)
        yield _answer([it for it in run if isinstance(it, AssistantMessage)]) if answers else _question(run)


def _answer(run: Sequence[AssistantMessage]) -> AssistantMessage:
    if len(run) == 1 and not run[0].calls:
        return run[0]
    parts: list[AssistantPart] = []
    for message in run:
        parts += _as_text(message) if message.calls else message.content
    return replace(run[-1], content=tuple(parts))


def _as_text(message: AssistantMessage) -> Iterator[Text]:
    """Write the answer's text and calls in order, as the model would have; thoughts are dropped."""
    lines: list[str] = []
    for part in message.content:
        match part:
            case Text() if part.text.strip():
                lines.append(part.text.strip("\n"))
            case ToolCall():
                written = _harmless({"name": part.name, "arguments": part.arguments})
                lines.append(f"<tool_call>{part.arguments_raw if part.arguments is None else written}</tool_call>")
    yield Text(text="\n".join(lines))


def _question(run: Sequence[Message]) -> UserMessage:
    parts: list[UserPart] = []
    for message in run:
        match message:
            case ToolResultMessage():
                block, *images = _result(message)
                if parts and isinstance(before := parts[-1], Text) and isinstance(block, Text):
                    parts[-1] = Text(text=f"{before.text}\n{block.text}")
                else:
                    parts.append(block)
                parts += images
            case UserMessage():
                parts += _plain(message)
    return UserMessage(content=tuple(parts), timestamp=run[-1].timestamp)


def _result(message: ToolResultMessage) -> Iterator[UserPart]:
    images = [part for part in message.content if isinstance(part, Image)]
    text = "\n".join(part.text for part in message.content if isinstance(part, Text))
    response: dict[str, object] = {"name": message.tool, "content": text or ("(see the picture)" if images else "")}
    if message.is_error:
        response["error"] = True
    yield Text(text=f"<tool_response>{_harmless(response)}</tool_response>")
    yield from images


def _plain(message: UserMessage) -> Iterator[UserPart]:
    """Break everything in a user's text that reads as a call, a result or a template token."""
    for part in message.sent_parts:
        yield Text(text=_TAG.sub("‹", part.text)) if isinstance(part, Text) else part


def _harmless(value: Mapping[str, object]) -> str:
    """Return JSON without the start of a tag or template token."""
    return _TAG.sub(r"\\u003c", json.dumps(value, ensure_ascii=False))
