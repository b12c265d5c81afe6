"""Secrets and message text never reach the log, whichever way they try."""

import base64
import io
import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal
from urllib.parse import quote

import pytest
import structlog

from gateway.observe import logs
from gateway.observe.secrets import Scrubber

SECRET = 'canary/"密钥"+secret'


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream, shown = io.StringIO(), structlog.get_config()
    before, level = logging.getLogger().handlers, logging.getLogger().level
    logs.configure(level="debug", output="json", scrubber=Scrubber([SECRET]), stream=stream)
    yield stream
    structlog.configure(**shown)
    logging.getLogger().handlers = before
    logging.getLogger().setLevel(level)


def test_log_event_is_one_json_line_with_its_turn(written: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(turn=7):
        structlog.get_logger().info("part_sent", message_id="om_1")
    line = json.loads(written.getvalue())
    assert (line["event"], line["turn"], line["message_id"], line["level"]) == ("part_sent", 7, "om_1", "info")


FORMS = [SECRET, json.dumps(SECRET), quote(SECRET, safe=""), base64.b64encode(SECRET.encode()).decode()]


@pytest.mark.parametrize("form", FORMS)
def test_log_masks_a_configured_secret_in_every_form(written: io.StringIO, form: str) -> None:
    structlog.get_logger().info("leak", value=f"before {form} after")
    assert "canary" not in written.getvalue()
    assert form.strip("=") not in written.getvalue()
    assert "***" in written.getvalue()


@pytest.mark.parametrize(
    "leak",
    [
        "Authorization: Bearer abcdefghijklmnop",
        "https://api.telegram.org/bot123456:AAAAAAAAAAAAAAAAAAAAAAAAAAAA/getMe",
        "sk-ant-api03-aaaaaaaaaaaaaaaaaaaa",
        "t-g1044ghJRUIJJ5ZPPZMOHKWZISL33E4QSS3abcef",
    ],
)
def test_log_masks_what_looks_like_a_secret(written: io.StringIO, leak: str) -> None:
    logging.getLogger("some.library").error("failed: %s", leak)
    assert "***" in written.getvalue()
    assert leak.split()[-1] not in written.getvalue()


@pytest.mark.parametrize("logger", ["ours", "library", "nobody's"])
def test_log_exception_has_type_and_places_but_no_text(written: io.StringIO, logger: str) -> None:
    try:
        raise ValueError("我的银行密码是 12345")
    except ValueError as error:
        if logger == "ours":
            structlog.get_logger().error("turn_failed", exc_info=error)
        elif logger == "nobody's":
            logs.crashed(ValueError, error, None)
        else:
            logging.getLogger("library").exception("it broke")
    line = json.loads(written.getvalue())
    assert line["error"] == "ValueError"
    assert "test_logs.py" in line["trace"][0]
    assert "12345" not in written.getvalue()
    assert "银行" not in written.getvalue()


@pytest.mark.parametrize(
    ("output", "terminal", "json_lines"), [("auto", True, False), ("auto", False, True), ("json", True, True)]
)
def test_log_in_a_terminal_is_for_people_by_default(
    written: io.StringIO, output: Literal["auto", "json"], terminal: bool, json_lines: bool
) -> None:
    reader, writer = os.openpty() if terminal else os.pipe()
    with open(reader, "rb", buffering=0) as out, open(writer, "w", encoding="utf-8") as stream:
        logs.configure(level="info", output=output, scrubber=Scrubber([SECRET]), stream=stream)
        structlog.get_logger().info("part_sent", message_id=f"om_1 {SECRET}")
        line = out.read(4096).decode()
    assert line.startswith("{") == json_lines
    assert "part_sent" in line
    assert "canary" not in line


def test_log_masks_an_escaped_key(written: io.StringIO) -> None:
    secret = "canary\\'and\"more-91827"
    logs.configure(level="info", output="console", scrubber=Scrubber([secret]), stream=written)
    structlog.get_logger().info("leak", value={secret: {secret: [secret]}})
    assert written.getvalue().count("***") == 3
    assert "more-91827" not in written.getvalue()


@pytest.mark.parametrize("broken", ["closed", "full", "nobody reads", "a full pipe"])
def test_log_to_a_blocked_stream_drops_the_line(written: io.StringIO, broken: str) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    if broken == "full":
        os.close(writer)
        writer = os.open("/dev/full", os.O_WRONLY)
    stream = open(writer, "w", encoding="utf-8")  # noqa: SIM115
    if broken == "closed":
        stream.close()
    elif broken == "nobody reads":
        os.close(reader)
    logs.configure(level="info", output="json", scrubber=Scrubber([]), stream=stream)
    for _ in range(100):  # a pipe holds 64 KiB
        structlog.get_logger().info("part_sent", text="x" * 4_000)
        logging.getLogger("some.library").error("x" * 4_000)
    if broken != "nobody reads":
        os.close(reader)
    with suppress(OSError):
        stream.close()


def test_log_line_survives_a_line_break_in_a_value(written: io.StringIO) -> None:
    structlog.get_logger().info("event", value='x\n{"event": "forged"}\r\x1b[31m')
    assert len(written.getvalue().splitlines()) == 1
