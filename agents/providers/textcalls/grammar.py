"""What a call that was written as text says: text of a known form in, names and arguments out. Pure.

Where such text begins and ends is in `forms`; whether a call may become a real one is for the wrappers.
Broken JSON is never mended by guessing: it stays a call without arguments, and its text is kept for the answer. Only
what has one reading is tolerated: a fence around the JSON, raw line breaks in its strings, arguments encoded twice.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, assert_never

from agents.providers.arguments import parse_arguments
from agents.providers.wellformed import well_formed
from tools.tool import ToolSpec

FormKind: TypeAlias = Literal[
    "tool_call",  # <tool_call>{…}</tool_call>
    "marker",  # [tool:NAME] {…}
    "block",  # [NAME], a line break, {…} [/NAME]
    "harmony",  # <|channel|>commentary to=NAME <|message|>{…}<|call|>
    "function",  # <function=NAME><parameter=K>V</parameter></function>
    "tool_calls",  # [TOOL_CALLS][{…}]
    "bare",  # {"name": …, "arguments": …}
    "never",  # is taken out of what people see and never becomes a call
]

NAME_CHARS_MAX = 120
NAMELESS = "tool_call"
"""What a call is called whose name cannot be read; no tool is, so it is answered with the names there are."""

MARKER = re.compile(r"\[tool:[ \t]{0,16}(?P<name>[^\]\r\n]{1,120})\]\s{0,64}(?=\{)")
BLOCK = re.compile(r"\[(?P<name>[^\]\r\n]{1,120})\][ \t]*\r?\n\s*(?=\{)")
HARMONY = re.compile(
    r"<\|channel\|>commentary to=(?:functions\.)?(?P<name>[^\s<]{1,120})(?:(?!<\|(?:message|channel)\|>).){0,160}"
    r"<\|message\|>\s{0,32}(?=\{)"
)
FUNCTION = re.compile(r"<function=(?P<name>[^>\s]{1,120})>")
TOOL_CALLS = re.compile(r"\[TOOL_CALLS\]\s{0,64}(?=[\[{])")

_PARAMETER = re.compile(r"<parameter=([^>\s]+)>(.*?)</parameter>(?=\s*(?:<parameter=|</function>|\Z))", re.DOTALL)
_FENCED = re.compile(r"\s*```[\w-]*[ \t]*\r?\n?(.*?)\s*```\s*", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"\\\r\n]{1,120})"')


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenCall:
    """`arguments` is None where they are no object; then `raw` is all that was written, name included."""

    name: str
    arguments: dict[str, Any] | None
    raw: str


def written_calls(kind: FormKind, text: str, tools: Mapping[str, ToolSpec]) -> tuple[WrittenCall, ...]:
    """The calls in `text`, one stretch of the form `kind`. `tools` tells of which type a tagged parameter is."""
    match kind:
        case "tool_call":
            return tuple(_payload(_unclosed(text).removeprefix("<tool_call>"), tools))
        case "marker":
            return _headed(MARKER, text)
        case "block":
            return _headed(BLOCK, text)
        case "harmony":
            return _headed(HARMONY, text)
        case "function":
            return tuple(_functions(_unclosed(text), tools)) or (_broken(text),)
        case "tool_calls":
            return tuple(_payload(text.removeprefix("[TOOL_CALLS]"), tools))
        case "bare":
            return tuple(_bare(text))
        case "never":
            return ()
        case _:
            assert_never(kind)


def names_a_tool(payload: str) -> bool:
    """Of what stands behind a tag and cannot be read as a whole."""
    return bool(_NAME.search(payload) or FUNCTION.match(payload))


def _unclosed(text: str) -> str:
    text = text.rstrip()
    while text.endswith("</tool_call>"):
        text = text.removesuffix("</tool_call>").rstrip()
    return text


def _payload(payload: str, tools: Mapping[str, ToolSpec]) -> Iterator[WrittenCall]:
    """One call as an object, several as a list, or a function tag, as some coders write it between these tags."""
    fenced = _FENCED.fullmatch(payload)
    payload = (fenced[1] if fenced else payload).strip()
    if payload.startswith("<function="):
        yield from tuple(_functions(payload, tools)) or (_broken(payload),)
        return
    try:
        value = DECODER.decode(payload)
    except (ValueError, RecursionError):
        yield _broken(payload)
        return
    if isinstance(value, list) and value:
        for member in value:
            yield _call(member, _written(member))
    else:
        yield _call(value, payload)


def _call(value: object, raw: str) -> WrittenCall:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name.strip():
        return _broken(raw)
    given = value.get("arguments", value.get("parameters"))
    return _named(name.strip(), given, raw)


def _named(name: str, given: object, raw: str) -> WrittenCall:
    """Small models encode an object twice; everything a tool takes is an object, so a second look is no guess."""
    if isinstance(given, str):
        try:
            given = DECODER.decode(given) if given.strip() else {}
        except (ValueError, RecursionError):
            given = None
    elif given is None:
        given = {}
    written = _written(given)
    arguments = parse_arguments(written) if isinstance(given, dict) else None
    return WrittenCall(name=name, arguments=arguments, raw=well_formed(raw) if arguments is None else written)


def _broken(raw: str) -> WrittenCall:
    name = _NAME.search(raw) or FUNCTION.match(raw)
    return WrittenCall(name=name[1] if name else NAMELESS, arguments=None, raw=well_formed(raw.strip()))


def _headed(header: re.Pattern[str], text: str) -> tuple[WrittenCall, ...]:
    """A form that names the tool before the JSON of the arguments."""
    head = header.match(text)
    if head is None:
        return (_broken(text),)
    try:
        value, _ = DECODER.raw_decode(text, head.end())
    except (ValueError, RecursionError):
        return (WrittenCall(name=head["name"].strip(), arguments=None, raw=well_formed(text)),)
    return (_named(head["name"].strip(), value, text),)


def _functions(text: str, tools: Mapping[str, ToolSpec]) -> Iterator[WrittenCall]:
    head = FUNCTION.match(text)
    if head is None or not text.rstrip().endswith("</function>"):
        return
    body = text[head.end() :].rstrip().removesuffix("</function>").strip()
    if body.startswith("{"):
        yield _named(head["name"], body, text)
        return
    spec = tools.get(head["name"])
    properties = spec.input_schema.get("properties", {}) if spec else {}
    given = {key: _typed(value, properties.get(key)) for key, value in _PARAMETER.findall(body)}
    if _PARAMETER.sub("", body).strip():
        yield WrittenCall(name=head["name"], arguments=None, raw=well_formed(text))
    else:
        yield _named(head["name"], given, text)


def _typed(value: str, schema: object) -> object:
    """A parameter's text as its schema wants it; where it is no such thing, the tool says what is wrong."""
    value = value.removeprefix("\r").removeprefix("\n").removesuffix("\n").removesuffix("\r")
    if not isinstance(schema, Mapping) or schema.get("type") in (None, "string"):
        return value
    try:
        return DECODER.decode(value.strip())
    except (ValueError, RecursionError):
        return value


def _bare(text: str) -> Iterator[WrittenCall]:
    """JSON that stands alone is a call only where it is nothing else: exactly a name and arguments."""
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError):
        return
    members = value if isinstance(value, list) else [value]
    exact = ({"name", "arguments"}, {"name", "parameters"})
    if all(isinstance(member, dict) and member.keys() in exact for member in members):
        for member in members:
            yield _call(member, _written(member))


def _written(value: object) -> str:
    return well_formed(json.dumps(value, ensure_ascii=False))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse)
"""Not strict: a raw line break in a string has one reading only, and small models write files that way."""
