"""From the rows of a transcript to what the model is shown of finished turns.

A turn the model's safety system refused is left out, or everything after it would be refused too. So is a turn with a
row that cannot be read: one bad row must not keep a chat broken.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

import orjson
import structlog
from pydantic import ValidationError

from agents.messages import Message, message_json
from gateway.store.store import Entry

REMEMBERED_CHARS = 4_096

log = structlog.get_logger()


def turns_of(entries: Sequence[Entry]) -> list[list[Message]]:
    """The finished turns among `entries`, oldest first, each with its messages in order."""
    turns = []
    for number, rows in groupby(entries, key=lambda entry: entry.turn):
        try:
            messages = _turn(list(rows))
        except (ValidationError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            log.error("turn_unreadable", unreadable_turn=number, error=type(error).__name__)
            continue
        if messages:
            turns.append(messages)
    return turns


def _turn(rows: Sequence[Entry]) -> list[Message]:
    ended = next((row for row in rows if row.kind == "final"), None)
    if ended is not None and orjson.loads(ended.content)["outcome"] == "declined":
        return []
    return [_message(row.content) for row in rows if row.kind not in ("drained", "final")]


def _message(content: str) -> Message:
    return _small_message(content) if len(content) <= REMEMBERED_CHARS else message_json.validate_json(content)


@lru_cache(maxsize=4_096)
def _small_message(content: str) -> Message:
    """A chat's past is read for each of its turns, and messages are frozen: the small ones are parsed once."""
    return message_json.validate_json(content)
