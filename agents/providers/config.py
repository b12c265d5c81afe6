"""What a person writes about a model provider: one block under `providers`, keyed by the name models refer to.

The name before the slash of `provider/model` picks the block; well-known names imply their wire. Limits of a model
are not here: they are an agent's business (`agents.config`) over Clawgate's own table (`agents.providers.models`).
"""

import re
from typing import Annotated, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, SecretStr, field_validator
from pydantic.alias_generators import to_camel

Api: TypeAlias = Literal["anthropic-messages", "demo"]
APIS: tuple[Api, ...] = get_args(Api)
IMPLIED: dict[str, Api] = {"anthropic": "anthropic-messages", "demo": "demo"}
"""Provider names that need no `api`, nor a block in the config at all."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


class ProviderConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """One model provider."""

    api_key: SecretStr = SecretStr("")
    """The key, best as `${NAME}` or `${file:path}`. While it is empty, this provider answers nothing."""
    api: Api | None = None
    """The wire it speaks: `anthropic-messages` or `demo`. The names `anthropic` and `demo` imply theirs."""
    base_url: str | None = None
    """Where it is, http or https. For anthropic without `/v1`; `https://api.anthropic.com` where unset."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 600
    """The longest one answer may take from asking to its end."""
    idle_seconds: Annotated[float, Field(gt=0)] = 120
    """The longest silence inside an answer that has begun. Long tool arguments come in one piece: a minute or more."""
    headers: dict[str, str] = {}
    """Headers to add, such as `anthropic-version` for a host that knows only an older one."""

    @field_validator("api_key")
    @classmethod
    def _key_can_be_sent(cls, value: SecretStr) -> SecretStr:
        if not _HEADER_VALUE.fullmatch(value.get_secret_value().strip()):
            raise ValueError("an API key has only plain ASCII characters; was a placeholder left in?")
        return value

    @field_validator("api", mode="before")
    @classmethod
    def _known_api(cls, value: object) -> object:
        if value is not None and value not in APIS:
            raise ValueError(f"unknown api {value!r}: this release speaks {' and '.join(APIS)}")
        return value

    @field_validator("base_url")
    @classmethod
    def _usable_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            url = urlsplit(value)
            usable = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
        except ValueError:
            usable = False
        if not usable or not re.fullmatch(r"[\x21-\x7e]+", value) or url.query or url.fragment:
            raise ValueError("expected an http:// or https:// address without query, such as https://api.anthropic.com")
        return value

    @field_validator("headers")
    @classmethod
    def _sendable_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text):
                raise ValueError(f"header {name!r} cannot be sent: names and values are plain ASCII on one line")
        return value


def api_of(name: str, config: ProviderConfig) -> Api:
    """The wire of the provider called `name`. Raises ValueError, with the fix, where neither says it."""
    api = config.api or IMPLIED.get(name)
    if api is None:
        raise ValueError(f'providers.{name}: add "api:", one of {", ".join(APIS)}')
    return api
