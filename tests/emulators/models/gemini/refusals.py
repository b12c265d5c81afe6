"""How Gemini's API words what it refuses about the form of a message: names, types, enumerations.

A path is given as the JSON has it; the server tells it in the names of its own messages, with underscores.
"""

import re
from collections.abc import Collection
from typing import Any, NoReturn

from tests.emulators.models.server import Refusal

_PACKAGE = "type.googleapis.com/google.ai.generativelanguage.v1beta"


def refuse(message: str) -> NoReturn:
    raise Refusal(400, "INVALID_ARGUMENT", message)


def unset(path: str, message: str) -> NoReturn:
    """What a sound message lacks."""
    refuse(f"* GenerateContentRequest.{snake(path)}: {message}\n")


def closed(value: Any, members: Collection[str], path: str) -> None:
    """An object with no members but these."""
    if not isinstance(value, dict):
        where = f" at '{snake(path)}'" if path else ""
        refuse(f"Invalid JSON payload received. Expected an object{where}.")
    for name in value:
        if name not in members:
            where = f" at '{snake(path)}'" if path else ""
            refuse(f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.')


def text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        refuse(f"Invalid value at '{snake(path)}' (TYPE_STRING), {value}")
    return value


def flag(value: Any, path: str) -> None:
    if not isinstance(value, bool):
        refuse(f"Invalid value at '{snake(path)}' (TYPE_BOOL), {value!r}")


def number(value: Any, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        refuse(f"Invalid value at '{snake(path)}' (TYPE_INT32), {value!r}")
    return value


def listed(value: Any, path: str) -> list[Any]:
    """A list. Google takes a lone item for one; we are stricter, for the fault would be ours."""
    if not isinstance(value, list):
        refuse(f"Invalid value at '{snake(path)}' (TYPE_LIST), {value!r}")
    return value


def struct(value: Any, path: str) -> None:
    if not isinstance(value, dict):
        refuse(f"Invalid value at '{snake(path)}' (type.googleapis.com/google.protobuf.Struct), \"{value}\"")


def one_of(value: Any, names: Collection[str], path: str, kind: str) -> str:
    if not isinstance(value, str) or value not in names:
        refuse(f"Invalid value at '{snake(path)}' ({_PACKAGE}.{kind}), \"{value}\"")
    return value


def snake(path: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda match: f"_{match[1].lower()}", path)
