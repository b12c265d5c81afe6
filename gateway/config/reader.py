"""Validate a file's data into a config, without stopping at the first error.

A value that the model rejects is reported and removed, or replaced if it is required, and the rest is validated again, so
that one run finds all errors. `agents.defaults` are merged into each agent first; errors are reported where they were
written. Data is passed as JSON, because strict models accept a list for a tuple only there.

Messages say what is expected, never the value, which may be a secret.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from agents.config import AgentId, ModelName
from gateway.config.problems import INHERITED, Findings, Key, did_you_mean, suggestion
from gateway.config.root import Config
from gateway.config.yaml import Document, colon_slip

Root = TypeVar("Root", bound=Config)
PydanticFault: TypeAlias = Mapping[str, Any]
"""An error of pydantic's `ValidationError`."""

_EXAMPLE = "add at least one agent: agents: { list: [ { id: assistant } ] }"
_LINES = "expected a list: lines that begin with -"
_SENTENCES = {
    (("agents",), "missing"): f"missing — {_EXAMPLE}",
    (("agents",), "model_type"): f"expected a mapping — {_EXAMPLE}",
    (("agents", "list"), "missing"): f"missing or empty — {_EXAMPLE}",
    (("agents", "list"), "too_short"): f"missing or empty — {_EXAMPLE}",
    (("agents", "list"), "tuple_type"): _LINES,
    (("agents", "list", "*"), "model_type"): "expected a mapping with at least an id, such as { id: assistant }",
    (("bindings",), "tuple_type"): _LINES,
}
"""Messages for keys where the usual one would not help; `*` is any list entry."""


def read(root: type[Root], document: Document, findings: Findings) -> Root:
    """Return the valid part of the config, with placeholders for required keys, and report errors to `findings`."""
    data = json.loads(json.dumps(_effective(document.data, fields_of(root))))  # so that no two agents share a mapping
    while True:
        try:
            return root.model_validate_json(json.dumps(data))
        except ValidationError as error:
            for place, fault in _faults(error, data):
                if not _read_otherwise(data, place, fault, document.texts.get(findings.origin(place))):
                    _report(place, fault, root, findings)
                    _take_out(data, place, fault)


def _effective(written: Mapping[str, Any], sections: Mapping[str, Any]) -> dict[str, Any]:
    # Drop empty sections and `x-` keys, and merge the defaults into each agent.
    data = {
        name: value
        for name, value in written.items()
        if not (name in sections and value is None) and (name in sections or not name.startswith("x-"))
    }
    agents = data.get("agents")
    if not isinstance(agents, dict):
        return data
    data["agents"] = agents = {name: value for name, value in agents.items() if name != "list" or value is not None}
    if isinstance(agents.get("list"), list):
        defaults = agents.get("defaults")
        defaults = defaults if isinstance(defaults, dict) else {}
        inherited = {name: value for name, value in defaults.items() if name in INHERITED}
        agents["list"] = [merged(inherited, it) if isinstance(it, dict) else it for it in agents["list"]]
    return data


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `over` into `base`: mappings key by key, everything else replaced. An empty block changes nothing."""
    result = dict(base)
    for name, value in over.items():
        beneath = result.get(name)
        if isinstance(beneath, dict) and (value is None or isinstance(value, dict)):
            result[name] = merged(beneath, value or {})
        else:
            result[name] = value
    return result


def _faults(error: ValidationError, data: Any) -> list[tuple[Key, PydanticFault]]:
    # An error that contains another is its consequence, such as a list that is too short.
    faults = [(_place(it, data), it) for it in error.errors(include_url=False)]
    around = {place[:length] for place, _ in faults for length in range(len(place))}
    return [it for it in faults if it[0] not in around]


def _place(error: PydanticFault, data: Any) -> Key:
    # Skip what pydantic adds: a union's branch, `[key]`, an index into a converted tuple.
    place: list[str | int] = []
    for number, part in enumerate(error["loc"], start=1):
        if _has(data, (*place, part)) or (error["type"] == "missing" and number == len(error["loc"])):
            place.append(part)
    return tuple(place)


def _read_otherwise(data: Any, place: Key, fault: PydanticFault, text: str | None) -> bool:
    # Replace the value in `data` by its `text` for a string field, or by an empty mapping.
    if not _has(data, place):
        return False
    value: Any = text if fault["type"] == "string_type" else None
    is_empty = fault["input"] is None and not isinstance(place[-1], int)
    if is_empty and fault["type"] in ("model_type", "dict_type"):
        value = {}  # a key with nothing beneath it: a block whose lines are all commented out
    if value is not None:
        _get(data, place[:-1])[place[-1]] = value
    return value is not None


def _report(place: Key, fault: PydanticFault, root: type[Config], findings: Findings) -> None:
    if fault["type"] == "extra_forbidden":
        _unknown_key(root, place, findings)
    else:
        pattern = tuple("*" if isinstance(part, int) else part for part in place)
        sentence = _SENTENCES.get((pattern, fault["type"]))
        what = not_a_mapping(fault["input"], sentence) if sentence else explain(fault)
        findings.add(place, what, on="key" if "[key]" in fault["loc"] else "value")
    findings.mark_unusable(place)


def _unknown_key(root: type[Config], key: Key, findings: Findings) -> None:
    name = str(key[-1])
    if slip := colon_slip(name):
        findings.add(key, slip.message, on="key", name=slip.key)
    elif name != name.lstrip():
        findings.add(key, "the space before the key is a wide or special one — indent with plain spaces", on="key")
    else:
        findings.add(key, "unknown key" + suggestion(name, known_keys(root, key[:-1])), on="key")


def known_keys(root: type[BaseModel], key: Key) -> list[str]:
    """Return the valid keys of the mapping at `key`, as written in the file."""
    models, parts = [root], iter(key)
    for name in parts:
        annotation = next((fields_of(it)[str(name)].annotation for it in models if name in fields_of(it)), None)
        models = models_of(annotation)
        if get_origin(annotation) in (dict, tuple):
            next(parts, None)  # a name chosen freely, or an index
    return [name for model in models for name in fields_of(model)]


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a model's fields by their names in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """Return the models in an annotation: itself, or those of its branches, items or values."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models_of(argument)]


def _take_out(data: Any, place: Key, fault: PydanticFault) -> None:
    match place:
        case ("agents", *rest) if rest in ([], ["list"]):
            data["agents"] = {"list": [{"id": "unnamed"}]}
        case ("agents", "list", int(index)):
            data["agents"]["list"][index] = {"id": f"unnamed-{index}"}
        case ("agents", "list", int(index), "id"):
            data["agents"]["list"][index]["id"] = f"unnamed-{index}"
        case ("bindings", int(index)):
            data["bindings"][index] = {"agent": "unnamed"}
        case ("bindings", int(index), "agent"):
            data["bindings"][index]["agent"] = "unnamed"
        case _:
            place = place[:-1] if fault["type"] == "missing" else place
            while isinstance(place[-1], int):
                place = place[:-1]
            if _has(data, place):
                del _get(data, place[:-1])[place[-1]]


def _get(data: Any, place: Key) -> Any:
    for part in place:
        data = data[part]
    return data


def _has(data: Any, place: Key) -> bool:
    for part in place:
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data))
        if not inside:
            return False
        data = data[part]
    return True


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
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_KINDS: tuple[tuple[Any, str], ...] = (
    (type(None), "nothing"),
    (bool, "true or false"),
    (int | float, "a number"),
    (str, "a string"),
    (list | tuple, "a list"),
)
_LIMITS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "too_short": "needs at least one entry",
    "string_too_short": "must not be empty",
}


def explain(error: Mapping[str, Any]) -> str:
    kind, value, limits = error["type"], error["input"], error.get("ctx", {})
    if kind == "value_error":
        return str(limits["error"])
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(limits["pattern"], f"must match {limits['pattern']}")
    if kind == "literal_error":
        return _one_of(value, str(limits["expected"]))
    if kind in _LIMITS:
        return _LIMITS[kind].format(**{name: _number(limit) for name, limit in limits.items() if name != "field_type"})
    if kind in _EXPECTED:
        sentence = f"expected {_EXPECTED[kind]}, got {_kind(value)}{_hint(kind, value)}"
        return not_a_mapping(value, sentence) if kind in ("model_type", "dict_type") else sentence
    return "missing" if kind == "missing" else f"not usable here ({kind})"


def not_a_mapping(value: object, otherwise: str) -> str:
    """Return the message for a text in place of a mapping, which may be a key and value with a wrong colon."""
    slip = colon_slip(value) if isinstance(value, str) else None
    return slip.message if slip else otherwise


def _one_of(value: object, expected: str) -> str:
    names = [name.strip("' ") for name in expected.replace(" or ", ", ").split(",")]
    sentence = f"expected {' or '.join(names)}"
    if not isinstance(value, str):
        return f"{sentence}, got {_kind(value)}"
    return f"{sentence} — {near}" if (near := did_you_mean(value, names)) else sentence


def _kind(value: object) -> str:
    return next((name for kinds, name in _KINDS if isinstance(value, kinds)), "a mapping")


def _hint(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return " — put it in quotes"
    if kind == "tuple_type":
        return {"nothing": " — write [] for an empty list", "a string": " — write [ ] around it"}.get(_kind(value), "")
    if kind == "bool_type" and isinstance(value, str) and value.lower() in ("yes", "on", "no", "off", "true", "false"):
        return f" — write {'true' if value.lower() in ('yes', 'on', 'true') else 'false'}"
    if kind in ("int_type", "float_type") and isinstance(value, str):
        return " — write it without quotes, in digits"
    return ""


def _number(limit: float) -> str:
    return f"{int(limit):,}" if limit == int(limit) else str(limit)
