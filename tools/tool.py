"""The port of a tool, and the types that pass through it.

A tool is one object per turn. `spec` has its name, its arguments and the effect of a second run; `parse` validates a
call's arguments by a pydantic model or an external schema. `Toolbox` runs it and turns every mistake into a result the
model can act on. `subject` says which calls need an approval. The `Gate` decides whether such a call runs, and may
demand an approval of any other.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

from pydantic import BaseModel, ValidationError

from channels.message import MessageContext

Effect: TypeAlias = Literal["safe", "keyed", "once"]
"""The effect of a second run. `safe`: only reads. `keyed`: repeats harmlessly under the same idempotency key.
`once`: may have happened, so after a crash it is never run again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """A picture for the model. `data` is base64; `media_type` is what the bytes are, not what the name says."""

    media_type: str
    data: str
    name: str | None = None
    type: Literal["image"] = "image"


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeDocument:
    """A PDF for a model that reads PDFs. `data` is base64; `text` replaces it everywhere else."""

    data: str
    name: str
    pages: int
    type: Literal["document"] = "document"

    @property
    def text(self) -> str:
        return f"[document: {self.name}, {self.pages} page{'s' * (self.pages != 1)}; `read` opens it]"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """The result of a call: `content` for the model, `details` for programs (never sent to a model)."""

    content: tuple[str | Image, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False
    note: str = ""
    """The gateway's own line to the model, after external content and outside its fence."""
    external: bool = False
    """The result holds untrusted text, such as a web page, that may steer the rest of the turn."""


SOURCES = "sources"
"""Key in a result's details that lists the older texts it repeats."""
_sources: ContextVar[set[str] | None] = ContextVar("sources", default=None)


def repeats(*sources: str) -> None:
    """Record that the running call reads older texts (turns, uploads, notes, tasks, reminders), by the names below.
    Recalling or erasing one of them withdraws the call's result. Every port to older text calls this, so it covers
    every tool."""
    if (found := _sources.get()) is not None:
        found.update(sources)


@contextmanager
def sources() -> Iterator[set[str]]:
    """Collect the sources of one call, including those of its threads and tasks."""
    found: set[str] = set()
    token = _sources.set(found)
    try:
        yield found
    finally:
        _sources.reset(token)


def turn_source(number: int) -> str:
    return f"turn:{number}"


def task_source(id_: str) -> str:
    return f"task:{id_}"


def note_source(sender: str, agent: str, number: int | None) -> str:
    """`number` None means all notes of the sender."""
    return f"note:{agent}:{'*' if number is None else number}:{sender}"


def schedule_source(id_: str) -> str:
    return f"schedule:{id_}"


def line_source(chat: str, message: str) -> str:
    """Name a kept message of a group, `channel:account:chat`; or, by `channel:account:id`, all of a person there."""
    return f"line:{chat}:{message}"


def upload_source(folder: str, tag: str) -> str:
    """Name the files of one message in a session's folder; the tag `*` means all files there."""
    return f"upload:{folder}:{tag}"


class ToolError(Exception):
    """A failed call that the model can act on. `code` is in the result (`INVALID_ARGUMENT`, `NOT_FOUND`, `EXEC_DENIED`,
    …); `message` says what to do and shows nothing from outside the workspace."""

    def __init__(self, code: str, message: str, *, retryable: bool = False, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = details

    @property
    def body(self) -> str:
        """The JSON that a model reads: `error` is OpenAI's form, the other members are for all models."""
        sentence = f"{self.code.replace('_', ' ').capitalize()}: {self.message}"
        body = {"ok": False, "error": sentence, "error_code": self.code, "message": self.message}
        return json.dumps(body | {"retryable": self.retryable}, ensure_ascii=False)


def failed(error: ToolError) -> ToolResult:
    return ToolResult(content=(error.body,), details=error.details, is_error=True)


@dataclass(frozen=True, slots=True)
class Copy:
    """A file as it was read: `content` with mode and owner, or `link`, the real path outside the workspace."""

    name: str
    """Path in the workspace."""
    content: bytes = b""
    rights: tuple[int, int, int] = (0, 0, 0)
    link: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Approved files; `command` runs these `copies` instead of the files that it names."""

    command: str
    copies: tuple[Copy, ...]


def unseen(progress: str) -> None:
    """Discard the line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """The context of one call. `key` is its idempotency key, the same for every repetition."""

    id: str
    key: str
    message: MessageContext
    """The message that the running turn answers."""
    session: str = ""
    """The conversation; the agent's memory is looked up by it."""
    begun_at: float | None = None
    """Start of an earlier run of this call that a restart interrupted; None for the first run."""
    several: bool = False
    """The turn answers several people, so it has nobody's identity."""
    tainted: bool = False
    """A result of this turn was `external`."""
    gated: bool = False
    """The call needs an approval even if its tool asks for none."""
    held: Held | None = None
    """The approved files, as hashed right before the run."""
    progress: Callable[[str], None] = unseen
    """Shows a progress line to those who watch the turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """A tool as models and prompts see it. `input_schema` is a closed object without `$ref`, unions or defaults;
    optional members are not in `required`. An undeclared `effect` counts as the worst."""

    name: str
    summary: str
    """One line for the prompt's list."""
    description: str
    """Text for the model in the request's tool list: what it does, its limits, what it returns."""
    input_schema: Mapping[str, Any] = field(hash=False)
    effect: Effect = "once"


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    def parse(self, raw: Mapping[str, Any]) -> Any:
        """Validate a call's arguments and return them in the form that `run` takes. Raises `ToolError`."""

    async def run(self, arguments: Any, call: Call) -> ToolResult:
        """Run the call. `arguments` is what `parse` returned. Raises `ToolError`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The request that a person approves, shown in full and bound by its digest. `text` is exactly what runs. `facts`
    are shown and bound (folder, sandbox, network, time). `identity` is bound but not shown (inodes, hashes): if it
    changes before the call runs, the approval is void. `always`: may be approved for good."""

    text: str
    facts: Mapping[str, str | int | bool]
    identity: Mapping[str, str | int] = field(default_factory=dict)
    always: bool = False
    held: Held | None = None
    """The files that `identity` was computed from."""
    decider: str = ""
    """The only person who may approve, as `channel:id`: the one who acts. Empty for the approvers of the config."""


@runtime_checkable
class UsesRights(Protocol):
    """A tool with calls that act as another tool: they need an approval where the other tool's would."""

    def uses(self, arguments: Any) -> Sequence[str]:
        """Name the other tools; `MEMORY.md` stands for a change of what later prompts contain. Raises ToolError."""


@runtime_checkable
class Prepares(Tool, Protocol):
    """A tool with calls that need something of the person, such as a login, before anybody is asked to approve them."""

    async def prepare(self, arguments: Any, call: Call) -> None:
        """Raises ToolError if the call cannot run yet."""


@runtime_checkable
class VariesEffect(Tool, Protocol):
    """A tool whose calls differ in the effect of a second run."""

    def effect_of(self, raw: Mapping[str, Any]) -> Effect:
        """Return the effect of a call with these unvalidated arguments."""


@runtime_checkable
class NeedsApproval(Tool, Protocol):
    """A tool with calls that run only after a person's approval."""

    def subject(self, arguments: Any, call: Call) -> Subject | None:
        """Return the subject to approve, or None if the call needs no approval; never None if it is `gated`. Blocking.
        Raises ToolError."""


MISTAKES_MAX = 20
NAME_CHARS_MAX = 64
_KEPT = ("type", "description", "enum", "items", "minimum", "maximum", "minLength", "maxLength")


class Arguments(BaseModel, extra="forbid", strict=True, frozen=True):
    """Base class of built-in tools' arguments: closed, strict, every member described."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Validate a call's arguments. Raises ToolError, which names every mistake and shows no value."""
        fields = cls.model_fields
        values = {
            name: value
            for name, value in raw.items()
            if value is not None or name not in fields or fields[name].is_required()
        }  # strict decoders send null for what they leave out
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            mistakes = [_sentence(mistake) for mistake in error.errors()]
            if len(mistakes) > MISTAKES_MAX:
                mistakes[MISTAKES_MAX:] = [f"and {len(mistakes) - MISTAKES_MAX} more mistakes"]
            raise ToolError("INVALID_ARGUMENT", "; ".join(mistakes)) from None

    @classmethod
    def spec(cls, name: str, *, summary: str, description: str, effect: Effect) -> ToolSpec:
        """Build the spec of a tool with these arguments. Raises ValueError if the model does not fit the schema
        form."""
        full = cls.model_json_schema()
        if "$defs" in full:
            raise ValueError(f"{cls.__name__}: nested models do not fit the schema form")
        schema = {
            "type": "object",
            "properties": {name: _member(name, member) for name, member in full.get("properties", {}).items()},
            "required": list(full.get("required", ())),
            "additionalProperties": False,
        }
        return ToolSpec(name=name, summary=summary, description=description, effect=effect, input_schema=schema)


def _member(name: str, member: Mapping[str, Any]) -> dict[str, Any]:
    if "anyOf" in member:
        (only,) = (choice for choice in member["anyOf"] if choice.get("type") != "null")
        member = {**only, **{key: value for key, value in member.items() if key != "anyOf"}}
    if "const" in member:
        member = {**member, "enum": [member["const"]], "type": "string"}
    if "description" not in member:
        raise ValueError(f"the member {name!r} has no description")
    return {key: member[key] for key in _KEPT if key in member}


def _sentence(error: Any) -> str:
    name = ".".join(map(str, error["loc"]))[:NAME_CHARS_MAX] or "arguments"
    match error["type"]:
        case "missing":
            return f"'{name}' is required"
        case "extra_forbidden":
            return f"'{name}' is not an argument of this tool"
        case "literal_error":
            return f"'{name}' must be {error['ctx']['expected']}"
        case _:
            return f"'{name}': {error['msg'][0].lower()}{error['msg'][1:]}"


DOMAIN = b"clawgate.approval.v1\0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A call as it would run now, with the model's `arguments`."""

    tool: str
    arguments: Mapping[str, Any]
    subject: Subject

    def canonical(self, agent: str) -> str:
        """Serialize all that is bound to canonical JSON; non-ASCII is escaped, so that no two texts look alike."""
        subject = self.subject
        bound = {"v": 1, "tool": self.tool, "agent": agent, "arguments": dict(self.arguments), "text": subject.text}
        bound |= {"decider": subject.decider} if subject.decider else {}
        return canonical(bound | {"facts": dict(subject.facts), "identity": dict(subject.identity)})


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(request: str) -> str:
    """Hash a canonical request."""
    data = request.encode()
    return hashlib.sha256(DOMAIN + len(data).to_bytes(8, "big") + data).hexdigest()


class Permit(Protocol):
    async def finished(self, result: ToolResult) -> None:
        """Record that the call has run."""


class Gate(Protocol):
    def demands(self, tool: str, call: Call) -> bool:
        """Return whether this call needs an approval, even if its tool does not ask for one."""

    async def admit(self, request: Request, call: Call) -> Permit:
        """Admit the call. Raises ToolError if it may not run, or not yet."""
