"""Calls without a result: which ones a history leaves open, and what stands in place of the result."""

from collections import Counter
from collections.abc import Sequence

from agents.messages import AssistantMessage, Message, ToolCall, ToolResultMessage
from tools.tool import Text, ToolResult, error_body


def refusal(code: str, message: str, *, retryable: bool) -> ToolResult:
    """A structured error result, as the toolbox gives them, for a call that was not run."""
    return ToolResult(content=(Text(text=error_body(code, message, retryable=retryable)),), is_error=True)


def interrupted_result() -> ToolResult:
    return ToolResult(content=(Text(text=substitute(begun=True)),), is_error=True)


def substitute(*, begun: bool) -> str:
    """What stands in place of the result that a stop, a deadline or a restart has prevented.

    Nobody knows how far a call that had `begun` got; calls run in order, so those behind it did not run.
    """
    if begun:
        message = "the call was interrupted, so it may have run; check before repeating it"
        return error_body("INTERRUPTED", message, retryable=False)
    return error_body("INTERRUPTED", "the turn ended before this call, so it was not run", retryable=True)


def unanswered(messages: Sequence[Message]) -> tuple[AssistantMessage | None, list[ToolCall]]:
    """The last assistant message, and those of its calls that have no result yet, by order where ids repeat."""
    answered: Counter[str] = Counter()
    for message in reversed(messages):
        if isinstance(message, ToolResultMessage):
            answered[message.call_id] += 1
        elif isinstance(message, AssistantMessage):
            left = []
            for call in message.calls:
                if answered[call.id] > 0:
                    answered[call.id] -= 1
                else:
                    left.append(call)
            return message, left
        else:
            break
    return None, []
