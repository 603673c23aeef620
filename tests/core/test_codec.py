"""Codecs: equal values give equal bytes, values survive storing, and an unstorable value is named by its path."""

import json
import math
import warnings
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, computed_field

from outlast.core import codec as codec_module
from outlast.core.codec import Codec, canonical, digest
from outlast.errors import DefinitionError, InvalidInput, LimitExceeded, NotStorable

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


class Line(BaseModel):
    sku: str
    cents: int
    weight: float = 0.0
    note: str | None = None


class Basket(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    lines: list[Line] = []
    at: datetime | None = None
    extra: Any = None


@given(JSON)
def test_canonical_bytes_are_json_with_equal_values(value: Any) -> None:
    data = canonical(value)
    assert json.loads(data) == value
    assert canonical(json.loads(data)) == data


@given(st.dictionaries(TEXT, JSON, max_size=6))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    turned = dict(reversed(list(value.items())))
    assert canonical(turned) == canonical(value)


def test_canonical_bytes_have_no_space_and_are_utf8() -> None:
    assert canonical({"b": [1, None], "a": "ä"}) == '{"a":"ä","b":[1,null]}'.encode()


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"a": [1, math.nan]}, "value.a[1] is nan"),
        ({"a": math.inf}, "value.a is inf"),
        ({"a": {1: 2}}, "value.a has a key that is a int"),
        ({"a": {"b": object()}}, "value.a.b is a object"),
        ([b"x"], "value[0] is a bytes"),
        ("\ud800", "value is text that is not valid Unicode"),
        ({"a": {1, 2}}, "value.a is a set"),
    ],
)
def test_a_value_that_is_not_json_is_refused_with_its_path(value: Any, named: str) -> None:
    with pytest.raises(NotStorable) as error:
        canonical(value)
    assert named in str(error.value)
    assert error.value.code == "OUT-104"


def test_depth_is_limited() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotStorable, match="nested deeper than"):
        canonical(deep)


def test_a_digest_accepts_values_and_their_canonical_bytes() -> None:
    assert digest("a", {"b": 1}) == digest("a", canonical({"b": 1}))
    assert digest("a", "b") != digest("ab") != digest(["a", "b"])
    assert digest("a", "b") != digest("b", "a")


@given(
    st.builds(Line, sku=TEXT, cents=st.integers(), weight=st.floats(allow_nan=False, allow_infinity=False), note=TEXT)
)
def test_dumped_values_are_loaded_unchanged(line: Line) -> None:
    codec = Codec[Basket](Basket)
    basket = Basket(lines=[line, line], at=datetime(2026, 1, 1, tzinfo=UTC), extra={"a": [None, 1.5]})
    assert codec.load(codec.dump(basket)) == basket
    assert codec.load(codec.canonical(basket)) == basket


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf])
def test_nan_is_refused_instead_of_becoming_null(weight: float) -> None:
    codec = Codec[Basket](Basket, named="the state of shop")
    basket = Basket(lines=[Line(sku="a", cents=1), Line(sku="b", cents=1, weight=weight)])
    with pytest.raises(NotStorable) as error:
        codec.dump(basket)
    assert "the state of shop cannot be stored" in str(error.value)
    assert "state.lines[1].weight is" in str(error.value)


def test_nan_in_a_model_that_allows_anything_is_refused() -> None:
    with pytest.raises(NotStorable, match=r"value.extra.a is nan"):
        Codec[Basket](Basket).dump(Basket(extra={"a": math.nan}))
    with pytest.raises(NotStorable):
        Codec[float](float).dump(math.nan)


def test_null_without_floats_is_fine() -> None:
    assert Codec[Line](Line).dump(Line(sku="a", cents=1)) == b'{"sku":"a","cents":1,"weight":0.0,"note":null}'


def test_a_part_without_json_form_is_named_in_three_lines() -> None:
    class Reply(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        session: Any

    with pytest.raises(NotStorable) as error:
        Codec[Reply](Reply, named='the reply of step "quote"').dump(Reply(session=object()))
    first, why, fix = str(error.value).splitlines()
    assert first == 'OUT-104  the reply of step "quote" cannot be stored'
    assert why.strip() == "reply.session is a object; values must be JSON or a pydantic model"
    assert fix.strip().startswith("→ ")
    assert fix.endswith("https://outlast.dev/e/OUT-104")


def test_a_value_of_another_type_than_declared_is_refused() -> None:
    with pytest.raises(NotStorable):
        Codec[Line](Line).dump({"sku": "a"})  # type: ignore[arg-type]
    line = Line(sku="a", cents=1)
    line.cents = "no number"  # type: ignore[assignment]
    with pytest.raises(NotStorable, match="cents"):
        Codec[Line](Line).dump(line)


@pytest.mark.parametrize("action", ["ignore", "always", "once", "error"])
def test_a_changed_value_is_refused_whatever_warnings_the_process_shows(action: Any) -> None:
    line = Line(sku="a", cents=1)
    line.cents = "no number"  # type: ignore[assignment]
    codec = Codec[list[Line]](list[Line], named="the state of shop")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter(action)
        before = list(warnings.filters)
        for dump in (codec.dump, codec.canonical):
            with pytest.raises(NotStorable, match="cents: expected int, found str"):
                dump([Line(sku="b", cents=2), line])
        assert warnings.filters == before, "filters belong to the application"
    assert not shown


def test_a_serializer_may_warn_of_anything_else() -> None:
    class Old(BaseModel):
        @computed_field
        def total(self) -> int:
            warnings.warn("total is old", DeprecationWarning, stacklevel=2)  # in the frame of the codec
            return 3

    with pytest.warns(DeprecationWarning, match="total is old"):
        assert Codec[Old](Old).dump(Old()) == b'{"total":3}'
    with pytest.warns(DeprecationWarning, match="total is old"):
        assert Codec[Old](Old).canonical(Old()) == b'{"total":3}'


def test_an_interpreter_without_strict_frames_refuses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_module, "_call_strictly", codec_module._call_slowly)
    test_a_changed_value_is_refused_whatever_warnings_the_process_shows("ignore")


def test_bytes_that_no_longer_fit_are_refused_with_the_field() -> None:
    with pytest.raises(NotStorable, match="cents: Field required"):
        Codec[Line](Line).load(b'{"sku":"a"}')


def test_input_is_refused_with_every_problem_at_once() -> None:
    with pytest.raises(InvalidInput) as error:
        Codec[Line](Line, named="the input").convert({"cents": "x", "weight": []})
    assert [path for path, _ in error.value.problems] == ["sku", "cents", "weight"]


def test_too_large_values_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="it takes 102 bytes, the limit is 100"):
        Codec[str](str, bytes_max=100).dump("x" * 100)
    assert Codec[str](str, bytes_max=100).dump("x" * 98)


def test_a_type_without_json_form_is_refused_when_declared() -> None:
    class Socket: ...

    with pytest.raises(DefinitionError, match="the answer of x cannot be stored"):
        Codec[Any](Socket, named="the answer of x")


def test_a_field_with_an_alias_is_loaded_unchanged() -> None:
    class Aliased(BaseModel):
        by_name: int = Field(default=0, alias="byName")
        renamed: int = Field(default=0, validation_alias="in", serialization_alias="out")

    codec = Codec(Aliased)
    value = codec.convert({"byName": 1, "in": 2})
    assert codec.load(codec.dump(value)) == value
    assert codec.load(b'{"byName": 1, "in": 2}') == value
    assert codec.convert({"by_name": 1, "renamed": 2}) == Aliased(), "from outside, only the alias counts"


def test_loading_executes_nothing_and_gives_a_new_value_each_time() -> None:
    codec = Codec[Basket](Basket)
    data = codec.dump(Basket(lines=[Line(sku="a", cents=1)]))
    first, second = codec.load(data), codec.load(data)
    first.lines.clear()
    assert second.lines
