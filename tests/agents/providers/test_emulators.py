"""What every emulated maker does alike: its shapes are closed and strict. That it answers is in the contract.

What one maker alone refuses and says is in `test_<wire>_emulator`.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from agents.providers.models import nearest
from tests.agents.providers import (
    test_anthropic_emulator,
    test_gemini_emulator,
    test_mistral_emulator,
)
from tests.agents.providers.contract.subjects import SUBJECTS
from tests.agents.providers.contract.test_requests import rich
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.anthropic.rules import check_body as check_anthropic
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.chat.rules import check_body as check_chat
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.gemini.rules import check_body as check_gemini
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.mistral.rules import check_body as check_mistral
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.responses.rules import check_body as check_responses
from tests.emulators.models.server import ModelEmulator, Refusal
from tests.loopback import serve_on_loopback

JSON = {"content-type": "application/json"}
BEARER = JSON | {"authorization": "Bearer k"}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """`requests` are accepted ones, with what the check wants to know besides; `free` names the members inside which
    anything may stand."""

    build: Callable[..., ModelEmulator]
    path: str
    headers: dict[str, str]
    plain: dict[str, Any]
    check: Callable[..., None]
    requests: list[tuple[dict[str, Any], tuple[str, ...]]]
    free: frozenset[str]
    malformed: int = 400

    def refuses(self, body: dict[str, Any], *about: str) -> bool:
        try:
            self.check(body, *about)
        except Refusal:
            return True
        return False


def sent(name: str, *about: str) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    """What the product sends."""
    request = rich(SUBJECTS[name])
    levels = (None, nearest("high", request.facts.thinking))
    return [(SUBJECTS[name].body(replace(request, thinking=level)), about) for level in levels]


WIRES = {
    "anthropic": Wire(
        build=AnthropicEmulator,
        path="/v1/messages",
        headers=JSON | {"x-api-key": "k", "anthropic-version": "2023-06-01"},
        plain=CHAT | {"model": "claude-opus-5", "max_tokens": 9},
        check=check_anthropic,
        requests=[(body, ()) for body in test_anthropic_emulator.ACCEPTED.values()],
        free=frozenset({"input", "input_schema"}),
    ),
    "chat": Wire(
        build=ChatEmulator,
        path="/v1/chat/completions",
        headers=BEARER,
        plain=CHAT | {"model": "gpt-4.1"},
        check=check_chat,
        requests=sent("openai chat", "openai"),
        free=frozenset({"parameters"}),
    ),
    "gemini": Wire(
        build=GeminiEmulator,
        path="/v1beta/models/gemini-3-flash:generateContent",
        headers=JSON | {"x-goog-api-key": "k"},
        plain={"contents": [{"parts": [{"text": "hi"}]}]},
        check=check_gemini,
        requests=[(body, (model,)) for model, body in test_gemini_emulator.ACCEPTED.values()],
        free=frozenset({"args", "response", "parametersJsonSchema"}),
    ),
    "mistral": Wire(
        build=MistralEmulator,
        path="/v1/chat/completions",
        headers=BEARER,
        plain=CHAT | {"model": "mistral-large-latest"},
        check=check_mistral,
        requests=[(body, ()) for body in test_mistral_emulator.ACCEPTED.values()],
        free=frozenset({"arguments", "parameters"}),
        malformed=422,
    ),
    "responses": Wire(
        build=ResponsesEmulator,
        path="/v1/responses",
        headers=BEARER,
        plain={"model": "gpt-5.5", "input": [{"role": "user", "content": "hi"}]},
        check=check_responses,
        requests=sent("responses"),
        free=frozenset({"parameters", "metadata"}),
    ),
}
wires = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES.keys())


def objects(value: Any, free: frozenset[str]) -> Iterator[Any]:
    """Every object and list of the protocol's own."""
    if isinstance(value, dict | list):
        yield value
    for name, member in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        if name not in free or isinstance(member, list):
            yield from objects(member, free)


def places(wire: Wire) -> Iterator[tuple[dict[str, Any], tuple[str, ...], int, Any]]:
    """Each object and list of the protocol's own in an accepted request, by its number in it."""
    for body, about in wire.requests:
        yield from ((body, about, place, owner) for place, owner in enumerate(objects(body, wire.free)))


def changed(wire: Wire, body: dict[str, Any], place: int, name: Any, value: Any) -> dict[str, Any]:
    copy = deepcopy(body)
    list(objects(copy, wire.free))[place][name] = value
    return copy


@wires
def test_accepted_requests_are_left_as_they_are(wire: Wire) -> None:
    for body, about in wire.requests:
        before = deepcopy(body)
        wire.check(body, *about)
        assert body == before


@wires
def test_a_member_that_nobody_knows_and_a_value_of_a_wrong_type_are_refused_wherever_they_stand(wire: Wire) -> None:
    for body, about, place, owner in places(wire):
        assert isinstance(owner, list) or wire.refuses(changed(wire, body, place, "colour", "red"), *about), owner
        for name, old in owner.items() if isinstance(owner, dict) else enumerate(owner):
            wrong = "x" if isinstance(old, int | float) else True if old is None else 7
            assert wire.refuses(changed(wire, body, place, name, wrong), *about), (name, owner)


@wires
async def test_a_body_that_is_no_strict_json_object(wire: Wire) -> None:
    async with serve_on_loopback(wire.build().app) as url, httpx.AsyncClient() as client:
        for raw in (b"", b"{", b'{"a": "\\ud83d"}', b'{"a": NaN}', b"[]", b'"\xff"'):
            response = await client.post(url + wire.path, headers=wire.headers, content=raw)
            assert response.status_code == wire.malformed, raw


@pytest.mark.parametrize(
    ("name", "header", "values", "status"),
    [
        ("anthropic", "x-api-key", ("", "wrong"), 401),
        ("anthropic", "anthropic-version", ("", "v1"), 400),
        ("chat", "authorization", ("", "k", "Basic k", "Bearer wrong"), 401),
        ("gemini", "x-goog-api-key", ("",), 403),
        ("gemini", "x-goog-api-key", ("wrong",), 400),
        ("mistral", "authorization", ("", "k", "Bearer wrong"), 401),
        ("responses", "authorization", ("", "k", "Basic k", "Bearer wrong"), 401),
        *((name, "content-type", ("text/plain",), wire.malformed) for name, wire in WIRES.items()),
    ],
)
async def test_keys_and_headers(name: str, header: str, values: tuple[str, ...], status: int) -> None:
    wire = WIRES[name]
    async with serve_on_loopback(wire.build(api_key="k").app) as url, httpx.AsyncClient() as client:
        for value in values:
            headers = wire.headers | {header: value}
            assert (await client.post(url + wire.path, headers=headers, json=wire.plain)).status_code == status
