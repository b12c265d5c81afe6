"""What Anthropic's Messages API refuses about the messages: who speaks when, and the pairing of calls and results.

Pure; raises `Refusal` with the server's status, type and wording. Single blocks are judged in `block_rules`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from agents.providers.models import facts_of
from tests.emulators.models.anthropic.block_rules import ROLES, check_block, closed, refuse

MESSAGES_MAX = 100_000


def check_messages(messages: object, model: str, *, has_tools: bool) -> None:
    """All of the rules for `messages`. Raises `Refusal`."""
    if not isinstance(messages, list):
        refuse("messages: Field required")
    if not messages:
        refuse("messages: at least one message is required")
    if len(messages) > MESSAGES_MAX:
        refuse(f"messages: List should have at most {MESSAGES_MAX} items")
    for number, message in enumerate(messages):
        _check_message(message, number, last=number == len(messages) - 1)
    if messages[0]["role"] != "user":
        refuse('messages: first message must use the "user" role')
    if not has_tools and any(block["type"] in ("tool_use", "tool_result") for _, _, block in _blocks(messages)):
        refuse("Requests which include `tool_use` or `tool_result` blocks must define tools.")
    _check_ids(messages)
    _check_pairs(messages)
    _check_end(messages, model)


def _check_message(message: Any, number: int, *, last: bool) -> None:
    path = f"messages.{number}"
    closed(message, {"role", "content"}, path)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in ROLES:
        refuse(f"{path}.role: Input should be 'user' or 'assistant'")
    if not isinstance(content, str | list):
        refuse(f"{path}.content: Field required")
    if not content:
        if role == "user":
            refuse(f"{path}: user messages must have non-empty content")
        if not last:
            refuse(f"{path}: all messages must have non-empty content except for the optional final assistant message")
    if isinstance(content, str):
        if content and not content.strip():
            refuse("messages: text content blocks must contain non-whitespace text")
        return
    for place, block in enumerate(content):
        check_block(block, role, f"{path}.content.{place}")
    if content and role == "assistant" and content[-1]["type"] in ("thinking", "redacted_thinking"):
        refuse(f"{path}: The final block in an assistant message cannot be `thinking`.")


def _check_ids(messages: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    for number, _, block in _blocks(messages):
        if block["type"] == "tool_use":
            if block["id"] in seen:
                refuse(f"messages.{number}: `tool_use` ids must be unique")
            seen.add(block["id"])


def _check_pairs(messages: list[dict[str, Any]]) -> None:
    """The results of one answer lead the very next user message, each once, and nothing else is answered."""
    open_calls: list[str] = []
    asked_at = 0
    for number, role, blocks in _joined(messages):
        if role == "assistant":
            open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            asked_at = number
            continue
        _check_answers(number, blocks, asked_at, open_calls)
        open_calls = []
    if open_calls:
        _refuse_unanswered(asked_at, open_calls)


def _check_answers(number: int, blocks: list[dict[str, Any]], asked_at: int, calls: list[str]) -> None:
    leading: list[str] = []
    for place, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        call = block["tool_use_id"]
        if call not in calls:
            refuse(
                f"messages.{number}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if call in leading:
            refuse(
                f"messages.{number}.content.{place}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {call}"
            )
        if place == len(leading):
            leading.append(call)
    if missing := [call for call in calls if call not in leading]:
        _refuse_unanswered(asked_at, missing)


def _refuse_unanswered(number: int, calls: Sequence[str]) -> NoReturn:
    refuse(
        f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _check_end(messages: list[dict[str, Any]], model: str) -> None:
    last = messages[-1]
    if last["role"] == "user":
        return
    blocks = _as_blocks(last["content"])
    if blocks and blocks[-1]["type"] in ("server_tool_use", "web_search_tool_result"):
        return  # a paused turn is sent back to be continued
    if not facts_of(model).prefill:
        refuse("This model does not support assistant message prefill. The conversation must end with a user message.")
    if blocks and blocks[-1]["type"] == "text" and blocks[-1]["text"] != blocks[-1]["text"].rstrip():
        refuse("messages: final assistant content cannot end with trailing whitespace")


def _joined(messages: list[dict[str, Any]]) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    """Messages of one role in a row are one, as the server takes them."""
    start = 0
    while start < len(messages):
        end = start
        blocks: list[dict[str, Any]] = []
        while end < len(messages) and messages[end]["role"] == messages[start]["role"]:
            blocks += _as_blocks(messages[end]["content"])
            end += 1
        yield start, messages[start]["role"], blocks
        start = end


def _blocks(messages: list[dict[str, Any]]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    for number, message in enumerate(messages):
        for place, block in enumerate(_as_blocks(message["content"])):
            yield number, place, block


def _as_blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def marks_of(value: Any) -> list[Any]:
    """Every cache mark inside, in order. Tool arguments and schemas are data and are not looked into."""
    marks: list[Any] = []
    if isinstance(value, list):
        for item in value:
            marks += marks_of(item)
    elif isinstance(value, dict):
        marks += marks_of(value.get("content"))
        if value.get("cache_control") is not None:
            marks.append(value["cache_control"])
    return marks
