"""The strict form of a schema: what it becomes, what stays as it is, and that the emulator takes what comes out."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.providers.openai.strict import DEPTH_MAX, PROPERTIES_MAX, strict_schema
from tests.emulators.models.responses.schema_rules import check_schema


def closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return schema | more


STRING = {"type": "string"}

OR_NULL = {"type": ["string", "null"]}
FITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing to say": (closed({}), closed({})),
    "optional may be null, in the order of the properties": (
        closed({"b": STRING | {"description": "B."}, "a": STRING}, "a"),
        closed({"b": OR_NULL | {"description": "B."}, "a": STRING}, "b", "a"),
    ),
    "an optional choice may be null": (
        closed({"a": STRING | {"enum": ["x", "y"]}}),
        closed({"a": OR_NULL | {"enum": ["x", "y", None]}}, "a"),
    ),
    "a constant is a choice of one": (
        closed({"a": STRING | {"const": "x"}, "b": STRING | {"const": "y"}}, "b"),
        closed({"a": OR_NULL | {"enum": ["x", None]}, "b": STRING | {"enum": ["y"]}}, "a", "b"),
    ),
    "what may be null already is not said twice": (
        closed({"a": OR_NULL | {"enum": ["x", None]}}),
        closed({"a": OR_NULL | {"enum": ["x", None]}}, "a"),
    ),
    "an optional object inside": (
        closed({"a": closed({"b": {"type": "integer", "minimum": 1}})}),
        closed({"a": closed({"b": {"type": ["integer", "null"], "minimum": 1}}, "b", type=["object", "null"])}, "a"),
    ),
    "an optional list of objects": (
        closed({"a": {"type": "array", "items": closed({"b": STRING}), "maxItems": 3}}),
        closed({"a": {"type": ["array", "null"], "items": closed({"b": OR_NULL}, "b"), "maxItems": 3}}, "a"),
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_a_schema_that_fits(name: str) -> None:
    schema, strict = FITS[name]
    before = deepcopy(schema)
    derived = strict_schema(schema)
    assert derived == strict
    assert schema == before
    check_schema(derived, "f", "tools[0].parameters", strict=True)
    assert strict_schema(strict) == strict


def nested(levels: int) -> dict[str, Any]:
    schema = closed({})
    for _ in range(levels):
        schema = closed({"a": schema}, "a")
    return schema


NO_FIT: dict[str, Any] = {
    "no object": {"type": "string"},
    "a choice at the root": closed({}) | {"enum": [{}]},
    "an object that may be null at the root": closed({}, type=["object", "null"]),
    "an open object": {"type": "object", "properties": {"a": STRING}},
    "an object with names of any kind": closed({"a": {"type": "object"}}),
    "a member without a type": closed({"a": {"description": "anything"}}),
    "a type that is none": closed({"a": {"type": "text"}}),
    "a type that is no text": closed({"a": {"type": ["string", {}]}}),
    "an empty list of types": closed({"a": {"type": []}}),
    "a list without items": closed({"a": {"type": "array"}}),
    "a default": closed({"a": {"type": "string", "default": "x"}}),
    "a union": closed({"a": {"anyOf": [STRING, {"type": "integer"}]}}),
    "a reference": closed({"a": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": STRING}}),
    "a number's keyword on a text": closed({"a": {"type": "string", "minimum": 3}}),
    "a required member that is not there": closed({}, "a"),
    "required that names no text": closed({}) | {"required": [["a"]]},
    "a choice that is no list": closed({"a": {"type": "string", "enum": "x"}}),
    "required that is no list": closed({}) | {"required": "a"},
    "properties that are none": closed({}) | {"properties": ["a"]},
    "a member that is no schema": closed({"a": True}),
    "too deep": nested(DEPTH_MAX + 1),
    "too many properties": closed({str(n): STRING for n in range(PROPERTIES_MAX + 1)}),
    "too many values": closed({"a": {"type": "string", "enum": [str(n) for n in range(1001)]}}, "a"),
}


@pytest.mark.parametrize("name", NO_FIT)
def test_a_schema_that_does_not_fit_stays_as_it_is(name: str) -> None:
    assert strict_schema(NO_FIT[name]) is None


def test_the_deepest_and_widest_schema_fits() -> None:
    for schema in (nested(DEPTH_MAX), closed({str(n): STRING for n in range(PROPERTIES_MAX)})):
        derived = strict_schema(schema)
        assert derived is not None
        check_schema(derived, "f", "p", strict=True)


leaves: st.SearchStrategy[Any] = st.sampled_from(
    [
        STRING,
        {"type": "integer", "minimum": 0},
        {"type": "string", "enum": ["x"]},
        {"type": "string", "maxLength": 2},
        {"type": "object"},
        {"type": "boolean", "const": True},
        {"anyOf": [STRING]},
    ]
)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda members, some: closed(members, *[name for name in members if name in some]),
            st.dictionaries(st.sampled_from("abc"), inner),
            st.sets(st.sampled_from("abc")),
        ),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), schemas))
@settings(max_examples=200, deadline=None)
def test_whatever_is_derived_is_accepted_as_strict(members: dict[str, Any]) -> None:
    derived = strict_schema(closed(members))
    if derived is not None:
        check_schema(derived, "f", "p", strict=True)
        assert list(derived["properties"]) == list(members)
