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
    """One program's token: a plain string, or a mapping that adds permissions."""

    token: SecretToken = SecretStr("")
    """The token itself."""
    send: bool = False
    """Allow the program to send messages to any chat that the bots can reach: `POST /v1/send` (docs/api.md)."""

    @model_validator(mode="before")
    @classmethod
    def _alone(cls, given: Any) -> Any:
        return {"token": given} if isinstance(given, str | SecretStr) else given


class _OrText:
    """Let the JSON schema accept a bare token in place of the mapping."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "format": "password"}, handler(core)]}


def _distinct_tokens(tokens: Mapping[str, ApiToken]) -> Mapping[str, ApiToken]:
    distinct({name: it.token for name, it in tokens.items()})
    return tokens


class ApiConfig(Section):
    """The OpenAI-compatible endpoint at `/v1`, and `/mcp`, for other software; see docs/api.md."""

    tokens: Annotated[dict[TokenName, Annotated[ApiToken, _OrText()]], AfterValidator(_distinct_tokens)] = {}
    """A token for each program, by a name that you choose: at least 16 characters, 32 if `host` is not loopback. Each
    program has separate conversations and is the user `api:NAME` in `owners` and `tools.senders`. Without tokens, `/v1`
    and `/mcp` are disabled."""

    @property
    def open(self) -> dict[str, str]:
        return filled({name: it.token for name, it in self.tokens.items()})

    def may_send(self, name: str) -> bool:
        return name in self.tokens and self.tokens[name].send


class ServerConfig(Section):
    """The address to listen on, and the limits on requests."""

    host: Annotated[str, StringConstraints(min_length=1)] = "127.0.0.1"
    """The address to listen on; `0.0.0.0` for all interfaces, with a TLS-terminating proxy in front."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """The port to listen on; 0 takes a free one."""
    public_url: str | None = None
    """The server's address for the platforms, such as `https://bot.example.com`: shown with each webhook's path."""
    admin_token: SecretToken = SecretStr("")
    """A token for the web chat and `/metrics`: at least 16 characters, 32 if `host` is not loopback. While it is empty,
    the web chat is open only on this machine, and needs a sign-in link if a model can send requests from it. `/metrics`
    is disabled then."""
    users: Annotated[Tokens, AfterValidator(_no_operator)] = {}
    """More users of the web chat: a token for each, by a name that you choose, as long as `adminToken`. Each user has
    separate conversations and files, and is `web:NAME` in `owners`, `approvers` and `tools.senders`. The holder of
    `adminToken` can read all sessions; the others only their own."""
    api: ApiConfig = ApiConfig()
    timezone: str | None = None
    """The time zone, such as `Asia/Shanghai`, of all displayed times, of budget days and of daily session resets. By default
    the machine's; set it if there are several replicas."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 1_048_576
    """The largest request body that is read."""
    max_unverified_bytes: Annotated[int, Field(ge=65_536)] = 33_554_432
    """Memory for all request bodies that are still arriving. While it is full, reading pauses, and the body that has been
    arriving longest is rejected with a 503 after a second."""
    body_timeout_seconds: Annotated[float, Field(gt=0)] = 10
    """Seconds that a request body may take to arrive."""
    max_url_bytes: Annotated[int, Field(ge=256, le=65_535)] = 8_192
    """The longest request URL, including its query; a longer one is answered with 414."""
    max_header_field_bytes: Annotated[int, Field(ge=256)] = 16_384
    """The largest header field of a request, name and value. Beyond this and the next two limits the answer is 431."""
    max_header_bytes: Annotated[int, Field(ge=1024)] = 65_536
    """The whole header of a request, including its URL."""
    max_header_fields: Annotated[int, Field(ge=10)] = 100
    """The number of header fields of a request."""
    connection_timeout_seconds: Annotated[float, Field(gt=0)] = 20
    """Idle timeout of a connection in seconds, from its start or last response: for a complete request header, the rest of
    an unread body, or the client to read some of a response."""
    max_connections: Annotated[int, Field(ge=10)] = 1_000
    """Open connections in all; fewer if the system's limit on open files is lower. Beyond that, the connection that has
    been idle longest is closed. If all have a request in flight, the new one gets a 503."""
    max_connections_per_address: Annotated[int, Field(ge=1)] = 200
    """Open connections of one address, or of one IPv6 /64 network. Beyond that, the one that has been idle longest is
    closed. If all have a request in flight, the new one gets a 503. A connection of `trustedProxies` counts for the
    client's address while a request is in flight."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names the server answers to, without port, in addition to that of `publicUrl`; `*.example.com` for subdomains,
    `*` for any. Empty: the names of this machine, for the web chat and its API; webhooks of platforms answer to any."""
    sign_in_link_seconds: Annotated[float, Field(ge=60)] = 3600
    """Seconds for which the single-use sign-in link, printed at the start, is valid."""
    wrong_tokens_per_minute: Annotated[int, Field(ge=1)] = 20
    """Rate limit for wrong tokens, signatures and secrets of one address, over all endpoints; a further wrong one is
    answered with 429. A correct one never is."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies, such as `127.0.0.1` or `10.0.0.0/8`. Only their `X-Forwarded-For` and
    `X-Forwarded-Proto` headers are trusted."""

    @property
    def is_open_here(self) -> bool:
        """Return whether the config lets only this machine reach the server. A public URL implies a proxy or a tunnel that
        forwards others' requests."""
        return is_loopback(self.host) and (
            self.public_url is None or is_loopback(urlsplit(self.public_url).hostname or "")
        )

    @property
    def exposure(self) -> Finding | None:
        """Report a token that is too short for a server that is open to the network; None if there is none."""
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
        """Return the URL for a browser on this machine; a wildcard host becomes the loopback address."""
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
