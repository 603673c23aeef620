"""Check of JSON values against the JSON Schemas that pydantic writes, for types whose code is not loaded.

It covers the keywords of pydantic's validation schemas. Unknown keywords are ignored, as the standard says. A schema
does not know the validators of a type, so the reader of the value checks it again with the type.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

Problem = tuple[str, str]
"""Path of a part of the value, and what is wrong with it."""
DEPTH_MAX: Final = 200
PROBLEMS_MAX: Final = 20
CHOICES_SHOWN: Final = 10
WHOLE: Final = "(the whole)"
NAMES: Final = {
    "null": "null", "boolean": "a boolean", "integer": "an integer", "number": "a number", "string": "a string",
    "array": "an array", "object": "an object",
}  # fmt: skip
FORMATS: Final[Mapping[str, TypeAdapter[Any]]] = {
    "date-time": TypeAdapter(datetime),
    "date": TypeAdapter(date),
    "time": TypeAdapter(time),
    "duration": TypeAdapter(timedelta),
    "uuid": TypeAdapter(UUID),
    "ipv4": TypeAdapter(IPv4Address),
    "ipv6": TypeAdapter(IPv6Address),
}


def problems_by_schema(schema: Mapping[str, Any], value: Any) -> list[Problem]:
    """Return what is wrong with a JSON value by a schema, at most PROBLEMS_MAX problems; [] if it fits."""
    found: list[Problem] = []
    for problem in _Check(schema).problems(schema, value, (), 0):
        found.append(problem)
        if len(found) == PROBLEMS_MAX:
            break
    return found


def type_named(schema: Mapping[str, Any]) -> str:
    """Return the type that a schema describes in words: "a string", "Receipt"; "a value" if it names none."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if title := (schema.get("type") == "object" and schema.get("title")):
        return str(title)
    if isinstance(each := schema.get("anyOf", schema.get("oneOf")), list):
        return " or ".join(dict.fromkeys(type_named(one) for one in each))
    if "const" in schema or "enum" in schema:
        return _choices(schema)
    return NAMES.get(str(schema.get("type", "")), "a value")


def is_null_only(schema: Mapping[str, Any]) -> bool:
    """Return True if null is the only value of a schema, which is the one of None."""
    return schema.get("type") == "null"


class _Check:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def problems(self, schema: Any, value: Any, path: tuple[str, ...], depth: int) -> Iterator[Problem]:
        """Yield what is wrong with a part of the value."""
        if schema is False:
            yield _at(path), "no value is allowed here"
        if not isinstance(schema, Mapping):  # True allows any value
            return
        if depth > DEPTH_MAX:
            yield _at(path), "it is nested too deeply"
            return
        if "$ref" in schema:
            yield from self.problems(self._definition(str(schema["$ref"])), value, path, depth + 1)
        for each in schema.get("allOf", ()):
            yield from self.problems(each, value, path, depth + 1)
        # one of `oneOf` is enough: pydantic writes it for unions, whose members may overlap
        for several in (schema.get("anyOf"), schema.get("oneOf")):
            if isinstance(several, list):
                yield from self._one_of(several, value, path, depth)
        if (wrong := _wrong_kind(schema, value)) is not None:
            yield _at(path), wrong
        elif isinstance(value, str):
            yield from _of_text(schema, value, path)
        elif isinstance(value, list):
            yield from self._of_list(schema, value, path, depth)
        elif isinstance(value, dict):
            yield from self._of_object(schema, value, path, depth)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from _of_number(schema, value, path)

    def _definition(self, ref: str) -> Any:
        found: Any = self._root
        for part in ref.removeprefix("#").strip("/").split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return True if found is None else found

    def _one_of(self, several: Sequence[Any], value: Any, path: tuple[str, ...], depth: int) -> Iterator[Problem]:
        tried = [list(self.problems(each, value, path, depth + 1)) for each in several]
        if not all(tried):
            return
        deep = [found for found in tried if any(at != _at(path) for at, _ in found)]
        if len(deep) == 1:  # one member fits except for parts of it, so those say more
            yield from deep[0]
            return
        yield _at(path), f"it should be {type_named({'anyOf': list(several)})}"

    def _of_list(self, schema: Any, value: list[Any], path: tuple[str, ...], depth: int) -> Iterator[Problem]:
        yield from _of_size(schema, len(value), ("minItems", "maxItems"), "items", path)
        first = schema.get("prefixItems", ())
        for n, (each, item) in enumerate(zip(first, value, strict=False)):
            yield from self.problems(each, item, (*path, str(n)), depth + 1)
        if "items" in schema:
            for n, item in enumerate(value[len(first) :], len(first)):
                yield from self.problems(schema["items"], item, (*path, str(n)), depth + 1)
        if schema.get("uniqueItems") is True and any(_same(a, b) for n, a in enumerate(value) for b in value[:n]):
            yield _at(path), "its items should differ"

    def _of_object(self, schema: Any, value: dict[str, Any], path: tuple[str, ...], depth: int) -> Iterator[Problem]:
        for name in schema.get("required", ()):
            if name not in value:
                yield _at((*path, name)), "Field required"
        yield from _of_size(schema, len(value), ("minProperties", "maxProperties"), "entries", path)
        declared, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, part in value.items():
            if "propertyNames" in schema:
                yield from self.problems(schema["propertyNames"], name, (*path, name), depth + 1)
            fits = [each for pattern, each in patterns.items() if _matches(pattern, name)]
            if name in declared:
                fits.append(declared[name])
            for each in fits or [schema.get("additionalProperties", True)]:
                if each is False:
                    yield _at((*path, name)), "Extra inputs are not permitted"
                else:
                    yield from self.problems(each, part, (*path, name), depth + 1)


def _at(path: Sequence[str]) -> str:
    return ".".join(path) or WHOLE


def _same(a: Any, b: Any) -> bool:
    """Return True for equal JSON values. True is not 1."""
    return isinstance(a, bool) is isinstance(b, bool) and bool(a == b)


def _is_a(kind: str, value: Any) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    return True


def _wrong_kind(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return what is wrong with the type of a value or its choice; None if nothing is."""
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if kinds and not any(_is_a(kind, value) for kind in kinds):
        return f"it should be {' or '.join(NAMES.get(kind, kind) for kind in kinds)}"
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and not any(_same(each, value) for each in choices):
        return f"it should be {_choices(schema)}"
    return None


def _choices(schema: Mapping[str, Any]) -> str:
    choices = [schema["const"]] if "const" in schema else list(schema["enum"])
    more = " or another value of the type" if len(choices) > CHOICES_SHOWN else ""
    return " or ".join(repr(each) for each in choices[:CHOICES_SHOWN]) + more


def _matches(pattern: object, text: str) -> bool:
    try:
        return re.search(str(pattern), text) is not None
    except re.error:  # written for the regular expressions of Rust, so the type itself must check it
        return True


def _of_text(schema: Mapping[str, Any], value: str, path: tuple[str, ...]) -> Iterator[Problem]:
    yield from _of_size(schema, len(value), ("minLength", "maxLength"), "characters", path)
    if "pattern" in schema and not _matches(schema["pattern"], value):
        yield _at(path), f"it should match {schema['pattern']!r}"
    if (of := FORMATS.get(str(schema.get("format", "")))) is not None:
        try:
            of.validate_python(value)
        except ValidationError:
            yield _at(path), f"it should be a text in the format {schema['format']}"


def _of_size(
    schema: Mapping[str, Any], size: int, names: tuple[str, str], of: str, path: tuple[str, ...]
) -> Iterator[Problem]:
    low, high = (schema.get(name) for name in names)
    if isinstance(low, int) and size < low:
        yield _at(path), f"it should have at least {low} {of}"
    if isinstance(high, int) and size > high:
        yield _at(path), f"it should have at most {high} {of}"


BOUNDS: Final[tuple[tuple[str, str, Callable[[Any, Any], bool]], ...]] = (
    ("minimum", "at least", lambda value, bound: value >= bound),
    ("maximum", "at most", lambda value, bound: value <= bound),
    ("exclusiveMinimum", "greater than", lambda value, bound: value > bound),
    ("exclusiveMaximum", "less than", lambda value, bound: value < bound),
)


def _of_number(schema: Mapping[str, Any], value: float, path: tuple[str, ...]) -> Iterator[Problem]:
    for name, words, holds in BOUNDS:
        bound = schema.get(name)
        if isinstance(bound, int | float) and not holds(value, bound):
            yield _at(path), f"it should be {words} {bound}"
    step = schema.get("multipleOf")
    if isinstance(step, int) and isinstance(value, int) and step and value % step:
        yield _at(path), f"it should be a multiple of {step}"
