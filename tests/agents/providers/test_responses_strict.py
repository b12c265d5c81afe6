"""The strict form of a schema: what it becomes, what stays as it is, and that the emulator takes what comes out."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.providers.openai.strict import DEPTH_MAX, PROPERTIES_MAX, strict_schema
from tests.emulators.models.responses.schema_rules import check_schema


def closed(members: Any, *required: str, **more: Any) -> dict[str, Any]:
    """An object with no members but these."""
    return {"type": "object", "properties": members, "required": list(required), "additionalProperties": False} | more


STRING = {"type": "string"}

OR_NULL = {"type": ["string", "null"]}
LOOSE = closed(
    {
        "b": STRING | {"description": "B."},
        "a": STRING,
        "choice": STRING | {"enum": ["x", "y"]},
        "constant": STRING | {"const": "x"},
        "demanded": STRING | {"const": "y"},
        "null": OR_NULL | {"enum": ["x", None]},
        "list": {"type": "array", "items": closed({"b": {"type": "integer", "minimum": 1}}), "maxItems": 3},
        "inner": closed({"b": STRING}),
    },
    "a",
    "demanded",
)
INTEGER = {"type": ["integer", "null"], "minimum": 1}
STRICT = closed(
    {
        "b": OR_NULL | {"description": "B."},
        "a": STRING,
        "choice": OR_NULL | {"enum": ["x", "y", None]},
        "constant": OR_NULL | {"enum": ["x", None]},
        "demanded": STRING | {"enum": ["y"]},
        "null": OR_NULL | {"enum": ["x", None]},
        "list": {"type": ["array", "null"], "items": closed({"b": INTEGER}, "b"), "maxItems": 3},
        "inner": closed({"b": OR_NULL}, "b", type=["object", "null"]),
    },
    *LOOSE["properties"],
)


def test_what_is_optional_may_be_null_and_everything_is_required_in_its_order() -> None:
    before = deepcopy(LOOSE)
    assert strict_schema(LOOSE) == STRICT == strict_schema(STRICT)
    assert before == LOOSE
    check_schema(STRICT, "f", "tools[0].parameters", strict=True)


def nested(levels: int) -> dict[str, Any]:
    schema = closed({})
    for _ in range(levels):
        schema = closed({"a": schema}, "a")
    return schema


WIDE = {str(number): STRING for number in range(PROPERTIES_MAX)}
NO_MEMBERS: list[Any] = [
    *({"type": "object"}, {"description": "x"}, {"type": "text"}, {"type": []}, {"type": ["string", {}]}, True),
    *({"type": "array"}, {"anyOf": [STRING]}, {"$ref": "#/$defs/a"}),
    *(STRING | it for it in ({"default": "x"}, {"minimum": 3}, {"enum": "x"}, {"enum": list(map(str, range(1001)))})),
]
NO_FIT: list[Any] = [
    STRING,
    {"type": "object", "properties": {"a": STRING}},
    closed({}, "a"),
    closed({}, type=["object", "null"]),
    closed(WIDE | {"a": STRING}),
    nested(DEPTH_MAX + 1),
    closed({}, enum=[{}]),
    closed({}) | {"required": [["a"]]},
    closed({}) | {"required": "a"},
    closed(["a"]),
    *(closed({"a": it}, "a") for it in NO_MEMBERS),
]


@pytest.mark.parametrize("schema", NO_FIT, ids=range(len(NO_FIT)))
def test_a_schema_that_does_not_fit_stays_as_it_is(schema: Any) -> None:
    assert strict_schema(schema) is None


def test_the_deepest_and_widest_schema_fits() -> None:
    for schema in (nested(DEPTH_MAX), closed(WIDE)):
        derived = strict_schema(schema)
        assert derived is not None
        check_schema(derived, "f", "p", strict=True)


leaves = st.sampled_from([STRING, INTEGER, STRING | {"enum": ["x"]}, {"type": "boolean", "const": True}, *NO_MEMBERS])
schemas: st.SearchStrategy[Any] = st.recursive(
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
