"""The JSON schema for editors: pydantic's own, with our sentences, and with what the file may say beyond the models.

A number may be `${NAME:-8080}`, a model's name may stand alone for a list of one, and a section may be empty. The
schema helps while typing; what counts is `python -m gateway check`.
"""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from gateway.config.root import Config
from gateway.config.shape import all_models

_REFERENCE = {"type": "string", "pattern": r"\$\{"}


def schema(documentation: Callable[[type[BaseModel]], dict[str, str]]) -> dict[str, Any]:
    """The whole, as JSON data. `documentation` has the sentence of each field of a model."""
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
    """What the file may hold, where the model alone would be too strict."""
    property_ = {
        key: value for key, value in property_.items() if key not in ("title", "default", "writeOnly", "format")
    }
    if name == "model":
        return {"anyOf": [property_, property_["items"]]}
    if property_.get("type") in ("integer", "number", "boolean") or {"enum", "const"} & property_.keys():
        return {"anyOf": [property_, _REFERENCE]}
    if "anyOf" in property_:
        kinds = [kind for option in property_["anyOf"] for kind in [option.get("type")]]
        if {"integer", "number", "boolean"} & set(kinds):
            return {"anyOf": [*property_["anyOf"], _REFERENCE]}
    return property_
