"""Repair a history before it is sent: every call has one result, in place, and nothing remains that APIs refuse.

Pure; runs before every request and never touches what is stored. A healthy history is returned as the same object.
Rules of a single API (ids, names, roles) are applied at that API's adapter. The order of the steps matters: each may
rely on the earlier ones.
"""

import base64
import binascii
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from agents.messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
    Wire,
    same,
    with_parts,
)
from agents.providers.payload import well_formed, well_formed_json
from agents.providers.provider import SentTurn, grown
from tools.picture import IMAGE_CHARS_MAX, image_type
from tools.tool import Image, NativeDocument, ToolError

IMAGES_MAX = 20
IMAGE_CHARS_TOTAL_MAX = 20_000_000
"""The base64 characters of one request: well below the 32 MB body limit."""
_LASTING = frozenset({("openai-responses", "phase"), ("google-gemini", "thought_signature")})
"""Payloads that do not depend on earlier messages, by API and kind. Gemini wants its signatures back as long as the
history holds them, and OpenAI the phase of each text."""


def repair(
    messages: Sequence[Message],
    *,
    api: str,
    family: str,
    images_max: int = IMAGES_MAX,
    documents: bool = False,
    taken: Collection[str] = (),
) -> Sequence[Message]:
    """Return the history for `api` and the model `family`; `messages` itself if nothing needs repair. An empty
    `family` drops all provider payloads, `images_max=0` all pictures; without `documents`, a line replaces each
    document. `taken`: ids of earlier calls."""
    repaired = [it for message in messages if (it := _readable(message)).content or not _failed(it)]
    repaired = _without_refusals(repaired)
    repaired = paired(repaired, taken)
    repaired = _own_wires(repaired, api, family)
    repaired = [it for it in repaired if it.content or not isinstance(it, AssistantMessage)]
    repaired = _with_fitting_pictures(repaired, images_max, documents=documents)
    while repaired and _unfinished(repaired[-1]):  # a paused turn may end with its own payload
        repaired.pop()
    repaired = _joined(repaired)
    return messages if same(repaired, messages) else tuple(repaired)


_REFUSALS = ("refusal", "content_filter")
NEXT = UserMessage(content=(Text(text="…"),))


def reusable_prefix(turns: Sequence[SentTurn], *, api: str, family: str) -> tuple[tuple[SentTurn, ...], frozenset[str]]:
    """Return the leading turns that can be repaired independently, so that each is repaired once, and the ids of their
    calls."""
    none: _Prefix = ((), frozenset(), True)
    found, taken, _ = grown(turns, (api, family), none, lambda before, new: _extend_prefix(before, new, api, family))
    return found, taken


_Prefix: TypeAlias = tuple[tuple[SentTurn, ...], frozenset[str], bool]
"""The last item says whether the next turn may still be added."""


def _extend_prefix(before: _Prefix, turns: Sequence[SentTurn], api: str, family: str) -> _Prefix:
    found, taken, is_open = list(before[0]), set(before[1]), before[2]
    for turn in turns:
        alone, ids = _alone(turn, api, family)
        is_open = is_open and alone is not None and taken.isdisjoint(ids)
        if not is_open or alone is None:
            break
        found.append(alone)
        taken.update(ids)
    return tuple(found), frozenset(taken), is_open


def _alone(turn: Sequence[Message], api: str, family: str) -> tuple[SentTurn | None, tuple[str, ...]]:
    """Return the repaired turn; None if the next message would be joined to it or its call ids would change."""
    *repaired, _ = repair((*turn, NEXT), api=api, family=family)
    ids, own = call_ids(repaired), call_ids(turn)
    ends = bool(repaired) and isinstance(repaired[-1], AssistantMessage) and bool(repaired[-1].text.strip())
    return (SentTurn(repaired) if ends and ids == own else None), ids


def _readable(message: Message) -> Message:
    """Remove lone surrogates, NUL and blank texts; a user's message never becomes empty. A failed or aborted answer
    keeps only its text, since its calls were never run."""
    parts = [_readable_part(it) for it in message.content if not (isinstance(it, Text) and not it.text.strip())]
    if not isinstance(message, UserMessage):
        return with_parts(message, [it for it in parts if isinstance(it, Text)] if _failed(message) else parts)
    if not parts and not message.metadata.strip():
        parts = [Text(text="(empty message)")]
    message, metadata = with_parts(message, parts), well_formed(message.metadata)
    return message if metadata is message.metadata else replace(message, metadata=metadata)


def _readable_part(part: UserPart | AssistantPart) -> UserPart | AssistantPart:
    match part:
        case Text():
            text = well_formed(part.text)
            return part if text is part.text else replace(part, text=text)
        case ToolCall():
            raw, arguments = well_formed(part.arguments_raw), well_formed_json(part.arguments)
            unchanged = raw is part.arguments_raw and arguments is part.arguments
            return part if unchanged else replace(part, arguments=arguments, arguments_raw=raw)
        case Image() | NativeDocument() | Thinking() | Opaque():
            return part  # opaque to us: the provider may verify every byte


def _failed(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and message.stop_reason in ("error", "aborted")


def _without_refusals(messages: list[Message]) -> list[Message]:
    """Drop each refused turn with its question, or later requests are refused too. The running turn keeps its question."""
    messages_kept: list[Message] = []
    begin, refused = 0, False
    for before, message in zip([None, *messages], messages, strict=False):
        if isinstance(message, UserMessage) and not isinstance(before, UserMessage):
            if refused:
                del messages_kept[begin:]
            begin, refused = len(messages_kept), False
        refused = refused or (isinstance(message, AssistantMessage) and message.stop_reason in _REFUSALS)
        if not refused:
            messages_kept.append(message)
    return messages_kept


def _own_wires(messages: list[Message], api: str, family: str) -> list[Message]:
    """Keep a provider's payload only for its own API and family, and mostly for the running turn.

    The inbound metadata is dropped after the turn, so thinking that depends on it would be refused later. Payloads
    that do not depend on earlier messages stay.
    """
    running = max((n for n, message in enumerate(messages) if isinstance(message, UserMessage)), default=0)
    messages_kept: list[Message] = []
    for number, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            new = (_own_part(part, (api, family), running=number > running) for part in message.content)
            parts = [part for part in new if part is not None]
            while parts and isinstance(parts[-1], Thinking):
                parts.pop()  # thinking alone is no content and may not end a message
            message = with_parts(message, parts)
        messages_kept.append(message)
    return messages_kept


def _own_part(part: AssistantPart, own: tuple[str, str], *, running: bool) -> AssistantPart | None:
    wire = part.wire
    if wire is not None and own == (wire.api, wire.family) and (running or (wire.api, wire.kind) in _LASTING):
        return part
    if isinstance(part, Thinking | Opaque):
        return None
    return part if part.wire is None else replace(part, wire=None)


def _joined(messages: list[Message]) -> list[Message]:
    """Merge adjacent messages of one role, unless metadata or a payload must keep its place."""
    joined: list[Message] = []
    for message in messages:
        before = joined[-1] if joined else None
        if isinstance(message, UserMessage) and isinstance(before, UserMessage) and not message.metadata:
            joined[-1] = replace(before, content=before.content + message.content)
        elif (
            isinstance(message, AssistantMessage)
            and isinstance(before, AssistantMessage)
            and not (before.calls or _wires(before) or _wires(message))
        ):
            joined[-1] = replace(message, content=before.content + message.content)
        else:
            joined.append(message)
    return joined


def _wires(message: AssistantMessage) -> list[Wire]:
    return [part.wire for part in message.content if part.wire is not None]


def _unfinished(message: Message) -> bool:
    if isinstance(message, AssistantMessage) and message.stop_reason == "pause":
        return not any(isinstance(part, Opaque) for part in message.content)
    return _failed(message)


def _with_fitting_pictures(messages: list[Message], images_max: int, *, documents: bool) -> list[Message]:
    """Keep the newest pictures and documents that fit; a line of text replaces the others and invalid pictures."""
    count, chars = 0, 0
    kept: list[Message] = []
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            kept.append(message)
            continue
        parts: list[UserPart] = []
        for part in reversed(message.content):
            if isinstance(part, Image):
                media_type = _media_type(part.data)
                fits = count < images_max and chars + len(part.data) <= IMAGE_CHARS_TOTAL_MAX
                if media_type is None or len(part.data) > IMAGE_CHARS_MAX or not fits:
                    parts.append(Text(text=f"[image: {well_formed(part.name or 'not shown')}]"))
                    continue
                count, chars = count + 1, chars + len(part.data)
                part = part if part.media_type == media_type else replace(part, media_type=media_type)
            elif isinstance(part, NativeDocument):
                if fits := documents and chars + len(part.data) <= IMAGE_CHARS_TOTAL_MAX:
                    chars += len(part.data)
                part = part if fits else Text(text=well_formed(part.text))
            parts.append(part)
        parts.reverse()
        kept.append(with_parts(message, parts))
    kept.reverse()
    return kept


def _media_type(data: str) -> str | None:
    """Return the media type from the bytes; None if they are no base64 of a supported picture."""
    try:
        head = base64.b64decode(data[:24], validate=True)
    except (binascii.Error, ValueError):
        return None
    return image_type(head) if len(data) % 4 == 0 else None


def paired(messages: list[Message], earlier: Collection[str]) -> list[Message]:
    """Put the results after their answer, one per call, in call order, with unique ids."""
    start = next((n for n, message in enumerate(messages) if isinstance(message, UserMessage)), len(messages))
    messages = messages[start:]
    answers = _answers(messages)
    used = set(earlier)
    taken = used.union(call_ids(messages))
    ordered: list[Message] = []
    for number, message in enumerate(messages):
        if isinstance(message, ToolResultMessage):
            continue
        if not isinstance(message, AssistantMessage) or not message.calls:
            ordered.append(message)
            continue
        parts: list[AssistantPart] = []
        results: list[ToolResultMessage] = []
        missing = False
        for place, part in enumerate(message.content):
            if isinstance(part, ToolCall):
                result = answers.get((number, place))
                if result is None:
                    text = (Text(text=substitute(begun=not missing).body),)
                    result = ToolResultMessage(
                        call_id=part.id, tool=part.name, content=text, is_error=True, timestamp=message.timestamp
                    )
                    missing = True
                call_id = _unused(part.id, used, taken)
                used.add(call_id)
                part = part if part.id == call_id else replace(part, id=call_id)
                results.append(result if result.call_id == call_id else replace(result, call_id=call_id))
            parts.append(part)
        ordered.append(with_parts(message, parts))
        ordered.extend(results)
    return ordered


def _answers(messages: list[Message]) -> dict[tuple[int, int], ToolResultMessage]:
    """Return each call's result by the call's (message, part). A result matches the latest message that waits for its
    id, and there the first such call. Results without a waiting call are dropped."""
    waiting: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    answers: dict[tuple[int, int], ToolResultMessage] = {}
    for number, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            for place, part in enumerate(message.content):
                if isinstance(part, ToolCall):
                    waiting[part.id].append((number, place))
        elif isinstance(message, ToolResultMessage) and (calls := waiting[message.call_id]):
            latest = next(call for call in calls if call[0] == calls[-1][0])
            calls.remove(latest)
            answers[latest] = message
    return answers


def _unused(call_id: str, used: set[str], taken: set[str]) -> str:
    if call_id not in used:
        return call_id
    number = 2
    while (name := f"{call_id}_{number}") in used or name in taken:
        number += 1
    return name


def substitute(*, begun: bool) -> ToolError:
    """Return the error for a call that a stop, a deadline or a restart prevented.

    A call that had `begun` may have run; calls run in order, so later ones did not.
    """
    if begun:
        message = "the call was interrupted, so it may have run; check before repeating it"
        return ToolError("INTERRUPTED", message)
    return ToolError("INTERRUPTED", "the turn ended before this call, so it was not run", retryable=True)


def call_ids(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(call.id for it in messages if isinstance(it, AssistantMessage) for call in it.calls)
