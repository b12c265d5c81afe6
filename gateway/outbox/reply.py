"""Arrange a turn's texts and files into messages that the channel supports, and those into outbox parts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from agents import sentences
from agents.language import language_for
from channels.access import Quotes
from channels.channel import Channel
from channels.message import PICTURES, File, MessageContext, Outbound, StoredFile, Target, TurnFacts
from gateway.outbox.outbox import OutboxPayload, Speech, idempotency_key, payload_json
from gateway.state.ending import Ending, Reply
from gateway.state.runtime import Runtime
from gateway.store.inbound import NOTICES, Inbound
from gateway.store.records import NewPart


async def reply(
    runtime: Runtime, inbound: Inbound, ending: Ending, *, turn: int, aside: bool, seconds: float, replaces: str | None
) -> list[NewPart]:
    """Build the reply parts of `turn`, which took `seconds`. `aside`: a command's answer or a note; `replaces`: the
    handle of the draft."""
    context, said = inbound.context, ending.reply
    channel = runtime.channel(context)
    marks = channel is not None and channel.capabilities.marks_dropped
    said = replace(said, dropped=marks and said.dropped)
    texts, whole = ([""], ()) if said.dropped else await _texts(runtime, channel, inbound, said)
    purpose = "aside" if aside else "dropped" if said.dropped else "reply"
    facts = ending.facts(seconds) if marks and purpose == "reply" else None
    if context.origin:
        purpose = f"{purpose} {context.origin.key} {inbound.approval}"
    elif inbound.command in NOTICES or inbound.approval:
        purpose = f"{inbound.command or 'approval'} {inbound.arguments or inbound.approval or turn}"
    elif not context.message_id:  # a menu choice has no message id to tell two apart
        purpose = f"{purpose} {turn}"
    if inbound.replays:
        purpose = f"{purpose} {inbound.replays}"
    if said.folded and channel:
        folded = replace(said.folded, text=runtime.scrubber.scrub(said.folded.text))
        last = texts[-1] if texts else ""
        fits = len(channel.split(f"{last}\n\n{folded.title}\n{folded.text}")) == 1
        texts = texts if fits else [*texts, *channel.split(folded.text)]
        said = replace(said, folded=folded if fits else None)
    messages = arranged(texts, (*whole, *said.files), channel, captions=replaces is None)
    quotes = channel.capabilities.quotes_in(context) if channel else "all"
    parts = reply_parts(context, messages, said, purpose=purpose, quotes=quotes, facts=facts, replaces=replaces)
    return [*parts, _speech_part(inbound, said.spoken)] if said.spoken and parts else parts


def _speech_part(inbound: Inbound, text: str) -> NewPart:
    """Build the voice message after the text; in a topic it replies to the question."""
    context = inbound.context
    answered = context.message_id if context.chat.thread else None
    target = Target(chat=context.chat.id, thread=context.chat.thread, reply_to=answered or None)
    speech = Speech(agent=inbound.agent, text=text)
    payload = OutboxPayload(
        channel=context.channel, account=context.account, part=Outbound(target=target, text=""), speech=speech
    )
    key = idempotency_key(
        "speech", context.channel, context.account, context.chat.id, context.message_id, str(inbound.replays or "")
    )
    return NewPart(key=key, payload=payload_json.dump_json(payload).decode())


async def _texts(
    runtime: Runtime, channel: Channel | None, inbound: Inbound, said: Reply
) -> tuple[list[str], tuple[StoredFile, ...]]:
    """Return the text's parts. If there are too many: the first one, with the whole text as a file if the channel
    takes files. Notices are never cut."""
    if said.shown is None or channel is None:
        return [], ()
    language, parts_max = language_for(inbound.context), runtime.setup.limits.reply_parts
    text = runtime.scrubber.scrub(said.shown)
    texts = channel.split(text)
    if inbound.command in NOTICES or len(texts) <= parts_max:
        return texts, ()
    if "media" not in channel.capabilities.directives:
        return [*texts[: parts_max - 1], sentences.cut_short(language)], ()
    note = f"{sentences.goes_on(language)}\n\n"
    first = channel.split(note + text)[0].removeprefix(note).rstrip()  # so that the note after it fits
    file = File(name="answer.md", type="text/markdown", data=text.encode(errors="replace"))
    stored = await runtime.store.files.put(file, runtime.now())
    return [f"{first}\n\n{note.strip()}"], (stored,)


def reply_parts(
    context: MessageContext,
    messages: Sequence[tuple[str, tuple[StoredFile, ...]]],
    said: Reply,
    *,
    purpose: str = "reply",
    quotes: Quotes = "all",
    facts: TurnFacts | None = None,
    replaces: str | None = None,
) -> list[NewPart]:
    """Build the parts of a reply to `context`, each a text with files. The last one has the buttons and the folded
    text; the first one `replaces`. `purpose` separates the keys of a note from those of a reply; `quotes` says which
    parts quote the message. The answer to a press quotes the message with the button."""
    replaces = replaces or said.replaces
    answered = said.answers_to or (context.press.message_id if context.press else context.message_id or None)
    if quotes == "off" and not said.answers_to and context.press is None:
        answered = None
    target = Target(chat=context.chat.id, thread=context.chat.thread, reply_to=answered)
    if replaces is not None and (not messages or messages[0][1] or said.answers_to):
        messages = [("", ()), *messages]  # delete the draft
    names, parts = (context.channel, context.account, context.chat.id, context.message_id), []
    for number, (text, files) in enumerate(messages):
        if number and quotes == "first":
            target = replace(target, reply_to=None)
        part = Outbound(
            target=target,
            text=text,
            files=files,
            voice=said.voice and bool(files),
            dropped=said.dropped,
            turn=facts,
            replaces=None if number else replaces,
            buttons=said.buttons if number == len(messages) - 1 else (),
            folded=said.folded if number == len(messages) - 1 else None,
            form=said.form if number == len(messages) - 1 else None,
        )
        payload = OutboxPayload(channel=context.channel, account=context.account, part=part, seed=said.seed)
        key = idempotency_key(purpose, *names, str(number))
        parts.append(NewPart(key=key, payload=payload_json.dump_json(payload).decode()))
    return parts


def arranged(
    texts: Sequence[str], files: tuple[StoredFile, ...], channel: Channel | None, *, captions: bool = True
) -> list[tuple[str, tuple[StoredFile, ...]]]:
    """Arrange texts and files into messages. Without `captions`, text and files never share one."""
    rules = channel.capabilities.file_messages if channel else None
    if not files or rules is None:
        texts = texts or [""] * bool(files)
        return [(text, files if number == len(texts) - 1 else ()) for number, text in enumerate(texts)]
    words = [text for text in texts if text.strip()]
    caption = words.pop() if captions and words and len(words[-1]) <= rules.caption_chars else ""
    first, *others = _albums(files, rules.album)
    return [*((text, ()) for text in words), (caption, first), *(("", group) for group in others)]


def _albums(files: Sequence[StoredFile], most: int) -> Iterator[tuple[StoredFile, ...]]:
    for pictures, group in groupby(files, key=lambda file: file.type in PICTURES):
        row = list(group)
        step = most if pictures else 1
        yield from (tuple(row[at : at + step]) for at in range(0, len(row), step))
