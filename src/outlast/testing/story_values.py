"""Values of declared types for `any_story`: the simplest one of a type, and strategies that Hypothesis draws from."""

import datetime as dt
import enum
import inspect
import types
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AnySet
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from outlast.clocks import FIRST_INSTANT
from outlast.errors import InvalidInput
from outlast.testing.story import loaded, plain

Strategy = st.SearchStrategy[Any]
START: Final = dt.datetime.fromtimestamp(FIRST_INSTANT / 1000, dt.UTC)
TEXTS: Final = ("a", "b", "c")
"""Few and short, so that two texts are often equal, and a story is easy to read."""
NUMBER_MAX: Final = 10_000
"""A number without bounds is drawn from 0 to this. A wider range is declared: `Field(ge=…, le=…)`."""
ITEMS_MAX: Final = 3
DEPTH_MAX: Final = 4
_SCALARS: Final[Mapping[Any, tuple[Any, ...]]] = {
    type(None): (None,),
    bool: (True, False),
    float: (1.0, 0.0, 0.5, 10_000.0),
    bytes: (b"a", b""),
    Decimal: (Decimal(1), Decimal(0), Decimal("0.05"), Decimal(10_000)),
    UUID: (UUID(int=0), UUID(int=1)),
    dt.datetime: (START, START + dt.timedelta(hours=1), START + dt.timedelta(days=30)),
    dt.date: (START.date(), START.date() + dt.timedelta(days=30)),
    dt.time: (dt.time(12), dt.time(0)),
    dt.timedelta: (dt.timedelta(hours=1), dt.timedelta(0), dt.timedelta(days=30)),
}


class _Bounds(NamedTuple):
    """Bounds of a value or of its length, from the metadata of its type."""

    low: int | None = None
    high: int | None = None
    short: int = 0
    long: int | None = None


def _bounds(metadata: Sequence[Any]) -> _Bounds:
    found = _Bounds()
    for each in metadata:
        low, high = getattr(each, "ge", None), getattr(each, "le", None)
        above, below = getattr(each, "gt", None), getattr(each, "lt", None)
        if above is not None:
            low = int(above) + 1
        if below is not None:
            high = -(-int(below) // 1) - 1
        short, long = getattr(each, "min_length", None), getattr(each, "max_length", None)
        found = _Bounds(
            found.low if low is None else -(-low // 1),
            found.high if high is None else high // 1,
            found.short if short is None else short,
            found.long if long is None else long,
        )
    return found


def fits(hint: Any, value: Any) -> bool:
    """Return True if the type accepts the value, and reads it back from JSON."""
    try:
        loaded(hint, plain(hint, loaded(hint, value)))
    except (ValidationError, ValueError, TypeError):
        return False
    return True


def values_of(hint: Any, text: str = "a") -> Strategy:
    """Return a strategy for values of a type, the simplest first. A free text is first of all `text`."""
    return _strategy(hint, (), text, 0).filter(lambda value: fits(hint, value))


def _strategy(hint: Any, metadata: Sequence[Any], text: str, depth: int) -> Strategy:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _strategy(args[0], (*metadata, *args[1:]), text, depth)
    metadata = [part for each in metadata for part in (each.metadata if isinstance(each, FieldInfo) else (each,))]
    hint = type(None) if hint is None else hint
    bounds = _bounds(metadata)
    if hint is int:
        low = 0 if bounds.low is None else int(bounds.low)
        if bounds.low is None and bounds.high is not None:
            low = min(low, int(bounds.high))
        high = max(low, NUMBER_MAX) if bounds.high is None else int(bounds.high)
        near = st.integers(low, min(high, low + 3))
        return st.one_of(st.just(min(max(1, low), high)), near, st.integers(low, high))
    if hint is str:
        texts = [each for each in (text, *TEXTS) if len(each) >= bounds.short]
        texts = texts or [TEXTS[0] * bounds.short]
        known = [each if bounds.long is None else each[: bounds.long] for each in texts]
        if any(getattr(each, "pattern", None) for each in metadata):
            pattern = next(each.pattern for each in metadata if getattr(each, "pattern", None))
            return st.from_regex(pattern, fullmatch=True)
        return st.sampled_from(list(dict.fromkeys(known)))
    if (scalars := _of_scalars(hint, bounds)) is not None:
        return scalars
    if hint is Any or hint is object:
        return st.sampled_from((text, None, 1))
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        order = sorted(args, key=lambda each: each is type(None))
        return st.one_of(*(_strategy(each, metadata, text, depth) for each in order))
    collection = _collection(origin or hint, args, bounds, text, depth)
    return collection if collection is not None else _composed(hint, text, depth)


def _of_scalars(hint: Any, bounds: _Bounds) -> Strategy | None:
    known = _SCALARS.get(hint)
    if known is not None:
        if hint in (float, Decimal) and (bounds.low is not None or bounds.high is not None):
            ends = [hint(each) for each in (bounds.low, bounds.high) if each is not None]
            known = (*known, *ends)
            known = tuple(k for k in known if bounds.low is None or k >= bounds.low)
            known = tuple(k for k in known if bounds.high is None or k <= bounds.high) or tuple(ends)
        return st.sampled_from(known)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(list(hint))
    return None


def _collection(origin: Any, args: tuple[Any, ...], bounds: _Bounds, text: str, depth: int) -> Strategy | None:
    if not isinstance(origin, type) or not issubclass(origin, Collection) or hasattr(origin, "_fields"):
        return None
    if issubclass(origin, tuple) and not (len(args) == 2 and args[1] is ...):
        return st.tuples(*(_strategy(each, (), text, depth + 1) for each in args))
    most = bounds.short if depth >= DEPTH_MAX else ITEMS_MAX
    most = max(bounds.short, most if bounds.long is None else min(most, bounds.long))
    parts = [_strategy(each, (), text, depth + 1) for each in args if each is not ...] or [st.just(text)]
    if issubclass(origin, Mapping):
        if getattr(origin, "__annotations__", None) and not args:
            return None  # a TypedDict
        return st.dictionaries(parts[0], parts[-1], min_size=bounds.short, max_size=most)
    if issubclass(origin, AnySet):
        return st.frozensets(parts[0], min_size=bounds.short, max_size=most)
    items = st.lists(parts[0], min_size=bounds.short, max_size=most)
    if depth == 0 and bounds.short == 0 and most:
        items = st.one_of(st.lists(parts[0], min_size=1, max_size=1), items)
    return items.map(tuple) if issubclass(origin, tuple) else items


def _composed(hint: Any, text: str, depth: int) -> Strategy:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return _model(hint, depth)
    if depth < DEPTH_MAX and inspect.isclass(hint) and not inspect.isabstract(hint):
        return st.from_type(hint)
    raise InvalidInput(
        f"no value of {hint!r} can be made", "it is no type that any_story knows", "give a strategy for it"
    )


def _model(model: type[BaseModel], depth: int) -> Strategy:
    """Return a strategy for a model, as the data of its fields. A field with a default is mostly left out."""
    needed, more = {}, {}
    for name, field in model.model_fields.items():
        key = field.alias if isinstance(field.alias, str) else name
        if field.is_required():
            needed[key] = _field(field, name, depth)
        elif depth < DEPTH_MAX and field.default is not PydanticUndefined:
            more[key] = _field(field, name, depth)

    def made(given: Mapping[str, Any]) -> Any:
        try:
            return model.model_validate(dict(given))
        except ValidationError:
            return _INVALID

    few = st.fixed_dictionaries(needed)
    many = st.fixed_dictionaries(needed, optional=more) if more else few
    return st.one_of(few, many).map(made).filter(lambda value: value is not _INVALID)


_INVALID: Final = object()


def _field(field: FieldInfo, name: str, depth: int) -> Strategy:
    try:
        return _strategy(field.annotation, field.metadata, TEXTS[0], depth + 1)
    except InvalidInput:
        if field.is_required():
            raise
        return st.just(field.get_default(call_default_factory=True))
