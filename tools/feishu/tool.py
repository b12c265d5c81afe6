"""The tool `feishu`: one call of Feishu's open platform, as the person who asks or as the bot's app.

The model names a method, a path and a body. The host is the account's, the token is added here for one request and kept
nowhere. A change asks the person who acts, and shows method, path and body exactly as they are sent. A refused token is
refreshed once; a missing permission becomes a login. Redirects are not followed, since the token would go along.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

import structlog
from pydantic import Field

from tools.feishu.areas import KEYS, Endpoint, endpoint_of, joined, segments_of
from tools.feishu.config import FeishuToolConfig
from tools.identity import NEEDS_PERSON, Identities
from tools.tool import Arguments, Call, Effect, Subject, ToolError, ToolResult

ANSWER_BYTES_MAX = 4 * 1024 * 1024
REASON_CHARS = 300
TOKEN_CODES = (99991668, 99991677)
"""The access token is invalid or expired."""
NOT_GRANTED, APP_LACKS = 99991679, 99991672
_NO_ACCESS = frozenset({
    1770032, 131006, 1310213, 1310211, 1254302, 1254303, 1254304, 91403, 191002, 191003, 191004, 193002, 1470403, 1063002,
})  # fmt: skip
_NOT_FOUND = frozenset({
    1770002, 1770003, 131005, 1310214, 1310215, 1310216, 1310249, 1254003, 1254004, 1254040, 1254041, 1254043, 191001,
    193001, 1470404, 91402,
})  # fmt: skip
_BUSY = frozenset({99991400, 1254036, 1254290, 1254291, 1254607, 1310217, 1315203, 190005, 190010, 193005})
_PERMISSION = re.compile(r"[a-z][a-z0-9_.]*(?::[a-z0-9_.]+)+")
log = structlog.get_logger()


class FeishuArguments(Arguments):
    method: Literal["GET", "POST", "PUT", "PATCH"] = Field(description="The HTTP method.")
    path: str = Field(description="The path, such as /open-apis/task/v2/tasks. No host and no query.")
    query: dict[str, Any] | None = Field(default=None, description="Query parameters: texts, numbers, true or false.")
    body: dict[str, Any] | None = Field(default=None, description="The JSON body. Not for GET.")


@dataclass(frozen=True, kw_only=True, slots=True)
class FeishuRequest:
    """A call as it is sent. `path` is normalised."""

    endpoint: Endpoint
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any] | None

    @property
    def text(self) -> str:
        """All that is sent, for a person who approves it."""
        query = "".join(f"\n{name} = {value}" for name, value in self.query.items())
        body = "" if self.body is None else "\n\n" + json.dumps(self.body, ensure_ascii=False, indent=2)
        return f"{self.endpoint.method} {self.path}{query}{body}"


@dataclass
class FeishuTool:
    config: FeishuToolConfig
    identities: Identities

    spec = FeishuArguments.spec(
        "feishu",
        summary="work in Feishu (documents, sheets, tables, calendar, tasks) for the person you answer",
        description=(
            "One call of Feishu's open platform, with the rights of the person you answer: `method`, `path` below "
            "/open-apis/, `query`, `body`. It answers with the JSON of `data`. A skill says which calls there are. "
            "A change may wait for that person's approval; do not ask for it yourself."
        ),
        effect="once",
    )

    def parse(self, raw: Mapping[str, Any]) -> FeishuRequest:
        given = FeishuArguments.parse(raw)
        segments = segments_of(given.path)
        endpoint = endpoint_of(given.method, segments, self.config.areas)
        if endpoint.writes and self.config.write == "deny":
            raise ToolError("NOT_ALLOWED", "the operator has not allowed changes in Feishu (tools.feishu.write)")
        if given.method == "GET" and given.body:
            raise ToolError("INVALID_ARGUMENT", "'body' is not for GET; use 'query'")
        body = None if given.method == "GET" else given.body or {}
        return FeishuRequest(endpoint=endpoint, path=joined(segments), query=_query(given.query or {}), body=body)

    def effect_of(self, raw: Mapping[str, Any]) -> Effect:
        """Return the effect of a second run of a call."""
        try:
            kind = self.parse(raw).endpoint.kind
        except ToolError:
            return "safe"  # nothing was sent
        return "safe" if kind == "read" else "keyed" if kind == "keyed" else "once"

    async def prepare(self, request: FeishuRequest, call: Call) -> None:
        """Have the person log in before they are asked for an approval. Raises ToolError."""
        await self._token(request, call)

    def subject(self, request: FeishuRequest, call: Call) -> Subject | None:
        asks = request.endpoint.writes and self.config.write == "ask"
        if not asks and not call.gated:
            return None
        sender = call.message.sender.id
        decider = f"{call.message.channel}:{sender}" if request.endpoint.writes and self._is_person else ""
        if decider and (call.several or not sender):
            raise ToolError(NEEDS_PERSON, "this turn serves no single person who could approve it")
        return Subject(text=request.text, facts={"as": self.config.acts_as}, decider=decider)

    async def run(self, request: FeishuRequest, call: Call) -> ToolResult:
        text = json.dumps(await self.data(request, call), ensure_ascii=False, separators=(",", ":"))
        where = f"feishu:{request.path}"
        return ToolResult(content=(text,), details={"url": where, "method": request.endpoint.method}, external=True)

    async def data(self, request: FeishuRequest, call: Call) -> Mapping[str, Any]:
        """Return the `data` of Feishu's answer. Raises ToolError for everything that it refuses."""
        keyed = _keyed(request, call)
        token = await self._token(request, call)
        answer = await self._sent(keyed, token)
        if answer.get("code") in TOKEN_CODES:
            token = await self._token(request, call, refused=token)
            answer = await self._sent(keyed, token)
        if answer.get("code") != 0:
            raise await self._refusal(request, call, answer)
        data = answer.get("data")
        return data if isinstance(data, Mapping) else {}

    @property
    def _is_person(self) -> bool:
        return self.config.acts_as == "person"

    async def _token(self, request: FeishuRequest, call: Call, refused: str = "") -> str:
        scopes, account = request.endpoint.scopes, self.config.account
        return await self.identities.token(call, account, person=self._is_person, scopes=scopes, refused=refused)

    async def _sent(self, request: FeishuRequest, token: str) -> Mapping[str, Any]:
        import httpx

        from channels.transport import Transport, client_class

        writes, seconds = request.endpoint.writes, self.config.timeout_seconds
        url = self.identities.address(self.config.account).rstrip("/") + request.path
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(seconds),
                client_class(httpx)(transport=Transport(httpx, url), timeout=seconds) as client,
            ):
                sent = client.build_request(
                    request.endpoint.method, url, params=request.query or None, json=request.body, headers=headers
                )
                response = await client.send(sent, stream=True, follow_redirects=False)
                try:
                    data = bytearray()
                    async for piece in response.aiter_raw():
                        data += piece
                        if len(data) > ANSWER_BYTES_MAX:
                            raise ToolError("TOO_LARGE", "Feishu's answer is too long; ask for a smaller page or range")
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.HTTPError):
            what = "; it may have been done: look before you repeat it" if writes else ""
            raise ToolError("UNAVAILABLE", f"Feishu did not answer{what}", retryable=not writes) from None
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, Mapping) or not isinstance(answer.get("code"), int):
            what = f"Feishu answered with status {response.status_code} and no JSON of its own"
            raise ToolError("UNAVAILABLE", what, retryable=not writes)
        return answer

    async def _refusal(self, request: FeishuRequest, call: Call, answer: Mapping[str, Any]) -> ToolError:
        """Return the error of a call that Feishu refused, with what to do about it."""
        code, scopes = answer["code"], _missing(answer) or request.endpoint.scopes
        log.info("feishu_refused", path=request.endpoint.path, code=code)
        said = " ".join(str(answer.get("msg", "")).split())[:REASON_CHARS]
        if code == APP_LACKS:
            return await self.identities.app_lacks(self.config.account, scopes)
        if code == NOT_GRANTED and self._is_person:
            return await self.identities.missing(call, self.config.account, scopes)
        if code in TOKEN_CODES:
            return ToolError("UNAVAILABLE", "Feishu refuses the token, also a new one; tell the user")
        if code in _NO_ACCESS:
            who = "the person you answer has" if self._is_person else "the bot's app has"
            message = (
                f"{who} no access to it (Feishu's code {code}); its owner can share it with them. Do not try others"
            )
            return ToolError("NO_ACCESS", message)
        if code in _NOT_FOUND:
            return ToolError(
                "NOT_FOUND", f"there is no such object, or it was deleted (Feishu's code {code}): check its token"
            )
        if code in _BUSY:
            return ToolError("RATE_LIMITED", f"Feishu asks to slow down (code {code}); wait a moment", retryable=True)
        return ToolError("INVALID_ARGUMENT", f"Feishu refuses the call (code {code}): {said}")


def _query(given: Mapping[str, Any]) -> dict[str, str]:
    query = {}
    for name, value in given.items():
        if isinstance(value, bool):
            query[name] = str(value).lower()
        elif isinstance(value, str | int):
            query[name] = str(value)
        elif value is not None:
            raise ToolError("INVALID_ARGUMENT", f"'query.{name[:40]}' must be a text, a number, true or false")
    return query


def _keyed(request: FeishuRequest, call: Call) -> FeishuRequest:
    """Add the idempotency key of the call where Feishu takes one: a repeated call is the same event, or task."""
    if request.endpoint.kind != "keyed":
        return request
    place, name = KEYS[request.endpoint.path]
    key = str(uuid5(NAMESPACE_URL, f"clawgate:{call.key}"))
    if place == "query":
        return replace(request, query={**request.query, name: key})
    return replace(request, body={**(request.body or {}), name: key})


def _missing(answer: Mapping[str, Any]) -> Sequence[str]:
    """Return the permissions that a refusal names: as violations, or in its text."""
    error = answer.get("error")
    listed = error.get("permission_violations") if isinstance(error, Mapping) else None
    named = [str(it.get("subject", "")) for it in listed if isinstance(it, Mapping)] if isinstance(listed, list) else []
    found = named or re.findall(r"\[([^\]]*)\]", str(answer.get("msg", "")))[-1:]
    return tuple(dict.fromkeys(it for text in found for it in _PERMISSION.findall(text)))
