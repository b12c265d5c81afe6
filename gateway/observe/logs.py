"""Structured logging: ids, sizes and names only, with redaction in one place.

Message text and exception text, which may quote a message, are never logged: an exception is reduced to its type and stack
frames. Known secrets and key-like words are redacted from the rendered line.
"""

import logging
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, TextIO

import orjson
import structlog

from gateway.observe.secrets import Scrubber, without_known
from gateway.observe.terminal import escaped, printable

LINE_CHARS_MAX = 8_192
TALKATIVE = ("alembic", "anthropic", "asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "uvicorn")


log = structlog.get_logger()


@contextmanager
def logged(event: str, *, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Log any exception of a loop's iteration so that the loop continues; reraise those of type `but`."""
    try:
        yield
    except but:
        raise
    except Exception as error:
        log.error(event, exc_info=error)


def configure(
    *,
    level: Literal["debug", "info", "warning", "error"],
    output: Literal["auto", "json", "console"],
    scrubber: Scrubber,
    stream: TextIO | None = None,
) -> None:
    """Send our events and the records of libraries to one stream. `auto` means `console` on a terminal, else `json`."""
    out = stream or sys.stderr
    if output == "auto":
        output = "console" if out.isatty() else "json"
    line = _LogLine(output, scrubber)
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(allow=()), structlog.stdlib.add_log_level],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, line],
        )
    )
    structlog.configure(
        processors=[structlog.stdlib.add_log_level, line],
        logger_factory=lambda *_: _Writer(handler),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for talkative in TALKATIVE:
        logging.getLogger(talkative).setLevel(logging.WARNING)


def crashed(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """Log an uncaught exception; installed as `sys.excepthook`, whose default would print the exception's text."""
    if issubclass(kind, Exception):
        structlog.get_logger().critical("crashed", exc_info=error)
    else:
        sys.__excepthook__(kind, error or kind(), trace)


class _Writer:
    """Writes our events directly, using only the handler's lock, in a third of the time. A closed or full stream drops the
    line."""

    def __init__(self, handler: logging.StreamHandler[TextIO]) -> None:
        self._stream = handler.stream
        self._handler = handler

    def write(self, line: str) -> None:
        with self._handler.lock or nullcontext(), suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = write


class _LogLine:
    def __init__(self, output: Literal["json", "console"], scrubber: Scrubber) -> None:
        self._console = structlog.dev.ConsoleRenderer(colors=False) if output == "console" else None
        self._scrubber = scrubber

    def __call__(self, logger: Any, name: str, event: MutableMapping[str, Any]) -> str:
        event = structlog.contextvars.merge_contextvars(logger, name, event)
        event["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        if "exc_info" in event:
            _without_exception_text(event)
        line = "" if self._console else self._struck(_json(event))
        if not line or "\\" in line:  # An escape may hide a secret, so each value is also struck as it was written.
            values = {key: self._clean(value) for key, value in event.items()}
            line = self._struck(self._console(logger, name, values) if self._console else _json(values))
        line = printable(line) if self._console else escaped(line)
        return line if len(line) <= LINE_CHARS_MAX else line[:LINE_CHARS_MAX] + "…"

    def _struck(self, text: str) -> str:
        return without_known(self._scrubber.scrub(text))[0]

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._struck(value)
        if isinstance(value, dict):
            return {self._clean(key): self._clean(inner) for key, inner in value.items()}
        return [self._clean(inner) for inner in value] if isinstance(value, list | tuple) else value


def _json(event: MutableMapping[str, Any]) -> str:
    return orjson.dumps(event, default=repr).decode()


def _without_exception_text(event: MutableMapping[str, Any]) -> None:
    error = event.pop("exc_info", None)
    if error is True or isinstance(error, tuple):
        error = sys.exc_info()[1] if error is True else error[1]
    if isinstance(error, BaseException):
        event["error"] = type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)[-8:]
        event["trace"] = ["/".join(it.filename.split("/")[-2:]) + f":{it.lineno} {it.name}" for it in frames]
