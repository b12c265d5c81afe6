"""A template: text of the operator with places for what an event holds, `{{ body.a.b }}` and `{{ headers.x-y }}`.

There is no code in it, no condition and no loop. What an event lacks is empty. A number is the index into a list,
`{{ body }}` alone the whole event. What is filled in is a stranger's: how it is made harmless is for the caller to say.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from channels.plain import Where, apart

SECRET_HEADERS = (
    "authorization",
    "cookie",
    "proxy-authorization",
    "x-clawgate-signature",
    "x-hub-signature",
    "x-hub-signature-256",
)
EXPECTED = "expected {{ body.name }} or {{ headers.name }}"
_PLACE = re.compile(r"\{\{([^{}]{0,200})\}\}")
_PATH = re.compile(r"body(?:\.[A-Za-z0-9_-]{1,100}){0,20}|headers\.([A-Za-z0-9_-]{1,100})")
_CODE = re.compile(
    r"^[ >]*(?P<fence>`{3,}|~{3,})[\s\S]*?(?:^[ >]*(?P=fence)|\Z)|(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)",
    re.M,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """`body` is parsed JSON, or text; the names of headers have small letters."""

    body: Any
    headers: Mapping[str, str]

    def value(self, path: str) -> str:
        """The text at a path; empty if there is nothing."""
        kind, *names = path.split(".")
        if kind == "headers":
            return self.headers.get(".".join(names).lower(), "")
        found = self.body
        for name in names:
            found = _beneath(found, name)
        if found is None or isinstance(found, str):
            return found or ""
        return orjson.dumps(found).decode()


def _beneath(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return value[int(name)]
    return None


@dataclass(frozen=True, slots=True)
class Template:
    text: str

    @property
    def places(self) -> int:
        return len(_PLACE.findall(self.text))

    def filled(self, event: Event, harmless: Callable[[str, Where], str]) -> str:
        """The text with the event's values, each as `harmless` gives it back. A value is never read as a template, and calls
        nobody together with what is beside it."""
        code = list(_CODE.finditer(self.text))
        text, end, is_beside = "", 0, False
        for found in _PLACE.finditer(self.text):
            around = next((it for it in code if it.start() <= found.start() < it.end()), None)
            inside: Where = "text" if around is None else "block of code" if around["fence"] else "line of code"
            literal, value = self.text[end : found.start()], harmless(event.value(found[1].strip()), inside)
            text += (apart(text, literal) if is_beside else "") + literal
            text += (apart(text, value) if inside == "text" else "") + value
            end, is_beside = found.end(), inside == "text"
        return text + (apart(text, self.text[end:]) if is_beside else "") + self.text[end:]


def template(text: str) -> str:
    """Checks a template. Raises ValueError with what to write."""
    if not text.strip():
        raise ValueError("is empty")
    for found in _PLACE.finditer(text):
        path = _PATH.fullmatch(found[1].strip())
        if path is None:
            raise ValueError(f"{found[0]}: {EXPECTED}")
        if (path[1] or "").lower() in SECRET_HEADERS:
            raise ValueError(f"{found[0]}: this header is a secret, and no chat may read it")
    if "{{" in _PLACE.sub("", text):
        raise ValueError(f"a {{{{ without its }}}}: {EXPECTED}")
    return text
