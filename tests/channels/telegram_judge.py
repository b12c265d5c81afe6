"""aiogram as a judge: run by an interpreter that has it, in `.venv/judges`, never imported by the tests.

    python telegram_judge.py FILE   what is wrong with the recorded calls and updates, as a JSON list

Its models let unknown fields pass, for the sake of newer servers. Here none may be left over, at any depth.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiogram import methods, types  # type: ignore[import-not-found]
from pydantic import BaseModel, TypeAdapter, ValidationError


def complaints(record: dict[str, Any]) -> Iterator[str]:
    """`calls` are {method, body, result}, `updates` as they are sent; a refused call has no result. `rich`: the types of
    blocks and nodes that are known to us."""
    if known := record.get("rich"):
        for name, kind in vars(types).items():
            field = (
                getattr(kind, "model_fields", {}).get("type") if name.startswith(("RichBlock", "RichText")) else None
            )
            if field is not None and isinstance(field.default, str) and field.default not in known:
                yield f"{name}: {field.default!r} is not read"
    for call in record["calls"]:
        model = getattr(methods, call["method"][0].upper() + call["method"][1:])
        yield from misfits(model, call["body"], call["method"], strict=True)
        if "result" in call:
            yield from misfits(model.__returning__, call["result"], f"the answer to {call['method']}")
    for update in record["updates"]:
        yield from misfits(types.Update, update, "the update")


def misfits(kind: Any, value: Any, where: str, *, strict: bool = False) -> Iterator[str]:
    """Strict for what we send; a time that is received is a number, which strictly is none."""
    try:
        parsed = TypeAdapter(kind).validate_json(json.dumps(value), strict=strict)
    except ValidationError as error:
        yield from (f"{where}: {found['loc']} {found['msg']}" for found in error.errors())
    else:
        yield from left_over(parsed, where)


def left_over(value: Any, where: str) -> Iterator[str]:
    """Fields that no model knows."""
    if isinstance(value, BaseModel):
        yield from (f"{where}: {type(value).__name__} has no {name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from left_over(getattr(value, name), f"{where}.{name}")
    elif isinstance(value, list):
        for one in value:
            yield from left_over(one, where)


if __name__ == "__main__":
    (path,) = sys.argv[1:]
    json.dump(list(complaints(json.loads(Path(path).read_text(encoding="utf-8")))), sys.stdout)
