"""What only Gemini says: answers in its own parts, and the chunks in which any answer is streamed.

Answers that any vendor could give are scripted in `tests.emulators.models.script`. What is thought is not shown as
such but signs the part behind it, and the first call is always signed, as of Gemini 3. Pure: how bytes travel, and how
they fail to, is the emulator's part.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agents.messages import Usage
from tests.emulators.models import script
from tests.emulators.models.gemini.signature import signed
from tests.emulators.models.script import StreamFault, pieces

Part: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn(StreamFault):
    """One answer, part by part as it is streamed. Without `finish` it is STOP; with `blocked` the question is refused
    for that reason and nothing is answered."""

    parts: tuple[Part, ...]
    finish: str = "STOP"
    blocked: str | None = None
    usage: Mapping[str, Any] | None = None
    """The whole `usageMetadata`; an estimate where it is None."""
    late_usage: bool = False
    """Usage comes in a chunk of its own behind the reason to end."""


_FINISH: dict[script.Stop, str] = {
    "length": "MAX_TOKENS",
    "refusal": "SAFETY",
    "filter": "RECITATION",
    "context": "MAX_TOKENS",
}


def rendered(turn: StreamFault) -> Turn:
    """A turn as anybody writes it, in Gemini's parts; one that is in them already as it is."""
    if isinstance(turn, Turn):
        return turn
    plain = script.neutral(turn)
    return Turn(
        parts=tuple(_parts(plain.parts)),
        finish=_FINISH[plain.stop] if plain.stop else "STOP",
        usage=_usage(plain.usage) if plain.usage else None,
        **script.faults_of(plain),
    )


def _parts(neutral: Sequence[script.Say | script.Think | script.Call]) -> Iterator[Part]:
    thought, called = False, False
    for part in neutral:
        match part:
            case script.Think(text=text, shown=shown):
                thought = True
                if shown:
                    yield from (thought_part(piece) for piece in pieces(text))
            case script.Say(text=text):
                parts = [text_part(piece) for piece in pieces(text)]
                yield from parts[:-1]
                yield from (signed(last) if thought else last for last in parts[-1:])
                thought = False
            case script.Call():
                call = call_part(part.name, dict(part.arguments), id=part.id, raw=part.raw)
                yield signed(call) if thought or not called else call
                thought, called = False, True
    if thought:
        yield signed(text_part(""))


def _usage(usage: Usage) -> dict[str, Any]:
    prompt, answered = usage.input + usage.cache_read, usage.output - usage.reasoning
    return _usage_metadata(prompt, answered, thoughts=usage.reasoning, cached=usage.cache_read)


def _usage_metadata(prompt: int, answered: int, *, thoughts: int = 0, cached: int = 0) -> dict[str, Any]:
    """As the server writes it: what is zero is left out."""
    counts = {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": cached,
        "candidatesTokenCount": answered,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": prompt + answered + thoughts,
    }
    return {name: value for name, value in counts.items() if value}


def text_part(text: str) -> Part:
    return {"text": text}


def thought_part(text: str) -> Part:
    """A summary of what was thought, for people."""
    return {"text": text, "thought": True}


def call_part(name: str, arguments: dict[str, Any], *, id: str | None = None, raw: str | None = None) -> Part:  # noqa: A002
    """A call. `raw` is sent in place of the arguments: as an object where it is one, else as a mere string, which is
    the nearest that this wire has to broken JSON. Without `id` the emulator makes one; "" leaves it out."""
    args: Any = arguments
    if raw is not None:
        try:
            args = json.loads(raw)
        except ValueError:
            args = raw
        args = args if isinstance(args, dict) else raw
    call = {"name": name, "args": args}
    return {"functionCall": call if id is None else {"id": id} | call}


def finished(turn: Turn, number: int, *, ids: bool) -> list[Part]:
    """The parts as they are sent; with `ids` a call without an id gets one that no other answer has."""
    parts: list[Part] = []
    for place, part in enumerate(turn.parts):
        call = part.get("functionCall")
        if isinstance(call, dict):
            given = call.get("id", f"fc_{number:04d}{place:02d}" if ids else "")
            call = ({"id": given} if given else {}) | {key: it for key, it in call.items() if key != "id"}
            part = part | {"functionCall": call}
        parts.append(part)
    return parts


def chunks_of(turn: Turn, number: int, model: str, tokens: int, *, ids: bool) -> list[dict[str, Any]]:
    """The answer as the chunks of a stream: one a part, and one that says why it ended."""
    parts = finished(turn, number, ids=ids)
    about = {"modelVersion": model, "responseId": f"resp_{number:04d}"}
    prompt = {"usageMetadata": {"promptTokenCount": tokens, "totalTokenCount": tokens}}
    if turn.blocked is not None:
        return [{"promptFeedback": {"blockReason": turn.blocked}} | prompt | about]
    usage = {"usageMetadata": _spent(turn, parts, tokens)}
    chunks = [_chunk(part) | prompt | about for part in parts]
    if turn.noise:
        chunks = [noisy for chunk in chunks for noisy in _noise(chunk)]
    last = _chunk({"text": ""})
    last["candidates"][0]["finishReason"] = turn.finish
    if turn.late_usage:
        return [*chunks, last | about, usage | about]
    return [*chunks, last | usage | about]


def answer_of(turn: Turn, number: int, model: str, tokens: int, *, ids: bool) -> dict[str, Any]:
    """The whole answer as one object, as it is sent where no stream is asked for."""
    *_, last = chunks_of(turn, number, model, tokens, ids=ids)
    if turn.blocked is None:
        last["usageMetadata"] = _spent(turn, finished(turn, number, ids=ids), tokens)
        content = {"role": "model", "parts": finished(turn, number, ids=ids)}
        last["candidates"] = [{"content": content, "finishReason": turn.finish, "index": 0}]
    return last


def _spent(turn: Turn, parts: list[Part], tokens: int) -> dict[str, Any]:
    if turn.usage is not None:
        return dict(turn.usage)
    return _usage_metadata(tokens, max(1, len(json.dumps(parts)) // 4))


def _chunk(part: Part) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]}


def _noise(chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"weatherReport": {"sky": "clear"}}
    yield chunk | {"scent": "pine"}
    yield _chunk({"hologram": {"light": [1, 2, 3]}})
