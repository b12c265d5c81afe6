"""One message in the model's form: metadata blocks for the running turn, and the body that stays in the history.

The trusted block holds only what the gateway knows itself. Everything users can influence follows in blocks that say
so, or in the sanitised body. Nothing here reads the clock or fetches anything.

A block is a label and one line of JSON in a code fence that no value can escape: whatever could end a line or fence,
hide, or imitate the gateway is a \\uXXXX escape. Parsing the JSON restores it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TypeAlias, TypeVar

from agents.messages import Message, ToolResultMessage, UserMessage, texts
from agents.prompt.fences import INBOUND, SILENT, harmless, speaker, unseen, weak_points
from agents.prompt.texts import wording
from channels.marks import NOTE, OWN_TURN
from channels.message import MessageContext, Origin, OriginKind, Sender
from channels.moment import day, timestamp
from tools.memory import Note

SCHEMA = "clawgate.inbound_meta.v1"
ID_CHARS_MAX = 256
NAME_CHARS_MAX = 128
TITLE_CHARS_MAX = 256
QUOTE_CHARS_MAX = 2_000
ATTACHMENTS_MAX = 10
LINKS_MAX = 10
NOTES_SHOWN = 10
NOTE_CHARS_SHOWN = 500
NOTES_CHARS_MAX = 2_000
HEARD = "Chat history since your last reply"
"""The label of group messages that did not address the bot."""
CUT = "Earlier messages are missing (left out: {:,}): these are only the last {}."
"""The first entry of that block if messages were left out."""
HEARD_CHARS_MAX = 1_000
HISTORY_CHARS_MAX = 8_000
NOTES = "Notes that this person had you keep, on themselves and on how to answer them"
"""The label of the sender's newest notes, in direct chats; `memory_search` finds all of them."""

BEGUN: Mapping[OriginKind, str] = {
    "schedule": "The schedule {} is due. Beneath stands what was asked for when it was made; "
    f"if there is nothing to say, answer {SILENT} alone",
    "task": "This is the task {}, which another run hands to you. Nobody can be asked back: do it alone, and answer with "
    "its result, which is passed on as it is. Beneath stands what is to be done",
    "result": "The task {} has ended. Beneath stands its result",
    "process": "The background command {} has ended. Beneath stands what it wrote",
    "login": "The person is logged in to {} now. Go on with what waited for it: make the call again that needed the login, "
    "and answer what was asked",
    "handover": "A colleague has this chat (handover {}) and has written to the person. Beneath stands what was said",
    "hook": "The hook {} was called. Beneath stands what is to be done then",
}
"""The cause of a turn that no user's message began, by kind of origin."""
SAID: Mapping[OriginKind, str] = {
    kind: f"{cause.partition('.')[0]}, and the gateway has sent its text as it stands" for kind, cause in BEGUN.items()
}
"""The cause if no model was called."""

Value: TypeAlias = "str | bool | int | Sequence[Members]"
Members: TypeAlias = Mapping[str, "Value | None"]

_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NOT_OF_IDS = re.compile(r"[^A-Za-z0-9_.:@=+/~-]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """The group's messages since the bot's last reply, oldest first, and how many earlier ones are left out."""

    messages: Sequence[MessageContext] = ()
    left_out: int = 0


def metadata_blocks(
    *contexts: MessageContext, zone: tzinfo, notes: Sequence[Note] = (), heard: Heard | None = None
) -> str:
    """Return the trusted block, each message's untrusted blocks, what was `heard` in the chat before them, and the
    sender's notes, separated by blank lines. All messages are of one chat. Times are in `zone`."""
    untrusted = [block for context in contexts for block in _untrusted(context, zone)]
    more = [*([_heard(heard, zone)] if heard and heard.messages else []), *([_notes(notes, zone)] if notes else [])]
    return "\n\n".join((_trusted(contexts[-1]), *untrusted, *more))


def body(context: MessageContext, message_chars: int, note: str = "", spoken: str = "") -> str:
    """Return the id line, then `NAME: text`, then what is `spoken` in its files, already sanitised. The text is cut to
    `message_chars` with a note; the gateway's `note` about files follows."""
    id_ = _NOT_OF_IDS.sub("_", context.message_id)[:ID_CHARS_MAX]  # untrusted: keep what cannot leave the tag
    if context.origin:
        return f"[message_id: {id_}]\n{_begun(context, context.origin, message_chars)}"
    text, more = context.text[:message_chars], f"\n{spoken}" if spoken else ""
    mark = context.mark if context.mark and text.startswith(context.mark) else ""
    name = speaker(capped(_name(context.sender), NAME_CHARS_MAX)) or speaker(context.sender.id) or "unknown"
    words = mark + harmless(text[len(mark) :])
    kinds = ", ".join(it.kind for it in context.attachments[:ATTACHMENTS_MAX])  # so that later turns know
    silence = "" if spoken else f"(no text; attached: {kinds})" if kinds else "(no text)"
    text_shown = f"{name}: {words if text.strip() else silence}{more[: message_chars - len(text)]}"
    text_shown = harmless(text_shown, marks=False)
    if (cut := len(context.text) + len(more) - message_chars) > 0:
        text_shown += f"\n{cut_here(cut)}"
    if note:
        text_shown += f"\n{note}"
    return f"[message_id: {id_}]\n{text_shown}"


def own_note(origin: Origin, words: str) -> str:
    """Return the gateway's line about a turn that no user's message began."""
    cause = words.format(_NOT_OF_IDS.sub("_", origin.id)[:ID_CHARS_MAX])
    return f"{OWN_TURN}, and of no person. {cause}.)"


def _begun(context: MessageContext, origin: Origin, message_chars: int) -> str:
    text = context.text[:message_chars]
    shown = f"{own_note(origin, BEGUN[origin.kind])}\n{text if origin.external else harmless(text)}"
    cut = len(context.text) - message_chars
    return f"{shown}\n{cut_here(cut)}" if cut > 0 else shown


def cut_here(chars: int) -> str:
    """Return the note where a message longer than `limits.messageChars` was cut."""
    return f"{NOTE} cut this message here: {chars:,} more characters.)"


def written(body: str) -> str:
    """Return the user's text from a body in the history."""
    return body.partition("\n")[2].partition(": ")[2]


ID_LINE = re.compile(r"^\[message_id: ([^\]\n]*)\]\n", re.MULTILINE)
"""The gateway's line above a user's text; users cannot forge it."""


def ids(message: Message) -> Iterator[str]:
    """Yield the ids of the messages in a history message; users cannot forge such a line."""
    for text in texts(message) if isinstance(message, UserMessage) else ():
        yield from ID_LINE.findall(text.partition("\n")[0] + "\n")


def spoken(message: Message) -> str:
    """Return the text of a user or a model without id lines; empty for a tool result."""
    text = "" if isinstance(message, ToolResultMessage) else "\n\n".join(texts(message))
    return ID_LINE.sub("", text) if isinstance(message, UserMessage) else text


def _trusted(context: MessageContext) -> str:
    facts = {
        "schema": SCHEMA,
        "channel": context.channel,
        "provider": context.channel,
        "surface": context.channel,
        "chat_type": context.chat.kind,
        "account": context.account,
    }
    return json_block(f"## {INBOUND}\n{wording('Inbound Context')}", facts)


def _untrusted(context: MessageContext, zone: tzinfo) -> Iterator[str]:
    chat, sender, quote, origin = context.chat, context.sender, context.reply_to, context.origin
    info: dict[str, Value | None] = {
        "chat_id": capped(chat.id, ID_CHARS_MAX),
        "message_id": capped(context.message_id, ID_CHARS_MAX) if context.message_id or not origin else None,
        "sender_id": None if origin else capped(sender.id, ID_CHARS_MAX),
        "sender": None if origin else capped(_name(sender), NAME_CHARS_MAX),
        "timestamp": timestamp(context.sent_at, zone),
        "is_group_chat": chat.kind == "group",
        "was_mentioned": None if origin else context.mentioned,
        "thread_id": capped(chat.thread, ID_CHARS_MAX),
    }
    yield _labelled("Conversation info", info)
    if origin:
        yield _labelled("Begun by", _cause(context, origin, zone))
    else:
        yield _labelled("Sender", {"label": info["sender"], "id": info["sender_id"], "is_bot": sender.is_bot or None})
    if quote is not None:
        texts = {"sender": capped(quote.sender, NAME_CHARS_MAX), "text": capped(quote.text, QUOTE_CHARS_MAX)}
        yield _labelled("Replied message", {"message_id": capped(quote.message_id, ID_CHARS_MAX), **texts})
    if context.links:
        links: list[Members] = [
            {"kind": it.kind, "token": it.token, "part": it.part or None, "quoted": it.quoted or None}
            for it in context.links[:LINKS_MAX]
        ]
        yield _labelled("Links", {"links": links, "left_out": max(0, len(context.links) - LINKS_MAX) or None})
    if chat.title:
        yield _labelled("Group subject", {"subject": capped(chat.title, TITLE_CHARS_MAX)})
    if context.attachments:
        blocks: list[Members] = []
        for it in context.attachments[:ATTACHMENTS_MAX]:
            name = capped(it.name or None, TITLE_CHARS_MAX)
            blocks.append({"kind": it.kind, "key": capped(it.key, ID_CHARS_MAX), "name": name})
        left_out = len(context.attachments) - len(blocks)
        yield _labelled("Attachments", {"attachments": blocks, "left_out": left_out or None})


def _cause(context: MessageContext, origin: Origin, zone: tzinfo) -> Members:
    person = None if origin.by_operator else capped(context.sender.id, ID_CHARS_MAX)
    return {
        "kind": origin.kind,
        "id": capped(origin.id, ID_CHARS_MAX),
        "title": capped(origin.title or None, TITLE_CHARS_MAX),
        "due": timestamp(origin.due, zone) if origin.due else None,
        "late": origin.late or None,
        "on_behalf_of": "the operator" if origin.by_operator else capped(_name(context.sender), NAME_CHARS_MAX),
        "person_id": person,
    }


def _labelled(what: str, values: "Value | Members") -> str:
    return json_block(f"{what} (untrusted metadata):", values)


def _heard(heard: Heard, zone: tzinfo) -> str:
    lines: list[Members] = []
    room = HISTORY_CHARS_MAX
    for context in reversed(heard.messages):
        line = {
            "sender": capped(_name(context.sender), NAME_CHARS_MAX),
            "timestamp": timestamp(context.sent_at, zone),
            "text": capped(context.text, HEARD_CHARS_MAX),
        }
        if (room := room - len(_written(line)) - 2) < 0:
            break
        lines.insert(0, line)
    if left_out := heard.left_out + len(heard.messages) - len(lines):
        lines.insert(0, {"note": CUT.format(left_out, len(lines))})
    return _labelled(HEARD, lines)


def _notes(notes: Sequence[Note], zone: tzinfo) -> str:
    notes_shown: list[Members] = []
    room = NOTES_CHARS_MAX
    for note in reversed(notes[-NOTES_SHOWN:]):
        text = capped(note.text, NOTE_CHARS_SHOWN)
        if (room := room - len(text)) < 0:
            break
        notes_shown.insert(0, {"number": note.number, "date": day(note.at, zone), "text": text})
    return _labelled(NOTES, {"notes": notes_shown, "left_out": len(notes) - len(notes_shown) or None})


def _name(sender: Sender) -> str:
    return sender.name if sender.name and speaker(sender.name) else sender.id


def json_block(label: str, values: "Value | Members") -> str:
    """Return the label line and fenced JSON: members in the given order, without None. Keys are never untrusted."""
    return f"{label}\n```json\n{_written(values)}\n```"


T = TypeVar("T", str, str | None)


def capped(text: T, chars_max: int) -> T:
    """Return the text cut to `chars_max` characters, the last one an ellipsis."""
    return text if text is None or len(text) <= chars_max else text[: chars_max - 1] + "…"


def _written(value: "Value | Members") -> str:
    match value:
        case str():
            return f'"{_quoted(value)}"'
        case bool() | int():
            return str(value).lower()
        case Mapping():
            members = {key: member for key, member in value.items() if member is not None}
            return "{" + ", ".join(f'"{key}": {_written(member)}' for key, member in members.items()) + "}"
        case _:
            return "[" + ", ".join(map(_written, value)) + "]"


_PLAIN = re.compile(r"(?:[A-Za-z0-9 .,=+/~-]|_(?!_)|(?<=[0-9]):(?=[0-9]))*")
"""Fast path: no rule of `weak_points` matches these characters, and most ids, names and times have no others."""


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else _escaped(text)


def _escaped(text: str) -> str:
    escaped = set(weak_points(text))
    for start in range(len(text)):
        if text.startswith("```", start):
            escaped.update((start, start + 1, start + 2))
    return "".join(
        _SHORT.get(char) or (_escape(char) if at in escaped or unseen(char) else char) for at, char in enumerate(text)
    )


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
