"""Logging policy: JSON lines with the turn's id, ids and sizes and names only, and one place that redacts.

Message text is never logged, and neither is what an exception says, since it may quote one: an exception becomes its
type and the places it came through. Whatever still looks like a secret is struck out of the finished line.
"""

import logging
import re
import sys
import traceback
from collections.abc import MutableMapping
from types import TracebackType
from typing import Any, Literal, TextIO

import orjson
import structlog

from gateway.redaction import REDACTED, SHAPES
from gateway.scrubber import Scrubber

LINE_CHARS_MAX = 8_192
_SHAPES = re.compile("|".join(SHAPES), re.S)
TALKATIVE = ("alembic", "anthropic", "asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "uvicorn")


def configure(
    *,
    level: Literal["debug", "info", "warning", "error"],
    output: Literal["auto", "json", "console"],
    scrubber: Scrubber,
    stream: TextIO | None = None,
) -> None:
    """Send everything, our own events and the libraries' records, through one chain to one stream. `auto` is for people
    where the stream is a terminal."""
    out = stream or sys.stderr
    if output == "auto":
        output = "console" if out.isatty() else "json"
    chain: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_exception_text,
    ]
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(allow=()), *chain],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _LogLine(output, scrubber)],
        )
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *chain, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for talkative in TALKATIVE:
        logging.getLogger(talkative).setLevel(logging.WARNING)


def crashed(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """In place of `sys.excepthook`, which would print what the exception says."""
    if issubclass(kind, Exception):
        structlog.get_logger().critical("crashed", exc_info=error)
    else:
        sys.__excepthook__(kind, error or kind(), trace)


class _LogLine:
    """The end of the chain: the event as one line, redacted and capped."""

    def __init__(self, output: Literal["json", "console"], scrubber: Scrubber) -> None:
        self._render = _json if output == "json" else structlog.dev.ConsoleRenderer(colors=False)
        self._scrubber = scrubber

    def __call__(self, logger: Any, name: str, event: MutableMapping[str, Any]) -> str:
        line = self._struck(str(self._render(logger, name, {key: self._clean(event[key]) for key in event})))
        return line if len(line) <= LINE_CHARS_MAX else line[:LINE_CHARS_MAX] + "…"

    def _struck(self, text: str) -> str:
        return _SHAPES.sub(REDACTED, self._scrubber.scrub(text))

    def _clean(self, value: Any) -> Any:
        """Before the line is rendered, so that a form inside a form is seen as it was written."""
        if isinstance(value, str):
            return self._struck(value)
        if isinstance(value, dict):
            return {self._clean(key): self._clean(inner) for key, inner in value.items()}
        return [self._clean(inner) for inner in value] if isinstance(value, list | tuple) else value


def _json(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return orjson.dumps(event, default=repr).decode()


def _without_exception_text(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    error = event.pop("exc_info", None)
    if error is True or isinstance(error, tuple):
        error = sys.exc_info()[1] if error is True else error[1]
    if isinstance(error, BaseException):
        event["error"] = type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)[-8:]
        event["trace"] = ["/".join(it.filename.split("/")[-2:]) + f":{it.lineno} {it.name}" for it in frames]
    event.pop("exc_text", None)
    return event
