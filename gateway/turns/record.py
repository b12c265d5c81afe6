"""The record of a turn, in one shape: it is recorded, stored, and returned by `GET /api/turns/ID`, `turns show`, `/why`
and `rehearse`.

`gateway.turns.layers` records what the journal does not have. `turn_record` adds the rest from the journal, the inbox
and the outbox, so recalled or erased content is missing here as well. `missing` says why something is absent.

Names are camelCase in JSON. A time is ISO with its zone; an offset is in seconds since the message was accepted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Any, Literal, TypeAlias

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from agents.messages import (
    AssistantMessage,
    Message,
    Text,
    Thinking,
    ToolResultMessage,
    UserMessage,
    message_json,
)
from channels.message import MessageContext
from channels.moment import iso
from gateway.observe.secrets import redacted
from gateway.store.inbound import Inbound, inbound_of, is_readable
from gateway.store.layers import ListedTurn, StoredTurn
from gateway.store.sessions import person_of, session_parts
from gateway.store.statements import OutboxStatus
from tools.tool import Image

STEPS: Sequence[str] = ("user", "steered", "assistant", "toolResult")
PREVIEW_CHARS = 200
WORDS_CHARS_MAX = 500
Missing: TypeAlias = Literal["running", "not-kept", "resumed", "recalled", "pruned"]
"""The reason that a turn lacks layers. `running`: they are stored when it ends. `not-kept`: `console.keepDays` was 0, or the
record has expired. `resumed`: a process ended during the turn and its part of the record is lost; the journal rows
remain. `recalled`: the message was recalled. `pruned`: the inbox no longer has the message."""
context_json: TypeAdapter[MessageContext] = TypeAdapter(MessageContext)


class Shape(BaseModel, alias_generator=to_camel, populate_by_name=True):
    """The base of all objects in the JSON."""


class TurnTokens(Shape):
    """`input` excludes both caches; `output` includes reasoning."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0


class TurnSummary(Shape):
    """A turn in the list. `outcome` is `waiting`, `running`, or how it ended: `replied`, `silent`, `failed`,
    `declined`, `stopped`, `recalled`, `over-budget`, `stale`; `reason` adds detail. `text` is the start of the
    message, empty once recalled or pruned."""

    id: int = 0
    session: str = ""
    """The conversation's key: `agent:coder:feishu:default:oc_1`."""
    agent: str = ""
    channel: str = ""
    account: str = ""
    chat: str = ""
    thread: str | None = None
    person: str = ""
    """The sender as `channel:id`."""
    name: str = ""
    """The sender's display name on the platform."""
    title: str = ""
    """The chat's title: that of a group, or of a web chat conversation."""
    text: str = ""
    outcome: str = ""
    reason: str = ""
    at: str = ""
    """The time when the message was accepted."""
    seconds: float | None = None
    """Seconds from acceptance to the end of the turn, without the send. Null until then."""
    model: str = ""
    """The `provider/model` of the last answer."""
    models: list[str] = []
    """All models that answered."""
    requests: int = 0
    calls: int = 0
    tokens: TurnTokens = TurnTokens()
    cost: float | None = None


class TurnList(Shape):
    """`GET /api/turns`: newest first, at most 50. Waiting and running turns are at the top of the first page.
    `before` is the parameter of the next page, null on the last one. With a text search, `searched` is the number of
    turns read: a page ends after 5,000."""

    turns: list[TurnSummary]
    before: int | None
    searched: int = 0
    keep_days: float
    currency: str
    """The currency of the costs, such as `USD`."""


class SectionLayer(Shape):
    """A section of the system prompt. `stable`: it is before the cache boundary. Sections of a single chat have no
    `hash`."""

    heading: str
    """Empty for the first section, which describes the assistant."""
    chars: int
    stable: bool
    hash: str = ""
    text: str | None = None

    @classmethod
    def of(cls, text: str, *, stable: bool = False, hash_: str = "") -> "SectionLayer":
        return cls(heading=heading_of(text), chars=len(text), stable=stable, hash=hash_, text=text)


class StepLayer(Shape):
    """A row of the turn's transcript, as the model reads it. Requests refer to it by `row`, its number in the
    conversation."""

    row: int
    role: Literal["user", "steered", "assistant", "toolResult"]
    chars: int
    text: str
    metadata: str = ""
    """The metadata blocks before a user message, while the turn runs."""
    images: int = 0


class HeldTurns(Shape):
    """The range of earlier turns in a request: `GET /api/turns/ID` returns each."""

    turns: int = 0
    first: int | None = None
    last: int | None = None
    summary: bool = False
    """True if a summary replaces the turns before them."""


class ResponseLayer(Shape):
    """The text, the thinking and the calls are from the journal. The rest is recorded, even if the journal has no
    answer."""

    text: str = ""
    thinking: str = ""
    calls: list[str] = []
    """The ids of the tool calls in the answer."""
    stop_reason: str = ""
    tokens: TurnTokens = TurnTokens()
    estimated: bool = False
    cost: float | None = None
    id: str | None = None
    error: str = ""
    """The kind of the error, such as `rate_limited`."""
    words: str = ""
    """The vendor's error text, truncated."""
    timestamp: float = 0.0
    """The timestamp of the answer, which identifies it in the journal."""


class FailedAttempt(Shape):
    """A failed attempt that was followed by another one. `at` is an offset."""

    at: float
    error: str
    words: str = ""


class RequestLayer(Shape):
    """A request to a model. Offsets are null for a request of an earlier process. `messages` counts the messages of
    this turn in the request; `rows` lists them."""

    round: int
    state: Literal["answered", "failed", "running"] = "running"
    provider: str
    model: str
    begin: float | None = None
    seconds: float | None = None
    first_token_seconds: float | None = None
    options: dict[str, Any] = {}
    """`maxTokens`, `thinking`, `toolChoice`."""
    tools: list[str] = []
    tools_hash: str = ""
    history: HeldTurns = HeldTurns()
    messages: int = 0
    rows: list[int] = []
    retries: list[FailedAttempt] = []
    response: ResponseLayer | None = None


class ApprovalLayer(Shape):
    id: str
    state: str
    by: str = ""
    """The user who decided, as `channel:id`."""
    at: str | None = None


class CallLayer(Shape):
    """A tool call. `chars` is the length of the whole result; `cut` means that the model got less. `external`: the
    result is untrusted content. `row` is the row of the result."""

    id: str
    round: int = 0
    tool: str = ""
    state: Literal["done", "failed", "waiting", "running"] = "running"
    arguments: Any = None
    """An object, or the raw text if the model wrote no JSON object."""
    begin: float | None = None
    seconds: float | None = None
    row: int | None = None
    result: str = ""
    images: int = 0
    chars: int = 0
    cut: bool = False
    external: bool = False
    details: dict[str, Any] = {}
    approval: ApprovalLayer | None = None


class PartLayer(Shape):
    """A message that was or will be sent. `tool`: the agent sent it with the `message` tool."""

    number: int
    state: Literal["queued", "sent", "failed"]
    text: str
    files: list[str] = []
    buttons: list[str] = []
    key: str
    """The idempotency key, the same for every attempt."""
    platform_id: str | None = None
    attempts: int = 0
    ambiguous: int = 0
    reason: str = ""
    tool: bool = False


class Stage(Shape):
    """One bar of the timeline. Stages may overlap: read-only calls run in parallel."""

    kind: Literal["waited", "prepared", "request", "retry", "call", "reply"]
    label: str
    begin: float
    seconds: float
    failed: bool = False


class EventLayer(Shape):
    """The platform's event as received, decrypted, with its tokens redacted; null if it was not stored."""

    at: str
    body: Any = None


class TurnRecord(Shape):
    """`GET /api/turns/ID`. All texts are scrubbed of secrets."""

    turn: TurnSummary = TurnSummary()
    currency: str = ""
    missing: list[Missing] = []
    accepted: float | None = None
    """The time that offsets count from."""
    began: float | None = None
    ready: float | None = None
    """The offsets at which the work began and the prompt was ready."""
    events: list[EventLayer] = []
    """One for each message that the turn answers, like `contexts`; oldest first."""
    contexts: list[dict[str, Any]] = []
    """The normalised message contexts (`MessageContext`)."""
    route: dict[str, Any] = {}
    """`agent`, `binding`, `session`, `access`, `model` and `tools`, each `{value, reason}`, the same as in `routes
    explain`."""
    prompt: list[SectionLayer] = []
    tools: list[dict[str, Any]] = []
    """`name`, `summary` and `parameters` of each offered tool."""
    steps: list[StepLayer] = []
    requests: list[RequestLayer] = []
    calls: list[CallLayer] = []
    reply: list[PartLayer] = []
    timeline: list[Stage] = []
    masked: int = 0
    """The number of secrets of a known format (`sk-…`, `AKIA…`, bot tokens) were replaced by `***` in this response."""
    clipped: dict[str, int] = {}
    """Truncated texts and lists: JSON pointer to full length. Only the HTTP response is truncated; `GET
    /api/turns/ID/text?at=PLACE` returns the full text."""


def heading_of(section: str) -> str:
    """Return the heading of a section of the prompt; empty for the first one."""
    first = section.partition("\n")[0]
    return first.removeprefix("## ") if first.startswith("## ") else ""


def response_of(answer: AssistantMessage) -> ResponseLayer:
    """Return the response without its text, thinking and calls."""
    usage, error = answer.usage, answer.error
    return ResponseLayer(
        stop_reason=answer.stop_reason,
        tokens=TurnTokens(**{name: getattr(usage, name) for name in TurnTokens.model_fields}),
        estimated=usage.estimated,
        cost=answer.cost,
        id=answer.response_id,
        error=error.kind if error else "",
        words=redacted(error.words or error.summary)[:WORDS_CHARS_MAX] if error else "",
        timestamp=answer.timestamp,
    )


def turn_record(stored: StoredTurn, zone: tzinfo, currency: str) -> TurnRecord:
    """Return the stored record, completed from the journal, the inbox and the outbox."""
    record = TurnRecord.model_validate_json(stored.content or "{}")
    inbounds = [(row["at"], inbound) for row in stored.messages if (inbound := read_inbound(row["body"]))]
    steps = [(row["seq"], row["kind"], message) for row in stored.rows if (message := _message(row))]
    record.currency = currency
    record.prompt = [*map(SectionLayer.model_validate, orjson.loads(stored.prompt)), *record.prompt]
    record.tools, record.route = orjson.loads(stored.tools), orjson.loads(stored.route)
    if "session" in record.route:  # chats share the text of a route
        record.route["session"]["value"] = stored.sid
    record.events = [EventLayer(at=iso(at, zone), body=_json(it.event) if it.event else None) for at, it in inbounds]
    record.contexts = [_context(it, stored.names) for _, inbound in inbounds for it in inbound.contexts]
    record.steps = [_step(*it) for it in steps]
    messages = [(row, message) for row, _, message in steps]
    record.requests = [*_requests(record, messages, stored.tools_hash)]
    record.calls = [*_calls(record, messages, {it["id"]: it for it in stored.approvals}, zone)]
    record.reply = [_part(it) for it in stored.parts]
    record.timeline = sorted(_timeline(record, stored.at), key=lambda it: it.begin)
    record.turn = summary(stored, zone)
    record.turn.calls = len(record.calls)
    record.missing = [*_missing(record, stored)]
    return record


def summary(turn: ListedTurn, zone: tzinfo) -> TurnSummary:
    place, final = session_parts(turn.sid), _json(turn.final or "{}")
    inbound = read_inbound(turn.body or "")
    outcome = turn.outcome or final.get("outcome", "")
    ended = (turn.at or final.get("at")) if outcome else None
    models = list(final.get("models", ()))
    return TurnSummary(
        id=turn.turn,
        session=turn.sid,
        agent=place.agent,
        channel=place.channel,
        account=place.account,
        chat=place.chat,
        thread=place.thread,
        person=turn.person or (person_of(inbound.context) if inbound and inbound.context.sender.id else ""),
        name=turn.name or (inbound.context.sender.name or "" if inbound else ""),
        title=turn.title or (inbound.context.chat.title or "" if inbound else ""),
        text=inbound.context.text[:PREVIEW_CHARS] if inbound else "",
        outcome=outcome or ("running" if turn.begun else "waiting"),
        reason=final.get("reason", ""),
        at=iso(turn.accepted or ended or 0.0, zone),
        seconds=None if ended is None or turn.accepted is None else round(ended - turn.accepted, 3),
        model=models[-1] if models else "",
        models=models,
        requests=final.get("requests", 0),
        calls=len(_json(turn.content or "{}").get("calls", ())),
        tokens=TurnTokens(**(final.get("tokens") or {})),
        cost=final.get("cost"),
    )


def read_inbound(body: str) -> Inbound | None:
    return inbound_of(body) if body and is_readable(body) else None


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}


def _message(row: Mapping[str, Any]) -> Message | None:
    """Return None for a row that is not a step or cannot be read."""
    try:
        return message_json.validate_json(row["content"]) if row["kind"] in STEPS else None
    except ValidationError:
        return None


def _context(context: MessageContext, names: Mapping[str, str]) -> dict[str, Any]:
    sender = replace(context.sender, name=names.get(context.message_id) or context.sender.name)
    shown: dict[str, Any] = context_json.dump_python(replace(context, sender=sender), mode="json")
    return shown


def _text(message: Message) -> str:
    return "\n".join(it.text for it in message.content if isinstance(it, Text))


def _images(message: Message) -> int:
    return sum(isinstance(it, Image) for it in message.content)


def _step(row: int, kind: Any, message: Message) -> StepLayer:
    text, metadata = _text(message), message.metadata if isinstance(message, UserMessage) else ""
    return StepLayer(row=row, role=kind, chars=len(text), text=text, metadata=metadata, images=_images(message))


def _requests(record: TurnRecord, steps: Sequence[tuple[int, Message]], tools_hash: str) -> Iterator[RequestLayer]:
    """Yield the requests. For those of an earlier process the journal only has the answers; they come first."""
    answers = [(row, it) for row, it in steps if isinstance(it, AssistantMessage)]
    noted = {it.response.timestamp for it in record.requests if it.response}
    for number, (row, answer) in enumerate(answers, start=1):
        if answer.timestamp not in noted and answer.provider:
            yield RequestLayer(
                round=number,
                state="answered",
                provider=answer.provider,
                model=answer.model,
                rows=[it for it, _ in steps if it < row],
                response=_whole(answer),
            )
    tools = [it["name"] for it in record.tools]
    for request in record.requests:
        timestamp = request.response.timestamp if request.response else None
        found = next((it for it in answers if it[1].timestamp == timestamp), None)
        request.rows = [row for row, _ in steps if not found or row < found[0]][: request.messages]
        request.tools, request.tools_hash = tools, tools_hash
        if found:
            request.response = _whole(found[1])
        yield request


def _whole(answer: AssistantMessage) -> ResponseLayer:
    response = response_of(answer)
    response.text = _text(answer)
    response.thinking = "\n".join(it.text for it in answer.content if isinstance(it, Thinking))
    response.calls = [it.id for it in answer.calls]
    return response


def _calls(
    record: TurnRecord, steps: Sequence[tuple[int, Message]], approvals: Mapping[str, Mapping[str, Any]], zone: tzinfo
) -> Iterator[CallLayer]:
    """Yield the calls of the answers in order. If an id occurs twice, its first result and times belong to its first
    call."""
    noted = list(record.calls)
    results = [(row, it) for row, it in steps if isinstance(it, ToolResultMessage)]
    answers = [(row, it) for row, it in steps if isinstance(it, AssistantMessage)]
    for number, (asked, answer) in enumerate(answers, start=1):
        for part in answer.calls:
            call = next((it for it in noted if it.id == part.id), None)
            if call is None:
                call = CallLayer(id=part.id)
            else:
                noted.remove(call)
            call.round = call.round or number
            call.tool = part.name
            call.arguments = part.arguments_raw if part.arguments is None else part.arguments
            found = next((it for it in results if it[1].call_id == part.id and it[0] > asked), None)
            if found:
                results.remove(found)
                _add_result(call, *found)
            approval = approvals.get(call.details.get("approval", ""))
            call.approval = _approval(approval, zone) if approval else None
            yield call


def _add_result(call: CallLayer, row: int, result: ToolResultMessage) -> None:
    call.row, call.result, call.images, call.details = row, _text(result), _images(result), result.details or {}
    call.external = bool(call.details.get("external"))
    call.state = "waiting" if "approval" in call.details else "failed" if result.is_error else "done"
    call.chars = call.chars or len(call.result)


def _approval(row: Mapping[str, Any], zone: tzinfo) -> ApprovalLayer:
    decided = iso(row["decided_at"], zone) if row["decided_at"] else None
    return ApprovalLayer(id=row["id"], state=row["state"], by=row["decided_by"] or "", at=decided)


def _part(row: Mapping[str, Any]) -> PartLayer:
    state: Any = OutboxStatus(row["status"]).name.lower()
    part = _json(row["payload"]).get("part", {})
    return PartLayer(
        number=row["part"],
        state=state,
        text=part.get("text", ""),
        files=[it["name"] for it in part.get("files", ())],
        buttons=[it["label"] for it in part.get("buttons", ())],
        key=row["key"],
        platform_id=row["ext_id"],
        attempts=row["attempts"],
        ambiguous=row["ambiguous"],
        reason=row["reason"] or "",
        tool=row["part"] < 0,
    )


def _timeline(record: TurnRecord, ended: float | None) -> Iterator[Stage]:
    """Yield the stages; none if the start of the work is unknown."""
    if record.began is None or record.accepted is None:
        return
    begun = max(0.0, record.began)
    if begun:
        yield Stage(kind="waited", label="waited", begin=0.0, seconds=begun)
    timed = [*_timed(record)]
    requested = next((it.begin for it in timed if it.kind == "request"), record.ready or begun)
    yield Stage(kind="prepared", label="prepared", begin=begun, seconds=round(requested - begun, 4))
    yield from timed
    if ended and timed:
        last = max(it.begin + it.seconds for it in timed)
        yield Stage(kind="reply", label="reply", begin=last, seconds=round(max(0.0, ended - record.accepted - last), 4))


def _timed(record: TurnRecord) -> Iterator[Stage]:
    for it in record.requests:
        if it.begin is not None:
            label, failed = f"{it.provider}/{it.model}", it.state == "failed"
            yield Stage(kind="request", label=label, begin=it.begin, seconds=it.seconds or 0.0, failed=failed)
            for one in it.retries:
                yield Stage(kind="retry", label=one.error, begin=one.at, seconds=0.0, failed=True)
    for call in record.calls:
        if call.begin is not None:
            failed = call.state == "failed"
            yield Stage(kind="call", label=call.tool, begin=call.begin, seconds=call.seconds or 0.0, failed=failed)


def _missing(record: TurnRecord, stored: StoredTurn) -> Iterator[Missing]:
    if stored.final is None:
        yield "running"
    elif not stored.content:
        yield "not-kept"
    if "recalled" in record.missing:
        yield "recalled"
    elif stored.content and ("resumed" in record.missing or any(it.begin is None for it in record.requests)):
        yield "resumed"
    if stored.body is None:
        yield "pruned"
