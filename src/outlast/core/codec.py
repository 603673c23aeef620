"""Conversion of values to bytes: canonical JSON for hashes and comparisons, pydantic's JSON for storage.

Stored values (state, arguments, responses, messages) are JSON in the form of their declared type. Loading validates
against that type and never executes stored data. Possible faults, and why
none does harm:

- *Equal values have different bytes*, so that a digest of an approved call does not match. Canonical bytes have sorted
  keys, no white space, UTF-8, and sets in the order of their members' canonical text, because the order in which a
  set yields them differs between processes.
- *pydantic writes a value that it does not read back*. A value of another type is a warning, which is an error here
  (`_call_strictly`). A NaN becomes `null`, a lone surrogate in a key becomes U+FFFD: both are searched for if the bytes
  have these. A number of more than 4,300 digits is written and not read: bytes longer than that are read back. All
  other types are loaded and compared unless their schema proves the round trip (`core/round_trip.py`).
- *Code of an author raises* in a serializer, a validator, a computed field or `==`. Each such call is caught whole, and
  the error names the part of the value (`core/value_problems.py`).
- *A stored value does not fit a changed type.* Loading raises NotStorable with the fields, and changes nothing.
"""

import builtins
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from hashlib import sha256
from types import FunctionType
from typing import Any, Final, Generic, Never, TypeAlias, TypeVar, cast

from pydantic import BaseModel, JsonValue, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, SchemaSerializer, core_schema, to_jsonable_python
from typing_extensions import override

from outlast.core.limits import JSON_DEPTH_MAX, RESPONSE_BYTES_MAX, SIGNAL_SCHEMA_BYTES_MAX, STATE_BYTES_MAX
from outlast.core.round_trip import ValueComparison, alternatives, are_as_declared, examine, in_order
from outlast.core.value_problems import (
    find_nan,
    find_surrogate,
    find_unstorable,
    is_unicode,
    mismatch,
    problems_of,
    text_of_raised,
)
from outlast.errors import DefinitionError, InvalidInput, LimitExceeded, NotStorable

T = TypeVar("T")
Json: TypeAlias = JsonValue

_ONLY_DATA: Final = "use only data: text, numbers, lists, dictionaries or a pydantic model (`value.model_dump()`)"
INTEGER_DIGITS_MAX: Final = 4_300
"""A JSON number with more digits is not read."""
_TOO_LONG: Final = f"it holds a number of more than {INTEGER_DIGITS_MAX:,} digits"
_READABLE: Final = "give a value that its declared type accepts, or declare the type that it has"
_OTHERWISE: Final = "give a value of the declared type, or declare a union of the types that it may have"
ELSEWHERE: Final = "keep large values elsewhere (file, object store) and store their address"
_SECRET: Final = re.compile(r"(?:pydantic\.types\.|<function )(Secret(?:Str|Bytes)?)[.']")
_SCALARS: Final = frozenset({str, int, bool, type(None)})
_REPLACED: Final = "\ufffd".encode()
"""The character that pydantic writes for each byte of a lone surrogate in a key."""
_FIRST_OF_REPLACED: Final = _REPLACED[0]
"""It is looked for first: one byte is found 60 times as fast as three, and few texts have it."""


# --- canonical bytes -----------------------------------------------------------------------
def _refuse(value: object) -> Never:
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _make_encoder(*, sort_keys: bool) -> Callable[[Any, int], Iterable[str]]:
    """Return the encoder behind `json.dumps`, built once. `json.dumps` builds one per call, at twice the cost.

    Call it with a value and 0, and join the texts that it returns.
    """
    factory = getattr(json.encoder, "c_make_encoder", None)
    escape = getattr(json.encoder, "encode_basestring", None)
    if factory is None or escape is None:  # not CPython
        encoder = json.JSONEncoder(sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return lambda value, _: encoder.iterencode(value)
    chunks: Callable[[Any, int], Iterable[str]] = factory(
        None, _refuse, escape, None, ":", ",", sort_keys, False, False
    )
    return chunks


_sorted_chunks: Final = _make_encoder(sort_keys=True)
_chunks: Final = _make_encoder(sort_keys=False)


def _text_of(plain: object) -> str:
    return "".join(_sorted_chunks(plain, 0))


def is_json(value: object) -> bool:
    """True if a value is read back from its JSON as it is: text, numbers, lists and dictionaries with text as keys."""
    if type(value) is dict:
        for name, item in value.items():
            if type(name) is not str or (type(item) not in _PLAIN_TYPES and not is_json(item)):
                return False
        return True
    if type(value) is list:
        return all(map(is_json, value))
    return type(value) in _PLAIN_TYPES


_PLAIN_TYPES: Final = (str, int, float, bool, type(None))


def plain_json(value: object, *, by_alias: bool = False, exclude_computed: bool = False) -> Any:
    """Return any value as JSON data, with the members of sets in the order of their canonical text.

    `exclude_computed`: leave out the computed fields of a model. Raises NotStorable.
    """
    try:
        if exclude_computed and isinstance(value, BaseModel):
            plain: Any = value.model_dump(mode="json", by_alias=by_alias, exclude_computed_fields=True)
        else:
            plain = to_jsonable_python(value, by_alias=by_alias)
        return in_order(value, plain, _text_of)
    except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
        raise NotStorable("a value cannot be stored", " ".join(str(error).split()), _ONLY_DATA) from error


class FrozenDict(dict[str, JsonValue]):
    """A JSON object that cannot be changed."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> Never:
        raise TypeError("this object belongs to an immutable value; change a copy: dict(…)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    @override
    def __reduce__(self) -> tuple[type, tuple[dict[str, JsonValue]]]:
        return type(self), (dict(self),)


class FrozenList(list[JsonValue]):
    """A JSON array that cannot be changed."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> Never:
        raise TypeError("this list belongs to an immutable value; change a copy: list(…)")

    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = _refuse
    remove = reverse = sort = _refuse

    @override
    def __reduce__(self) -> tuple[type, tuple[list[JsonValue]]]:
        return type(self), (list(self),)


def frozen_json(value: Any) -> Any:
    """Return plain JSON data as a value that cannot be changed, in all its levels. Raises ValueError for other data."""
    if isinstance(value, dict):
        return FrozenDict({name: frozen_json(item) for name, item in value.items()})
    if isinstance(value, list):
        return FrozenList([frozen_json(item) for item in value])
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise ValueError(f"a {type(value).__name__} is not JSON")


def compact(value: object) -> str:
    """Return JSON text without white space, in the given order of members: for data of the engine itself."""
    return "".join(_chunks(value, 0))


def canonical(value: object) -> bytes:
    """Return the canonical JSON bytes of plain data. Raises NotStorable with the path of a value that is not JSON."""
    if type(value) not in _SCALARS:
        _check(value, "value", 0)
    return canonical_plain(value)


def canonical_plain(value: object) -> bytes:
    """Return the same bytes as `canonical`, faster, for data with text keys only, as pydantic dumps it."""
    try:
        return "".join(_sorted_chunks(value, 0)).encode()
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        _check(value, "value", 0)
        raise NotStorable("a value cannot be stored", str(error), _ONLY_DATA) from error


def digest(*parts: object) -> str:
    """Return the SHA-256, in hex, of the canonical bytes of the list of `parts`.

    A part given as bytes must already be canonical: `digest("a", canonical(x)) == digest("a", x)`.
    """
    written = b",".join([part if type(part) is bytes else canonical(part) for part in parts])
    return sha256(b"[%b]" % written).hexdigest()


def _check(value: object, path: str, depth: int) -> None:
    """Raise NotStorable for the first part of `value` that is not plain JSON."""
    problem = ""
    if depth > JSON_DEPTH_MAX:
        problem = f"is nested deeper than {JSON_DEPTH_MAX} levels"
    elif type(value) is dict or type(value) is FrozenDict:
        for name, item in value.items():
            if type(name) is not str:
                problem = f"has a key that is a {type(name).__name__}, not text"
                break
            if not name.isascii() and not is_unicode(name):
                problem = "has a key that is not valid Unicode"
                break
            _check(item, f"{path}.{name}", depth + 1)
    elif type(value) is list or type(value) is tuple or type(value) is FrozenList:
        for i, item in enumerate(value):
            _check(item, f"{path}[{i}]", depth + 1)
    elif isinstance(value, float):
        problem = "" if value - value == 0 else f"is {value}, which JSON cannot say"
    elif isinstance(value, str):
        problem = "" if value.isascii() or is_unicode(value) else "is text that is not valid Unicode"
    elif not isinstance(value, int) and value is not None:
        problem = f"is a {type(value).__name__}"
    if problem:
        raise NotStorable("a value cannot be stored", f"{path} {problem}", _ONLY_DATA)


# --- declared types ------------------------------------------------------------------------
def _call(dump: Callable[..., Any], value: object) -> Any:
    return dump(value)


def _call_slowly(dump: Callable[..., Any], value: object) -> Any:
    return dump(value, warnings="error")


def _make_strict_call() -> Callable[[Callable[..., Any], object], Any]:
    """Return `_call` in a frame where each warning raises, or `_call_slowly` if this interpreter has no such frame.

    pydantic warns of a value that does not fit its type. With `warnings="error"` it raises, but it reads this argument
    by way of a raised and dropped error, which takes 20 µs of a step. A warnings filter would belong to the whole
    process. Python refuses a warning of a frame whose registry is no dictionary, whatever filters are set.
    """
    names = {"__builtins__": builtins, "__name__": __name__, "__warningregistry__": False}
    strict = FunctionType(_call.__code__, names)
    try:
        strict(SchemaSerializer(core_schema.int_schema()).to_json, "no number")
    except TypeError:
        return strict
    return _call_slowly


_call_strictly: Final = _make_strict_call()


INVALID: Final = (ValidationError, UnicodeEncodeError)
"""Errors of a value that does not fit. pydantic raises the second one if the text of a validator is not Unicode."""


class Codec(Generic[T]):
    """Dump and load values of one declared type. Errors call the value `named` ("the state of …").

    A dumped value comes back as it went in, or is refused (CKP-8; see `round_trip`).
    """

    __slots__ = (
        "_checks",
        "_comparison",
        "_dump",
        "_fields",
        "_has_integers",
        "_has_sets",
        "_load",
        "_model",
        "_proven",
        "_refusing",
        "_schema",
        "_to_json",
        "_writes_floats",
        "bytes_max",
        "if_large",
        "leaves_out",
        "named",
        "type",
        "validate",
    )

    def __init__(
        self,
        type_: Any,
        *,
        named: str = "the value",
        bytes_max: int = RESPONSE_BYTES_MAX,
        where: str = "",
        if_large: str = ELSEWHERE,
        validated: bool = False,
    ) -> None:
        """Create a codec. `if_large` is the remedy in the error for a value that is too large.

        `validated`: only dictionaries that `validate` has returned are dumped. Raises DefinitionError with `where`
        (file:line) if `type_` has no JSON form.
        """
        try:
            adapter: TypeAdapter[T] = TypeAdapter(type_)
            self.validate: Callable[[object], T] = adapter.validator.validate_python
            self._load = adapter.validator.validate_json
            self._dump: Callable[..., Any] = partial(adapter.serializer.to_python, mode="json")
            self._to_json: Callable[..., bytes] = adapter.serializer.to_json
        except (PydanticUserError, TypeError, NameError) as error:
            # PydanticUserError: no schema for the type; NameError: an unresolved forward reference.
            raise DefinitionError(
                f"{named} cannot be stored",
                str(error).splitlines()[0],
                "declare it as JSON data or a pydantic model that is complete at this line",
                where=where,
            ) from error
        text = repr(adapter.core_schema)
        if secret := _SECRET.search(text):
            raise DefinitionError(
                f"{named} holds a {secret[1]}, which cannot be stored",
                "what is stored is shown, sent and exported; a secret would come back as asterisks",
                "read it from the environment inside the activity, or declare it str if the store may hold it",
                where=where,
            )
        self.type = type_
        self.named = named
        self.bytes_max = bytes_max
        self.if_large = if_large
        self._schema = adapter
        self._writes_floats = _may_write_floats(text)
        self._has_sets = "'set'" in text or "'frozenset'" in text
        self._has_integers = "'int'" in text
        self.leaves_out = "'computed-field'" in text and _refuses_computed(adapter.core_schema)
        """True if computed fields are not written, because a model would not take them back."""
        if self.leaves_out:
            self._dump = partial(adapter.serializer.to_python, mode="json", exclude_computed_fields=True)
            self._to_json = partial(adapter.serializer.to_json, exclude_computed_fields=True)
        self._comparison = ValueComparison("serialize_sequence_via_list" in text, alternatives(adapter.core_schema))
        self._proven, self._refusing, self._model, self._fields, self._checks = examine(
            adapter.core_schema, validated=validated
        )

    @property
    def has_sets(self) -> bool:
        """True if a value may hold a set, so that its bytes had another order before sets were written in order."""
        return self._has_sets

    def dump(self, value: T, *, check: bool = True) -> bytes:
        """Return the JSON bytes of `value`. Raises NotStorable with the path of the offending part, LimitExceeded.

        Without `check` the bytes may not be read back as this value.
        """
        try:
            if self._has_sets:
                data = "".join(_chunks(in_order(value, _call_strictly(self._dump, value), _text_of), 0)).encode()
            else:
                data = _call_strictly(self._to_json, value)
        except Exception:  # a warning, or an error of a custom serializer: the slow call tells which
            data = self._dump_or_refuse(value)
        if self._writes_floats and b"null" in data:  # pydantic writes NaN as null, silently
            self._refuse_nan(value)
        if _FIRST_OF_REPLACED in data and _REPLACED in data:
            self._refuse_surrogates(value)
        if len(data) > self.bytes_max:
            self.refuse_size(len(data), data)
        if check and (
            self._refusing
            or not (self._model is None or (type(value) is self._model and len(value.__dict__) == self._fields))
            or (self._checks and not are_as_declared(self._checks, value))
            or (self._has_integers and len(data) > INTEGER_DIGITS_MAX)
        ):
            self._read_back(value, data)
        return data

    def canonical(self, value: T, *, check: bool = True) -> bytes:
        """Return the JSON bytes of `value` in canonical form, for digests and comparisons. Raises as `dump`."""
        try:
            try:
                plain = _call_strictly(self._dump, value)
            except Exception:  # as in `dump`
                plain = _call_slowly(self._dump, value)
            if self._has_sets:
                plain = in_order(value, plain, _text_of)
            data = "".join(_sorted_chunks(plain, 0)).encode()
        except Exception as error:  # a serializer or a computed field of the author may raise anything
            self._not_storable(value, error)
        if self._writes_floats and b"null" in data:  # also where any type is allowed
            self._refuse_nan(value)
        if _FIRST_OF_REPLACED in data and _REPLACED in data:
            self._refuse_surrogates(value)
        if len(data) > self.bytes_max:
            self.refuse_size(len(data), data)
        if check:
            self._check(value, data)
        return data

    def store(self, value: Any) -> tuple[bytes, T]:
        """Return the JSON bytes of `value`, and the value as a later process loads it. Raises as `dump`."""
        data = self.dump(value, check=False)
        try:
            loaded: T = self._load(data, by_alias=True, by_name=True)
        except Exception as error:  # a validator of the author may raise anything
            self._refuse_unreadable(error)
        if (
            not self._proven
            or not (self._model is None or (type(value) is self._model and len(value.__dict__) == self._fields))
            or (self._checks and not are_as_declared(self._checks, value))
        ):  # written here and not called, because each step passes it
            self._compare(value, loaded)
        return data, loaded

    def store_canonical(self, value: T) -> tuple[bytes, T]:
        """Return what `store` returns, with the bytes in canonical form."""
        data = self.canonical(value, check=False)
        return data, self._read_back(value, data)

    def load(self, data: bytes | str) -> T:
        """Return the value stored as `data`. Raises NotStorable if the bytes no longer fit the type."""
        try:
            value: T = self._load(data, by_alias=True, by_name=True)  # `dump` writes names, not aliases
        except Exception as error:  # a validator of the author may raise anything
            raise NotStorable(
                f"{self.named} does not fit its declared type any more",
                "\n".join(f"{path}: {text}" for path, text in problems_of(error)),
                "give new fields a default, or raise the workflow's version",
            ) from error
        return value

    def admit(self, text: bytes | str) -> T:
        """Return the value of JSON `text` from outside. Raises InvalidInput with all problems at once."""
        try:
            value: T = self._load(text)  # no cast, because that is a call
        except INVALID as error:
            raise InvalidInput(f"{self.named} is not valid", problems=problems_of(error)) from error
        return value

    def convert(self, value: object, *, by_name: bool = False) -> T:
        """Return a Python value, or the fields of a model, as the type. Raises InvalidInput with all problems.

        A text is a text here, and no JSON. `by_name`: fields have their names, also where they have an alias.
        """
        try:
            return self._schema.validate_python(value, by_name=by_name or None)
        except INVALID as error:
            raise InvalidInput(f"{self.named} is not valid", problems=problems_of(error)) from error

    def check_exact(self, value: Any) -> None:
        """Raise InvalidInput or NotStorable unless a Python value is of the type as it is, without a conversion."""
        try:
            self._schema.validate_python(value, strict=True)
        except INVALID as error:
            raise InvalidInput(f"{self.named} is not valid", problems=problems_of(error)) from error
        self.store(value)

    def parse(self, data: bytes) -> T:
        """Return the value of JSON `data` without conversions or unknown fields. Raises ValidationError."""
        return self._schema.validate_json(data, strict=True, extra="forbid")

    @property
    def core_schema(self) -> Any:
        """The schema by which pydantic validates and dumps the type."""
        return self._schema.core_schema

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the type, for forms and documentation."""
        return self._schema.json_schema()

    def _dump_or_refuse(self, value: T) -> bytes:
        try:
            if self._has_sets:
                return "".join(_chunks(in_order(value, _call_slowly(self._dump, value), _text_of), 0)).encode()
            return cast(bytes, _call_slowly(self._to_json, value))
        except Exception as error:  # a serializer or a computed field of the author may raise anything
            self._not_storable(value, error)

    def _check(self, value: T, data: bytes) -> None:
        """Raise NotStorable unless `data` is read back as `value`. A type that proves this is not loaded."""
        if self._refusing or not self._is_as_declared(value) or (self._has_integers and len(data) > INTEGER_DIGITS_MAX):
            self._read_back(value, data)

    def _is_as_declared(self, value: Any) -> bool:
        """True if a value that was written is the one that is loaded, by the schema and the classes of its parts."""
        return (
            self._proven
            and (self._model is None or (type(value) is self._model and len(value.__dict__) == self._fields))
            and (not self._checks or are_as_declared(self._checks, value))
        )

    def _read_back(self, value: T, data: bytes) -> T:
        """Return the value that `data` is loaded as. Raises NotStorable unless it equals `value`."""
        try:
            loaded: T = self._load(data, by_alias=True, by_name=True)
        except Exception as error:  # a validator of the author may raise anything
            self._refuse_unreadable(error)
        if not self._is_as_declared(value):
            self._compare(value, loaded)
        return loaded

    def _compare(self, value: Any, loaded: T) -> None:
        """Raise NotStorable unless the value is the one that was loaded."""
        try:
            why = self._comparison.difference(value, loaded, self._word())
        except Exception as error:  # `==` of a class of the author may raise anything
            self._refuse_unreadable(error)
        if why:
            raise NotStorable(f"{self.named} cannot be stored", why, _OTHERWISE)

    def _refuse_unreadable(self, error: Exception) -> Never:
        if isinstance(error, ValidationError):
            why = "; ".join(f"{path}: {text}" for path, text in problems_of(error))
            why = _TOO_LONG if "number out of range" in why else why
        else:
            why = f"reading it raises {type(error).__name__}"
        raise NotStorable(
            f"{self.named} cannot be stored", f"it is not read back as it was written: {why}", _READABLE
        ) from error

    def _not_storable(self, value: object, error: Exception) -> Never:
        why = _TOO_LONG if "int_max_str_digits" in str(error) else ""
        why = why or find_unstorable(value, self._word(), 0) or mismatch(error) or text_of_raised(self._word(), error)
        raise NotStorable(f"{self.named} cannot be stored", why, _ONLY_DATA) from error

    def _refuse_surrogates(self, value: T) -> None:
        """Raise NotStorable if a key of `value` is not valid Unicode: pydantic writes it as another text."""
        if found := find_surrogate(value, self._word(), 0):
            self._not_storable(value, ValueError(found))

    def _refuse_nan(self, value: T) -> None:
        """Raise NotStorable if `value` contains a number that JSON cannot say."""
        try:  # in C, because the walk in Python takes 38 ms for 1 MB
            "".join(_chunks(self._schema.serializer.to_python(value, warnings=False), 0))
        except Exception:  # a NaN, or a value that only pydantic can write: the walk tells which
            if found := find_nan(value, self._word(), 0):
                self._not_storable(value, ValueError(found))

    def _word(self) -> str:
        """Return the first part of paths: «state» for "the state of …"."""
        return self.named.split(" ")[1] if self.named.startswith("the ") else "value"

    def refuse_size(self, size: int, data: bytes = b"") -> Never:
        """Raise LimitExceeded for a value of `size` bytes, with the largest field of `data`."""
        largest = _largest_field(data)
        raise LimitExceeded(
            f"{self.named} is too large",
            f"it takes {size:,} bytes, the limit is {self.bytes_max:,}{largest}",
            self.if_large,
        )


@lru_cache(maxsize=256)
def codec_of(model: type[Any]) -> Codec[Any]:
    """Return the codec of a model whose values are only written: a payload, a result. Raises DefinitionError."""
    return Codec(model, named=f"a {model.__name__}", bytes_max=STATE_BYTES_MAX)


@lru_cache(maxsize=256)
def schema_text(model: type[Any]) -> str:
    """Return the JSON schema of a signal's model as text; '' if it has none, or a large one."""
    try:
        found = compact(TypeAdapter(model).json_schema())
    except PydanticUserError:  # a type that JSON Schema cannot describe
        return ""
    return found if len(found.encode()) <= SIGNAL_SCHEMA_BYTES_MAX else ""


def _largest_field(data: bytes) -> str:
    """Return «; its largest field, "documents", takes 301,000», or '' if the value has no fields."""
    fields = json.loads(data) if data[:1] == b"{" else {}
    if not fields:
        return ""
    sizes = {name: len("".join(_sorted_chunks(value, 0)).encode(errors="replace")) for name, value in fields.items()}
    name = max(sizes, key=lambda each: sizes[each])
    return f'; its largest field, "{name}", takes {sizes[name]:,}'


def _refuses_computed(schema: Any) -> bool:
    """True if a model of the schema has computed fields and refuses other fields than its own, or keeps them."""
    if isinstance(schema, Mapping):
        cls = schema.get("cls") if schema.get("type") in ("model", "dataclass") else None
        config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
        inner = schema.get("schema")
        computed = isinstance(inner, Mapping) and inner.get("computed_fields")
        if computed and config.get("extra") in ("forbid", "allow"):
            return True
        return any(map(_refuses_computed, schema.values()))
    return isinstance(schema, (list, tuple)) and any(map(_refuses_computed, schema))


def _may_write_floats(text: str) -> bool:
    """True if a dump may contain a NaN. Unknown shapes (Any, custom validators and serialisers) count as True.

    `text`: the schema of the type.
    """
    return any(f"'{kind}" in text for kind in ("float", "any", "function-", "decimal", "json", "is-instance", "custom"))
