"""Tell which values come back as they went in: by the schema, or by a comparison for all other types (CKP-8).

pydantic writes more than it reads back: a model of another class as an empty object, a field under a name that it does
not read, a value that a constraint refuses. A stored value is therefore loaded before it counts, and compared with the
given one. The comparison is needed only if the schema does not prove that both are equal:

* A type *proves its round trip* if each of its parts is a scalar with one JSON form, a container of such parts, or a
  model without serializers, validators and further names. pydantic's own check refuses a scalar of another class. Its
  check does not see the class of a model, a float that was an integer, or an offset with seconds. `Shape.checks` finds
  these by columns, in C: each step reads one field of all values of a type, so the cost in Python does not grow with
  the value.
* Any other type is compared part by part with what was loaded (`ValueComparison`).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal
from enum import Flag
from functools import partial
from itertools import chain, filterfalse
from operator import attrgetter, is_, itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, RootModel

Schema: TypeAlias = Mapping[str, Any]
Columns: TypeAlias = list[list[Any]]

_EMPTY: Final[Mapping[str, Any]] = {}
_SCALARS: Final = frozenset({"str", "int", "bool", "none", "bytes", "date", "timedelta", "uuid", "decimal", "float"})
_HARMLESS: Final = frozenset({
    "type", "schema", "items_schema", "keys_schema", "values_schema", "metadata", "ref", "strict", "default",
    "default_factory", "default_factory_takes_data", "copy_default", "validate_default", "variadic_item_index",
    "cls", "members", "sub_type", "missing", "expected", "choices", "mode", "fail_fast", "cache_strings",
    "microseconds_precision", "auto_collapse",
})  # fmt: skip
"""Keys of a schema that neither change nor refuse a value that was loaded from its own JSON."""
_REFUSING: Final = frozenset({
    "ge", "gt", "le", "lt", "multiple_of", "max_digits", "decimal_places", "allow_inf_nan", "min_length", "max_length",
    "pattern", "regex_engine", "version", "now_op", "now_utc_offset", "tz_constraint",
})  # fmt: skip
"""Keys of a schema that may refuse the JSON of a value, and never change it."""
_MODEL_CONFIG: Final = frozenset({
    "title", "extra_fields_behavior", "frozen", "populate_by_name", "validate_by_name", "validate_by_alias",
    "from_attributes", "validate_assignment", "revalidate_instances", "arbitrary_types_allowed", "validate_default",
    "strict", "loc_by_alias", "hide_input_in_errors", "validation_error_cause",
})  # fmt: skip
"""Settings of a model that do not change how a value is written or read."""
_FIELD: Final = frozenset({
    "type", "schema", "metadata", "validation_alias", "serialization_alias", "frozen", "required",
})  # fmt: skip
_MODEL: Final = frozenset({
    "type", "cls", "config", "custom_init", "metadata", "ref", "root_model", "schema", "post_init", "generic_origin",
})  # fmt: skip
_MODEL_FIELDS: Final = frozenset({
    "type", "fields", "model_name", "computed_fields", "metadata", "ref", "extra_behavior",
})  # fmt: skip
_TYPED_DICT: Final = frozenset({
    "type", "cls", "cls_name", "config", "fields", "metadata", "ref", "total", "computed_fields", "extra_behavior",
})  # fmt: skip
_COLUMNS: Final = frozenset({"field", "items", "values", "given"})
"""Kinds of checks that only make a column."""
_EXACT: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Types whose values are compared by `==` once their classes are the same."""


class Unproven(Exception):
    """A part of a type whose schema does not prove the round trip."""


class Check(NamedTuple):
    """One step over columns: it checks a column, or makes a new one of the values in it."""

    kind: Literal["class", "dict", "field", "items", "values", "given", "offset", "model"]
    column: int
    of: Any = None


class Shape(NamedTuple):
    """Result of an examination of a type."""

    proven: bool
    """True if a value that passes `checks` and is loaded is the value that was written."""
    refusing: bool
    """True if the type may refuse what was written."""
    model: type[BaseModel] | None = None
    """The model itself, if the type is a proven one."""
    fields: int = 0
    checks: tuple[Check, ...] = ()
    """Checks of all parts but the model itself."""


UNPROVEN: Final = Shape(False, True)


# --- what a schema proves --------------------------------------------------------------------
def examine(schema: Schema, *, validated: bool = False) -> Shape:
    """Return what the schema of a type proves about its values.

    `validated`: the values are dictionaries that the type itself has made, so their keys are known.
    """
    examined = _Examined()
    try:
        examined.add(schema, 0, _EMPTY)
    except Unproven:
        return UNPROVEN
    found, refusing = tuple(examined.checks), examined.refusing
    if validated and found and found[0].kind == "dict":
        found = found[1:]
    if len(found) == 1 and found[0].kind == "model" and found[0].column == 0:
        return Shape(True, refusing, found[0].of[0], found[0].of[1])
    return Shape(True, refusing, checks=found)


class _Examined:
    """Checks of the parts of one type, in the order in which they are made."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.refusing = False
        self._columns = 1

    def add(self, schema: Schema, column: int, refs: Mapping[str, Schema]) -> None:
        """Add the checks of the values in a column. Raises Unproven."""
        kind = schema["type"]
        if kind == "definitions":
            refs = {**refs, **{each["ref"]: each for each in schema["definitions"]}}
            self.add(schema["schema"], column, refs)
        elif kind == "definition-ref" and schema.keys() <= {"type", "schema_ref", "metadata", "ref"}:
            name = schema["schema_ref"]
            if name not in refs:  # a type within itself
                raise Unproven
            self.add(refs[name], column, {each: refs[each] for each in refs if each != name})
        elif kind == "model":
            self._add_model(schema, column, refs)
        elif kind == "typed-dict":
            self._add_typed_dict(schema, column, refs)
        else:
            self._check_keys(schema)
            self._add_other(schema, column, refs)

    def _add_other(self, schema: Schema, column: int, refs: Mapping[str, Schema]) -> None:
        kind = schema["type"]
        self.refusing |= kind in ("decimal", "literal")  # a NaN, and a text that is not among those of the literal
        if kind == "float":
            self.checks.append(Check("class", column, frozenset({float})))
        elif kind == "datetime":
            self.checks.append(Check("offset", column))
        elif kind == "default":
            self.add(schema["schema"], column, refs)
        elif kind == "nullable":
            self._add_column("given", column, None, schema["schema"], refs)
        elif kind in ("list", "set", "frozenset"):
            self._add_column("items", column, None, _part(schema, "items_schema"), refs)
        elif kind == "dict":
            keys = _part(schema, "keys_schema")
            if keys["type"] != "str":
                raise Unproven
            self._check_keys(keys)
            self._add_column("values", column, None, _part(schema, "values_schema"), refs)
        elif kind == "tuple":
            self._add_tuple(schema, column, refs)
        elif kind not in _SCALARS and not _is_scalar(schema):
            raise Unproven

    def _add_column(self, kind: Any, column: int, of: Any, schema: Schema, refs: Mapping[str, Schema]) -> None:
        """Add a column and the checks of its values, if there are any."""
        n, columns = len(self.checks), self._columns
        self.checks.append(Check(kind, column, of))
        self._columns += 1
        self.add(schema, columns, refs)
        if all(check.kind in _COLUMNS for check in self.checks[n:]):
            del self.checks[n:]
            self._columns = columns

    def _check_keys(self, schema: Schema) -> None:
        if "on_error" in schema:  # a value that does not fit may become the default
            raise Unproven
        more = schema.keys() - _HARMLESS
        if more - _REFUSING:
            raise Unproven
        self.refusing |= bool(more)

    def _add_tuple(self, schema: Schema, column: int, refs: Mapping[str, Schema]) -> None:
        self.checks.append(Check("class", column, frozenset({tuple})))  # a named tuple has names besides
        parts = schema["items_schema"]
        if "variadic_item_index" in schema and len(parts) != 1:
            raise Unproven
        for i, part in enumerate(parts):
            if "variadic_item_index" in schema:
                self._add_column("items", column, None, part, refs)
            else:
                self._add_column("field", column, itemgetter(i), part, refs)

    def _add_model(self, schema: Schema, column: int, refs: Mapping[str, Schema]) -> None:
        inner, cls = schema["schema"], schema["cls"]
        if (
            schema.keys() - _MODEL
            or schema.get("custom_init")
            or schema.get("root_model")
            or schema.get("config", _EMPTY).keys() - _MODEL_CONFIG
            or cls.model_config.get("extra") == "allow"
            or inner["type"] != "model-fields"
            or inner.keys() - _MODEL_FIELDS
            or ("post_init" in schema and cls.model_post_init.__name__ != "init_private_attributes")
        ):
            raise Unproven
        computed = [each["property_name"] for each in inner.get("computed_fields", ())]
        origin = cls.__pydantic_generic_metadata__["origin"]
        self.checks.append(Check("model", column, (cls, len(inner["fields"]), frozenset({cls, origin} - {None}))))
        self._columns += 1
        self._add_fields(inner["fields"], self._columns - 1, refs, computed)

    def _add_typed_dict(self, schema: Schema, column: int, refs: Mapping[str, Schema]) -> None:
        of = schema["fields"]
        if (
            schema.keys() - _TYPED_DICT
            or schema.get("extra_behavior") == "allow"
            or schema.get("computed_fields")
            or schema.get("config", _EMPTY).keys() - _MODEL_CONFIG
        ):
            raise Unproven
        self.checks.append(Check("dict", column, frozenset({frozenset(of)})))
        self._add_fields(of, column, refs, ())

    def _add_fields(
        self, of: Mapping[str, Schema], column: int, refs: Mapping[str, Schema], computed: Sequence[str]
    ) -> None:
        names = [*_names(of), *computed]
        if len({*names}) < len(names):
            raise Unproven  # a field would be read under the name of another one
        for name, field in of.items():
            if field.keys() - _FIELD or not field.get("required", True):
                raise Unproven
            self._add_column("field", column, itemgetter(name), field["schema"], refs)


def _part(schema: Schema, name: str) -> Schema:
    found: Schema = schema.get(name, {"type": "any"})
    return found


def _names(of: Mapping[str, Schema]) -> list[str]:
    """Return all names under which fields are read. Raises Unproven for a path or a choice of names."""
    names = list(of)
    for name, field in of.items():
        alias = field.get("validation_alias", name)
        if not isinstance(alias, str):
            raise Unproven
        if alias != name:
            names.append(alias)
    return names


def _is_scalar(schema: Schema) -> bool:
    """True for a literal, an enumeration or a union whose JSON is of one value only."""
    if schema["type"] == "literal":
        return all(type(each) is str for each in schema["expected"])
    if schema["type"] == "enum" and not issubclass(schema["cls"], Flag):
        kinds = {type(member.value) for member in schema["members"]}
        return kinds in ({str}, {int})
    if schema["type"] == "union":
        choices = [each[0] if isinstance(each, tuple) else each for each in schema["choices"]]
        return all(each["type"] in ("str", "int", "bool", "none") and each.keys() <= _HARMLESS for each in choices)
    return False


# --- the classes of a proven type -------------------------------------------------------------
_FIELDS_OF: Final = attrgetter("__dict__")
_MISSING: Final = partial(is_, None)
_MINUTE: Final = timedelta(minutes=1)
_NO_OFFSET: Final = frozenset({None, timedelta()})


def are_as_declared(checks: Sequence[Check], value: object) -> bool:
    """True if all parts of a value have the classes that the checks name. False asks for a comparison."""
    columns: Columns = [[value]]
    add = columns.append
    try:
        for kind, n, of in checks:
            column = columns[n]
            if kind == "field":
                add([*map(of, column)])
            elif kind == "class":
                if {*map(type, column)} - of:
                    return False
            elif kind == "model":
                _, size, classes = of
                found = [*map(_FIELDS_OF, column)]
                if {*map(type, column)} - classes or {*map(len, found)} - {size}:
                    return False
                add(found)
            elif kind == "dict":
                if {*map(frozenset, column)} - of:
                    return False
            elif kind == "given":
                add([*filterfalse(_MISSING, column)])
            elif kind == "offset":
                offsets = {*map(datetime.utcoffset, column)}
                if not offsets <= _NO_OFFSET and not all(map(_in_minutes, offsets)):
                    return False
            else:
                add([*chain.from_iterable(map(dict.values, column) if kind == "values" else column)])
    except (AttributeError, LookupError, TypeError):  # a value of another class, or without a field
        return False
    return True


def _in_minutes(offset: timedelta | None) -> bool:
    return offset is None or not offset % _MINUTE


# --- the comparison --------------------------------------------------------------------------
class ValueComparison(NamedTuple):
    """Comparison of what was loaded with what was given."""

    sequences: bool = False
    """True if the type declares a `Sequence`: a tuple comes back as the list that pydantic reads for it."""
    alternatives: frozenset[type] = frozenset()
    """Classes that a union of the type names: a value of one of them comes back as no other."""

    def difference(self, given: Any, loaded: Any, path: str) -> str:
        """Return how a loaded value differs from the given one, with the path of the first part; '' if it does not.

        The text has no value, because it is shown and logged.
        """
        kind = type(loaded)
        if type(given) is not kind and type(given) in self.alternatives:
            found, read = type(given).__qualname__, kind.__qualname__
            return f"{path}: its union reads {found} back as {read}; give the classes a field that tells them apart"
        if kind in _EXACT:
            return _of_scalars(given, loaded, path)
        if isinstance(loaded, BaseModel):
            return self._of_models(given, loaded, path)
        if is_dataclass(kind):
            return self._of_dataclasses(given, loaded, path)
        if isinstance(loaded, dict):
            found = _other_class(given, kind, path) or _of_factories(given, loaded, path)
            return found or self._of_dicts(given, loaded, path)
        if isinstance(loaded, (tuple, list)):
            return self._of_sequences(given, loaded, path)
        if isinstance(loaded, (set, frozenset)):
            return _other_class(given, kind, path) or self._of_sets(given, loaded, path)
        return _other_class(given, kind, path) or self._of_others(given, loaded, path)

    def _of_models(self, given: Any, loaded: BaseModel, path: str) -> str:
        cls = type(loaded)
        if type(given) is not cls and not _is_alike(type(given), cls):
            return _expected(path, cls, given)
        before, after = given.__dict__, loaded.__dict__
        for name in cls.__pydantic_fields__:
            if (name in before) != (name in after):
                return f"{path}.{name} is missing, and would be read back as its default"
            if name in before and (found := self.difference(before[name], after[name], f"{path}.{name}")):
                return found
        more, again = given.__pydantic_extra__ or {}, loaded.__pydantic_extra__ or {}
        return self._of_dicts(more, again, path) if more or again else ""

    def _of_dataclasses(self, given: Any, loaded: Any, path: str) -> str:
        cls = type(loaded)
        names = [each.name for each in fields(loaded)]
        if type(given) is not cls and not (
            isinstance(given, cls) and is_dataclass(given) and [each.name for each in fields(given)] == names
        ):
            return _expected(path, cls, given)
        return self._first((f"{path}.{n}", getattr(given, n, None), getattr(loaded, n, None)) for n in names)

    def _of_dicts(self, given: Mapping[Any, Any], loaded: Mapping[Any, Any], path: str) -> str:
        if len(given) != len(loaded):
            return f"{path}: expected {len(given)} entries, and {len(loaded)} would be read back"
        keys = {key: key for key in loaded}
        for key, value in given.items():
            if key not in keys:
                return f"{path} has a key that is read back as another one"
            if type(key) is not str and (found := self.difference(key, keys[key], f"a key of {path}")):
                return found
            other, kind = loaded[key], type(value)
            if kind in _EXACT and kind is type(other) and value == other:
                continue
            if found := self.difference(value, other, f"{path}.{key}"[:PATH_CHARS_MAX]):
                return found
        return ""

    def _of_sequences(self, given: Any, loaded: Sequence[Any], path: str) -> str:
        kind = type(loaded)
        as_list = self.sequences and kind is list and type(given) is tuple
        if not as_list and (not isinstance(given, kind) or (hasattr(given, "_fields") and type(given) is not kind)):
            return _expected(path, kind, given)
        if len(given) != len(loaded):
            return f"{path}: expected {len(given)} items, and {len(loaded)} would be read back"
        for i, (value, other) in enumerate(zip(given, loaded, strict=True)):
            of = type(value)
            if of in _EXACT and of is type(other) and value == other:
                continue
            if found := self.difference(value, other, f"{path}[{i}]"):
                return found
        return ""

    def _of_sets(self, given: Set[Any], loaded: Set[Any], path: str) -> str:
        members = {each: each for each in loaded}
        if len(given) != len(loaded) or not all(each in members for each in given):
            return _changed(path)
        return self._first((f"a member of {path}", each, members[each]) for each in given)

    def _of_others(self, given: Any, loaded: Any, path: str) -> str:
        """Compare two values of one class that is no container."""
        if isinstance(given, (datetime, time)):
            if given.utcoffset() != loaded.utcoffset() or (given.tzinfo is None) != (loaded.tzinfo is None):
                return f"{path}: expected an offset from UTC in whole minutes, or none"
            return "" if given == loaded else _changed(path)
        if isinstance(given, Decimal):
            return "" if given.as_tuple() == loaded.as_tuple() else _changed(path)
        if isinstance(given, deque) and given.maxlen != loaded.maxlen:
            return f"{path} is a deque with maxlen={given.maxlen}, which is not stored"
        compares: object = type(loaded).__eq__
        if compares is object.__eq__ and given is not loaded:  # a class of the author that compares nothing
            return self._of_dicts(_attributes(given), _attributes(loaded), path)
        return "" if given == loaded else _changed(path)

    def _first(self, pairs: Iterable[tuple[str, Any, Any]]) -> str:
        for path, given, loaded in pairs:
            if found := self.difference(given, loaded, path):
                return found
        return ""


PATH_CHARS_MAX: Final = 500


def _of_factories(given: Any, loaded: Any, path: str) -> str:
    """Compare what two dictionaries give for a missing key, if both give something."""
    if isinstance(loaded, defaultdict) and given.default_factory is not loaded.default_factory:
        return f"{path} is a defaultdict whose default_factory is not stored"
    return ""


def _attributes(value: object) -> dict[str, Any]:
    """Return the attributes of an object by name, those of its slots included."""
    slots = [name for each in type(value).__mro__ for name in _slots_of(each)]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def _slots_of(cls: type) -> Iterable[str]:
    names = cls.__dict__.get("__slots__", ())
    return (names,) if isinstance(names, str) else [each for each in names if each not in ("__dict__", "__weakref__")]


def alternatives(schema: Any, *, within: bool = False) -> frozenset[type]:
    """Return the classes of models, dataclasses and enumerations that the unions of a schema name.

    `within`: the schema is a part of a union.
    """
    if isinstance(schema, Mapping):
        union = within or schema.get("type") == "union"
        cls = schema.get("cls") if union and schema.get("type") in ("enum", "model", "dataclass") else None
        found = frozenset({cls} if isinstance(cls, type) else ())
        return found.union(*(alternatives(each, within=union) for each in schema.values()))
    if isinstance(schema, (list, tuple)):
        return frozenset().union(*(alternatives(each, within=within) for each in schema))
    return frozenset()


def _expected(path: str, kind: type, given: object) -> str:
    wanted, found = kind.__qualname__, type(given).__qualname__
    if wanted == found:
        wanted, found = f"{kind.__module__}.{wanted}", f"{type(given).__module__}.{found}"
    return f"{path}: expected {wanted}, found {found}"


def _other_class(given: object, kind: type, path: str) -> str:
    return "" if isinstance(given, kind) else _expected(path, kind, given)


def _changed(path: str) -> str:
    return f"{path} is read back as another value"


def _of_scalars(given: Any, loaded: Any, path: str) -> str:
    kind = type(loaded)
    if not isinstance(given, kind) and not (kind is float and type(given) is int):
        return _expected(path, kind, given)
    return "" if given == loaded else _changed(path)


def _is_alike(given: type, cls: type[BaseModel]) -> bool:
    """True for a class that has the fields of a model and no others: its generic form, or a subclass."""
    if not issubclass(given, BaseModel) or given.__pydantic_fields__.keys() != cls.__pydantic_fields__.keys():
        return False
    generic = {each.__pydantic_generic_metadata__["origin"] or each for each in (given, cls)}
    return len(generic) == 1 or issubclass(given, cls)


# --- the order of sets ------------------------------------------------------------------------
def in_order(given: Any, plain: Any, key: Callable[[Any], str]) -> Any:
    """Return the JSON data of a value with the members of its sets in the order of their canonical text (`key`).

    pydantic writes a set as it iterates, which differs between processes. `plain` is what it wrote of `given`.
    """
    while isinstance(given, RootModel):
        given = given.root
    if not isinstance(plain, (list, dict)) or type(given) in _EXACT:
        return plain
    if isinstance(given, (set, frozenset)):
        if isinstance(plain, dict):
            return plain
        members = zip(given, plain, strict=False) if len(given) == len(plain) else ((None, each) for each in plain)
        return sorted((in_order(each, written, key) for each, written in members), key=key)
    if isinstance(plain, list):
        if not isinstance(given, Sequence) or len(given) != len(plain):
            return plain
        return [in_order(each, written, key) for each, written in zip(given, plain, strict=True)]
    for name, value in _parts(given, plain):
        plain[name] = in_order(value, plain[name], key)
    return plain


def _parts(given: Any, plain: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value under the names by which they were written."""
    if isinstance(given, Mapping):
        if len(given) == len(plain):
            yield from zip(plain, given.values(), strict=True)
        else:
            yield from ((name, given[name]) for name in plain if name in given)
        return
    names = _written_names(given)
    aliases = [alias for _, alias in names]
    by_alias = [name for name, _ in names if name in plain] != [*plain] == [each for each in aliases if each in plain]
    for name, alias in names:
        written = alias if by_alias or name not in plain else name
        if isinstance(plain.get(written), (list, dict)):
            yield written, getattr(given, name, None)


def _written_names(given: Any) -> list[tuple[str, str]]:
    """Return the name and the alias of each part of a model or dataclass, in the order in which they are written."""
    cls = type(given)
    of: Mapping[str, Any] = getattr(cls, "__pydantic_fields__", _EMPTY)
    if isinstance(given, BaseModel):
        own = [*given.__dict__, *(given.__pydantic_extra__ or ())]
    elif is_dataclass(given):
        own = [each.name for each in fields(given)]
    else:
        return []
    decorators = getattr(cls, "__pydantic_decorators__", None)
    computed = {name: each.info for name, each in decorators.computed_fields.items()} if decorators else {}
    named = [(name, getattr(of.get(name), "serialization_alias", None) or name) for name in own]
    return named + [(name, info.alias or name) for name, info in computed.items()]
