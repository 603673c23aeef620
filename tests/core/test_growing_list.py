"""States that end with a list of immutable items: dumped and loaded they equal the whole, whatever a node does."""

import copy
import json
import pickle
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    PrivateAttr,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    computed_field,
    create_model,
    field_serializer,
    field_validator,
)

from outlast.agent import AgentState, Message, ToolCall
from outlast.core.codec import Codec, FrozenDict, FrozenList, canonical, frozen_json
from outlast.core.state.growing_list import GrowingList, KeptItems, dump_growing, growing_list, load_growing
from outlast.errors import LimitExceeded, NotStorable

pytestmark = pytest.mark.req("CKP-3")


class Fixed(BaseModel):
    model_config = ConfigDict(frozen=True)

    n: int = 0
    text: str | None = None
    path: tuple[str, ...] = ()
    below: tuple["Fixed", ...] = ()
    data: Annotated[dict[str, JsonValue], AfterValidator(frozen_json)] = Field(default_factory=FrozenDict)


class Loose(BaseModel):
    n: int = 0


class Holds(BaseModel):
    model_config = ConfigDict(frozen=True)

    words: list[str] = []


class Plain(BaseModel):
    model_config = ConfigDict(frozen=True)

    data: dict[str, JsonValue] = {}


class Private(BaseModel):
    model_config = ConfigDict(frozen=True)

    n: int = 0
    _seen: list[int] = PrivateAttr(default_factory=list)


class Shouts(BaseModel):
    """Its JSON loads as another value."""

    model_config = ConfigDict(frozen=True)

    text: str

    @field_validator("text")
    @classmethod
    def _louder(cls, given: str) -> str:
        return given.upper()


class Ends(BaseModel):
    head: JsonValue = None
    items: list[Fixed] = []


class EndsElsewhere(BaseModel):
    items: list[Fixed] = []
    tail: int = 0


class Computes(BaseModel):
    items: list[Fixed] = []

    @computed_field
    def size(self) -> int:
        return len(self.items)


class Counts(BaseModel):
    items: Annotated[list[Fixed], Field(max_length=9)] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    items: list[Fixed] = []


def ending(item: Any) -> type[BaseModel]:
    return create_model("Ending", items=(list[item], []))


QUALIFY = [AgentState, Ends, ending(Message), ending(Fixed)]


class Reads(BaseModel):
    """A serializer of another field reads the list."""

    head: int = 0
    items: list[Fixed] = []

    @field_serializer("head")
    def _size(self, head: int) -> int:
        return max(head, len(self.items) // 2)


class Sorts(BaseModel):
    """A serializer writes the list in another form, which is the same for a short list."""

    items: list[Fixed] = []

    @field_serializer("items")
    def _last(self, items: list[Fixed]) -> list[Any]:
        return [each.model_dump(mode="json") for each in items[-3:]]


class Seconds(BaseModel):
    model_config = ConfigDict(ser_json_timedelta="float")

    items: list[Fixed] = []


class Loophole(BaseModel):
    model_config = ConfigDict(frozen=True)

    n: int = 0

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__[name] = value


class Remembers(BaseModel):
    model_config = ConfigDict(frozen=True)

    n: int = 0

    @cached_property
    def seen(self) -> list[int]:
        return []


Kind = Enum("Kind", {"A": ["a"]})


class OfKind(BaseModel):
    model_config = ConfigDict(frozen=True)

    kind: Kind = Kind.A


class Hides(BaseModel):
    """A field is not in its JSON, so each load makes another."""

    model_config = ConfigDict(frozen=True)

    n: int = 0
    below: Fixed = Field(Fixed(), exclude=True)


class Tree(BaseModel):
    """It occurs twice, and in one place with a serializer."""

    model_config = ConfigDict(frozen=True)

    n: int = 0
    left: "Tree | None" = None
    right: Annotated["Tree", PlainSerializer(lambda each: {"n": each.n + 1})] | None = None


class Leaf(BaseModel):
    model_config = ConfigDict(frozen=True)

    n: int = 0


class AsAny(BaseModel):
    items: list[SerializeAsAny[Leaf]] = []


OTHERS = [Reads, Sorts, Seconds, AsAny, *map(ending, (Loophole, Remembers, OfKind, Hides, Tree, Leaf | Fixed))]
REFUSED = [EndsElsewhere, Computes, Counts, Open, *map(ending, (Loose, Holds, Plain, Private, Shouts, int))]


@pytest.mark.parametrize("state", QUALIFY)
def test_types_whose_items_never_change(state: Any) -> None:
    assert growing_list(Codec(state)) is not None


@pytest.mark.parametrize("state", [*REFUSED, *OTHERS])
def test_types_that_are_dumped_whole(state: Any) -> None:
    """Another field is last, an item may change, or the list is checked or written as a whole."""
    assert growing_list(Codec(state)) is None


CODEC: Codec[Any] = Codec(Ends, named="the state of a test", bytes_max=100_000)
LIST = growing_list(CODEC)
assert LIST is not None
ITEMS = st.builds(
    Fixed,
    n=st.integers(),
    text=st.none() | st.text(max_size=5) | st.sampled_from(['"items":[]}', "[]}", "]}"]),
    data=st.dictionaries(st.text(max_size=3), st.lists(st.none() | st.booleans(), max_size=2), max_size=2),
)
CHANGES = st.one_of(
    st.tuples(st.just("append"), ITEMS),
    st.tuples(st.sampled_from(["insert", "replace"]), st.integers(0, 20), ITEMS),
    st.tuples(st.sampled_from(["delete", "twice", "copy"]), st.integers(0, 20)),
    st.tuples(st.sampled_from(["reverse", "same", "clear", "another"])),
    st.tuples(st.just("head"), st.none() | st.text(max_size=9) | st.just({"items": []})),
)


def change(state: Ends, what: tuple[Any, ...]) -> None:
    """Do what a node may do with the items."""
    items, name = state.items, what[0]
    at = what[1] % len(items) if len(what) > 1 and isinstance(what[1], int) and items else 0
    match name:
        case "append":
            items.append(what[1])
        case "insert":
            items.insert(at, what[2])
        case "head":
            state.head = what[1]
        case "clear":
            items.clear()
        case "reverse":
            items.reverse()
        case "another":
            state.items = list(items)
        case "replace" if items:
            items[at] = what[2]
        case "delete" if items:
            del items[at]
        case "twice" if items:
            items.append(items[at])
        case "copy" if items:
            items[at] = items[at].model_copy(update={"n": 7})


@settings(deadline=None)
@given(st.lists(st.lists(CHANGES, max_size=4), max_size=8))
def test_steps_dump_and_load_what_the_whole_would(steps: list[list[tuple[Any, ...]]]) -> None:
    assert LIST is not None
    kept, state = KeptItems(LIST), Ends()
    for changes in steps:
        for each in changes:
            change(state, each)
        dumped = dump_growing(CODEC, state, kept)
        assert dumped is not None and dumped.state == CODEC.dump(state)
        loaded, again = load_growing(CODEC, dumped)
        assert again is not None
        kept = again
        assert loaded == CODEC.load(dumped.state) and loaded.model_fields_set == {"head", "items"}
        assert loaded.items is not state.items
        state = loaded


def test_only_new_items_are_dumped_and_loaded() -> None:
    calls: list[tuple[str, list[int]]] = []

    class Counting(Codec[Any]):
        def dump(self, value: Any, *, check: bool = True) -> bytes:
            calls.append(("dump", [each.n for each in (value.items if isinstance(value, Ends) else [value])]))
            return super().dump(value, check=check)

        def load(self, data: bytes | str) -> Any:
            calls.append(("load", [each["n"] for each in json.loads(data)["items"]]))
            return super().load(data)

    counted = Counting(Ends)
    state, kept = Ends(items=[Fixed(n=n) for n in range(3)]), KeptItems(GrowingList("items", Fixed, Counting(Fixed)))
    for n in range(3, 6):
        dumped = dump_growing(counted, state, kept)
        assert dumped is not None
        before = state.items
        state, again = load_growing(counted, dumped)
        assert again is not None
        kept = again
        assert n == 3 or all(a is b for a, b in zip(before[: n - 1], state.items, strict=False))
        state.items.append(Fixed(n=n))
    first = [("dump", []), ("dump", [0]), ("dump", [1]), ("dump", [2]), ("dump", [0, 1, 2])]
    assert calls[:7] == [*first, ("load", [0, 1, 2]), ("dump", [0, 1, 2])]
    assert calls[7:] == [
        each for n in (3, 4) for each in [("dump", []), *[(do, [n]) for do in ("dump", "load", "dump")]]
    ]


def test_an_item_that_this_holder_made_is_loaded_from_its_bytes() -> None:
    """`model_construct` checks nothing: a float in place of an int is loaded as an int."""
    assert LIST is not None
    state = Ends(items=[Fixed.model_construct(n=True, data={"list": [1]})])
    dumped = dump_growing(CODEC, state, KeptItems(LIST))
    assert dumped is None or load_growing(CODEC, dumped)[0] == CODEC.load(dumped.state)


class Sub(Fixed):
    more: int = 1


@pytest.mark.parametrize("item", [Sub(n=1), Fixed.model_construct(n="one"), Fixed.model_construct(path=["a"])])
def test_an_item_of_another_type_is_left_to_the_whole_dump(item: Any) -> None:
    assert LIST is not None
    assert dump_growing(CODEC, Ends.model_construct(items=[item]), KeptItems(LIST)) is None


def test_a_state_that_is_too_large_is_refused_with_its_size() -> None:
    assert LIST is not None
    with pytest.raises(LimitExceeded, match="the limit is 100,000"):
        dump_growing(CODEC, Ends(items=[Fixed(text="x" * 60_000)] * 2), KeptItems(LIST))
    with pytest.raises(NotStorable, match=r"state\.head"):
        dump_growing(CODEC, Ends.model_construct(head=object(), items=[]), KeptItems(LIST))


class Copied(Ends):
    """A model that defines how it is copied."""

    def __copy__(self) -> "Copied":
        return Copied()


def test_a_state_is_written_as_it_is_and_not_as_its_copy() -> None:
    codec: Codec[Any] = Codec(Copied)
    grows = growing_list(codec)
    assert grows is not None
    state = Copied(head="kept", items=[Fixed(n=1)])
    dumped = dump_growing(codec, state, KeptItems(grows))
    assert dumped is not None and dumped.state == codec.dump(state)
    assert state.items == [Fixed(n=1)]


class Labelled(BaseModel):
    labels: list[str] = []
    items: list[Fixed] = []


def test_a_field_that_is_set_again_is_written_last() -> None:
    """pydantic writes fields in the order in which they were set."""
    codec: Codec[Any] = Codec(Labelled)
    grows = growing_list(codec)
    assert grows is not None
    dumped = dump_growing(codec, Labelled(items=[Fixed()]), KeptItems(grows))
    assert dumped is not None
    state, kept = load_growing(codec, dumped)
    del state.labels
    state.labels = []
    assert kept is not None and dump_growing(codec, state, kept) is None
    assert state.items == [Fixed()]


class Quotes(BaseModel):
    """Each load changes it, as a validator does that was written for the input of users."""

    model_config = ConfigDict(frozen=True)

    text: str

    @field_validator("text", mode="before")
    @classmethod
    def _quoted(cls, given: str) -> str:
        return f"({given})"


@pytest.mark.req("CKP-8")
def test_an_item_that_its_load_changes_is_left_to_the_whole_dump_which_refuses_it() -> None:
    codec: Codec[Any] = Codec(ending(Quotes))
    grows = growing_list(codec)
    assert grows is not None
    state = codec.type(items=[Quotes(text="a")])
    assert dump_growing(codec, state, KeptItems(grows)) is None
    with pytest.raises(NotStorable, match=r"items\[0\].text is read back as another value"):
        codec.dump(state)


def test_an_item_that_is_dumped_otherwise_later_does_not_keep_its_bytes() -> None:
    codec: Codec[Any] = Codec(ending(Quotes))
    grows = growing_list(codec)
    assert grows is not None
    stored = codec.dump(codec.type(items=[Quotes(text="a")]), check=False)  # as before values were checked
    start = stored.index(b"[") + 1
    state, kept = load_growing(codec, KeptItems(grows, stored, start, [len(stored) - 2 - start]))
    assert state == codec.load(stored) and kept is None


class Aliased(BaseModel):
    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    n: int = Field(0, alias="number")
    below: tuple["Aliased", ...] = ()


class Timed(BaseModel):
    model_config = ConfigDict(frozen=True)

    n: int = Field(0, validation_alias="number")
    wait: timedelta | None = None
    at: datetime | None = None
    share: float = 0.0
    one_of: int | str | bool | None = None


TIMED = st.builds(
    Timed,
    number=st.integers(),
    wait=st.none() | st.timedeltas(),
    at=st.none() | st.datetimes(),
    share=st.floats(allow_nan=False, allow_infinity=False),
    one_of=st.integers() | st.text(max_size=3) | st.booleans() | st.none(),
)
TIMES: Codec[Any] = Codec(ending(Timed))


@settings(deadline=None)
@given(st.lists(TIMED, max_size=4), st.lists(TIMED, max_size=4))
def test_values_of_other_types(first: list[Timed], then: list[Timed]) -> None:
    """If the items keep their bytes, each state equals the whole dump and the whole load."""
    grows = growing_list(TIMES)
    assert grows is not None and growing_list(Codec(ending(Aliased))) is None
    state, kept = TIMES.type(items=first), KeptItems(grows)
    for more in (then, [], first):
        dumped = dump_growing(TIMES, state, kept)
        assert dumped is not None and dumped.state == TIMES.dump(state)
        state, again = load_growing(TIMES, dumped)
        assert state == TIMES.load(dumped.state)
        if again is None:
            return
        kept = again
        state.items.extend(more)


# --- JSON that cannot be changed -----------------------------------------------------------------
def test_the_arguments_of_a_call_cannot_be_changed() -> None:
    call = ToolCall(id="c", tool="t", arguments={"to": ["ana"], "deep": {"n": 1}})
    arguments: Any = call.arguments
    for do in (
        lambda: arguments.update(n=1),
        lambda: arguments.__setitem__("to", 1),
        lambda: arguments["to"].append("bo"),
        lambda: arguments["deep"].pop("n"),
        lambda: arguments["to"].sort(),
    ):
        with pytest.raises(TypeError, match="change a copy"):
            do()
    with pytest.raises(TypeError):
        arguments |= {"n": 1}
    assert arguments == {"to": ["ana"], "deep": {"n": 1}} == json.loads(json.dumps(arguments))
    assert canonical(arguments) == canonical({"deep": {"n": 1}, "to": ["ana"]})
    assert {**arguments, "n": 1} == {"to": ["ana"], "deep": {"n": 1}, "n": 1}


def test_only_json_can_be_frozen() -> None:
    with pytest.raises(ValidationError, match="a Loose is not JSON"):
        TypeAdapter(Annotated[list[Loose], AfterValidator(frozen_json)]).validate_python([{"n": 1}])


def test_frozen_json_can_be_copied() -> None:
    value = frozen_json({"a": [1, {"b": []}]})
    for again in (copy.deepcopy(value), pickle.loads(pickle.dumps(value)), copy.copy(value)):
        assert again == value and type(again) is FrozenDict and type(again["a"]) is FrozenList


def test_a_copy_of_a_message_has_its_own_digest() -> None:
    message = Message(role="user", text="one")
    assert message.digest == Message(role="user", text="one").digest
    other = message.model_copy(update={"text": "two"})
    assert other.digest != message.digest == message.model_copy().digest
    assert message.model_dump() == Message(role="user", text="one").model_dump()
    assert message == Message(role="user", text="one")
