"""The branches of a web chat conversation: which messages are on a branch, and which turns its next turn reads.

A user's message follows the one stored before it, unless its row names another in `follows`: then it starts a branch.
No turn is copied or removed, so what is erased or recalled disappears from every branch. The tree is read from the rows
of users' messages. A few gaps between their numbers describe what is not on a branch; `leave_out` converts those into
gaps between a session's turns, which the statements that read its history skip. A turn follows its message, not its
number: a repeated answer and a report are turns of an older message. A turn without a user's message, such as a
schedule's, follows the last message of the branch that is visible when it begins (`UNDER`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

import orjson
from pydantic import TypeAdapter
from sqlalchemy import Connection

from channels.message import MessageContext
from channels.web.archive import MessageBody, Unkept, attachment_of
from gateway.store.inbound import Inbound, inbound_json
from gateway.store.operations import Database, reads, run, writes
from gateway.store.statements import GAPS, NEVER

Gap = tuple[int, int]
"""Two numbers; the messages between them are not on the branch."""
_OWN = "SELECT number, key, follows FROM web_message WHERE chat = :chat AND author = 'you' ORDER BY number"
_FORKS = "SELECT number, follows FROM web_message WHERE chat = :chat AND follows IS NOT NULL"
_TIP = "SELECT tip FROM web_conversation WHERE id = :chat"
_KNOWN = "SELECT 1 FROM web_message WHERE chat = :chat AND key = :key"
_SPOKEN = "SELECT message, turn FROM spoken WHERE sid = :sid AND how IN ('said', 'withdrawn')"
UNDER = "under"
"""The kind of the mark that names the message which a turn without its own message follows."""
_MARKED = "SELECT turn, content FROM mark WHERE sid = :sid AND kind IN ('new', 'under')"
_MARK_UNDER = """
INSERT INTO mark (sid, kind, turn, content, at) VALUES (:sid, 'under', :turn, :content, :at) ON CONFLICT DO NOTHING
"""
_BODY = "SELECT body, at FROM inbox WHERE id = :turn AND body <> ''"
_SET_BODY = "UPDATE inbox SET body = :body WHERE id = :turn"
_WORDS = "SELECT key, words, at FROM web_message WHERE chat = :chat AND key IN :keys ORDER BY number"
words_json: TypeAdapter[MessageBody] = TypeAdapter(MessageBody)


def gaps_of(forks: Mapping[int, int], tip: int) -> list[Gap]:
    """Return the gaps of the branch that ends with message `tip`. `forks` maps each message that starts a branch to
    the one it follows."""
    gaps, at = [(tip, NEVER)] if tip < NEVER else [], tip
    for fork in sorted(forks, reverse=True):
        if fork <= at:
            gaps.append((forks[fork], fork))
            at = forks[fork]
    return gaps


def is_in(number: int, gaps: Iterable[Gap]) -> bool:
    return any(after < number < before for after, before in gaps)


@dataclass(frozen=True, slots=True)
class Own:
    """A user's message. `follows` is None if it follows the message before it."""

    number: int
    key: str
    follows: int | None


class BranchTree:
    """The users' messages of one conversation, in order."""

    def __init__(self, own: Sequence[Own]) -> None:
        self.own = own
        self.forks = {it.number: it.follows for it in own if it.follows is not None}
        self._before = {it.number: before.number for before, it in pairwise(own)}
        self._behind: dict[int, list[Own]] = defaultdict(list)
        for it in own:
            self._behind[self.before(it)].append(it)

    def before(self, message: Own) -> int:
        """Return the number of the message that it follows; 0 for none."""
        return self._before.get(message.number, 0) if message.follows is None else message.follows

    def versions(self, message: Own) -> Sequence[Own]:
        """Return the messages that follow the same message, including this one, in order."""
        return self._behind[self.before(message)]

    def tip_with(self, number: int) -> int:
        """Return the last message of the newest branch that contains message `number`."""
        ends = {self._before.get(fork, 0) for fork in self.forks} | {it.number for it in self.own[-1:]}
        return next((it for it in sorted(ends, reverse=True) if not is_in(number, gaps_of(self.forks, it))), 0)

    def shown(self, tip: int) -> list[Own]:
        gaps = gaps_of(self.forks, tip)
        return [it for it in self.own if not is_in(it.number, gaps)]


def tree_of(connection: Connection, chat: str) -> BranchTree:
    return BranchTree([Own(row.number, row.key, row.follows) for row in run(connection, _OWN, chat=chat)])


def gaps_shown(connection: Connection, chat: str) -> list[Gap]:
    """Return the gaps of the visible branch."""
    forks: dict[int, int] = {row.number: row.follows for row in run(connection, _FORKS, chat=chat)}
    return gaps_of(forks, tip_of(connection, chat)) if forks else []


def own_above(connection: Connection, chat: str, reply_to: str | None) -> int | None:
    """Return the user's message that an agent's message is shown under: the one it answers, else the last one of the
    visible branch."""
    which = (
        "SELECT CASE author WHEN 'you' THEN number ELSE under END FROM web_message WHERE chat = :chat AND key = :key"
    )
    if reply_to and (own := run(connection, which, chat=chat, key=reply_to).scalar()):
        return int(own)
    last = "SELECT max(number) FROM web_message WHERE chat = :chat AND author = 'you' AND number <= :tip"
    found: int | None = run(connection, last, chat=chat, tip=tip_of(connection, chat)).scalar()
    return found


def tip_of(connection: Connection, chat: str) -> int:
    return run(connection, _TIP, chat=chat).scalar() or NEVER


def place(connection: Connection, chat: str, key: str, instead: str | None, versions_max: int) -> int | Unkept | None:
    """Return the number of the message that a new one follows; None for the newest. A replacement of `instead`
    follows the same message as that one; any other follows the last message of the visible branch."""
    if run(connection, _KNOWN, chat=chat, key=key).first():
        return None
    if instead is None:
        return run(connection, _TIP, chat=chat).scalar() or None
    tree = tree_of(connection, chat)
    if (before := next((it for it in tree.own if it.key == instead), None)) is None:
        return "gone"
    return "too many" if len(tree.versions(before)) >= versions_max else tree.before(before)


def begins_branch(connection: Connection, chat: str, key: str) -> bool:
    begins = "SELECT 1 FROM web_message WHERE chat = :chat AND key = :key AND follows IS NOT NULL"
    return run(connection, begins, chat=chat, key=key).first() is not None


def close_over(connection: Connection, chat: str, gone: Collection[int]) -> None:
    """Reattach what follows these messages to what came before them, because they are about to be erased. Otherwise
    a branch without its start would continue from the message above it."""
    tree = tree_of(connection, chat)
    if not tree.forks:
        return
    before = {it.number: tree.before(it) for it in tree.own}

    def kept(number: int) -> int:
        while number in gone:
            number = before.get(number, 0)
        return number

    above = 0
    for it in (it for it in tree.own if it.number not in gone):
        follows = kept(before[it.number])
        if follows != (above if it.follows is None else it.follows):
            moved = "UPDATE web_message SET follows = :follows WHERE number = :number"
            run(connection, moved, follows=follows, number=it.number)
        above = it.number
    if (tip := tip_of(connection, chat)) in gone:
        run(connection, "UPDATE web_conversation SET tip = :tip WHERE id = :chat", tip=kept(tip), chat=chat)


class DatabaseBranches(Database):
    @reads
    def versions(self, connection: Connection, chat: str) -> Mapping[str, Sequence[int]]:
        """Return the messages of the visible branch that have several versions, by key, each with the numbers of all
        versions."""
        tree = tree_of(connection, chat)
        if not tree.forks:
            return {}
        found = ((it.key, tree.versions(it)) for it in tree.shown(tip_of(connection, chat)))
        return {key: [it.number for it in versions] for key, versions in found if len(versions) > 1}

    @writes
    def turn(self, connection: Connection, chat: str, number: int) -> bool:
        """Show the newest branch with message `number`, or with the one it answers. Return False if there is none."""
        found = "SELECT COALESCE(under, number) FROM web_message WHERE chat = :chat AND number = :number"
        own = run(connection, found, chat=chat, number=number).scalar()
        tree = tree_of(connection, chat)
        if own is None or not tree.own:
            return False
        tip = tree.tip_with(own)
        tip = 0 if tip == tree.own[-1].number else tip
        run(connection, "UPDATE web_conversation SET tip = :tip WHERE id = :chat", tip=tip, chat=chat)
        return True

    @writes
    def leave_out(self, connection: Connection, sid: str, turn: int, context: MessageContext) -> bool:
        """Record which turns of the session are not on the branch of the message that `turn` answers, before the
        turn begins. A turn without a user's message follows the last visible one and replies to it. An earlier
        message of the branch that was only answered together with one of another branch is answered again, with this
        one. Return False if nothing was written, so what was loaded is correct."""
        tree, chat = tree_of(connection, context.chat.id), context.chat.id
        if not tree.forks:
            return False
        own, changed = next((it for it in tree.own if it.key == context.message_id), None), False
        if own is None and context.origin and (shown := tree.shown(tip_of(connection, chat))):
            own, changed = shown[-1], _follow(connection, sid, turn, shown[-1].key)
        if own is None:
            return False
        # An older message may be answered again, or late: what follows it on its branch was said before this turn.
        is_shown = own in tree.shown(tip_of(connection, chat))
        gaps = gaps_of(tree.forks, tip_of(connection, chat) if is_shown else tree.tip_with(own.number))
        turns: dict[str, list[int]] = defaultdict(list)
        for row in run(connection, _SPOKEN, sid=sid):
            turns[row.message].append(row.turn)
        answered = {it.key: list(turns[it.key]) for it in tree.shown(own.number) if it is not own}
        for row in run(connection, _MARKED, sid=sid):
            turns[orjson.loads(row.content).get("message", "")].append(row.turn)
        left_out = _of_turns(tree, gaps, turn, turns)
        changed |= _write(connection, sid, turn, left_out)
        lost = [] if context.origin else [key for key, numbers in answered.items() if _is_lost(numbers, left_out)]
        return (bool(lost) and _join(connection, turn, chat, lost)) or changed


def _of_turns(tree: BranchTree, between: Sequence[Gap], turn: int, turns: Mapping[str, Sequence[int]]) -> list[Gap]:
    """Convert gaps between messages into turn numbers: the first skipped turn, and the first one after it that is
    not skipped. A turn whose message is unknown follows the turn before it."""
    beside = {it.key for it in tree.own if is_in(it.number, between)}
    out: dict[int, bool] = {}
    for key in (it.key for it in tree.own):
        for number in turns.get(key, ()):
            out[number] = key in beside or out.get(number, False)
    gaps, first = list[Gap](), 0
    for number in sorted(it for it in out if it < turn):
        if out[number]:
            first = first or number
        elif first:
            gaps.append((first, number))
            first = 0
    return [*gaps, *([(first, turn)] if first else ())]


def _follow(connection: Connection, sid: str, turn: int, key: str) -> bool:
    """Make a turn without its own message follow this one. Return False if it does already."""
    if (row := run(connection, _BODY, turn=turn).first()) is None:
        return False
    inbound = inbound_json.validate_json(row.body)
    if is_new := inbound.context.message_id != key:
        inbound = replace(inbound, context=replace(inbound.context, message_id=key))
        run(connection, _SET_BODY, turn=turn, body=inbound_json.dump_json(inbound).decode())
    content = orjson.dumps({"message": key}).decode()
    run(connection, _MARK_UNDER, sid=sid, turn=turn, content=content, at=row.at)
    return is_new


def _write(connection: Connection, sid: str, turn: int, gaps: Sequence[Gap]) -> bool:
    """Write the gaps of a turn. Each turn inherits the gaps of the one before it, so only changes are written; an
    empty gap means that it has none."""
    known = [tuple(row) for row in run(connection, GAPS, sid=sid, turn=turn)]
    if known == (gaps := list(gaps) or [(0, 0)]) or (not known and gaps == [(0, 0)]):
        return False
    run(connection, "DELETE FROM gap WHERE sid = :sid AND turn = :turn", sid=sid, turn=turn)
    for first, last in gaps:
        new = "INSERT INTO gap (sid, turn, first, last) VALUES (:sid, :turn, :first, :last)"
        run(connection, new, sid=sid, turn=turn, first=first, last=last)
    return True


def _is_lost(turns: Sequence[int], gaps: Sequence[Gap]) -> bool:
    return bool(turns) and all(any(first <= it < last for first, last in gaps) for it in turns)


def _join(connection: Connection, turn: int, chat: str, keys: Sequence[str]) -> bool:
    """Add these messages to those that the turn answers. Return False if it has them already."""
    body = run(connection, _BODY, turn=turn).scalar()
    inbound: Inbound | None = inbound_json.validate_json(body) if body else None
    known = {it.message_id for it in inbound.contexts} if inbound else set(keys)
    rows = [row for row in run(connection, _WORDS, chat=chat, keys=list(keys)) if row.key not in known]
    if inbound is None or inbound.command or not rows:
        return False
    earlier = (_context(inbound.context, row.key, words_json.validate_json(row.words), row.at) for row in rows)
    inbound = replace(inbound, together=(*earlier, *inbound.contexts))
    run(connection, _SET_BODY, turn=turn, body=inbound_json.dump_json(inbound).decode())
    return True


def _context(like: MessageContext, key: str, words: MessageBody, at: float) -> MessageContext:
    files = tuple(attachment_of(file) for file in words.files)
    sent_at = datetime.fromtimestamp(at, UTC)
    return replace(like.wordless, message_id=key, text=words.text, attachments=files, sent_at=sent_at)
