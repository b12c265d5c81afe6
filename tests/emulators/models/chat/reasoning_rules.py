"""What servers of the Chat wire want to see again of their reasoning, and what they do not. Pure; raises `Refusal`.

Only OpenRouter's list is signed; the plain fields of the others are free text that nobody can check.
"""

import hashlib
import json
from typing import Any

from tests.emulators.models.chat.habits import Habits
from tests.emulators.models.chat.refusing import refuse, unknown

_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")


def check_reasoning(messages: list[dict[str, Any]], habits: Habits, *, thinks: bool) -> None:
    """`messages` are taken as sound in every other way."""
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            _check_message(message, number, habits, thinks=thinks)
        elif any(name in message for name in _FIELDS):
            unknown(f"messages[{number}].{next(name for name in _FIELDS if name in message)}")


def _check_message(message: dict[str, Any], number: int, habits: Habits, *, thinks: bool) -> None:
    present = next((name for name in _FIELDS if name in message), None)
    told = message.get("reasoning_content")
    match habits.reasoning:
        case "unknown" if present:
            unknown(f"messages[{number}].{present}")
        case "absent" if present:
            refuse("The reasoning_content of earlier messages must be removed from the input messages.")
        case "calls" if "tool_calls" in message and thinks and not isinstance(told, str):
            refuse("The reasoning_content in the thinking mode must be passed back to the API.")
        case "filled" if "tool_calls" in message and thinks and not (isinstance(told, str) and told):
            where = f"in assistant tool call message at index {number}"
            refuse(f"thinking is enabled but reasoning_content is missing {where}")
        case "details" if "reasoning_details" in message:
            _check_details(message["reasoning_details"], number)
        case _:
            pass


def _check_details(details: Any, number: int) -> None:
    if not isinstance(details, list) or not details:
        refuse(f"Invalid input: messages[{number}].reasoning_details: expected a non-empty array")
    for entry in details:
        signed = isinstance(entry, dict) and entry.get("signature") == signature_of(entry)
        if not signed:
            refuse("Invalid `signature` in `thinking` block")


def signature_of(entry: dict[str, Any]) -> str:
    """The emulator's signature of everything else in an entry."""
    rest = {key: value for key, value in entry.items() if key != "signature"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
