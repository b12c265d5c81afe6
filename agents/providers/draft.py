"""One streaming answer, for every API: blocks in order, our events out, one final message.

An API adapter translates its events into text, thinking, call and opaque blocks. What is shown, capped, joined and
kept is decided here, independent of vendors.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agents.messages import (
    AssistantMessage,
    AssistantPart,
    ModelError,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
    Wire,
)
from agents.providers.models import family_of
from agents.providers.payload import BadStream, mended_arguments, well_formed, well_formed_json
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

ANSWER_CHARS_MAX = 8_000_000
"""No model writes this much; such a server is broken."""

BlockKind: TypeAlias = Literal["text", "thinking", "call", "opaque"]
Payload: TypeAlias = tuple[str, Any] | None
"""A block's data to send back to the vendor, with its kind; None if there is none."""


@dataclass(slots=True)
class TextBuffer:
    """Text that arrives in pieces. `raw` is what arrived; a trailing half of a surrogate pair is held back until the
    other half arrives."""

    raw: str = ""
    _held: str = ""

    def add(self, piece: str) -> str:
        """Append a piece; return what may be shown now, possibly nothing."""
        self.raw += piece
        shown = self._held + piece
        self._held = shown[-1:] if "\ud800" <= shown[-1:] <= "\udbff" else ""
        return well_formed(shown.removesuffix(self._held))

    @property
    def text(self) -> str:
        return well_formed(self.raw)


@dataclass(slots=True)
class Block:
    """A part of the answer. `payload` builds the vendor's data from the block's whole text. A call is shown once it
    has `started`, since its name may follow its first arguments. `is_repeated` blocks are dropped."""

    index: int
    kind: BlockKind
    payload: Callable[[str], Payload]
    body: TextBuffer = field(default_factory=TextBuffer)
    call_id: str = ""
    name: str = ""
    started: bool = False
    unshown: str = ""
    call: ToolCall | None = None
    vendor_id: str = ""
    is_repeated: bool = False


@dataclass(slots=True)
class Draft:
    """`blocks` by a key that the adapter chooses. `ended`: the answer is complete; only usage may follow."""

    api: str
    provider: str
    model: str
    timestamp: float
    response_id: str | None = None
    usage: Usage = field(default_factory=lambda: Usage(estimated=True))
    blocks: dict[Hashable, Block] = field(default_factory=dict)
    ended: bool = False
    _call_ids: set[str] = field(default_factory=set)
    _chars: int = 0

    def open(
        self,
        key: Hashable,
        kind: BlockKind,
        payload: Callable[[str], Payload] = lambda _: None,
        *,
        index: int | None = None,
    ) -> Block:
        """Add a block, at the end unless `index` is given. Raises BadStream if `key` exists."""
        if key in self.blocks:
            raise BadStream("a block was opened twice")
        block = self.blocks[key] = Block(len(self.blocks) if index is None else index, kind, payload)
        return block

    def start(self, key: Hashable, *, vendor_id: str, name: str) -> Iterator[ModelEvent]:
        """Start a call whose name is known, and show its pending arguments."""
        block = self.blocks[key]
        if not block.started:
            block.started, block.name, block.vendor_id = True, well_formed(name), vendor_id
            block.call_id = self.unique_id(vendor_id, block.index)
            yield ToolCallStart(index=block.index, id=block.call_id, name=block.name)
        if block.unshown:
            yield ToolCallDelta(index=block.index, text=block.unshown)
            block.unshown = ""

    def add(self, key: Hashable, piece: str) -> Iterator[ModelEvent]:
        """Append a piece to a block. Raises BadStream if there is none or the answer is too long."""
        block = self.blocks.get(key)
        if block is None:
            raise BadStream("a delta belongs to no block")
        self.count(len(piece))
        if not (shown := block.body.add(piece)):
            return
        match block.kind:
            case "text":
                yield TextDelta(index=block.index, text=shown)
            case "thinking":
                yield ThinkingDelta(index=block.index, text=shown)
            case "call" if block.started:
                yield ToolCallDelta(index=block.index, text=shown)
            case "call":
                block.unshown += shown

    def close(self, key: Hashable, *, arguments: str | None = None, cut: bool = False) -> Iterator[ModelEvent]:
        """Complete a call, which may be `cut`; `arguments` replace the streamed ones. Does nothing for other blocks."""
        block = self.blocks.get(key)
        if block is None or block.kind != "call" or block.call is not None or block.is_repeated:
            return
        raw = block.body.text if arguments is None else well_formed(arguments)
        parsed, raw = (None, raw) if cut and not raw.strip() else mended_arguments(raw)
        block.is_repeated = self.holds(block.vendor_id, block.name, parsed)
        if block.is_repeated:
            return
        block.call = ToolCall(
            id=block.call_id,
            name=block.name,
            arguments=parsed,
            arguments_raw=raw,
            wire=self._wire(block.payload(raw)),
        )
        yield ToolCallEnd(index=block.index, call=block.call)

    def holds(self, vendor_id: str, name: str, arguments: dict[str, Any] | None) -> bool:
        """Return whether the answer has this call already: some servers repeat it under another index or in the last
        event. Calls without a vendor's id are never repetitions."""
        return arguments is not None and any(
            block.vendor_id == vendor_id not in ("", "null") and block.call is not None
            and (block.call.name, block.call.arguments) == (name, arguments)
            for block in self.blocks.values()
        )  # fmt: skip

    def count(self, chars: int) -> None:
        """Raise BadStream if the answer is too long."""
        self._chars += chars
        if self._chars > ANSWER_CHARS_MAX:
            raise BadStream("the answer has no end")

    def unique_id(self, vendor_id: str, index: int) -> str:
        """Return the vendor's call id, made unique; without one, derive it from the answer's id. Calls are paired by id."""
        call_id = well_formed(vendor_id or f"call_{self.response_id or 'x'}_{index}")
        if call_id in self._call_ids:
            call_id = f"{call_id}_{index}"
        self._call_ids.add(call_id)
        return call_id

    def finished(self, reason: StopReason | None) -> AssistantMessage:
        """Return the whole answer; `reason` is None if unknown. Raises BadStream, so that truncated calls are never run."""
        parts = [part for block in self._in_order() for part in self._part(block)]
        calls = any(isinstance(part, ToolCall) for part in parts)
        if reason is None and calls:
            raise BadStream("calls, and an unknown reason to stop")
        if reason in (None, "end_turn", "tool_use"):
            reason = "tool_use" if calls else "end_turn"
        return self.message(parts, reason)

    def failed(self, error: ModelError, reason: StopReason = "error") -> AssistantMessage:
        """Return the text before the failure, without calls and thinking, which may be incomplete."""
        texts = [Text(text=block.body.text) for block in self._in_order() if block.kind == "text"]
        return self.message([part for part in texts if part.text.strip()], reason, error)

    def message(
        self, parts: Sequence[AssistantPart], reason: StopReason, error: ModelError | None = None
    ) -> AssistantMessage:
        return AssistantMessage(
            content=tuple(parts),
            provider=self.provider,
            model=self.model,
            api=self.api,
            stop_reason=reason,
            usage=self.usage,
            error=error,
            response_id=self.response_id and well_formed(self.response_id),
            timestamp=self.timestamp,
        )

    def _in_order(self) -> list[Block]:
        return sorted(self.blocks.values(), key=lambda block: block.index)

    def _part(self, block: Block) -> Iterator[AssistantPart]:
        text = block.body.text
        match block.kind:
            case "text" if text:
                yield Text(text=text, wire=self._wire(block.payload(text)))
            case "thinking":
                wire = self._wire(block.payload(text))
                if wire is not None or text:
                    yield Thinking(text=text, wire=wire)
            case "call" if block.call is not None:
                yield block.call
            case "opaque" if (wire := self._wire(block.payload(text))) is not None:
                yield Opaque(wire=wire)

    def _wire(self, payload: Payload) -> Wire | None:
        if payload is None:
            return None
        kind, data = well_formed_json([*payload])
        return Wire(api=self.api, family=family_of(self.model), kind=kind, data=data)
