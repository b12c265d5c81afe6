"""The pairing of calls and results, with substitutes for missing results."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from agents.messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    Text,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    with_parts,
)
from tools.tool import ToolError


def paired(messages: list[Message], earlier: Collection[str]) -> list[Message]:
    """Puts the results of an answer's calls behind it, one each, in call order, under ids used only once."""
    start = next((n for n, message in enumerate(messages) if isinstance(message, UserMessage)), len(messages))
    messages = messages[start:]
    answers = _answers(messages)
    used = set(earlier)
    taken = used.union(call_ids(messages))
    ordered: list[Message] = []
    for number, message in enumerate(messages):
        if isinstance(message, ToolResultMessage):
            continue
        if not isinstance(message, AssistantMessage) or not message.calls:
            ordered.append(message)
            continue
        parts: list[AssistantPart] = []
        results: list[ToolResultMessage] = []
        missing = False
        for place, part in enumerate(message.content):
            if isinstance(part, ToolCall):
                result = answers.get((number, place))
                if result is None:
                    text = (Text(text=substitute(begun=not missing).body),)
                    result = ToolResultMessage(
                        call_id=part.id, tool=part.name, content=text, is_error=True, timestamp=message.timestamp
                    )
                    missing = True
                call_id = _unused(part.id, used, taken)
                used.add(call_id)
                part = part if part.id == call_id else replace(part, id=call_id)
                results.append(result if result.call_id == call_id else replace(result, call_id=call_id))
            parts.append(part)
        ordered.append(with_parts(message, parts))
        ordered.extend(results)
    return ordered


def _answers(messages: list[Message]) -> dict[tuple[int, int], ToolResultMessage]:
    """The result of each call, by the call's (message, part). A result answers the latest message that waits for its
    id, and there the first such call; a result without a waiting call is left out."""
    waiting: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    answers: dict[tuple[int, int], ToolResultMessage] = {}
    for number, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            for place, part in enumerate(message.content):
                if isinstance(part, ToolCall):
                    waiting[part.id].append((number, place))
        elif isinstance(message, ToolResultMessage) and (calls := waiting[message.call_id]):
            latest = next(call for call in calls if call[0] == calls[-1][0])
            calls.remove(latest)
            answers[latest] = message
    return answers


def _unused(call_id: str, used: set[str], taken: set[str]) -> str:
    """The id itself at its first use, else one made from it that no call has."""
    if call_id not in used:
        return call_id
    number = 2
    while (name := f"{call_id}_{number}") in used or name in taken:
        number += 1
    return name


def substitute(*, begun: bool) -> ToolError:
    """The error in place of a result that a stop, a deadline or a restart has prevented.

    A call that had `begun` may have run; calls run in order, so those behind it did not.
    """
    if begun:
        message = "the call was interrupted, so it may have run; check before repeating it"
        return ToolError("INTERRUPTED", message)
    return ToolError("INTERRUPTED", "the turn ended before this call, so it was not run", retryable=True)


def call_ids(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(call.id for it in messages if isinstance(it, AssistantMessage) for call in it.calls)
