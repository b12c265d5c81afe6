"""Compaction: replace older turns by a summary.

Whole turns only, so calls keep their results. The source is quoted line by line as data; the summary is untrusted too
and is sanitised. A summary must hold every exact identifier and be smaller than what it replaces. Otherwise a smaller
cut is tried, and if none passes the history stays. Nothing is stored here: the caller journals a summary.

Identifiers are paths, URLs, e-mail addresses, hashes and numbers of four or more digits: one wrong character makes
them useless. Required are those that a user wrote or that an answer repeated from a tool result. Those only in a tool
result can be looked up again.
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
"""The maximum share of a request for the summary; half of it may be identifiers."""
INPUT_SHARE = 0.9
"""The share of the window that a summary-only model may fill: a margin for estimates."""
REST_SHARE = 0.25
"""Remaining turns below this share of a request are not worth another stage."""
SHRUNK_SHARE = 0.9
"""A summary may take at most this share of what it replaces."""
REQUESTS_MAX = 8
"""The requests of one compaction, including retries and stages."""
NOTE_ROUNDS_MAX = 3
NOTE_SECONDS_MAX = 30.0
SECONDS_MAX = 120.0
DEADLINE_SHARE = 0.5
"""A compaction's share of the turn's remaining time, since the answer is still to come."""
GROWTH = 1.25
"""The growth of a history after which a failed compaction is retried."""
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
    """Shortens a conversation that grows too long for its model (docs/long-conversations.md)."""

    at: Annotated[float, Field(ge=0.1, le=1)] = 0.8
    """The fill level of the model's input at which older turns are summarised."""
    keep_turns: Annotated[int, Field(ge=0)] = 4
    """The number of newest turns that are kept; fewer if they alone would fill the window."""
    model: Annotated[str, StringConstraints(pattern=r"^[^/\s]+/\S+$")] | None = None
    """The `provider/model` that writes summaries; the agent's model if unset."""
    save_notes: bool = False
    """Let the model first save a note of lasting facts without notifying the user, like `/remember`. In direct chats
    only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compacted:
    """`content` replaces the `turns` oldest turns and the earlier summary. `turns=0`: no usable summary was produced.
    `answers`: the answers it took, without text, for billing."""

    content: str = ""
    turns: int = 0
    answers: tuple[AssistantMessage, ...] = ()
    external: bool = False
    """External content was in those turns or the earlier summary."""


def opening(summary: str) -> list[Message]:
    """Return the messages that introduce an earlier summary; empty if there is none."""
    if not summary:
        return []
    return [
        UserMessage(content=(Text(text=f"## {SUMMARY}\n{wording('Earlier Conversation')}\n\n{harmless(summary)}"),))
    ]


@dataclass(kw_only=True)
class Compactor:
    """Compacts the chats of one agent."""

    config: CompactionConfig
    models: Models
    _failed: dict[str, int] = field(default_factory=dict)
    """Tokens of histories that could not be summarised, by conversation."""

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
        """Summarise the older turns; return None if there are none. The newest turns that fit into `keep_tokens` are
        kept. `input_tokens`: the estimated request limit of the agent's models. `save` stores a note for the user;
        never one of external content, since it would precede every later message."""
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
    """Answers that took tokens, without their text."""
    requests: int = 0
    failure: str = ""
    """The reason for a missing summary."""
    _asks_on: bool = True
    """Another request may succeed: the model responds and requests are left."""

    def __post_init__(self) -> None:
        share = int(self.input_tokens * SUMMARY_SHARE)
        self._summary_tokens = max(16, min(SUMMARY_TOKENS_MAX, self.models[0].facts.max_output, share))
        self._names_tokens = self._summary_tokens // 2
        self._source_tokens = self.input_tokens - self._summary_tokens - self._names_tokens

    async def write(self, turns: Sequence[Sequence[Message]], summary: str) -> tuple[str, int]:
        """Return a summary and the number of oldest turns in it. Each stage takes as many turns as fit into one
        request with the previous summary. If a stage fails, halves of it are tried, and it is the last one."""
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
        """Return notes of lasting facts; empty on failure, which does not stop the summary."""
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
        """Return a summary of one source; None if the retry, which lists the missing identifiers, fails too."""
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
    """Return how many leading texts fit into `room`; at least one."""
    sizes = accumulate(estimate(text) + 1 for text in texts)
    return max(1, sum(1 for _ in takewhile(lambda size: size <= room, sizes)))


HEADINGS = {
    "en": ("Decisions", "Open tasks", "Constraints", "Pending asks", "Exact identifiers"),
    "zh": ("决定", "未完成的任务", "约束", "待答复的请求", "准确标识"),
}
"""A summary's headings, in order, by the chat's language; English for other languages."""
FOCUS_CHARS_MAX = 800
RESULT_CHARS = 2_000
"""The characters of a tool result or of a call's arguments in the source: the answer after it has what mattered."""
SPARSE = 20
"""A chat counts as Chinese from one Chinese character in this number."""


def instructions(chat: str, focus: str = "") -> str:
    """Return the system prompt. `focus`: what the requesting user wants to keep."""
    wish = " ".join(focus.split())[:FOCUS_CHARS_MAX]
    kept = f"\nWhoever wished for the summary wants these kept most of all: {wish}" if wish else ""
    han = sum("\u4e00" <= char <= "\u9fff" for char in chat)
    language = language_of(chat) if han * SPARSE >= len(chat) else "en"
    return wording("Summary").format(*HEADINGS[language]) + kept


def request_text(
    earlier: str, source: str, names: Sequence[str], lacking: Sequence[str], *, closing: str = "Write the summary now."
) -> str:
    """Return the user message: the source, and the identifiers that the summary must hold."""
    quoted_earlier = "\n".join(f"| {line}" for line in earlier.splitlines())
    parts = [f"The summary of what was before:\n{quoted_earlier}"] if earlier else []
    parts.append(f"The chat:\n{source}")
    if names:
        parts.append("\n".join(("Each of these must stand in the summary exactly as it is here:", *names)))
    if lacking:
        parts.append("\n".join(("An earlier attempt was of no use, because these were missing:", *lacking)))
    return "\n\n".join((*parts, closing) if closing else parts)


def quoted(turn: Sequence[Message]) -> str:
    """Quote a turn for the summariser; every line is marked, so none can escape the quotation."""
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
                marked = isinstance(message, UserMessage)  # sanitised before the gateway added its text
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
"""Patterns in order. Each match is removed before the next pattern, so a number in a path does not count."""
_THOUSANDS = re.compile(r"(?<=[0-9])[,，'’](?=[0-9]{3}(?![0-9]))")
_SENTENCE_END = ".,;:!?"
_ENVELOPE = re.compile(rf"{ID_LINE.pattern}[^\n:]*: ")


def identifiers(text: str) -> list[str]:
    """Return the identifiers of a text, deduplicated, by kind."""
    rest, found = _plain(text), []
    for kind in _KINDS:
        found += [name for match in kind.findall(rest) if len(name := match.rstrip(_SENTENCE_END).rstrip("/\\")) > 1]
        rest = kind.sub(" ", rest)
    return list(dict.fromkeys(found))


def demanded(turns: Sequence[Sequence[Message]], earlier: str, tokens_max: int) -> list[str]:
    """Return the identifiers that a summary of these turns and the earlier summary must hold; the newest ones if all
    would exceed `tokens_max`."""
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
    """Return the names that the summary lacks as exact, whole words or numbers."""
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
    return _THOUSANDS.sub("", text if text.isascii() else unicodedata.normalize("NFKC", text))
