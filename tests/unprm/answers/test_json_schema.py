"""Whether JSON keeps a schema, against `jsonschema`, and at what cost."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from unprm.answers.json_schema import MOST, breaks

NAMES = ["a", "b", "c"]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.sampled_from([0.5, 1.0, 2.5]), st.text("ab", max_size=3)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
)
types = st.sampled_from(["object", "array", "string", "boolean", "null", "number", "integer"])
limits = st.integers(0, 3)
sizes = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def _composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "type": types | st.lists(types, min_size=1, max_size=2, unique=True),
        "enum": st.lists(values, min_size=1, max_size=3),
        "const": values,
        "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        "additionalProperties": inner,
        "items": inner,
        "prefixItems": several,
        "not": inner,
        "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
    }
    optional |= dict.fromkeys(("allOf", "anyOf", "oneOf"), several) | dict.fromkeys((*sizes, *bounds), limits)
    one = st.one_of([st.dictionaries(st.just(name), each, min_size=1, max_size=1) for name, each in optional.items()])
    return st.builds(lambda first, second: first | second, one, one)


schemas = st.recursive(st.booleans() | st.builds(lambda name: {"type": name}, types), _composed, max_leaves=6)


@given(schemas, values)
def test_it_is_what_jsonschema_says(schema: Any, value: Any) -> None:
    if isinstance(schema, dict):
        schema = schema | {"$defs": {"x": {"type": "string"}, "y": {"minimum": 1}}}
    assert breaks(value, schema) is not Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("keyword", [*bounds, *sizes])
def test_limits_are_what_jsonschema_says(keyword: str) -> None:
    for limit in range(3):
        for value in (0, 1, 1.5, 2, True, "", "a", "ab", [], [1], [1, 2], {}, {"a": 1}, {"a": 1, "b": 2}):
            assert breaks(value, {keyword: limit}) is not Draft202012Validator({keyword: limit}).is_valid(value)


@pytest.mark.parametrize(
    "schema", [None, 3, "x", {"type": 3}, {"$ref": "#/none"}, {"$ref": "elsewhere"}, {"items": [1]}]
)
def test_a_schema_that_cannot_be_read_is_kept(schema: Any) -> None:
    assert not breaks([{"a": 1}], schema)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ([0] * 2 * MOST + ["x"], {"items": {"type": "integer"}}),
        (1, {"$ref": "#"}),
        (1, {"$defs": {str(k): {"allOf": [{"$ref": f"#/$defs/{k + 1}"}] * 2} for k in range(60)}, "$ref": "#/$defs/0"}),
        ([[]] * 4000 + ["x"], {"items": {"enum": [*range(5500), []]}}),
    ],
    ids=["long", "itself", "twice as many at each level", "values"],
)
def test_what_takes_too_long_is_kept(value: Any, schema: Any) -> None:
    begun = time.process_time()
    assert not breaks(value, schema)
    assert time.process_time() - begun < 1
