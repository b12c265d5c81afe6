"""What Gemini's API refuses about the contents: who speaks when, and the pairing of calls and responses.

Pure; raises `Refusal` with the server's status and wording, as far as they are known. Single parts are judged in
`part_rules`.
"""

from typing import Any

from agents.providers.gemini.request import signs
from tests.emulators.models.gemini.part_rules import check_part
from tests.emulators.models.gemini.refusals import closed, listed, refuse, unset

_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
_AFTER_USER = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
_AFTER_CALL = "Please ensure that function response turn comes immediately after a function call turn."
_UNSIGNED = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, "
    "and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:{name}` , position {position}. Please refer to "
    "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
)


def check_contents(contents: object, model: str) -> None:
    """All of the rules for `contents`. Raises `Refusal`."""
    contents = listed(contents, "contents")
    if not contents:
        unset("contents", "contents is not specified")
    for number, content in enumerate(contents):
        _check_content(content, f"contents[{number}]", model)
    if signs(model):
        _check_signed(contents)
    _check_order(contents)


def _check_content(content: Any, path: str, model: str) -> None:
    closed(content, {"role", "parts"}, path)
    role = content.get("role", "user")
    if role not in ("user", "model"):
        refuse("Please use a valid role: user, model.")
    if not listed(content.get("parts", []), f"{path}.parts"):
        unset(f"{path}.parts", "contents.parts must not be empty.")
    for place, part in enumerate(content["parts"]):
        check_part(part, role, f"{path}.parts[{place}]", model)


def _check_signed(contents: list[dict[str, Any]]) -> None:
    """The first call of a step must be signed; those made beside it need not be."""
    for position, content in enumerate(contents, start=1):
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        if first is not None and "thoughtSignature" not in first:
            refuse(_UNSIGNED.format(name=first["functionCall"]["name"], position=position))


def _check_order(contents: list[dict[str, Any]]) -> None:
    open_calls: list[dict[str, Any]] = []
    before = ""
    for content in contents:
        role = content.get("role", "user")
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        responses = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if calls and before != "user":
            refuse(_AFTER_USER)
        if responses and not open_calls:
            refuse(_AFTER_CALL)
        if len(responses) != len(open_calls):
            refuse(_COUNT)
        _check_pairs(open_calls, responses)
        open_calls, before = calls, role
    if open_calls:
        refuse(_COUNT)
    if before != "user":
        refuse("Please ensure that multiturn requests end with a user turn or a function response turn.")


def _check_pairs(calls: list[dict[str, Any]], responses: list[dict[str, Any]]) -> None:
    """By id where there is one, else by position; the names must agree either way."""
    waiting = list(calls)
    for response in responses:
        wanted = response.get("id")
        call = next((call for call in waiting if wanted and call.get("id") == wanted), None)
        if call is None:
            call = next((call for call in waiting if not (wanted and call.get("id"))), None)
        if call is None:
            refuse(
                f"Function response id {wanted} does not match the id of any function call of the function call turn."
            )
        waiting.remove(call)
        if call["name"] != response["name"]:
            refuse(f"Function response name {response['name']} does not match function call name {call['name']}.")
