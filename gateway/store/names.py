"""The names that people know each other and their chats by, for the operator's lists: ids tell them nothing."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection, text

from gateway.records.sessions import conversation, session_parts

_SAID = """
SELECT sid, person, name, max(turn) AS turn FROM spoken WHERE how = 'said' AND name <> ''
GROUP BY sid, person, name ORDER BY max(turn)
"""
_CONTACTS = "SELECT channel, person, name FROM contact WHERE name <> ''"
_TITLES = "SELECT id, title FROM web_conversation WHERE title <> ''"
_GROUPS = """
SELECT sid, body FROM inbox WHERE id IN (SELECT max(turn) FROM spoken WHERE how = 'said' AND direct = 0 GROUP BY sid)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """`people` has the latest name of each by `channel:id`; `chats` a title by `channel:account:id`: of a group its own, of
    a chat of the page its own, of any other who spoke there."""

    people: Mapping[str, str]
    chats: Mapping[str, str]

    def person(self, id_: str | None) -> str:
        return self.people.get(id_ or "", "")

    def chat(self, sid: str) -> str:
        """The title of a conversation's chat; empty without one."""
        return self.place(session_parts(conversation(sid)).place)

    def place(self, place: str) -> str:
        """Returns the title of the chat `channel:account:id`."""
        return self.chats.get(place, "")


def names(connection: Connection) -> Names:
    people = {f"{it.channel}:{it.person}": str(it.name) for it in connection.execute(text(_CONTACTS))}
    speakers: dict[str, dict[str, None]] = defaultdict(dict)
    for it in connection.execute(text(_SAID)):
        people[it.person] = it.name
        speakers[session_parts(conversation(it.sid)).place][it.name] = None
    chats = {place: ", ".join(found) for place, found in speakers.items()}
    for it in connection.execute(text(_GROUPS)):
        if title := _title(it.body):
            chats[session_parts(conversation(it.sid)).place] = title
    chats |= {f"web:default:{it.id}": it.title for it in connection.execute(text(_TITLES))}
    return Names(people=people, chats=chats)


def _title(body: str) -> str:
    with suppress(ValueError, TypeError, KeyError):
        return orjson.loads(body)["context"]["chat"]["title"] or ""
    return ""
