"""Check of JSON by a schema: it agrees with pydantic where no validator is in play."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from outlast.core.json_schema import is_null_only, problems_by_schema, type_named


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Part(BaseModel):
    name: str = Field(min_length=2, max_length=4, pattern="^[a-z]+$")
    count: int = Field(1, ge=1, le=9)


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid")
    part: Part
    below: "list[Tree]" = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


@dataclass
class Point:
    x: float
    y: float | None = None


TYPES: list[Any] = [
    None, bool, int, float, str, str | None, datetime, date, timedelta, UUID, Colour, Literal["a", 7], Part,
    Tree, Point, list[int], set[int], tuple[int, str], dict[str, int], dict[str, Part], Any, Cat | Dog,
    Annotated[Cat | Dog, Field(discriminator="kind")], Annotated[list[int], Field(min_length=1, max_length=2)],
    Annotated[int, Field(gt=0, lt=10, multiple_of=2)],
]  # fmt: skip
VALUES: list[Any] = [
    None, True, 0, 1, 2, 12, 1.5, "a", "red", "abc", "2026-11-28", "2026-11-28T10:00:00Z", "PT5S",
    "9f1bb49f-3c0e-4a51-b8a0-33d6e3c9a3f1", [], [1], [1, 2, 3], [1, "a"], ["a"], {}, {"name": "ab"}, {"name": "x"},
    {"name": "ab", "count": 0}, {"part": {"name": "ab"}}, {"part": {"name": "ab"}, "below": [{"part": 1}]},
    {"part": {"name": "ab"}, "more": 1}, {"x": 1}, {"x": 1, "y": None}, {"x": "no"}, {"a": 1}, {"a": "b"},
    {"a": {"name": "ab"}}, {"kind": "cat", "lives": 9}, {"kind": "dog"}, {"kind": "cow"},
]  # fmt: skip


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_value_fits_a_schema_if_the_type_accepts_it_as_it_is(type_: Any) -> None:
    """A schema describes strict validation of JSON; the lax one also converts `"1"` to 1."""
    adapter: TypeAdapter[Any] = TypeAdapter(type_)
    schema = adapter.json_schema()
    for value in VALUES:
        found = problems_by_schema(schema, value)
        try:
            adapter.validate_json(TypeAdapter(Any).dump_json(value), strict=True)
        except ValidationError:
            with_conversion = _loads(adapter, value)
            assert found or with_conversion, f"{value!r} is no {type_}"
        else:
            assert not found, f"{value!r} is a {type_}: {found}"


def _loads(adapter: TypeAdapter[Any], value: object) -> bool:
    try:
        adapter.validate_json(TypeAdapter(Any).dump_json(value))
    except ValidationError:
        return False
    return True


def test_problems_name_their_place() -> None:
    schema = Tree.model_json_schema()
    given = {"part": {"name": "AB", "count": 10}, "below": [{"part": {}}], "more": 1}
    assert problems_by_schema(schema, given) == [
        ("part.name", "it should match '^[a-z]+$'"),
        ("part.count", "it should be at most 9"),
        ("below.0.part.name", "Field required"),
        ("more", "Extra inputs are not permitted"),
    ]
    assert problems_by_schema({"type": "string"}, None) == [("(the whole)", "it should be a string")]
    assert problems_by_schema(TypeAdapter(str | None).json_schema(), 1) == [
        ("(the whole)", "it should be a string or null")
    ]


def test_true_is_not_one_and_a_long_list_of_problems_is_cut() -> None:
    assert problems_by_schema({"const": 1}, True) and problems_by_schema({"enum": [0]}, False)
    assert len(problems_by_schema({"items": {"type": "string"}}, list(range(1_000)))) == 20


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert problems_by_schema(schema, 1) == [("(the whole)", "it is nested too deeply")]
    assert problems_by_schema({"$ref": "#/$defs/gone"}, 1) == []


def test_types_in_words() -> None:
    assert type_named(Part.model_json_schema()) == "Part" and type_named({}) == "a value"
    assert type_named(TypeAdapter(Cat | None).json_schema()) == "Cat or null"
    assert is_null_only(TypeAdapter(None).json_schema()) and not is_null_only(TypeAdapter(str | None).json_schema())
