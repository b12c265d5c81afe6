"""Compaction: older turns become a summary, and the conversation goes on behind it.

Whole turns only, so no call is cut from its result. What is summarised is quoted line by line and is data to the model
that reads it; the summary is data, too, and is made harmless. A summary must hold every exact identifier and be smaller
than what it replaces; otherwise a smaller cut is tried, and the history stays if none passes. Nothing is stored here:
the caller marks a summary in the journal, and until then nothing happened.

The identifiers are paths, URLs, e-mail addresses, hashes and numbers of four or more digits: words may be retold, and of
these one wrong character makes them useless. What is demanded is what a person wrote, and what an answer repeated of a
tool's result. What only a tool's result has can be looked up again.
"""

import re
import time
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile
from typing import Annotated, TypeAlias

import structlog
from pydantic import Field, StringConstraints

from agents.context import past, truncate_result
from agents.language import language_of
from agents.messages import (
    AssistantMessage,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    texts,
)
from agents.model import Model, Models
from agents.prompt.fences import SUMMARY, harmless
from agents.prompt.inbound import ID_LINE
from agents.prompt.texts import wording
from agents.providers.models import nearest
from agents.providers.payload import well_formed
from agents.providers.provider import Done, ModelRequest, System
from agents.providers.retry import RetryEvent
from agents.repair import repair
from agents.tokens import estimate, tokens
from channels.marks import RESULT
from channels.section import Section
from tools.memory import NOTE_CHARS_MAX
from tools.tool import Image, NativeDocument, ToolSpec

log = structlog.get_logger()


SUMMARY_TOKENS_MAX = 8_192
SUMMARY_SHARE = 0.15
"""The summary's share, at most, of what a request may take; half of it may be identifiers."""
INPUT_SHARE = 0.9
"""The share of its window that a model which only writes summaries may fill: estimates are estimates."""
REST_SHARE = 0.25
"""The share of a request below which turns are not worth another stage: they stay as they are."""
SHRUNK_SHARE = 0.9
"""The largest share that a summary may take of what it replaces."""
REQUESTS_MAX = 8
"""The requests of one compaction, second tries and stages included."""
NOTE_ROUNDS_MAX = 3
NOTE_SECONDS_MAX = 30.0
SECONDS_MAX = 120.0
DEADLINE_SHARE = 0.5
"""The share of the turn's remaining time that a compaction may take: the answer is still to come."""
GROWTH = 1.25
"""A history that could not be summarised is not tried again before it has grown so much."""
SESSIONS_MAX = 1_000

Save: TypeAlias = Callable[[str], Awaitable[None]]
SAVE_NOTE = ToolSpec(
    name="save_note",
    summary="Keep a note for the person.",
    description=f"Keep a fact for all later chats with this person. All of them together: {NOTE_CHARS_MAX:,} characters.",
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)


class CompactionConfig(Section):
    """Settings that shorten a conversation which grows too long for its model (docs/long-conversations.md)."""

    at: Annotated[float, Field(ge=0.1, le=1)] = 0.8
    """The part of the model's input, all in all, from which on older turns become a summary."""
    keep_turns: Annotated[int, Field(ge=0)] = 4
    """The number of newest turns that stay as they are; fewer if they would fill the window by themselves."""
    model: Annotated[str, StringConstraints(pattern=r"^[^/\s]+/\S+$")] | None = None
    """The `provider/model` that writes the summaries; the agent's own if unset."""
    save_notes: bool = False
    """True if the model may first write a note of what lasts, as the person could with `/remember`, unseen; in direct
    chats only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compacted:
    """`content` replaces the `turns` oldest turns, and the earlier summary. No turns: it was tried, and no summary
    could be used. `answers`: what it took, for the bill, without the words."""

    content: str = ""
    turns: int = 0
    answers: tuple[AssistantMessage, ...] = ()
    external: bool = False
    """External content was in those turns, or in the earlier summary."""


def opening(summary: str) -> list[Message]:
    """The message that a history begins with: the summary of what was before it, if there is one."""
    if not summary:
        return []
    return [
        UserMessage(content=(Text(text=f"## {SUMMARY}\n{wording('Earlier Conversation')}\n\n{harmless(summary)}"),))
    ]


@dataclass(kw_only=True)
class Compactor:
    """An agent's, for all its chats."""

    config: CompactionConfig
    models: Models
    _failed: dict[str, int] = field(default_factory=dict)
    """The tokens of the histories that could not be summarised, by conversation."""

    def may_try(self, conversation: str, history_tokens: int) -> bool:
        return history_tokens >= self._failed.get(conversation, 0) * GROWTH

    async def compact(
        self,
        history: Sequence[Sequence[Message]],
        *,
        own_models: Sequence[Model],
        input_tokens: int,
        conversation: str,
        summary: str,
        keep_tokens: float,
        deadline: float,
        summary_external: bool = False,
        focus: str = "",
        save: Save | None = None,
    ) -> Compacted | None:
        """Returns None if there is nothing to summarise. The newest turns stay, those that take no more than
        `keep_tokens`. `input_tokens`: what a request may take, by estimate, that asks the agent's own models. `save`
        keeps a note for the person; none is kept of external content, which would be beside each later message."""
        sizes = [sum(map(tokens, turn)) for turn in history]
        turns_kept = min(self.config.keep_turns, len(history))
        while turns_kept and sum(sizes[-turns_kept:]) > keep_tokens:
            turns_kept -= 1
        cut = len(history) - turns_kept
        if cut <= 0:
            return None
        models = own_models
        if self.config.model:
            models = [model := self.models.get(self.config.model)]
            input_tokens = self.models.calibration.room(model.name, int(model.facts.window * INPUT_SHARE))
        now = time.monotonic()
        writer = _Summariser(
            shared=self.models,
            models=models,
            conversation=conversation,
            input_tokens=input_tokens,
            focus=focus,
            deadline=min(now + SECONDS_MAX, now + (deadline - now) * DEADLINE_SHARE),
        )
        is_external = summary_external or any(it.is_external for it in past(history[:cut]))
        if save and self.config.save_notes and not is_external and (note := await writer.note(history[:cut], summary)):
            await save(note)
        content, turns = await writer.write(history[:cut], summary)
        before = sum(sizes[:turns]) + int(estimate(summary))
        after = sum(map(tokens, opening(content)))
        self._failed.pop(conversation, None)
        if turns and after <= before * SHRUNK_SHARE:
            log.info("history_summarised", turns=turns, kept=len(history) - turns, tokens=before, summary_tokens=after)
            external = summary_external or any(it.is_external for it in past(history[:turns]))
            return Compacted(content=content, turns=turns, answers=tuple(writer.bill), external=external)
        reason = f"{after} tokens instead of {before}" if turns else writer.failure
        log.warning("history_not_summarised", reason=reason, turns=cut, requests=writer.requests)
        if len(self._failed) >= SESSIONS_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[conversation] = sum(sizes)
        return Compacted(answers=tuple(writer.bill))


@dataclass(kw_only=True)
class _Summariser:
    shared: Models
    models: Sequence[Model]
    conversation: str
    input_tokens: int
    focus: str
    deadline: float
    bill: list[AssistantMessage] = field(default_factory=list)
    """The answers that took tokens, without the words."""
    requests: int = 0
    failure: str = ""
    """The reason why there was no summary at last."""
    _asks_on: bool = True
    """Another request may do better: the model answers, and there are requests left."""

    def __post_init__(self) -> None:
        share = int(self.input_tokens * SUMMARY_SHARE)
        self._summary_tokens = max(16, min(SUMMARY_TOKENS_MAX, self.models[0].facts.max_output, share))
        self._names_tokens = self._summary_tokens // 2
        self._source_tokens = self.input_tokens - self._summary_tokens - self._names_tokens

    async def write(self, turns: Sequence[Sequence[Message]], summary: str) -> tuple[str, int]:
        """A summary, and the number of oldest turns in it. Each stage takes as many turns as one request can hold
        beside the summary of those before. If a stage fails, half of it is tried, and is the last."""
        texts = [quoted(turn) for turn in turns]
        instructed = instructions("\n".join(texts), self.focus)
        content, done, failed = "", 0, False
        while done < len(turns) and self._asks_on and not failed:
            earlier = content or summary
            room = self._source_tokens - estimate(instructed) - estimate(earlier)
            if done and sum(map(estimate, texts[done:])) < room * REST_SHARE:
                break
            count, found = _fitting(texts[done:], room), None
            while count and self._asks_on and found is None:
                end = done + count
                names = demanded(turns[done:end], earlier, self._names_tokens)
                found = await self._audited(instructed, earlier, "\n".join(texts[done:end]), names, room)
                failed = failed or found is None
                count //= 2
            if found is not None:
                content, done = found, end
        return content, done

    async def note(self, turns: Sequence[Sequence[Message]], earlier: str) -> str:
        """The notes that a model finds worth keeping in them; nothing if it fails, and the summary is made all the same."""
        room = max(1_000, int(self._source_tokens - estimate(earlier) - estimate(wording("Notes"))))
        source = truncate_result("\n".join(map(quoted, turns)), room)
        messages: list[Message] = [UserMessage(content=(Text(text=request_text(earlier, source, (), (), closing="")),))]
        deadline, notes = min(self.deadline, time.monotonic() + NOTE_SECONDS_MAX), list[str]()
        for _ in range(NOTE_ROUNDS_MAX):
            answer = await self._complete(wording("Notes"), messages, deadline, tools=(SAVE_NOTE,))
            if answer.error is not None or answer.stop_reason != "tool_use" or not answer.calls:
                break
            messages.append(answer)
            for call in answer.calls:
                text = (call.arguments or {}).get("text") if call.name == SAVE_NOTE.name else None
                notes += [" ".join(well_formed(text).split())] if isinstance(text, str) and text.strip() else []
                result = (Text(text="Noted." if isinstance(text, str) else "There is no such tool or argument."),)
                messages.append(ToolResultMessage(call_id=call.id, tool=call.name, content=result, timestamp=0.0))
        return "\n".join(notes)[:NOTE_CHARS_MAX]

    async def _audited(
        self, instructed: str, earlier: str, source: str, names: Sequence[str], room: float
    ) -> str | None:
        """The summary of one source; None if the second try, which names what was left out, lacks something, too."""
        if estimate(source) > room:  # one turn alone
            source = truncate_result(source, max(1_000, int(room)))
        lacking: Sequence[str] = ()
        for _ in range(2):
            if not self._asks_on:
                return None
            text = request_text(earlier, source, names, lacking)
            answer = await self._complete(instructed, [UserMessage(content=(Text(text=text),))], self.deadline)
            self.requests += 1
            error, summary = answer.error, answer.text.strip()
            self._asks_on = self.requests < REQUESTS_MAX and (error is None or error.kind == "too_large")
            if error or answer.stop_reason not in ("end_turn", "stop_sequence") or not summary:
                self.failure = error.kind if error else answer.stop_reason
                return None
            if not (lacking := missing(names, summary)):
                return summary
            self.failure = f"{len(lacking)} of {len(names)} identifiers missing"
        return None

    async def _complete(
        self, instructed: str, messages: Sequence[Message], deadline: float, *, tools: tuple[ToolSpec, ...] = ()
    ) -> AssistantMessage:
        requests = {
            model.reference: ModelRequest(
                model=model.name,
                facts=model.facts,
                system=System(stable=instructed, volatile=""),
                messages=tuple(repair(messages, api=model.provider.api, family=model.family)),
                tools=tools,
                thinking=nearest("off", model.facts.thinking) if model.facts.thinking else None,
                max_tokens=min(self._summary_tokens, model.facts.max_output),
                conversation=self.conversation,
            )
            for model in self.models
        }

        def count(event: RetryEvent) -> None:
            if isinstance(event, Done):
                answer = self.shared.priced(event.message, requests[event.message.reference])
                if answer.usage.is_reported:
                    self.bill.append(replace(answer, content=()))

        return await self.shared.complete(self.models, requests, deadline=deadline, emit=count)


def _fitting(texts: Sequence[str], room: float) -> int:
    """The number of the first texts that take no more than `room` together; at least one."""
    sizes = accumulate(estimate(text) + 1 for text in texts)
    return max(1, sum(1 for _ in takewhile(lambda size: size <= room, sizes)))


HEADINGS = {
    "en": ("Decisions", "Open tasks", "Constraints", "Pending asks", "Exact identifiers"),
    "zh": ("决定", "未完成的任务", "约束", "待答复的请求", "准确标识"),
}
"""A summary's headings, in this order, by the language of the chat; one in any other language has the English ones."""
FOCUS_CHARS_MAX = 800
RESULT_CHARS = 2_000
"""The characters of a tool's result or a call's arguments in the source: what mattered is in the answer after it."""
SPARSE = 20
"""A chat with one Chinese character in this number is Chinese."""


def instructions(chat: str, focus: str = "") -> str:
    """The system prompt. `focus`: what the person who wishes for the summary wants to see kept."""
    wish = " ".join(focus.split())[:FOCUS_CHARS_MAX]
    kept = f"\nWhoever wished for the summary wants these kept most of all: {wish}" if wish else ""
    han = sum("\u4e00" <= char <= "\u9fff" for char in chat)
    language = language_of(chat) if han * SPARSE >= len(chat) else "en"
    return wording("Summary").format(*HEADINGS[language]) + kept


def request_text(
    earlier: str, source: str, names: Sequence[str], lacking: Sequence[str], *, closing: str = "Write the summary now."
) -> str:
    """The user message: what is to be summed up, and which identifiers the summary must hold."""
    quoted_earlier = "\n".join(f"| {line}" for line in earlier.splitlines())
    parts = [f"The summary of what was before:\n{quoted_earlier}"] if earlier else []
    parts.append(f"The chat:\n{source}")
    if names:
        parts.append("\n".join(("Each of these must stand in the summary exactly as it is here:", *names)))
    if lacking:
        parts.append("\n".join(("An earlier attempt was of no use, because these were missing:", *lacking)))
    return "\n\n".join((*parts, closing) if closing else parts)


def quoted(turn: Sequence[Message]) -> str:
    """A turn as the model that summarises it reads it: every line of it is marked, so none can leave the quotation."""
    return "\n".join(f"| {line}" for message in turn for line in _lines(message))


def _lines(message: Message) -> Iterator[str]:
    match message:
        case UserMessage():
            who = "user"
        case ToolResultMessage():
            who = f"{RESULT[1:]} {message.tool}"
        case AssistantMessage():
            who = "assistant"
    for part in message.content:
        match part:
            case Text(text=text):
                is_result = isinstance(message, ToolResultMessage)
                shown = truncate_result(text, RESULT_CHARS) if is_result else ID_LINE.sub("", text)
                marked = isinstance(message, UserMessage)  # made harmless before the gateway's words were put in
                yield from f"[{who}] {harmless(shown, marks=not marked)}".splitlines()
            case ToolCall():
                arguments = truncate_result(part.arguments_raw, RESULT_CHARS)
                yield from f"[{who} calls {part.name}] {harmless(arguments)}".splitlines()
            case Image():
                yield f"[{who}] (a picture)"
            case NativeDocument():
                yield f"[{who}] (a document)"
            case Thinking() | Opaque():
                pass


_PART = "A-Za-z0-9_.@+~%=\\-"
_EXTENSION = r"\.[A-Za-z0-9]{1,8}(?![A-Za-z0-9])"
_WIDE_NAME = rf"[^\x00-\x7f][^\s/\\:*?\"'`<>|()\[\]{{}},;、。“”‘’《》【】]{{0,64}}?{_EXTENSION}"
_KINDS = (
    re.compile(r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{1,15}://[!#-&*-;=?-Z_a-z~]+"),
    re.compile(r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"),
    # From a root on; if its last name is in other letters, up to the end of the extension.
    re.compile(rf"(?<![{_PART}/\\])(?:[A-Za-z]:\\|\\\\|~?/|\.{{1,2}}/)[{_PART}/\\]*(?:{_WIDE_NAME})?"),
    # Three names or an extension: no and/or, no km/h.
    re.compile(rf"(?<![{_PART}/\\])(?:[{_PART}]+/){{2,64}}[{_PART}]*"),
    re.compile(rf"(?<![{_PART}/\\])[{_PART}]+/[{_PART}]*{_EXTENSION}"),
    re.compile(r"(?<![A-Za-z0-9])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![A-Za-z0-9])"),
    re.compile(
        r"(?<![A-Za-z0-9])(?=[A-Fa-f]{0,127}[0-9])(?=[0-9]{0,127}[A-Fa-f])(?:[0-9a-f]{7,128}|[0-9A-F]{7,128})(?![A-Za-z0-9])"
    ),
    re.compile("[0-9]{4,}"),
)
"""The patterns, in order: what one finds is gone for those after it, so the number in a path does not count."""
_THOUSANDS = re.compile(r"(?<=[0-9])[,，'’](?=[0-9]{3}(?![0-9]))")
_SENTENCE_END = ".,;:!?"
_ENVELOPE = re.compile(rf"{ID_LINE.pattern}[^\n:]*: ")


def identifiers(text: str) -> list[str]:
    """The identifiers of a text, each once, by kind."""
    rest, found = _plain(text), []
    for kind in _KINDS:
        found += [name for match in kind.findall(rest) if len(name := match.rstrip(_SENTENCE_END).rstrip("/\\")) > 1]
        rest = kind.sub(" ", rest)
    return list(dict.fromkeys(found))


def demanded(turns: Sequence[Sequence[Message]], earlier: str, tokens_max: int) -> list[str]:
    """The identifiers that a summary must hold of these turns and of the earlier summary that it replaces; the
    newest if all would take more than `tokens_max`."""
    messages = [message for turn in turns for message in turn]
    results = _plain(
        "\n".join(it for message in messages if isinstance(message, ToolResultMessage) for it in texts(message))
    )
    names = dict.fromkeys(identifiers(earlier))
    for message in messages:
        if isinstance(message, UserMessage):
            of_message = [name for text in texts(message) for name in identifiers(_ENVELOPE.sub("", text))]
        elif isinstance(message, AssistantMessage) and results:
            of_message = [name for name in identifiers(message.text) if name in results]
        else:
            continue
        for name in of_message:
            names.pop(name, None)
            names[name] = None
    return list(_newest(list(names), tokens_max))[::-1]


def missing(names: Sequence[str], summary: str) -> list[str]:
    """The names that the summary does not hold as they are, each as its own word, or a number."""
    plain = _plain(summary)
    kinds = {name: "0-9" if name.isdigit() else "A-Za-z0-9" for name in names}
    return [
        name for name, kind in kinds.items() if not re.search(rf"(?<![{kind}]){re.escape(name)}(?![{kind}])", plain)
    ]


def _newest(names: Sequence[str], tokens_max: float) -> Iterator[str]:
    for name in reversed(names):
        tokens_max -= estimate(name) + 1
        if tokens_max < 0:
            return
        yield name


def _plain(text: str) -> str:
    """Full-width characters as the plain ones, and numbers without the marks between thousands."""
    return _THOUSANDS.sub("", text if text.isascii() else unicodedata.normalize("NFKC", text))
