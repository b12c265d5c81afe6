"""Sound answers in frames that no vendor documents, and what is no answer at all: each wire reads the one, names the other.

A server may answer whole, label its events as something else, repeat a call, or write arguments with a slip of the pen.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agents.messages import AssistantMessage
from agents.providers.catalog import build_provider
from tests.agents.providers.contract.subjects import WIRES, Subject
from tests.agents.providers.contract.test_contract import WIRE, ask, failure, go_on, recorded
from tests.agents.providers.requests import collect
from tests.case import case
from tests.emulators.models.script import Call, Fault, Say, Think, Turn, says
from tests.loopback import serve_on_loopback

LS = {"path": "目录/🙂"}
RICH = Turn(parts=(Think(text="hm"), Say(text="So. 🙂"), Call(name="ls", id="call_1", arguments=LS), Call(name="ls")))


async def whole(subject: Subject, turn: Turn) -> Any:
    """The answer as the vendor sends it where no stream is asked for."""
    async with subject.connected(turn) as (emulator, provider):
        await collect(provider, ask(subject))
        return emulator.whole(turn, 1, emulator.requests[0].body, 10)


async def answered(subject: Subject, *bodies: tuple[bytes, str]) -> list[AssistantMessage]:
    """The messages that come of these bodies, each with its content type and perhaps an encoding."""
    left = list(bodies)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        data, kind = left.pop(0)
        headers = [(b"content-type", kind.partition("+")[0].encode())]
        headers += [(b"content-encoding", b"gzip")] if kind.endswith("+gzip") else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for at in range(0, len(data), 5):
            await send({"type": "http.response.body", "body": data[at : at + 5], "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with serve_on_loopback(app) as url:
        provider = build_provider(subject.name, subject.config(url, {}))
        try:
            return [await go_on(subject, provider) for _ in bodies]
        finally:
            await provider.close()


SSE, JSON = "text/event-stream", "application/json"
FRAMES: dict[str, Callable[[str], tuple[bytes, str]]] = {
    "json": lambda it: (it.encode(), JSON),
    "json without a label": lambda it: (it.encode(), ""),
    "json labelled as events": lambda it: (f"\n {it}\n".encode(), SSE),
    "json behind a mark": lambda it: (f"\ufeff{it}".encode(), JSON),
    "json in a list": lambda it: (f"[{it}]".encode(), JSON),
    "json, packed": lambda it: (gzip.compress(it.encode()), f"{JSON}+gzip"),
    "one event": lambda it: (f"data: {it}\n\n".encode(), SSE),
    "one event, packed": lambda it: (gzip.compress(f"data: {it}\n\n".encode()), f"{SSE}+gzip"),
    "one event without a blank line": lambda it: (f"data: {it}".encode(), SSE),
}


@WIRE
async def test_an_answer_that_comes_whole_is_read_in_any_frame(subject: Subject) -> None:
    body = json.dumps(await whole(subject, RICH), ensure_ascii=False)
    for name, message in zip(FRAMES, await answered(subject, *(it(body) for it in FRAMES.values())), strict=True):
        with case(name):
            assert message.error is None
            assert (message.text, message.stop_reason) == ("So. 🙂", "tool_use")
            assert [(it.name, it.arguments) for it in message.calls] == [("ls", LS), ("ls", {})]


@WIRE
async def test_a_byte_that_is_no_utf8_costs_itself_alone(subject: Subject) -> None:
    text = "fine XX words XX."
    stream, body = await recorded(subject, says(text)), json.dumps(await whole(subject, says(text)))
    broken = [it.encode().replace(b"XX", b"\xff").replace(b"XX", b"\xff") for it in (stream, body)]
    for message in await answered(subject, (broken[0], SSE), (broken[1], JSON)):
        assert (message.error, message.text) == (None, "fine \ufffd words \ufffd.")


_LS = Call(name="ls", id="call_1", arguments=LS)


@WIRE
async def test_a_call_that_is_repeated_is_one_and_with_other_arguments_it_is_two(subject: Subject) -> None:
    again = [_LS, replace(_LS, id="call_2"), replace(_LS, arguments={"path": "b"}), _LS, Call(name="ls", id="call_1")]
    async with subject.connected(Turn(parts=(_LS, *again, Call(name="ls", id="call_1")))) as (_, provider):
        message = await go_on(subject, provider)
    assert [it.arguments for it in message.calls] == [LS, LS, {"path": "b"}, {}]
    assert len({it.id for it in message.calls}) == 4


SLIPS = {
    "a line end and a tab as they are": ('{"path": "one\ntwo\tthree"}', {"path": "one\ntwo\tthree"}),
    "an empty object before": ('{}{"path": "a"}', {"path": "a"}),
    "an empty object behind": ('{"path": "a"} {}', {"path": "a"}),
    "twice": ('{"path": "a"}{"path": "a"}', {"path": "a"}),
    "encoded twice": (json.dumps('{"path": "a"}'), {"path": "a"}),
    "a fence": ('```json\n{"path": "a"}\n```', {"path": "a"}),
    "a path of windows": (r'{"path": "C:\path"}', None),
    "a comma too many": ('{"path": "a",}', None),
    "two objects": ('{"path": "a"}{"path": "b"}', None),
    "words behind": ('{"path": "a"} and so on', None),
    "cut": ('{"path": "a', None),
    "cut behind an empty object": ('{}{"path": "a', None),
    "encoded twice and cut": ('"{\\"path\\": \\"a', None),
}
WRITTEN = {name: it for name, it in WIRES.items() if name not in ("gemini", "clawdbot")}
"""The wires whose arguments are a text."""


@pytest.mark.parametrize("subject", WRITTEN.values(), ids=WRITTEN.keys())
async def test_arguments_with_a_slip_are_run_if_they_have_one_meaning(subject: Subject) -> None:
    turns = [Turn(parts=(Call(name="ls", raw=raw),)) for raw, _ in SLIPS.values()]
    async with subject.connected(*turns) as (_, provider):
        for name, (raw, meant) in SLIPS.items():
            with case(name):
                (call,) = (await go_on(subject, provider)).calls
                assert call.arguments == meant
                assert json.loads(call.arguments_raw) == meant if meant is not None else call.arguments_raw == raw


ERRORS: dict[str, tuple[str, str]] = {
    "a text": ('{"error": "model overloaded"}', "model overloaded"),
    "a code and a text": ('{"code": 500, "msg": "404 NOT_FOUND", "success": false}', "404 NOT_FOUND"),
    "no success": ('{"success": false, "message": "worker is gone"}', "worker is gone"),
    "baidu's": ('{"error_code": 336100, "error_msg": "server is busy"}', "server is busy"),
    "minimax's": ('{"base_resp": {"status_code": 1013, "status_msg": "unknown error"}}', "unknown error"),
    "tencent's": ('{"Response": {"Error": {"Code": "InternalError", "Message": "try later"}}}', "try later"),
    "a list": ('{"errors": [{"message": "no worker"}]}', "no worker"),
}


@WIRE
async def test_an_error_in_any_form_is_one_and_its_words_are_kept(subject: Subject) -> None:
    frames = [(it(body), words) for body, words in ERRORS.values() for it in (FRAMES["json"], FRAMES["one event"])]
    bare = [((f": hello\n\n{body}\n".encode(), SSE), words) for body, words in ERRORS.values()]
    messages = await answered(subject, *(frame for frame, _ in (*frames, *bare)))
    for message, (frame, words) in zip(messages, (*frames, *bare), strict=True):
        with case(frame[0]):
            assert failure(message) == ("server", True)
            assert message.error is not None
            assert message.error.words == words


PAGE = b"<!DOCTYPE html><html><head><style>p {}</style><title>Sign in</title></head><p>to go on"
NONE = {
    "a page": (PAGE, "a web page", "Sign in to go on"),
    "words": (b"upstream is not ready", "text", "upstream is not ready"),
    "nothing": (b"", "empty", ""),
    "blanks": (b" \n\n", "empty", ""),
    "packed without a word": (gzip.compress(b"{}"), "compressed", ""),
}  # fmt: skip


@WIRE
async def test_a_body_that_is_no_answer_is_named_by_its_first_words(subject: Subject) -> None:
    bodies = [(data, kind) for data, _, _ in NONE.values() for kind in (SSE, JSON, "text/html")]
    expected = [(name, what, words) for name, (_, what, words) in NONE.items() for _ in range(3)]
    for message, (name, what, words) in zip(await answered(subject, *bodies), expected, strict=True):
        with case(name):
            assert failure(message) == ("incomplete", True)
            assert message.error is not None
            assert message.error.summary.startswith("status=200 the answer is ")
            assert what in message.error.summary
            assert words in message.error.words


@WIRE
async def test_a_page_that_refuses_is_kept_by_its_words_too(subject: Subject) -> None:
    page = Fault(status=502, body="<html><h1>502 Bad Gateway</h1>nginx</html>", content_type="text/html")
    async with subject.connected(page) as (_, provider):
        message = await go_on(subject, provider)
    assert failure(message) == ("server", True)
    assert message.error is not None
    assert message.error.words == "502 Bad Gateway nginx"
