"""From expanded data to a model, without stopping at the first mistake.

A value the model refuses is reported and taken out, and the rest is read again: so every mistake of a section is found
in one run, and what is sound of it can still be checked against the other sections. Data goes in as JSON, because
strict models take a list for a tuple only there.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from gateway.config.explain import explain, unknown_key
from gateway.config.problems import Findings, Key

Model = TypeVar("Model")
Origin: TypeAlias = Callable[[Key], Key]
"""From a place in the data to the key of the file it came from."""


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
