"""A written value comes back as it went in, or is refused; a proof by the schema saves the load (CKP-8)."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntFlag
from functools import cached_property
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, computed_field, create_model

from outlast.core.codec import Codec, canonical, is_json, plain_json
from outlast.core.round_trip import are_as_declared, examine
from outlast.errors import InvalidInput, NotStorable
from tests.slices import ALL, seed
from tests.values.cases import (
    REFUSED,
    SAME,
    WORDS,
    Case,
    Counted,
    Holder,
    Offer,
    Quote,
    Renaming,
    Shouting,
    Tagged,
    Words,
)

pytestmark = pytest.mark.req("CKP-8")


def classes(value: Any) -> Any:
    """Return a value with the class of each of its parts, written apart from the code under test."""
    kind = type(value)
    if isinstance(value, BaseModel):
        return kind, {name: classes(part) for name, part in value}
    if isinstance(value, dict):
        return kind, {(type(key), key): classes(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return kind, [classes(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return kind, {(type(part), part) for part in value}
    if isinstance(value, datetime):
        return datetime, value, value.utcoffset()
    return kind, value


@pytest.mark.parametrize("case", SAME, ids=lambda case: case.name)
def test_a_value_comes_back_as_it_went_in(case: Case) -> None:
    codec = Codec[Any](case.type)
    wanted = classes(case.value if case.back is None else case.back)
    for data, loaded in (codec.store(case.value), codec.store_canonical(case.value)):
        assert classes(loaded) == classes(codec.load(data)) == wanted
    assert codec.dump(case.value) == codec.store(case.value)[0]
    assert codec.canonical(case.value) == canonical(json.loads(codec.dump(case.value)))


@pytest.mark.parametrize(("case", "says"), REFUSED, ids=lambda given: given.name if isinstance(given, Case) else "")
def test_a_value_that_would_come_back_otherwise_is_refused(case: Case, says: str) -> None:
    codec = Codec[Any](case.type, named="the state of shop")
    for write in (codec.dump, codec.canonical, codec.store, codec.store_canonical):
        with pytest.raises(NotStorable, match="the state of shop cannot be stored") as error:
            write(case.value)
        assert says in error.value.why or write in (codec.canonical, codec.store_canonical)
        assert "any more" not in str(error.value) and "version" not in str(error.value), "nothing was changed"


def test_the_message_has_the_path_and_no_value() -> None:
    class Basket(BaseModel):
        best: dict[str, list[Offer]] = {}

    codec = Codec(Basket, named="the state of shop")
    with pytest.raises(NotStorable) as error:
        codec.dump(Basket.model_construct(best={"a": [Offer(), Quote(price=4711)]}))
    assert error.value.why == "state.best.a[1]: expected Offer, found Quote"
    assert error.value.fix.endswith("declare a union of the types that it may have")
    with pytest.raises(NotStorable) as error:
        Codec(Offer).dump(Offer.model_construct(cents="4711"))
    assert error.value.why == "cents: expected int, found str"


def test_a_class_of_the_same_name_is_told_by_its_module() -> None:
    other = create_model("Offer", __module__="elsewhere", cents=(int, 0), by=(str, ""))
    with pytest.raises(NotStorable, match=r"expected tests.values.cases.Offer, found elsewhere.Offer"):
        Codec(Offer).dump(other())


def test_a_field_that_was_deleted_is_not_given_its_default() -> None:
    offer = Offer(cents=5)
    del offer.by
    with pytest.raises(NotStorable, match=r"value.by is missing"):
        Codec(Offer).dump(offer)


def test_what_a_model_keeps_for_itself_is_not_stored() -> None:
    class Counts(BaseModel):
        n: int = 0
        _seen: list[int] = PrivateAttr(default_factory=list)

        @cached_property
        def double(self) -> int:
            return 2 * self.n

    counts = Counts(n=2)
    counts._seen.append(1)
    assert counts.double == 4
    assert Codec(Counts).store(counts) == (b'{"n":2}', Counts(n=2))


class Loads(Codec[Any]):
    """A codec that counts what it loads."""

    __slots__ = ("loaded",)

    def __init__(self, type_: Any) -> None:
        super().__init__(type_)
        self.loaded = 0
        load: Callable[..., Any] = self._load

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.loaded += 1
            return load(*args, **kwargs)

        self._load = counted


class Many(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    text: str = ""
    named: int = Field(0, alias="Named")
    at: datetime | None = None
    price: float = 0.0
    offers: dict[str, list[Offer]] = {}
    pair: tuple[int, Offer] = (1, Offer())
    tags: set[str] = set()
    _own: int = PrivateAttr(0)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Many, Many(at=datetime(2026, 1, 1, tzinfo=UTC), offers={"a": [Offer()]}, tags={"x"})),
        (Holder[Many], Holder[Many](it=Many())),
        (list[Offer], [Offer()] * 3),
        (str | None, "x"),
    ],
)
def test_a_type_that_proves_its_round_trip_is_not_loaded_for_it(type_: Any, value: Any) -> None:
    codec = Loads(type_)
    codec.dump(value)
    codec.canonical(value)
    assert codec.loaded == 0
    codec.store(value)
    assert codec.loaded == 1


class Flags(IntFlag):
    A = 1
    B = 2


class Values(Enum):
    NUMBER = 1
    TEXT = "1"


@pytest.mark.parametrize(
    "type_",
    [
        Any, Values, Flags, Literal[1, True], Literal["a"], dict[int, str], int | float, Offer | Quote, Decimal,
        Annotated[int, Field(ge=0)], Annotated[str, AfterValidator(str.strip)], Annotated[str, Field(pattern="a")],
    ],
)  # fmt: skip
def test_other_types_are_loaded(type_: Any) -> None:
    shape = examine(Codec(type_).core_schema)
    assert not shape.proven or shape.refusing


def test_parts_of_a_proven_type_are_checked_without_a_walk_in_python() -> None:
    codec = Codec(Many)
    value = Many(offers={"a": [Offer()] * 1_000}, at=datetime(2026, 1, 1, tzinfo=UTC))
    checks = examine(codec.core_schema).checks
    assert are_as_declared(checks, value)
    value.offers["a"][900] = Quote()  # type: ignore[call-overload]
    assert not are_as_declared(checks, value)
    value.offers["a"][900] = Offer()
    value.at = datetime(2026, 1, 1).astimezone()
    value.price = 3
    assert not are_as_declared(checks, value)


# --- sets ---------------------------------------------------------------------------------------
def test_sets_have_the_order_of_their_canonical_members() -> None:
    assert Codec(set[int | str]).dump({3, 20, "b", "a"}) == b'["a","b",20,3]'
    tagged = Tagged(tags=set(WORDS), pairs={"a": frozenset({3, 20})}, items=[{"b", "a"}], optional={"z", "y"})
    written = json.loads(Codec(Tagged).dump(tagged))
    assert written == {
        "tags": sorted(WORDS), "pairs": {"a": [20, 3]}, "items": [["a", "b"]], "optional": ["y", "z"],
    }  # fmt: skip
    assert plain_json([set(WORDS), tagged]) == [sorted(WORDS), written]
    assert json.loads(Codec(list[set[str] | list[str]]).dump([{"b", "a"}])) == [["a", "b"]]


@pytest.mark.parametrize("value", [
    Words(set(WORDS)), Renaming(b=set(WORDS), a=set(WORDS)), Counted(words=frozenset(WORDS)), Shouting(set(WORDS)),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_sets_have_one_order_under_every_name(value: Any) -> None:
    """The set of a root model, of a computed field, and of a field whose alias is the name of another one."""
    written = json.loads(Codec[Any](type(value)).dump(value))
    lists = [written] if isinstance(written, list) else [*written.values()]
    assert all(each == sorted(each) for each in lists for each in (each if type(each[0]) is list else [each]))


def test_a_member_is_written_as_in_its_place() -> None:
    class Item(BaseModel):
        model_config = ConfigDict(frozen=True)
        names: frozenset[str]
        at: date | None = None

    items = {Item(names=frozenset({"b", "a"})), Item(names=frozenset({"c"}), at=date(2026, 1, 1))}
    written = json.loads(Codec(set[Item]).dump(items))
    assert written == [{"names": ["c"], "at": "2026-01-01"}, {"names": ["a", "b"], "at": None}]


def test_only_plain_data_is_json() -> None:
    assert is_json({"a": [1, None, 1.5, True, "x"]})
    assert not any(map(is_json, [(1,), {1: 2}, {"a": {1}}, [Offer()], timedelta()]))


# --- values from outside and from Python ----------------------------------------------------------
def test_text_is_json_from_outside_and_a_text_from_python() -> None:
    codec = Codec(str)
    assert codec.admit('"5"') == "5" and codec.convert('"5"') == '"5"'
    with pytest.raises(InvalidInput):
        codec.admit("5")
    with pytest.raises(InvalidInput):
        codec.admit({"a": 1})  # type: ignore[arg-type]
    codec.check_exact("EUR")
    with pytest.raises(InvalidInput):
        Codec(int).check_exact("5")


# --- generated models -----------------------------------------------------------------------------
class Shade(Enum):
    LIGHT = "l"
    DARK = "d"


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
INSTANTS = st.datetimes(timezones=st.sampled_from([UTC]) | st.none())
SCALARS = st.sampled_from([
    (str, TEXT), (int, st.integers()), (float, st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 9)),
    (bool, st.booleans()), (datetime, INSTANTS), (date, st.dates()), (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)), (Shade, st.sampled_from(Shade)),
    (Literal["a", "b"], st.sampled_from("ab")), (Values, st.sampled_from(Values)), (bytes, TEXT.map(str.encode)),
    (Annotated[int, Field(ge=0)], st.integers(-3, 9)), (int | str, st.integers() | TEXT),
    (Annotated[str, AfterValidator(str.strip)], TEXT), (Any, st.lists(st.integers() | TEXT) | st.tuples(st.integers())),
])  # fmt: skip
Kind = tuple[Any, st.SearchStrategy[Any]]


def _container(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    def made(kind: Kind, which: str) -> Kind:
        type_, values = kind
        if which == "list":
            return list[type_], st.lists(values, max_size=3)
        if which == "dict":
            return dict[str, type_], st.dictionaries(TEXT, values, max_size=3)
        if which == "tuple":
            return tuple[type_, int], st.tuples(values, st.integers())
        return type_ | None, values | st.none()

    return st.builds(made, inner, st.sampled_from(["list", "dict", "tuple", "optional"]))


NAMES = st.sampled_from(["a", "b", "c"])
ALIASES = st.none() | st.sampled_from(["a", "b", "Other", "another"])


@st.composite
def _model(draw: st.DrawFn, inner: st.SearchStrategy[Kind]) -> Kind:
    """Return a model with drawn fields, aliases, settings and computed fields, and values of it."""
    of = {name: (draw(inner), draw(ALIASES)) for name in draw(st.sets(NAMES, min_size=1))}
    config = ConfigDict(
        extra=draw(st.sampled_from(["ignore", "forbid", "allow"])),
        serialize_by_alias=draw(st.booleans()),
        populate_by_name=draw(st.booleans()),
    )
    fields: dict[str, Any] = {name: (kind[0], Field(alias=alias)) for name, (kind, alias) in of.items()}
    base: Any = create_model("Drawn", __config__=config, **fields)
    if draw(st.booleans()):
        computed = computed_field(property(lambda self: len(self.__dict__)), return_type=int)
        base = type("Drawn", (base,), {"__module__": __name__, "size": computed})
    values = st.fixed_dictionaries({name: kind[1] for name, (kind, _) in of.items()})
    return base, values.map(lambda given: _constructed(base, given))


def _constructed(cls: type[BaseModel], given: dict[str, Any]) -> BaseModel:
    """Return a model as assignments make it: without validation, under the names of its fields."""
    made = cls.model_construct()
    made.__dict__.update(given)
    return made


KINDS = st.recursive(SCALARS, lambda inner: _container(inner) | _model(inner), max_leaves=4)


@settings(
    max_examples=5_000 if seed() == ALL else 100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_generated_types_give_the_value_back_or_refuse_it(data: st.DataObject) -> None:
    type_, values = data.draw(KINDS)
    codec = Codec[Any](type_)
    value = data.draw(values)
    before = classes(value)
    try:
        written, loaded = codec.store(value)
    except NotStorable:
        for write in (codec.dump, codec.canonical):
            with pytest.raises(NotStorable):
                write(value)
        return
    assert classes(value) == before, "writing changes nothing"
    assert _unified(classes(loaded)) == _unified(before) == _unified(classes(codec.load(written)))
    assert codec.dump(value) == written
    assert codec.canonical(value) == codec.canonical(loaded)


def _unified(part: Any) -> Any:
    """Return the classes of a value where an integer given for a float is one."""
    if isinstance(part, tuple) and len(part) == 2 and part[0] in (int, float) and not isinstance(part[1], tuple):
        return "number", part[1]
    if isinstance(part, (tuple, list)):
        return [_unified(each) for each in part]
    if isinstance(part, dict):
        return {key: _unified(each) for key, each in part.items()}
    return part


def test_an_unknown_form_of_a_schema_proves_nothing() -> None:
    """A form that `examine` does not know is loaded and compared, and never trusted."""
    schema = {"type": "model", "cls": Offer, "schema": {"type": "model-fields", "fields": {}}, "config": {}}
    assert examine(schema).proven
    assert not examine({**schema, "new": 1}).proven
    assert not examine({"type": "str", "new": 1}).proven
    assert not examine({"type": "new"}).proven
