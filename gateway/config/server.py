"""The section `server`: the address to listen on, the public address, and the limits on what arrives."""

import ipaddress
import re
from collections.abc import Mapping
from datetime import tzinfo
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)

from channels.access import is_http
from channels.bilingual import Bilingual, Finding
from channels.moment import zone_of
from channels.section import Section
from channels.web.admission import OPERATOR, is_loopback

ADMIN_TOKEN_CHARS_MIN = 16
EXPOSED_TOKEN_CHARS_MIN = 32


def hard_to_guess(value: SecretStr) -> SecretStr:
    token = value.get_secret_value()
    if token and len(token) < ADMIN_TOKEN_CHARS_MIN:
        raise ValueError(f"too short: at least {ADMIN_TOKEN_CHARS_MIN} characters, or empty")
    if not re.fullmatch(r"[\x21-\x7e]*", token):
        raise ValueError("only plain ASCII characters without spaces can be sent in a header")
    return value


SecretToken = Annotated[SecretStr, AfterValidator(hard_to_guess)]
TokenName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


def filled(tokens: Mapping[str, SecretStr]) -> dict[str, str]:
    given = ((name, token.get_secret_value()) for name, token in tokens.items())
    return {name: token for name, token in given if token}


def distinct(tokens: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    given = [*filled(tokens).values()]
    if len({*given}) < len(given):
        raise ValueError("two of them have the same token: each needs its own")
    return tokens


def _no_operator(users: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    if OPERATOR in users:
        raise ValueError(f"{OPERATOR} is the person with server.adminToken; choose another name")
    return users


Tokens = Annotated[dict[TokenName, SecretToken], AfterValidator(distinct)]


class ApiToken(Section):
    """One program's token: by itself, or in a mapping with what else the program may do."""

    token: SecretToken = SecretStr("")
    """The token itself."""
    send: bool = False
    """True if the program may have messages sent to any place that the bots reach: `POST /v1/send` (docs/api.md)."""

    @model_validator(mode="before")
    @classmethod
    def _alone(cls, given: Any) -> Any:
        return {"token": given} if isinstance(given, str | SecretStr) else given


class _OrText:
    """Tells the schema that the text of its token means a whole mapping."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "format": "password"}, handler(core)]}


def _distinct_tokens(tokens: Mapping[str, ApiToken]) -> Mapping[str, ApiToken]:
    distinct({name: it.token for name, it in tokens.items()})
    return tokens


class ApiConfig(Section):
    """The OpenAI-compatible endpoint at `/v1`, and `/mcp`, for other software; see docs/api.md."""

    tokens: Annotated[dict[TokenName, Annotated[ApiToken, _OrText()]], AfterValidator(_distinct_tokens)] = {}
    """A token for each program, by a name of yours: at least 16 characters, 32 if `host` is not loopback. Each has its
    own conversations, and is the person `api:NAME` in `owners` and `tools.senders`. Without any there is
    neither `/v1` nor `/mcp`."""

    @property
    def open(self) -> dict[str, str]:
        return filled({name: it.token for name, it in self.tokens.items()})

    def may_send(self, name: str) -> bool:
        return name in self.tokens and self.tokens[name].send


class ServerConfig(Section):
    """The address that the gateway listens on, and what it takes in."""

    host: Annotated[str, StringConstraints(min_length=1)] = "127.0.0.1"
    """The address to listen on; `0.0.0.0` for every network, behind a proxy that ends TLS."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """The port to listen on; 0 takes a free one."""
    public_url: str | None = None
    """The server's address for the platforms, such as `https://bot.example.com`: shown with each webhook's path."""
    admin_token: SecretToken = SecretStr("")
    """A token of at least 16 characters, 32 if `host` is not loopback, for the web chat and `/metrics`. While it is
    empty, the web chat is closed beyond this machine, and open at it unless an agent can run commands there. `/metrics`
    does not exist then."""
    users: Annotated[Tokens, AfterValidator(_no_operator)] = {}
    """More people in the web chat: a token for each, by a name of yours, as long as `adminToken`. Each has their own
    conversations and files, and is the person `web:NAME` in `owners`, `approvers` and `tools.senders`. The holder of
    `adminToken` reads all sessions; the others read only their own."""
    api: ApiConfig = ApiConfig()
    timezone: str | None = None
    """The zone of all times that people and models read, such as `Asia/Shanghai`, and of days: for budgets, and for sessions
    that begin again each day. By default the machine's own; name it if several replicas serve."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 1_048_576
    """The largest request body that is read."""
    max_unverified_bytes: Annotated[int, Field(ge=65_536)] = 33_554_432
    """The memory for bodies that are still arriving, of all senders together. While it is full, further pieces wait.
    The body that has been arriving for longest, and for more than a second, is cut off with a 503."""
    body_timeout_seconds: Annotated[float, Field(gt=0)] = 10
    """Seconds that a request body may take to arrive."""
    max_url_bytes: Annotated[int, Field(ge=256, le=65_535)] = 8_192
    """The longest address of a request, with its query; a longer one is answered with 414."""
    max_header_field_bytes: Annotated[int, Field(ge=256)] = 16_384
    """The largest header field of a request, name and value; beyond this and the next two the answer is 431."""
    max_header_bytes: Annotated[int, Field(ge=1024)] = 65_536
    """The header of a request in all, its address included."""
    max_header_fields: Annotated[int, Field(ge=10)] = 100
    """The number of header fields of a request."""
    connection_timeout_seconds: Annotated[float, Field(gt=0)] = 20
    """Seconds that a connection may keep the server waiting, from its beginning or its last answer on. It may wait for
    the whole header of a request, for the rest of an unread body, or for the peer to read some of an answer."""
    max_connections: Annotated[int, Field(ge=10)] = 1_000
    """Open connections in all; fewer if the system allows the process fewer files. Beyond that the connection that has
    waited longest for a request makes room. If all are being answered, the new one gets a 503."""
    max_connections_per_address: Annotated[int, Field(ge=1)] = 200
    """Open connections of one address, or of one /64 network in IPv6. Beyond that the one that has waited longest for a
    request makes room. If all are being answered, the new one gets a 503. Those of `trustedProxies` are counted by the
    address that each request is from, while it is answered."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names the server answers to, without port, besides that of `publicUrl`; `*.example.com` for all below one, `*`
    for any. Empty: the names of this machine, for the web chat and its API; webhooks of platforms answer to any."""
    sign_in_link_seconds: Annotated[float, Field(ge=60)] = 3600
    """Seconds in which the sign-in link that the start prints can be used, once."""
    wrong_tokens_per_minute: Annotated[int, Field(ge=1)] = 20
    """Wrong tokens, signatures and secrets of one address, at all doors together; a further wrong one is answered with
    429. A right one never is."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies, such as `127.0.0.1` or `10.0.0.0/8`, whose `X-Forwarded-For` and
    `X-Forwarded-Proto` are believed. Empty: those headers are ignored."""

    @property
    def is_open_here(self) -> bool:
        """True if only people at this machine can reach it, as far as the config says: what has a public address has a
        proxy or a tunnel that hands on everybody's requests."""
        return is_loopback(self.host) and (
            self.public_url is None or is_loopback(urlsplit(self.public_url).hostname or "")
        )

    @property
    def exposure(self) -> Finding | None:
        """The reason why this is not safe to open to the network; None if it is safe or stays closed."""
        tokens = {"adminToken": self.admin_token.get_secret_value()}
        tokens |= {f"users.{name}": token for name, token in filled(self.users).items()}
        tokens |= {f"api.tokens.{name}": token for name, token in self.api.open.items()}
        short = next((key for key, token in tokens.items() if 0 < len(token) < EXPOSED_TOKEN_CHARS_MIN), None)
        if is_loopback(self.host) or short is None:
            return None
        message = Bilingual(
            f"server.{short}: too short for a server that is open to the network ({self.host})",
            f"server.{short}：服务器对网络开放（{self.host}），这样太短",
        )
        fix = Bilingual(
            f"at least {EXPOSED_TOKEN_CHARS_MIN} characters (openssl rand -hex 24), or none, or listen on 127.0.0.1",
            f"至少 {EXPOSED_TOKEN_CHARS_MIN} 个字符（openssl rand -hex 24），或留空，或监听 127.0.0.1",
        )
        return Finding("config", "error", message, fix)

    @property
    def zone(self) -> tzinfo:
        return zone_of(self.timezone)

    @property
    def address(self) -> str:
        """The address for a browser on this machine: `0.0.0.0` listens on every address but is not one itself."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @model_validator(mode="after")
    def _operator_apart(self) -> Self:
        if self.admin_token.get_secret_value() in filled(self.users).values():
            raise ValueError("adminToken is the token of one of users: the operator needs their own")
        return self

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, value: str | None) -> str | None:
        try:
            zone_of(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("is no time zone; expected a name such as Asia/Shanghai or UTC") from None
        return value or None

    @field_validator("public_url")
    @classmethod
    def _web_address(cls, value: str | None) -> str | None:
        if value is None or value == "":
            return None
        url = urlsplit(value) if is_http(value) and re.fullmatch(r"[\x21-\x7e]+", value) else None
        if url is None or url.query or url.fragment or "@" in url.netloc:
            raise ValueError("expected an http:// or https:// address, such as https://bot.example.com")
        return value.rstrip("/")

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in value:
            try:
                ipaddress.ip_network(proxy, strict=False)
            except ValueError:
                raise ValueError("each is an IP address or a network, such as 127.0.0.1 or 10.0.0.0/8") from None
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _host_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if host != "*" and not re.fullmatch(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*", host):
                raise ValueError("each is a host name without port or path, such as bot.example.com or *.example.com")
        return value
