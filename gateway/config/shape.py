"""The models as a tree: which keys a place of the config knows, and which of them hold secrets.

Nothing here validates; it answers questions that a model asked for its errors cannot.
"""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from gateway.config.problems import Key


def known_keys(root: type[BaseModel], key: Key) -> list[str]:
    """The keys that the mapping at `key` may have, as written in the file; none where it may have any."""
    annotations: list[Any] = [root]
    for part in key:
        annotations = [step for annotation in annotations for step in _step(annotation, part)]
    here = [kind for annotation in annotations for kind in branches(annotation)]
    models = [kind for kind in here if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return [name for model in models for name in fields_of(model)]


def secret_keys(root: type[BaseModel]) -> frozenset[str]:
    """The names of all fields that hold a secret, wherever they stand."""
    found = set()
    for model in all_models(root):
        for name, field in fields_of(model).items():
            if SecretStr in leaves(field.annotation):
                found.add(name)
    return frozenset(found)


def all_models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """`root` and every model beneath it, each once, top down."""
    models = [root]
    for model in models:
        for field in fields_of(model).values():
            models.extend(found for found in models_of(field.annotation) if found not in models)
    return models


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by the names used in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """The models an annotation mentions: itself, a branch, an item or a value."""
    return [leaf for leaf in leaves(annotation) if isinstance(leaf, type) and issubclass(leaf, BaseModel)]


def leaves(annotation: Any) -> Iterator[Any]:
    """The innermost types of an annotation, in its order; a mapping's keys are left out."""
    if get_origin(annotation) is Annotated:
        yield from leaves(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType, tuple, list, frozenset, set):
        for argument in get_args(annotation):
            yield from leaves(argument)
    elif get_origin(annotation) is dict:
        yield from leaves(get_args(annotation)[1])
    else:
        yield annotation


def branches(annotation: Any) -> Iterator[Any]:
    """What a value of this annotation can be: the branches of a union, without what only describes them."""
    if get_origin(annotation) is Annotated:
        yield from branches(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for argument in get_args(annotation):
            yield from branches(argument)
    else:
        yield annotation


def _step(annotation: Any, part: str | int) -> Iterator[Any]:
    """What stands one level deeper in a mapping or a list."""
    for branch in branches(annotation):
        origin = get_origin(branch)
        if origin is dict and isinstance(part, str):
            yield get_args(branch)[1]
        elif origin in (tuple, list) and isinstance(part, int):
            yield get_args(branch)[0]
        elif isinstance(branch, type) and issubclass(branch, BaseModel):
            yield from (field.annotation for name, field in fields_of(branch).items() if name == part)
