"""The search for words in the web chat's conversations."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import orjson
from sqlalchemy import Connection, text

from gateway.store.archive import ROWS_AT_ONCE
from gateway.store.writer import Database, reads


def has_all(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(it in folded for it in words)


class WebHit(NamedTuple):
    """A message in which what was looked for was found."""

    number: int
    author: str
    at: float
    text: str


class DatabaseSearch(Database):
    @reads
    def hits(self, connection: Connection, chat: str, words: Sequence[str], *, limit: int) -> Sequence[WebHit]:
        """The newest messages that have all of the casefolded `words`. Neither database compares capitals beyond ASCII."""
        newest = "SELECT number, author, at, words FROM web_message WHERE chat = :chat ORDER BY number DESC"
        spoken = text(newest).execution_options(yield_per=ROWS_AT_ONCE)
        with connection.execute(spoken, {"chat": chat}) as rows:
            read = (WebHit(it.number, it.author, it.at, str(orjson.loads(it.words)["text"])) for it in rows)
            return list(islice((it for it in read if has_all(it.text, words)), limit))
