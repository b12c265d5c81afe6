"""What every emulated maker does alike: its shapes are closed and strict. That it answers is in the contract.

What one maker alone refuses and says is in `test_<wire>_emulator`.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from agents.providers.models import nearest
from tests.agents.providers.contract.subjects import SUBJECTS
from tests.agents.providers.contract.test_requests import rich
from tests.agents.providers.requests import asking, collect, without
from tests.emulators.models.anthropic.rules import check_body as check_anthropic
from tests.emulators.models.chat.rules import check_body as check_chat
from tests.emulators.models.gemini.rules import check_body as check_gemini
from tests.emulators.models.mistral.rules import check_body as check_mistral
from tests.emulators.models.responses.rules import check_body as check_responses
from tests.emulators.models.script import says
from tests.emulators.models.server import Refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """`subjects` are asked for what the product sends, `about` is what the check wants to know besides; `free` names the
    members inside which anything may stand."""

    subjects: tuple[str, ...]
    check: Callable[..., None]
    free: frozenset[str]
    about: tuple[str, ...] = ()
    malformed: int = 400

    @property
    def requests(self) -> Iterator[dict[str, Any]]:
        for subject in map(SUBJECTS.__getitem__, self.subjects):
            request = rich(subject)
            for level in (None, nearest("high", request.facts.thinking)):
                yield subject.body(replace(request, thinking=level))

    def refuses(self, body: dict[str, Any]) -> bool:
        try:
            self.check(body, *self.about)
        except Refusal:
            return True
        return False

    @asynccontextmanager
    async def replaying(self) -> AsyncIterator[Callable[..., Awaitable[int]]]:
        """The status of a sound request that is sent again with another body or another header."""
        subject = SUBJECTS[self.subjects[0]]
        async with subject.connected(says("ok")) as (emulator, provider):
            await collect(provider, asking(model=subject.model))
            sent = emulator.requests[0]
            headers = without(dict(sent.headers), "content-length")

            async def status(raw: bytes | None = None, **changed: str) -> int:
                content = json.dumps(sent.body).encode() if raw is None else raw
                return (await client.post(sent.path, headers=headers | changed, content=content)).status_code

            transport = httpx.ASGITransport(emulator.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://emulator") as client:
                assert await status() == 200
                yield status


WIRES = {
    "anthropic": Wire(
        subjects=("anthropic", "claude with a budget"),
        check=check_anthropic,
        free=frozenset({"input", "input_schema"}),
    ),
    "chat": Wire(subjects=("openai chat",), check=check_chat, about=("openai",), free=frozenset({"parameters"})),
    "gemini": Wire(
        subjects=("gemini",),
        check=check_gemini,
        about=(SUBJECTS["gemini"].model,),
        free=frozenset({"args", "response", "parametersJsonSchema"}),
    ),
    "mistral": Wire(
        subjects=("mistral",), check=check_mistral, free=frozenset({"arguments", "parameters"}), malformed=422
    ),
    "responses": Wire(subjects=("responses",), check=check_responses, free=frozenset({"parameters", "metadata"})),
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


def changed(wire: Wire, body: dict[str, Any], place: int, name: Any, value: Any) -> dict[str, Any]:
    copy = deepcopy(body)
    list(objects(copy, wire.free))[place][name] = value
    return copy


@wires
def test_emulators_refuse_unknown_members_anywhere(
    wire: Wire,
) -> None:
    for body in wire.requests:
        before = deepcopy(body)
        wire.check(body, *wire.about)
        assert body == before
        for place, owner in enumerate(objects(body, wire.free)):
            assert isinstance(owner, list) or wire.refuses(changed(wire, body, place, "colour", "red")), owner
            for name, old in owner.items() if isinstance(owner, dict) else enumerate(owner):
                wrong = "x" if isinstance(old, int | float) else True if old is None else 7
                assert wire.refuses(changed(wire, body, place, name, wrong)), (name, owner)


@wires
async def test_a_body_that_is_no_strict_json_object(wire: Wire) -> None:
    async with wire.replaying() as status:
        for raw in (b"", b"{", b'{"a": "\\ud83d"}', b'{"a": NaN}', b"[]", b'"\xff"'):
            assert await status(raw) == wire.malformed, raw


@pytest.mark.parametrize(
    ("name", "header", "values", "expected"),
    [
        ("anthropic", "x-api-key", ("wrong",), 401),
        ("anthropic", "anthropic-version", ("", "v1"), 400),
        ("chat", "authorization", ("", "k", "Basic k", "Bearer wrong"), 401),
        ("gemini", "x-goog-api-key", ("",), 403),
        ("gemini", "x-goog-api-key", ("wrong",), 400),
        ("mistral", "authorization", ("", "k", "Bearer wrong"), 401),
        ("responses", "authorization", ("", "k", "Basic k", "Bearer wrong"), 401),
        *((name, "content-type", ("text/plain",), wire.malformed) for name, wire in WIRES.items()),
    ],
)
async def test_keys_and_headers(name: str, header: str, values: tuple[str, ...], expected: int) -> None:
    async with WIRES[name].replaying() as status:
        for value in values:
            assert await status(**{header: value}) == expected
