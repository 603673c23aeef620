"""Parameters and return value of an activity: bound, validated and encoded on every call."""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

import typing_extensions
from pydantic.fields import FieldInfo
from pydantic_core import from_json, to_json

from outlast.core.codec import INVALID, Codec, canonical, canonical_plain, digest
from outlast.core.keys import KeyTemplate
from outlast.core.limits import ARGUMENTS_BYTES_MAX, PARAMETERS_MAX, RESPONSE_BYTES_MAX
from outlast.core.value_problems import PROBLEM_CHARS_MAX, problems_of
from outlast.errors import DefinitionError, InvalidInput, LimitExceeded, NotStorable
from outlast.flow.registry import hints_of

_IMMUTABLE: Final = frozenset({str, int, bool, type(None)})
_KINDS: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def check_default(hint: Any, name: str, default: object, title: str, where: str) -> None:
    """Raise DefinitionError unless the default of a parameter is a value of its type that can be stored."""
    if isinstance(default, FieldInfo):
        raise DefinitionError(
            f"{title} ({where}) has a Field as the default of {name}",
            "a function would get the Field itself and not a value",
            f"write {name}: Annotated[…, Field(…)] = VALUE",
            where=where,
        )
    codec: Codec[Any] = Codec(hint, named=f"the default of {name}", where=where)
    try:
        codec.check_exact(default)
    except (InvalidInput, NotStorable, LimitExceeded) as error:
        raise DefinitionError(
            f"{title} ({where}) has a default for {name} that does not fit its type",
            error.why,
            "correct one of the two",
            where=where,
        ) from error


class Signature:
    """The codecs and the key template of one function. `prepare` completes it once the annotations can be read."""

    def __init__(self, fn: Callable[..., Any], name: str, title: str, where: str, key: str | None) -> None:
        self.fn: Final = fn
        self.name: Final = name
        self.title: Final = title
        self.where: Final = where
        self.key: Final = key
        self.signature: Final = inspect.signature(fn)
        self.parameters: Final = tuple(self.signature.parameters)
        self.immutable = False
        self.has_sets = False
        self.response_codec: Codec[Any]
        self._arguments: Codec[dict[str, Any]]
        self._template: KeyTemplate | None = None
        self.ready = False
        kinds = [parameter.kind for parameter in self.signature.parameters.values()]
        self._count: Final = len(kinds)
        self._positional: Final = sum(kind is not inspect.Parameter.KEYWORD_ONLY for kind in kinds)
        self.all_positional: Final = self._positional == self._count
        self._name_part: Final = b"[%b," % canonical(name)
        self._check_shape()

    def prepare(self, names: Mapping[str, Any], *, final: bool) -> None:
        """Read the annotations and build the codecs. Raises DefinitionError for an unreadable one if `final`."""
        if self.ready:
            return
        try:
            hints = hints_of(self.fn, names)
        except (NameError, AttributeError) as error:
            if final:
                raise self._wrong(
                    "has an annotation that cannot be read", str(error), "import the type at module level"
                ) from error
            return
        answer = hints.pop("return")
        if self.key is not None:
            self._template = KeyTemplate.parse(self.key, hints, where=self.where, of=self.title)
        make: Any = typing_extensions.TypedDict
        self._arguments = Codec(
            make("Arguments", hints),
            named=f"the arguments of {self.title}",
            bytes_max=ARGUMENTS_BYTES_MAX,
            where=self.where,
            validated=True,
        )
        for name, default in self._defaults.items():
            check_default(hints[name], name, default, self.title, self.where)
        self.response_codec = Codec(
            answer, named=f"the answer of {self.title}", bytes_max=RESPONSE_BYTES_MAX, where=self.where
        )
        self.immutable = all(hint in _IMMUTABLE for hint in hints.values() if isinstance(hint, type)) and all(
            isinstance(hint, type) for hint in hints.values()
        )
        self.has_sets = self._arguments.has_sets
        self.ready = True

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, load: bool = False
    ) -> tuple[tuple[Any, ...], str, bytes, str]:
        """Return the values in the order of the parameters, the rendered key, the canonical arguments, the digest.

        `load`: return the values that a later process loads from the arguments. Raises InvalidInput, NotStorable.
        """
        if kwargs or len(args) != self._count or not self.all_positional:
            given = self._bind_slowly(args, kwargs)
        else:
            given = dict(zip(self.parameters, args, strict=True))
        codec = self._arguments
        try:
            valid = codec.validate(given)
        except INVALID as error:
            raise InvalidInput(f"the arguments of {self.title} are not valid", problems=problems_of(error)) from error
        loaded = valid
        if self.immutable:
            data = canonical_plain(valid)
        elif load:
            data, loaded = codec.store_canonical(valid)
        else:
            data = codec.canonical(valid)
        if len(data) > ARGUMENTS_BYTES_MAX:
            codec.refuse_size(len(data))
        values = tuple(valid.values())
        if self._template is None:
            key = f"{self.name}/{digest(self.name, data)[:32]}"
        else:
            key = self._template.render(values)
        if loaded is not valid:
            values = tuple(loaded.values())
        # As `digest(self.name, key, data)`: the characters of a key need no escape in JSON.
        return values, key, data, sha256(b'%b"%b",%b]' % (self._name_part, key.encode(), data)).hexdigest()

    def load(self, data: bytes) -> tuple[Any, ...]:
        """Return the values of recorded arguments in the order of the parameters."""
        return tuple(self._arguments.load(data).values())

    def parse(self, arguments: bytes) -> dict[str, Any]:
        """Return the values of JSON `arguments` from outside, by name. Those with a default may be left out.

        Strict: no other field, and no conversion of one type to another. Raises InvalidInput with all problems.
        """
        try:
            given = from_json(arguments)
            if isinstance(given, dict):
                arguments = to_json({**self._defaults, **given})
            return self._arguments.parse(arguments)
        except INVALID as error:
            problems = problems_of(error)
        except ValueError as error:
            problems = [("(the whole)", str(error)[:PROBLEM_CHARS_MAX])]
        raise InvalidInput(f"the arguments of {self.name} are not valid", problems=problems)

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        """Defaults of the parameters, by name."""
        found = self.signature.parameters.values()
        return {each.name: each.default for each in found if each.default is not inspect.Parameter.empty}

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the parameters, all of them required."""
        return self._arguments.schema()

    def schema_for_caller(self) -> dict[str, Any]:
        """Return the JSON schema of arguments that `parse` takes."""
        schema = self.schema()
        required = [name for name in self.parameters if name not in self._defaults]
        return {**schema, "required": required, "additionalProperties": False}

    def split(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Split values into positional and keyword arguments of the function."""
        if self.all_positional:
            return values, {}
        n = self._positional
        return values[:n], dict(zip(self.parameters[n:], values[n:], strict=True))

    def _bind_slowly(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None
        bound.apply_defaults()
        return bound.arguments

    def _check_shape(self) -> None:
        if self._count > PARAMETERS_MAX:
            raise self._wrong("has too many parameters", f"at most {PARAMETERS_MAX}", "make them one model")
        for name, parameter in self.signature.parameters.items():
            if parameter.kind not in _KINDS:
                raise self._wrong(
                    f"takes *{name}", "every argument is stored under its name", "name each parameter, or take one list"
                )
            if parameter.annotation is inspect.Parameter.empty:
                raise self._wrong(
                    f"has no type for {name}",
                    "arguments are stored, and a later process reads them back by type",
                    f"annotate it, e.g. {name}: str",
                )
        if self.signature.return_annotation is inspect.Signature.empty:
            raise self._wrong(
                "has no return annotation",
                "its response is stored, and a later process reads it back by type",
                "annotate it: -> None, -> str, or -> a pydantic model",
            )
        if self.key is not None:  # the types are known after `prepare`; the names can be checked now
            KeyTemplate.parse(self.key, dict.fromkeys(self.parameters, str), where=self.where, of=self.title)

    def _wrong(self, what: str, why: str, fix: str) -> DefinitionError:
        return DefinitionError(f"{self.title} {what}", why, fix, where=self.where)
