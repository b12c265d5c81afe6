"""The tool `feishu`: one call of Feishu's open platform, as the person who asks or as the bot's app.

The model names a method, a path and a body. The host is the account's, the token is added here for one request and kept
nowhere. A change asks the person who acts, and shows method, path and body exactly as they are sent. A refused token is
refreshed once; a missing permission becomes a login. Redirects are not followed, since the token would go along.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

import structlog
from pydantic import Field

from tools.feishu.areas import KEYS, Endpoint, endpoint_of, joined, segments_of
from tools.feishu.config import FeishuToolConfig
from tools.feishu.refusals import TOKEN_CODES, Acting, missing_scopes, refusal
from tools.identity import Identities, decider_of
from tools.tool import Arguments, Call, Effect, Subject, ToolError, ToolResult

ANSWER_BYTES_MAX = 4 * 1024 * 1024
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
        """All that is sent, for a person who approves it, in an order that a stored request keeps."""
        query = "".join(f"\n{name} = {value}" for name, value in sorted(self.query.items()))
        body = json.dumps(self.body, ensure_ascii=False, sort_keys=True, indent=2)
        return f"{self.endpoint.method} {self.path}{query}" + ("" if self.body is None else f"\n\n{body}")


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
        decider = decider_of(call) if request.endpoint.writes and self._is_person else ""
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
        if answer["code"] in TOKEN_CODES:
            token = await self._token(request, call, refused=token)
            answer = await self._sent(keyed, token)
        if answer["code"] != 0:
            scopes = missing_scopes(answer) or request.endpoint.scopes
            log.info("feishu_refused", path=request.endpoint.path, code=answer["code"])
            raise await refusal(answer["code"], str(answer.get("msg", "")), scopes, acts=self._acts, call=call)
        data = answer.get("data")
        return data if isinstance(data, Mapping) else {}

    @property
    def _is_person(self) -> bool:
        return self.config.acts_as == "person"

    @property
    def _acts(self) -> Acting:
        return Acting(self.identities, self.config.account, is_person=self._is_person)

    async def _token(self, request: FeishuRequest, call: Call, refused: str = "") -> str:
        return await self._acts.token(call, request.endpoint.scopes, refused)

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
