"""The section `hooks`: webhooks that send a message or start an agent's turn (docs/hooks.md), and their templates.

A template is the operator's text with placeholders such as `{{ body.a.b }}` and `{{ headers.x-y }}`, without expressions or
loops. A missing value is empty, a number indexes a list, and `{{ body }}` is the whole body. Values are untrusted: the
caller passes the function that escapes them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, Field, SecretStr, StringConstraints

from channels.plain import Where, apart
from channels.section import Section
from gateway.config.budgets import Rate, RateText, rate_of
from gateway.config.server import SecretToken

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
    """`body` is parsed JSON or text; header names are lower-case."""

    body: Any
    headers: Mapping[str, str]

    def value(self, path: str) -> str:
        """Return the value at a path as text, structures as JSON; empty if missing."""
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
        """Fill in the event's values, each escaped by `harmless`. Values are not expanded again, and cannot form a mention
        with adjacent text."""
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
    """Validate a template. Raise ValueError with the expected form."""
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


Verify = Literal["hmac", "github", "token"]
HookName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Filled = Annotated[str, StringConstraints(max_length=8_000), AfterValidator(template)]


class HookConfig(Section):
    """One hook: `POST /hooks/NAME`."""

    secret: SecretToken = SecretStr("")
    """The shared secret: at least 16 characters, such as the output of `openssl rand -hex 32`."""
    verify: Verify
    """The authentication of a request: `hmac`, a signature of timestamp and body in `X-Clawgate-Signature`; `github`,
    GitHub's `X-Hub-Signature-256`; `token`, the secret itself as `Authorization: Bearer …`."""
    to: Annotated[str, Field(min_length=1)]
    """The chat that gets the message or the agent's answer: `channel[:account]:chat[#thread]`."""
    say: Filled | None = None
    """The text to send, without a model: Markdown with `{{ body.a.b }}` and `{{ headers.x-y }}`, filled in as plain
    text."""
    task: Filled | None = None
    """Instead of `say`: the agent's task, in a separate turn in that chat. Values are fenced as untrusted."""
    agent: str | None = None
    """The agent that does the `task`; by default that chat's."""
    rate: RateText = "60/1m"
    """The rate limit for events at each replica; beyond it the answer is 429."""

    @property
    def limit(self) -> Rate:
        return rate_of(self.rate)
