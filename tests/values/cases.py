"""Types and values: each comes back as it went in, or is refused where it is written."""

import dataclasses
import enum
from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Json,
    JsonValue,
    RootModel,
    SerializeAsAny,
    computed_field,
    field_serializer,
    field_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import core_schema
from typing_extensions import TypedDict

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "r"
    TWO = 2


class Size(enum.StrEnum):
    SMALL = "s"


class Level(enum.IntEnum):
    LOW = 1


class Offer(BaseModel):
    cents: int = 0
    by: str = ""


class Quote(BaseModel):
    """The class of another module."""

    price: int = 0


class Twin(BaseModel):
    """Another class with the same fields."""

    cents: int = 0
    by: str = ""


class Discounted(Offer):
    discount: int = 0


class Renamed(Offer):
    """A subclass without further fields."""


class Stock(BaseModel):
    pieces: int = Field(5, ge=0)


class Box(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int = 2

    @computed_field
    def area(self) -> int:
        return self.width**2


class OneWay(BaseModel):
    price: Decimal = Decimal("1.5")

    @field_serializer("price")
    def _shown(self, price: Decimal) -> str:
        return f"{price} EUR"


class BothWays(BaseModel):
    cents: int = 5

    @field_serializer("cents")
    def _shown(self, cents: int) -> str:
        return f"{cents} ct"

    @field_validator("cents", mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return int(given.removesuffix(" ct")) if isinstance(given, str) else given


class Aliased(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    one: int = Field(1, alias="Eins")
    two: int = Field(2, validation_alias="in", serialization_alias="out")


class Swapped(BaseModel):
    """The alias of a field is the name of the other one."""

    a: int = Field(1, alias="b")
    b: int = 2


class Hidden(BaseModel):
    shown: int = 1
    hidden: int = Field(2, exclude=True)


class Louder(BaseModel):
    text: str = ""

    @field_validator("text")
    @classmethod
    def _louder(cls, given: str) -> str:
        return given + "!"


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0


class Holder(BaseModel, Generic[T]):
    it: T


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    n: int = 0


class Numbers(RootModel[list[int]]):
    pass


class Pair(NamedTuple):
    a: int
    b: str


class Entry(TypedDict):
    n: int


@dataclasses.dataclass
class Plain:
    n: int = 0
    tags: frozenset[str] = frozenset()


@dataclasses.dataclass
class Further(Plain):
    more: int = 0


class Tagged(BaseModel):
    tags: set[str] = set()
    pairs: dict[str, frozenset[int]] = {}
    items: list[set[str]] = []
    optional: set[str] | None = None


class Words(RootModel[set[str]]):
    """A set by itself."""


class Renaming(BaseModel):
    """The alias that is written for a field is the name of the other one."""

    model_config = ConfigDict(serialize_by_alias=True)
    a: set[str] = Field(set(), alias="b")
    c: set[str] = Field(set(), alias="a")


class Counted(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    words: frozenset[str]

    @computed_field(alias="lines")  # type: ignore[prop-decorator]
    @property
    def in_lines(self) -> list[frozenset[str]]:
        return [self.words]


@dataclass
class Shouting:
    """A dataclass of pydantic that computes a set."""

    words: set[str]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def loud(self) -> set[str]:
        return {word.upper() for word in self.words}


class Broken(BaseModel):
    """A model that cannot be written."""

    n: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        raise LookupError(self.n)


class Opaque:
    """A class that compares nothing, with slots, which comes back as another value."""

    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: Any) -> Any:
        return core_schema.no_info_plain_validator_function(
            lambda given: given if isinstance(given, cls) else cls(0),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value.n),
        )


WORDS: Final = ("ann", "bob", "cyd", "dan", "eve", "fay", "gus", "hal")
BERLIN: Final = ZoneInfo("Europe/Berlin")
LATE: Final = datetime(2026, 7, 1, 12, tzinfo=BERLIN)


class Case(NamedTuple):
    """A value of a type. `back`: what is read for it; the value itself if None."""

    name: str
    type: Any
    value: Any
    back: Any = None


def _below() -> Stock:
    stock = Stock()
    stock.pieces -= 7
    return stock


SAME: Final = (
    Case("text", str, "ä\x00"),
    Case("text of an enumeration", str, Size.SMALL, "s"),
    Case("number", int, 10**400),
    Case("float", float, 0.1),
    Case("float given as integer", float, 3, 3.0),
    Case("float or integer", int | float, 1.0),
    Case("bytes", bytes, b"ab"),
    Case("decimal", Decimal, Decimal("1.50")),
    Case("instant", datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    Case("instant of a zone", datetime, LATE, LATE.astimezone(timezone(timedelta(hours=2)))),
    Case("date", date, date(2026, 1, 1)),
    Case("time", time, time(12, 30, tzinfo=UTC)),
    Case("duration", timedelta, timedelta(days=-3, microseconds=1)),
    Case("identifier", UUID, UUID(int=7)),
    Case("enumeration", Colour, Colour.TWO),
    Case("literal", Literal["a", "b"], "b"),
    Case("mixed literal", Literal[1, "1"], "1"),
    Case("json", JsonValue, {"a": [1, 1.0, None, {"b": True}]}),
    Case("anything that is JSON", Any, {"a": [1, 1.0, "x"]}),
    Case("set", set[str], set(WORDS)),
    Case("set of models", frozenset[Frozen], frozenset(Frozen(n=n) for n in range(5))),
    Case("set of sets", set[frozenset[str]], {frozenset(WORDS), frozenset(WORDS[:3])}),
    Case("sets in a model", Tagged, Tagged(tags=set(WORDS), pairs={"a": frozenset({3, 1, 20})}, items=[set(WORDS)])),
    Case("set or list", set[str] | list[str], set(WORDS)),
    Case("sets in a tuple", tuple[set[str], int], (set(WORDS), 1)),
    Case("dataclass with a set", Plain, Plain(1, frozenset(WORDS))),
    Case("set at the root", Holder[Words], Holder[Words](it=Words(set(WORDS)))),
    Case("sets with swapped aliases", Renaming, Renaming(b=set(WORDS), a=set(WORDS[:3]))),
    Case("set computed under an alias", Counted, Counted(words=frozenset(WORDS))),
    Case("set computed by a dataclass", Shouting, Shouting(set(WORDS))),
    Case("sequence given as tuple", Sequence[int], (1, 2), [1, 2]),
    Case("dictionary of numbers", dict[int, str], {2: "b", 1: "a"}),
    Case("named tuple", Pair, Pair(1, "b")),
    Case("typed dictionary", Entry, {"n": 1}),
    Case("model", Offer, Offer(cents=4, by="x")),
    Case("subclass without further fields", Offer, Renamed(cents=4), Offer(cents=4)),
    Case("union of models", Offer | Quote, Quote(price=3)),
    Case("optional model", Offer | None, Offer(cents=2)),
    Case("computed field, extra=forbid", Box, Box(width=3)),
    Case("serializer that is read back", BothWays, BothWays(cents=7)),
    Case("alias for both", Holder[list[Aliased]], Holder[list[Aliased]](it=[Aliased(Eins=3)])),
    Case("generic", Holder[int], Holder(it=3), Holder[int](it=3)),
    Case("root", Numbers, Numbers([1, 2])),
    Case("further fields", Open, Open(n=1, more=[1])),
    Case("alias of another field", Swapped, Swapped(b=5)),
    Case("excluded field with its default", Hidden, Hidden(shown=3)),
)

REFUSED: Final = (
    (Case("too many digits", int, 10**5000), "more than 4,300 digits"),
    (Case("float that was another integer", float, 2**53 + 1), "another value"),
    (Case("number that is a bool", float, True), "expected float, found bool"),
    (Case("not a number", Decimal, Decimal("NaN")), "finite"),
    (Case("offset with seconds", datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=3601)))), "min"),
    (Case("time of a zone", time, time(12, tzinfo=BERLIN)), "whole minutes"),
    (Case("member of a literal", Literal[Colour.RED], Colour.RED), "not read back"),
    (Case("other literal", Literal["a"], "b"), "should be 'a'"),
    (Case("json text", Json[list[int]], [1]), "not read back"),
    (Case("tuple in anything", Any, {"a": (1, 2)}), "expected list, found tuple"),
    (Case("set in anything", Any, {"a": {1}}), "expected list, found set"),
    (Case("model in anything", dict[str, Any], {"a": Offer()}), "expected dict, found Offer"),
    (Case("instant in anything", Any, [LATE]), "expected str, found datetime"),
    (Case("dictionary of enumerations", dict[Colour, int], {Colour.TWO: 1}), "not read back"),
    (Case("dictionary of tuples", dict[tuple[int, int], str], {(1, 2): "a"}), "not read back"),
    (Case("dictionary of sets", dict[frozenset[str], int], {frozenset("a"): 1}), "not valid as object key"),
    (Case("text that is not Unicode", Holder[str], Holder[str](it="\ud800")), "it is text that is not valid Unicode"),
    (Case("key that is not Unicode", dict[str, int], {"\ud800": 1}), "has a key that is not valid Unicode"),
    (Case("nested key that is not Unicode", Any, {"a": [{"\ud800": 1}]}), "a[0] has a key that is not valid Unicode"),
    (Case("path that is not Unicode", Path, Path("/a\udcff")), "is a path that is not valid Unicode"),
    (Case("bytes that are not UTF-8", list[bytes], [b"\xff"]), "[0] is bytes that are not UTF-8"),
    (Case("computed field that raises", Broken, Broken()), "raises LookupError"),
    (Case("class with slots", Opaque, Opaque(5)), "another value"),
    (Case("deque that drops", deque[int], deque([1], maxlen=1)), "a deque with maxlen=1"),
    (Case("factory of values", defaultdict[str, int], defaultdict(lambda: 5, {"a": 1})), "default_factory"),
    (Case("enumeration or text", Size | str, Size.SMALL), "reads Size back as str"),
    (Case("number or enumeration", list[int | Level], [Level.LOW]), "[0]: its union reads Level back as int"),
    (Case("union of twins", Offer | Twin, Twin(cents=3)), "reads Twin back as Offer"),
    (Case("union with a subclass", Offer | Renamed, Renamed(cents=3)), "reads Renamed back as Offer"),
    (Case("equal keys", dict[int | str, int], {1: 1, "1": 2}), "1 would be read back"),
    (Case("named tuple in a tuple", tuple[int, str], Pair(1, "b")), "expected tuple, found Pair"),
    (Case("tuple for a named tuple", Pair, (1, "b")), "expected Pair, found tuple"),
    (Case("further key", Entry, {"n": 1, "more": 2}), "1 would be read back"),
    (Case("other model", Offer, Quote(price=3)), "expected Offer, found Quote"),
    (Case("other model with the same fields", Offer, Twin(cents=3)), "expected Offer, found Twin"),
    (Case("other model in a list", list[Offer], [Offer(), Quote()]), "[1]: expected Offer, found Quote"),
    (Case("other model in a dictionary", dict[str, Offer], {"a": Quote()}), "expected Offer, found Quote"),
    (Case("other model, optional", Offer | None, Quote()), "expected Offer, found Quote"),
    (Case("subclass", Offer, Discounted(discount=3)), "expected Offer, found Discounted"),
    (Case("subclass in a list", Holder[list[Offer]], Holder[list[Offer]].model_construct(it=[Discounted()])), "found"),
    (Case("subclass, duck-typed", SerializeAsAny[Offer], Discounted(discount=3)), "expected Offer, found Discounted"),
    (Case("subclass of a dataclass", Plain, Further(1, frozenset(), 2)), "expected Plain, found Further"),
    (Case("dictionary for a model", Offer, {"cents": 1}), "expected"),
    (Case("broken constraint", Stock, _below()), "greater than or equal to 0"),
    (Case("too long", Annotated[str, Field(max_length=1)], "ab"), "at most 1"),
    (Case("one-way serializer", OneWay, OneWay()), "not read back"),
    (Case("one-way alias", Holder[Aliased], Holder[Aliased].model_construct(it=Aliased(**{"in": 5}))), "another value"),
    (Case("excluded field", Hidden, Hidden(hidden=5)), "another value"),
    (Case("validator that changes", Louder, Louder(text="a")), "another value"),
)  # fmt: skip
