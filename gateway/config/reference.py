"""docs/config.md and docs/config.schema.json, made from the models: every key, its type, its default, its meaning.

`python -m gateway.config.reference docs` writes both; a test fails while they are older than the models, or while a key
has no sentence. The sentence is the string under the field in its class.
"""

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel

from gateway.config.reader import fields_of, models_of
from gateway.config.root import Config

_OPENING = """\
# config.yaml

Made from the code by `python -m gateway.config.reference docs`; do not edit. 本页由代码生成。

Keys are camelCase; a key that is not listed here is an error. `clawgate check` reports every mistake with its
line, its column and the fix. Editors that know JSON Schema can use [config.schema.json](config.schema.json).

In a value, `${NAME}` is the environment's NAME, and `${NAME:-default}` has a default if it is unset or empty.
`${file:path}` is the content of a file: 64 KiB at most, no symbolic link, without the newline at its end. `$${` is a
literal `${`. In `headers` and `env` of an MCP server, `${person:feishu}` is the token of the person who asks. Keys are
never expanded, and a filled-in text is not expanded again. Relative paths count from the folder of the config file.

The file is strict YAML: `true` and `false` are the only booleans, `no`, `012` and `1:30` are text, and tags and duplicate
keys are refused. Anchors (`&name`), aliases (`*name`) and merge keys (`<<: *name`) work, for at most 10,000 values in all;
top-level keys that begin with `x-` are a place for anchors and mean nothing else.
"""

_WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
_SIGNS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def markdown() -> str:
    """The page for people."""
    return "\n".join([_OPENING, *_sections()])


def documentation(model: type[BaseModel]) -> dict[str, str]:
    """The sentence of each field, by the name used in the file. A section's may be its model's; a field that has
    none is missing here."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            found.update(_docstrings(owner))
    sentences = {}
    for name, field in model.model_fields.items():
        models = models_of(field.annotation)
        text = found.get(name) or (inspect.cleandoc(models[0].__doc__ or "") if models else "")
        if text:
            sentences[field.alias or name] = " ".join(text.split())
    return sentences


def all_models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """Return `root` and every model below it, each once, top down."""
    models = [root]
    for model in models:
        for field in fields_of(model).values():
            models.extend(found for found in models_of(field.annotation) if found not in models)
    return models


@cache
def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The strings below the fields in the source of this one class."""
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found


def _sections() -> Iterator[str]:
    """Every mapping of the file, top down; if its keys were listed before, it refers to them."""
    listed: dict[type[BaseModel], str] = {}
    pending: list[tuple[str, type[BaseModel], str]] = [("", Config, "")]
    while pending:
        path, model, sentence = pending.pop(0)
        if model in listed:
            continue
        yield _section(path, model, sentence, listed)
        listed[model] = path
        sentences = documentation(model)
        pending = [
            (_below(path, name, field.annotation), found, sentences.get(name, ""))
            for name, field in fields_of(model).items()
            for found in models_of(field.annotation)
        ] + pending


def _below(path: str, name: str, annotation: Any) -> str:
    full = f"{path}.{name}" if path else name
    return full + {dict: ".NAME", tuple: "[]"}.get(get_origin(annotation) or str, "")


def _section(path: str, model: type[BaseModel], sentence: str, listed: dict[type[BaseModel], str]) -> str:
    title = f"## `{path}`" if path else "## The sections"
    lines = [title, "", " ".join(inspect.cleandoc(model.__doc__ or "").split()) or sentence, ""]
    rows = fields_of(model)
    for other, where in listed.items():
        if other in model.__mro__[1:]:
            lines += [f"Every key of [`{where}`](#{_anchor(where)}), and:", ""]
            rows = {name: field for name, field in rows.items() if name not in fields_of(other)}
        elif model in other.__mro__[1:]:
            without = " and ".join(f"`{name}`" for name in fields_of(other) if name not in rows)
            return "\n".join([*lines, f"Every key of [`{where}`](#{_anchor(where)}) except {without}.", ""])
    sentences, definition = documentation(model), model.model_json_schema(by_alias=True)
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name in rows:
        property_ = definition["properties"][name]
        cells = (f"`{name}`", _type(property_), _default(property_), sentences.get(name, ""))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _anchor(path: str) -> str:
    return "".join(char for char in path.lower() if char.isalnum() or char in "-_")


def _type(property_: Mapping[str, Any]) -> str:
    match property_:
        case {"anyOf": kinds}:
            return " or ".join(map(_type, kinds))
        case {"enum": values}:
            return " | ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{value}`"
        case {"items": item}:
            return f"list of {_type(item)}"
        case {"additionalProperties": dict(value)}:
            return f"mapping of names to {_type(value)}"
        case {"patternProperties": values}:
            return f"mapping of names to {_type(*values.values())}"
        case {"format": "password"}:
            return "secret"
        case {"type": kind}:
            limits = ", ".join(f"{sign} {property_[name]:,}" for name, sign in _SIGNS.items() if name in property_)
            return f"{_WORDS.get(kind, kind)} {limits}".rstrip()
    return "mapping"


def _default(property_: Mapping[str, Any]) -> str:
    if "$ref" in property_ and "default" in property_:
        return ""
    value = property_.get("default", ...)
    return "required" if value is ... else "empty" if value == "" else f"`{json.dumps(value, ensure_ascii=False)}`"


def main(folder: Path) -> None:
    (folder / "config.md").write_text(markdown(), encoding="utf-8")
    (folder / "config.schema.json").write_text(
        json.dumps(schema(), ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
    )


_REFERENCE = {"type": "string", "pattern": r"\$\{"}


def schema() -> dict[str, Any]:
    """The JSON schema, for editors."""
    made = Config.model_json_schema(by_alias=True)
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": "config.yaml of Clawgate"}
    definitions = {Config.__name__: made, **made.get("$defs", {})}
    for model in all_models(Config):
        definition = definitions[model.__name__]
        for name, sentence in documentation(model).items():
            property_ = definition["properties"][name]
            definition["properties"][name] = {**_loosened(property_, name), "description": sentence}
    for name, property_ in made["properties"].items():
        if name != "agents":
            description = property_.pop("description", None)
            made["properties"][name] = {"anyOf": [property_, {"type": "null"}], "description": description}
    made["patternProperties"] = {"^x-": {"description": "A place for anchors; ignored otherwise."}}
    return made


def _loosened(property_: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema of what the file may hold, if the model alone would be too strict."""
    property_ = {
        key: value for key, value in property_.items() if key not in ("title", "default", "writeOnly", "format")
    }
    if name == "model" and "items" in property_:
        return {"anyOf": [property_, property_["items"]]}
    if property_.get("type") in ("integer", "number", "boolean") or {"enum", "const"} & property_.keys():
        return {"anyOf": [property_, _REFERENCE]}
    if "anyOf" in property_:
        kinds = [kind for option in property_["anyOf"] for kind in [option.get("type")]]
        if {"integer", "number", "boolean"} & set(kinds):
            return {"anyOf": [*property_["anyOf"], _REFERENCE]}
    return property_


if __name__ == "__main__":
    main(Path(sys.argv[1]))
