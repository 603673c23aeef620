"""States whose last field is a list of immutable models: a step dumps and loads only the items that are new.

A holder keeps the JSON bytes of the last state and the items that were loaded from them. An item at the front of the
list that is the same object still has the same bytes, because nothing can change it. Only objects that were loaded
from their bytes are reused, so a node gets the same state as after a crash.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import is_
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from outlast.core.codec import Codec, FrozenDict, frozen_json
from outlast.core.limits import STATE_BYTES_MAX
from outlast.errors import LimitExceeded, NotStorable

SCALARS: Final = frozenset(
    {"str", "int", "float", "bool", "none", "literal", "date", "time", "datetime", "timedelta", "uuid"}
)
COMPUTED: Final = frozenset({str, bytes, int, float, bool, "str", "bytes", "int", "float", "bool"})
"""Types of values that a model may compute once, or their names if annotations are text."""
OUTERMOST: Final = ("ser", "val_", "polymorphic", "json_encoders")
"""Settings of a model that hold in all its fields. An item by itself would be written by its own."""
UNWRITTEN: Final = frozenset({"serialization", "serialization_exclude", "serialization_exclude_if"})
"""Properties of a field whose value may be missing in JSON, so that a loaded one is another object each time."""


class GrowingList(NamedTuple):
    """The last field of a type of state: its name, the class of its items, and their codec."""

    name: str
    item: type[BaseModel]
    codec: Codec[Any]


class KeptItems(NamedTuple):
    """A stored state, where its items begin and end, and the first items as loaded from these bytes."""

    of: GrowingList
    state: bytes = b""
    start: int = 0
    ends: Sequence[int] = ()  # after each item, from `start` on
    items: Sequence[object] = ()


def growing_list(codec: Codec[Any]) -> GrowingList | None:
    """Return the last field of a state if it is a plain list of models that never change, else None."""
    schema, refs = _resolved(codec.core_schema, {})
    if not _is_plain_model(schema):
        return None
    fields = schema["schema"]["fields"]
    if any("serialization" in _without_default(each["schema"]) for each in fields.values()):
        return None  # a serializer of a field may read the list
    name, field = list(fields.items())[-1]
    field = _without_default(field["schema"]) if field.keys() <= {"type", "schema", "metadata"} else {}
    if field.get("type") != "list" or not field.keys() <= {"type", "items_schema", "metadata"}:
        return None
    item, refs = _resolved(field["items_schema"], refs)
    if item["type"] != "model" or not _is_immutable(item, refs):
        return None
    made = Codec[Any](item["cls"], named=codec.named, bytes_max=STATE_BYTES_MAX)
    return GrowingList(name, item["cls"], made)


def dump_growing(codec: Codec[Any], state: BaseModel, kept: KeptItems) -> KeptItems | None:
    """Return a state as bytes, with the items that need not be loaded again; None if it must be dumped whole.

    Raises LimitExceeded and NotStorable.
    """
    name, item, codec_of_item = kept.of
    fields = state.__dict__
    items = fields.get(name)
    if type(state) is not codec.type or type(items) is not list or {*map(type, items)} - {item}:
        return None
    fields[name] = []  # not in a copy, because a model may define how it is copied
    try:
        head = codec.dump(state)
    finally:
        fields[name] = items
    if not head.endswith(b'"%b":[]}' % name.encode()):
        return None  # a field that was deleted and set again is written last
    same = list(map(is_, items, kept.items))
    n = same.index(False) if False in same else len(same)
    try:
        new = [codec_of_item.dump(each) for each in items[n:]]
    except (LimitExceeded, NotStorable):
        return None  # the whole dump says where
    start = len(head) - 2
    first = kept.state[kept.start : kept.start + kept.ends[n - 1]] if n else b""
    data = b"".join((head[:start], first, b"," if first and new else b"", b",".join(new), b"]}"))
    if len(data) > codec.bytes_max:
        codec.refuse_size(len(data), data)
    ends = list(kept.ends[:n])
    end = ends[-1] if ends else -1
    for each in new:
        end += 1 + len(each)
        ends.append(end)
    if not n and not is_whole(data, codec, state):  # once for each claim, when all items are new
        return None
    return KeptItems(kept.of, data, start, ends, kept.items[:n])


def is_whole(data: bytes, codec: Codec[Any], state: BaseModel) -> bool:
    """True if a state that was put together from its parts equals its dump."""
    return data == codec.dump(state, check=False)  # its head and its items were checked


def load_growing(codec: Codec[Any], kept: KeptItems) -> tuple[Any, KeptItems | None]:
    """Return a stored state as a new object with a new list, and the loaded items. Raises NotStorable.

    Return None for the items if a new one is dumped as other bytes than it was loaded from. Then its bytes must not be
    kept: a validator may change a value each time that it is loaded.
    """
    n = len(kept.items)
    new = kept.start + (kept.ends[n - 1] + (n < len(kept.ends)) if n else 0)
    last = kept.state[new:]
    state = codec.load(kept.state[: kept.start] + last)
    items = getattr(state, kept.of.name)
    again = not items or codec.dump(state, check=False).endswith(last)
    items[:0] = kept.items
    return state, kept._replace(items=tuple(items)) if again else None


# --- which types never change ----------------------------------------------------------------
Schema = Mapping[str, Any]
RECURSIVE: Final = "recursive"
"""A type within itself, which is examined already."""
OPAQUE: Final = "opaque"
"""A type that is written otherwise in this place, or that is not known."""


def _resolved(schema: Schema, refs: Mapping[str, Schema]) -> tuple[Any, Mapping[str, Schema]]:
    """Return a schema without the wrappers that only define or name types, and the other types by reference."""
    while schema["type"] in ("definitions", "definition-ref"):
        if "serialization" in schema:
            return {"type": OPAQUE}, refs
        if schema["type"] == "definitions":
            refs = {**refs, **{each["ref"]: each for each in schema["definitions"]}}
            schema = schema["schema"]
        else:
            name = schema["schema_ref"]
            schema, refs = refs.get(name, {"type": OPAQUE}), {**refs, name: {"type": RECURSIVE}}
    return schema, refs


def _without_default(schema: Schema) -> Schema:
    """Return the schema of a field without its default; as it is if the field has a serializer."""
    return schema["schema"] if schema["type"] == "default" and "serialization" not in schema else schema


def _is_plain_model(schema: Schema) -> bool:
    """True for a model whose JSON is that of its fields, and whose fields are validated one by one."""
    return bool(
        schema["type"] == "model"
        and not schema.get("custom_init")
        and not schema.get("root_model")
        and not schema.get("post_init")
        and "serialization" not in schema
        and schema["cls"].model_config.get("extra") != "allow"
        and not any(key.startswith(OUTERMOST) for key in schema["cls"].model_config)
        and schema["schema"]["type"] == "model-fields"
        and not schema["schema"].get("computed_fields")
        and schema["schema"]["fields"]
    )


def _is_frozen(cls: type[BaseModel]) -> bool:
    """True if neither the fields of a model can be set, nor a value that it computes once can change."""
    computed = [each for base in cls.__mro__ for each in vars(base).values() if isinstance(each, cached_property)]
    return (
        bool(cls.model_config.get("frozen"))
        and (cls.__setattr__, cls.__delattr__) == (BaseModel.__setattr__, BaseModel.__delattr__)
        and all(each.func.__annotations__.get("return") in COMPUTED for each in computed)
    )


def _is_immutable(schema: Schema, refs: Mapping[str, Schema]) -> bool:
    """True if no value that this schema has validated can change."""
    schema, refs = _resolved(schema, refs)
    kind = schema["type"]
    if "serialization" in schema:
        return False
    if kind == "model":
        fields = schema["schema"].get("fields", {}).values()
        frozen = _is_plain_model(schema) and _is_frozen(schema["cls"])
        return frozen and all(not UNWRITTEN & f.keys() and _is_immutable(f["schema"], refs) for f in fields)
    if kind == "enum":
        return all(type(member.value) in COMPUTED for member in schema["members"])
    if kind == "default":
        made = schema.get("default_factory")
        given = made in (None, FrozenDict, tuple) and type(schema.get("default")) not in (list, dict, set)
        return given and _is_immutable(schema["schema"], refs)
    if kind == "function-after":
        return schema["function"]["function"] is frozen_json
    if kind in ("nullable", "function-before"):
        return _is_immutable(schema["schema"], refs)
    if kind == "tuple":
        return all(_is_immutable(each, refs) for each in schema["items_schema"])
    if kind == "union":
        choices = (each[0] if isinstance(each, tuple) else each for each in schema["choices"])
        return all(_is_immutable(each, refs) for each in choices)
    return kind in SCALARS or kind == RECURSIVE
