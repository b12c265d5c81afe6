"""From expanded data to a model, without stopping at the first mistake.

A value the model refuses is reported and taken out, and the rest is read again: so every mistake of a section is found
in one run, and what is sound of it can still be checked against the other sections. Data goes in as JSON, because
strict models take a list for a tuple only there.

A sentence says what is expected, never what was found: that may be a secret in the wrong place.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from agents.config import AgentId, ModelName
from gateway.config.faults import colon_slip
from gateway.config.problems import Findings, Key, suggestion
from gateway.config.shape import known_keys

Model = TypeVar("Model")
Origin: TypeAlias = Callable[[Key], Key]
"""From a place in the data to the key of the file it came from."""

_PATTERNS = {
    get_args(AgentId)[1].pattern: "expected lower-case letters, digits, - and _, at most 64, a letter or digit first",
    get_args(ModelName)[1].pattern: "expected auto or provider/model, such as anthropic/claude-sonnet-4-6",
}
_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def beneath(*key: str | int) -> Origin:
    """For data that stands in the file as it is, at `key`."""
    return lambda place: (*key, *place)


class Reader:
    """Reads parts of one file. `texts` has the text behind each value that an expansion gave another type."""

    def __init__(self, root: type[BaseModel], texts: Mapping[Key, str], findings: Findings) -> None:
        self._root = root
        self._texts = texts
        self._findings = findings

    def read(
        self, model: type[Model], data: Any, origin: Origin, stand_ins: Mapping[str, Any] | None = None
    ) -> Model | None:
        """The model of what is sound in `data`; None where too little is. Mistakes go to the findings.

        `stand_ins` take the place of required values that are missing or wrong, so that reading can go on.
        """
        adapter: TypeAdapter[Model] = TypeAdapter(model)
        data = copy.deepcopy(data)
        while True:
            try:
                return adapter.validate_json(json.dumps(data))
            except ValidationError as error:
                faults = _faults(error, data)
                readable = [self._otherwise(data, fault, origin) or self._report(fault, origin) for fault in faults]
                wrong = [fault for fault, read in zip(faults, readable, strict=True) if not read]
                taken = [_take_out(data, fault, stand_ins or {}) for fault in wrong]
                if not all(taken):
                    return None

    def _otherwise(self, data: Any, fault: "_Fault", origin: Origin) -> bool:
        """Whether a value can be read in another way than it was; then `data` has it so."""
        if not _has(data, fault.place) or not fault.place:
            return False
        text = self._texts.get(origin(fault.place))
        if fault.kind == "string_type" and text is not None:
            _set(data, fault.place, text)
            return True
        if fault.kind in ("model_type", "dict_type") and _get(data, fault.place) is None:
            _set(data, fault.place, {})  # a key with nothing beneath it: a block whose lines are all commented out
            return True
        return False

    def _report(self, fault: "_Fault", origin: Origin) -> bool:
        key = origin(fault.place)
        if fault.kind == "extra_forbidden":
            unknown_key(self._root, key, self._findings)
        else:
            self._findings.add(key, explain(fault.error), on="key" if fault.on_key else "value")
        self._findings.broken(key)
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fault:
    """One of pydantic's errors, and the place in the data that it is about."""

    place: Key
    kind: str
    on_key: bool
    error: Mapping[str, Any]


def _faults(error: ValidationError, data: Any) -> list[_Fault]:
    """In the order of the data. A fault around another one is its consequence, such as a list made too short."""
    faults = [
        _Fault(
            place=_place(found, data),
            kind=found["type"],
            on_key="[key]" in found["loc"],
            error=found,
        )
        for found in error.errors(include_url=False)
    ]
    around = {fault.place[:length] for fault in faults for length in range(len(fault.place))}
    return [fault for fault in faults if fault.place not in around]


def _place(error: Mapping[str, Any], data: Any) -> Key:
    """An error's place, without what pydantic adds to it (a union's branch, `[key]`, an index into a made tuple)."""
    place: list[str | int] = []
    for number, part in enumerate(error["loc"], start=1):
        if _has(data, (*place, part)) or (error["type"] == "missing" and number == len(error["loc"])):
            place.append(part)
    return tuple(place)


def _take_out(data: Any, fault: _Fault, stand_ins: Mapping[str, Any]) -> bool:
    """Remove the innermost key around a fault. False where nothing can go without the whole."""
    place = fault.place
    if len(place) == 1 and place[0] in stand_ins:
        data[place[0]] = stand_ins[str(place[0])]
        return True
    if fault.kind == "missing":
        place = place[:-1]
    while place and isinstance(place[-1], int):
        place = place[:-1]
    if not place:
        return False
    if _has(data, place):
        del _get(data, place[:-1])[place[-1]]
    return True


def _get(data: Any, place: Key) -> Any:
    for part in place:
        data = data[part]
    return data


def _set(data: Any, place: Key, value: Any) -> None:
    _get(data, place[:-1])[place[-1]] = value


def _has(data: Any, place: Key) -> bool:
    for part in place:
        if isinstance(data, dict):
            if part not in data:
                return False
        elif not isinstance(data, list) or not isinstance(part, int) or part >= len(data):
            return False
        data = data[part]
    return True


_LIMITS: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "greater_than_equal": lambda limit: f"must be at least {_number(limit['ge'])}",
    "greater_than": lambda limit: f"must be more than {_number(limit['gt'])}",
    "less_than_equal": lambda limit: f"must be at most {_number(limit['le'])}",
    "less_than": lambda limit: f"must be less than {_number(limit['lt'])}",
    "too_short": lambda limit: f"needs at least {_entries(limit['min_length'])}",
    "too_long": lambda limit: f"takes at most {_entries(limit['max_length'])}",
    "string_too_short": lambda limit: (
        "must not be empty" if limit["min_length"] == 1 else f"must have at least {limit['min_length']} characters"
    ),
    "string_too_long": lambda limit: f"must have at most {limit['max_length']} characters",
    "string_pattern_mismatch": lambda limit: _PATTERNS.get(limit["pattern"], f"must match {limit['pattern']}"),
    "literal_error": lambda limit: f"expected {limit['expected']}",
    "finite_number": lambda _: "must be a finite number",
}


def explain(error: Mapping[str, Any]) -> str:
    """One sentence for one of pydantic's errors."""
    kind = error["type"]
    limits = error.get("ctx", {})
    if kind == "missing":
        return "missing"
    if kind == "value_error":
        return str(limits["error"])
    if kind == "literal_error":
        return _one_of(error["input"], str(limits["expected"]))
    if kind in _LIMITS:
        return _LIMITS[kind](limits)
    if kind in ("model_type", "dict_type"):
        return not_a_mapping(error["input"], f"expected {_EXPECTED[kind]}, got {_kind(error['input'])}")
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {_kind(error['input'])}{_hint(kind, error['input'])}"
    return f"not usable here ({kind})"


def unknown_key(root: type[BaseModel], key: Key, findings: Findings) -> None:
    """Report a key that the model at its place does not have. Behind a colon in it stands what was meant as its value."""
    name = str(key[-1])
    if slip := colon_slip(name):
        findings.add(key, slip.message, on="key", path=(*key[:-1], slip.key))
    elif name != name.lstrip():
        findings.add(key, "the space before the key is a wide or special one — indent with plain spaces", on="key")
    else:
        findings.add(key, "unknown key" + suggestion(name, known_keys(root, key[:-1])), on="key")


def not_a_mapping(value: object, otherwise: str) -> str:
    """For a value that should have been a mapping: a lone key and value become a text where the colon is wrong."""
    slip = colon_slip(value) if isinstance(value, str) else None
    return slip.message if slip else otherwise


def _one_of(value: object, expected: str) -> str:
    names = [name.strip("' ") for name in expected.replace(" or ", ", ").split(",")]
    return f"expected {' or '.join(names)}" + (_near(value, names) if isinstance(value, str) else _found(value))


def _near(value: str, names: list[str]) -> str:
    found = suggestion(value, names)
    return found if "did you mean" in found else ""


def _found(value: object) -> str:
    return f", got {_kind(value)}"


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case _:
            return "a mapping"


def _hint(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return " — put it in quotes"
    if kind in ("list_type", "tuple_type"):
        return {"nothing": " — write [] for an empty list", "a string": " — write [ ] around it"}.get(_kind(value), "")
    if kind == "bool_type" and isinstance(value, str) and value.lower() in ("yes", "on", "no", "off", "true", "false"):
        return f" — write {'true' if value.lower() in ('yes', 'on', 'true') else 'false'}"
    if kind in ("int_type", "float_type") and isinstance(value, str):
        return " — write it without quotes, in digits"
    return ""


def _number(limit: float) -> str:
    return f"{int(limit):,}" if limit == int(limit) else str(limit)


def _entries(count: int) -> str:
    return "one entry" if count == 1 else f"{count} entries"
