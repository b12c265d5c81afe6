"""One output item of a Responses stream: what has come of it so far, and what history keeps of it.

Pieces belong to a part of the item, by kind and index. The item as it is told at its end has the last word; where it
never ended, the pieces are all there is.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agents.messages import AssistantPart, Opaque, Text, Thinking, ToolCall, Wire
from agents.providers.arguments import parse_arguments
from agents.providers.draft import TextBuffer
from agents.providers.wellformed import well_formed, well_formed_json

PartKind: TypeAlias = Literal["text", "refusal", "summary", "reasoning", "arguments"]

OWNERS: dict[PartKind, str] = {
    "text": "message",
    "refusal": "message",
    "summary": "reasoning",
    "reasoning": "reasoning",
    "arguments": "function_call",
}
"""Which type of item has parts of a kind."""
_KINDS: dict[str, PartKind] = {"output_text": "text", "refusal": "refusal", "reasoning_text": "reasoning"}


@dataclass(slots=True)
class ItemUnderWay:
    """`start` is the item as it was opened, `end` as it was told when it was done. `call_id` is of our making where the
    vendor's will not do; `sealed` are the arguments that were told to be whole."""

    start: dict[str, Any]
    end: dict[str, Any] | None = None
    call_id: str = ""
    sealed: str | None = None
    call: ToolCall | None = None
    parts: dict[tuple[PartKind, int], TextBuffer] = field(default_factory=dict)

    @property
    def type(self) -> str:
        return string(self.start, "type")

    def streamed(self, kind: PartKind) -> list[str]:
        return [part.text for (part_kind, _), part in sorted(self.parts.items()) if part_kind == kind]

    @property
    def text(self) -> str:
        return "".join(_final_texts(self.end, "text") or self.streamed("text"))

    @property
    def refuses(self) -> bool:
        return bool(_final_texts(self.end, "refusal")) or any(kind == "refusal" for kind, _ in self.parts)

    def finished_call(self, *, cut: bool) -> ToolCall:
        """The call as it stands. One that was cut has no arguments unless what came of them is an object."""
        end = self.end or {}
        whole = final_arguments(end)
        whole = self.sealed if whole is None else whole
        raw = "".join(self.streamed("arguments")) if whole is None else well_formed(whole)
        cut = cut or end.get("status") == "incomplete"
        return ToolCall(
            id=self.call_id,
            name=well_formed(string(end, "name") or string(self.start, "name")),
            arguments=None if cut and not raw.strip() else parse_arguments(raw),
            arguments_raw=raw,
        )

    def kept(self, api: str, family: str) -> Iterator[AssistantPart]:
        """What history keeps."""
        match self.type:
            case "message":
                yield from self._kept_text(api, family)
            case "reasoning":
                yield self._kept_thinking(api, family)
            case "function_call":
                if self.call is not None:
                    yield self.call
            case kind:
                if self.end is not None:
                    yield Opaque(
                        wire=Wire(api=api, family=family, kind=well_formed(kind), data=well_formed_json(self.end))
                    )

    def _kept_text(self, api: str, family: str) -> Iterator[Text]:
        phase = string(self.end or {}, "phase") or string(self.start, "phase")
        wire = Wire(api=api, family=family, kind="phase", data={"phase": well_formed(phase)}) if phase else None
        if self.text:
            yield Text(text=self.text, wire=wire)

    def _kept_thinking(self, api: str, family: str) -> Thinking:
        """Only an item that is whole and carries its encrypted content may be sent again."""
        end = self.end or {}
        texts = _final_texts(end, "summary") or _final_texts(end, "reasoning")
        texts = texts or self.streamed("summary") or self.streamed("reasoning")
        whole = bool(string(end, "encrypted_content")) and end.get("status") != "incomplete"
        sendable = whole and well_formed_json(end) is end
        wire = Wire(api=api, family=family, kind="reasoning", data=end) if sendable else None
        return Thinking(text="\n\n".join(texts), wire=wire)


def final_parts(item: Mapping[str, Any]) -> Iterator[tuple[PartKind, int, str]]:
    """The texts of an item as it was told at its end, in order."""
    for index, part in enumerate(_objects(item, "summary")):
        yield "summary", index, string(part, "text")
    for index, part in enumerate(_objects(item, "content")):
        kind = _KINDS.get(string(part, "type"))
        if kind is not None:
            yield kind, index, string(part, "refusal" if kind == "refusal" else "text")
    if (arguments := final_arguments(item)) is not None:
        yield "arguments", 0, arguments


def final_arguments(item: Mapping[str, Any]) -> str | None:
    arguments = item.get("arguments")
    if isinstance(arguments, dict):  # compatible servers may send the object itself
        return json.dumps(arguments, ensure_ascii=False)
    return arguments if isinstance(arguments, str) else None


def string(value: Mapping[str, Any], key: str) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else ""


def _final_texts(end: Mapping[str, Any] | None, kind: PartKind) -> list[str]:
    return [well_formed(text) for part_kind, _, text in final_parts(end or {}) if part_kind == kind and text]


def _objects(item: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = item.get(key)
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
