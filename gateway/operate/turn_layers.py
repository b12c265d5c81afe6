"""The shapes of `GET /api/turns` and `GET /api/turns/ID`: a turn in a list, and a turn layer by layer.

Names are camelCase in JSON. A time is ISO with its zone; an offset counts the seconds since the message was accepted. Texts
are scrubbed. A layer that was not kept is null or empty, and `missing` says why.
"""

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

RequestState: TypeAlias = Literal["answered", "failed", "running"]
CallState: TypeAlias = Literal["done", "failed", "waiting", "running"]
PartState: TypeAlias = Literal["queued", "sent", "failed"]
StageKind: TypeAlias = Literal["waited", "prepared", "request", "retry", "call", "reply"]
Missing: TypeAlias = Literal["running", "not-kept", "resumed", "recalled", "pruned"]
"""The reason why a turn lacks layers. `running`: they are kept when it ends. `not-kept`: `console.keepDays` was 0, or it is
longer ago. `resumed`: a process ended while it worked on the turn, and what it alone knew is gone; the journal's rows are
there. `recalled`: its message was taken back. `pruned`: the inbox has forgotten the message."""


class Shape(BaseModel, frozen=True, alias_generator=to_camel, populate_by_name=True):
    """One object of the JSON."""


class TurnTokens(Shape):
    """`input` excludes both caches; `output` includes reasoning."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0


class TurnSummary(Shape):
    """A turn in the list. `outcome` is `waiting` or `running`, or as it ended: `replied`, `silent`, `failed`, `declined`,
    `stopped`, `recalled`, `over-budget`, `stale`; `reason` says more. `text` is the beginning of the message, empty once it
    was taken back or forgotten."""

    id: int
    session: str
    """The conversation's key: `agent:coder:feishu:default:oc_1`."""
    agent: str
    channel: str
    account: str
    chat: str
    thread: str | None = None
    person: str = ""
    """`channel:id`."""
    name: str = ""
    """The sender's name as the platform gives it."""
    title: str = ""
    """The chat's title: of a group, or of a chat of the page."""
    text: str = ""
    outcome: str
    reason: str = ""
    at: str
    """The time when the message was accepted."""
    seconds: float | None = None
    """Seconds from acceptance to the end of the turn; the sending comes after. Null until then."""
    model: str = ""
    """The `provider/model` of the last answer."""
    requests: int = 0
    calls: int = 0
    tokens: TurnTokens = TurnTokens()
    cost: float | None = None


class TurnList(Shape):
    """`GET /api/turns`: the newest first, at most 50; those that wait or run are at the head of the first page. `before`
    is the next page's parameter, null at the end. `searched` turns were read for it, if words were searched for: a page
    ends after 5,000 of them."""

    turns: tuple[TurnSummary, ...]
    before: int | None
    searched: int = 0
    keep_days: float
    currency: str
    """The currency of the costs, such as `USD`."""


class SectionLayer(Shape):
    """A section of the system prompt. `stable`: it is above the cache boundary. `text` is null if it was not kept."""

    heading: str
    """Empty for the first one, which says who the assistant is."""
    chars: int
    stable: bool
    hash: str
    text: str | None


class StepLayer(Shape):
    """A row of the turn's transcript, as the model reads it. `row` is its number in the conversation, by which requests
    name it."""

    row: int
    role: Literal["user", "steered", "assistant", "toolResult"]
    chars: int
    text: str
    metadata: str = ""
    """The blocks before a person's message while the turn runs."""
    images: int = 0


class HeldTurns(Shape):
    """The earlier turns that a request holds, by their numbers: `GET /api/turns/ID` has each."""

    turns: int = 0
    first: int | None = None
    last: int | None = None
    summary: bool = False
    """True if a summary replaces what was before them."""


class ResponseLayer(Shape):
    text: str = ""
    thinking: str = ""
    calls: tuple[str, ...] = ()
    """The ids of the calls that it asks for."""
    stop_reason: str = ""
    tokens: TurnTokens = TurnTokens()
    estimated: bool = False
    cost: float | None = None
    id: str | None = None
    error: str = ""
    """The kind of the error, such as `rate_limited`."""
    words: str = ""
    """The vendor's own words, cut."""


class FailedAttempt(Shape):
    """An attempt that failed, and was followed by another one. `at` is an offset."""

    at: float
    error: str
    words: str = ""


class RequestLayer(Shape):
    """A request to a model. Offsets are null for a request of an earlier process. `rows` are the turn's own messages that it
    holds."""

    round: int
    state: RequestState
    provider: str
    model: str
    begin: float | None = None
    seconds: float | None = None
    first_token_seconds: float | None = None
    options: dict[str, Any] = {}
    """`maxTokens`, `thinking`, `toolChoice`."""
    tools: tuple[str, ...] = ()
    tools_hash: str = ""
    history: HeldTurns = HeldTurns()
    rows: tuple[int, ...] = ()
    retries: tuple[FailedAttempt, ...] = ()
    response: ResponseLayer | None = None


class ApprovalLayer(Shape):
    id: str
    state: str
    by: str = ""
    """The person who decided, as `channel:id`."""
    at: str | None = None


class CallLayer(Shape):
    """`chars` is the length of the whole result, `cut` says that the model got less of it. `external`: it is text of
    strangers. `row` is that of the result."""

    id: str
    round: int
    tool: str
    state: CallState
    arguments: Any
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
    """A message that was sent, or is to be. `tool`: the agent sent it itself, by the `message` tool."""

    number: int
    state: PartState
    text: str
    files: tuple[str, ...] = ()
    buttons: tuple[str, ...] = ()
    key: str
    """The idempotency key, the same for every attempt."""
    platform_id: str | None = None
    attempts: int = 0
    ambiguous: int = 0
    reason: str = ""
    tool: bool = False


class Stage(Shape):
    """One bar of the timeline. Stages may lie side by side: calls that only read run together."""

    kind: StageKind
    label: str
    begin: float
    seconds: float
    failed: bool = False


class EventLayer(Shape):
    """The platform's event as received, decrypted, its tokens struck out; null if it was not kept."""

    at: str
    body: Any = None


class TurnLayers(Shape):
    """`GET /api/turns/ID`."""

    turn: TurnSummary
    currency: str
    missing: tuple[Missing, ...] = ()
    events: tuple[EventLayer, ...] = ()
    """One for each message that the turn answers, as `contexts`; oldest first."""
    contexts: tuple[dict[str, Any], ...] = ()
    """The common message contexts (`MessageContext`)."""
    route: dict[str, Any] = {}
    """`agent`, `binding`, `session`, `access`, `model` and `tools`, each `{value, reason}`, as `routes explain` has them."""
    prompt: tuple[SectionLayer, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    """`name`, `summary` and `parameters` of each tool that was offered."""
    steps: tuple[StepLayer, ...] = ()
    requests: tuple[RequestLayer, ...] = ()
    calls: tuple[CallLayer, ...] = ()
    reply: tuple[PartLayer, ...] = ()
    timeline: tuple[Stage, ...] = ()
    masked: int = 0
    """Keys of a known shape (`sk-…`, `AKIA…`, bot tokens) that were replaced by `***` in this answer."""
    clipped: dict[str, int] = {}
    """The texts and lists that were cut, by their places as JSON pointers, each with its whole length. Only the answer
    over HTTP is cut; `GET /api/turns/ID/text?at=PLACE` has the text."""
