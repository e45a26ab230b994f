"""Whether JSON keeps a JSON schema, as far as a bounded number of comparisons tells.

Checked are types, values, the parts of objects and lists, limits, references inside the schema and combinations; other
keywords (as `pattern`, which a caller could make arbitrarily slow) are not.
"""

import operator
from typing import Any

MOST = 20_000
"""Comparisons of a value with a part of a schema; they take some 20 ms."""
_TYPES: dict[str, set[type]] = {
    "object": {dict},
    "array": {list},
    "string": {str},
    "boolean": {bool},
    "null": {type(None)},
}
_TYPES |= {"number": {int, float}, "integer": {int, float}}
_LIMITS = {
    "minimum": ("number", operator.ge),
    "maximum": ("number", operator.le),
    "exclusiveMinimum": ("number", operator.gt),
    "exclusiveMaximum": ("number", operator.lt),
    "minLength": ("string", operator.ge),
    "maxLength": ("string", operator.le),
    "minItems": ("array", operator.ge),
    "maxItems": ("array", operator.le),
    "minProperties": ("object", operator.ge),
    "maxProperties": ("object", operator.le),
}
"""The type of the values that a keyword limits, and how these, or their lengths, compare with its limit."""


class _TooMany(Exception):
    """The comparisons are used up."""


def breaks(value: Any, schema: Any) -> bool:
    """Whether a value breaks a schema; False if `MOST` comparisons don't tell."""
    try:
        return not _Check(schema).keeps(value, schema)
    except (_TooMany, RecursionError):
        return False


class _Check:
    def __init__(self, root: Any) -> None:
        self._root, self._left = root, MOST

    def keeps(self, value: Any, schema: Any) -> bool:
        self._pay(1)
        if not isinstance(schema, dict):
            return schema is not False
        return all(self._keeps(value, schema, keyword, argument) for keyword, argument in schema.items())

    def _keeps(self, value: Any, schema: dict[str, Any], keyword: str, argument: Any) -> bool:
        match keyword, argument, value:
            case "$ref", str(), _:
                return self.keeps(value, self._referred(argument))
            case "type", _, _:
                return any(_is(value, name) for name in (argument if isinstance(argument, list) else [argument]))
            case "enum", list(), _:
                self._pay(len(argument))
                return any(_same(value, each) for each in argument)
            case "const", _, _:
                return _same(value, argument)
            case "allOf", list(), _:
                return all(self.keeps(value, each) for each in argument)
            case "anyOf", list(), _:
                return any(self.keeps(value, each) for each in argument)
            case "oneOf", list(), _:
                return sum(self.keeps(value, each) for each in argument) == 1
            case "not", _, _:
                return not self.keeps(value, argument)
            case "required", list(), dict():
                return all(name in value for name in argument if isinstance(name, str))
            case "properties", dict(), dict():
                return all(self.keeps(value[name], each) for name, each in argument.items() if name in value)
            case "additionalProperties", _, dict() if "patternProperties" not in schema:
                return all(self.keeps(value[name], argument) for name in value.keys() - schema.get("properties", {}))
            case "items", _, list():
                return all(self.keeps(each, argument) for each in value[len(schema.get("prefixItems", ())) :])
            case "prefixItems", list(), list():
                return all(map(self.keeps, value, argument))
        kind, compare = _LIMITS.get(keyword, (None, operator.ge))
        if kind is None or not _is(value, kind) or not _is(argument, "number"):
            return True
        return bool(compare(value if kind == "number" else len(value), argument))

    def _referred(self, reference: str) -> Any:
        """The part of the schema; true, which everything keeps, if there is none."""
        found = self._root
        for part in reference.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            self._pay(1)
            found = found.get(name, True) if isinstance(found, dict) else True
        return found if reference.startswith("#") else True

    def _pay(self, comparisons: int) -> None:
        self._left -= comparisons
        if self._left < 0:
            raise _TooMany


def _is(value: Any, name: Any) -> bool:
    """Whether a value is of a type; of an unknown type every value is."""
    if not isinstance(name, str) or name not in _TYPES:
        return True
    return type(value) in _TYPES[name] and (name != "integer" or value % 1 == 0)


def _same(value: Any, other: Any) -> bool:
    """Whether two values are equal; true is not 1, which it is in Python."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same(value[name], other[name]) for name in value)
    return isinstance(value, bool) is isinstance(other, bool) and bool(value == other)
