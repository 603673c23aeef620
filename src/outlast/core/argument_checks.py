"""Checks of the arguments of public constructors and decorators, when they are called.

One option name has one type everywhere. A value of another type is refused with the option, the value and a fix: a text
is no sequence of texts, a bool is no number, NaN is no amount.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import cache, partial, wraps
from math import isfinite
from types import UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints, overload

from outlast.core.business_days import BusinessDays
from outlast.core.durations import Duration, Term, timedelta_of
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.errors import DefinitionError, InvalidInput, LimitExceeded, Misplaced

SHOWN_CHARS: Final = 200


@overload
def positive(what: str, value: Duration, *, where: str = "") -> timedelta: ...
@overload
def positive(what: str, value: Duration | None, *, where: str = "") -> timedelta | None: ...
def positive(what: str, value: Duration | None, *, where: str = "") -> timedelta | None:
    """Return a duration above zero as `timedelta`, or None. Raises DefinitionError."""
    if value is None:
        return None
    try:
        span = timedelta_of(what, value)
    except InvalidInput as error:
        raise DefinitionError(error.what, error.why, error.fix, where=where) from None
    if span <= timedelta():
        raise DefinitionError(
            f"{what} is {value!r}", "a duration must be above zero", 'e.g. "30s" or timedelta(seconds=30)', where=where
        )
    return span


@overload
def positive_term(what: str, value: Term, *, where: str = "") -> timedelta | BusinessDays: ...
@overload
def positive_term(what: str, value: Term | None, *, where: str = "") -> timedelta | BusinessDays | None: ...
def positive_term(what: str, value: Term | None, *, where: str = "") -> timedelta | BusinessDays | None:
    """Return business days unchanged, a duration as `positive` does. Raises DefinitionError."""
    return value if isinstance(value, BusinessDays) else positive(what, value, where=where)


class Arguments:
    """Checks of the arguments of one constructor. Each raises DefinitionError with the option, its value and a fix.

    - `of`: name of the constructor.
    - `where`: file and line of its call.
    - `of_call`: InvalidInput is raised instead, because a caller and no author gives these.
    """

    def __init__(self, of: str, where: str = "", *, of_call: bool = False) -> None:
        self.of: Final = of
        self.where: Final = where
        self._of_call: Final = of_call

    def wrong(self, name: str, value: object, why: str, fix: str) -> DefinitionError | InvalidInput:
        """Return the error for an option."""
        what = f"{self.of}({name}={value!r})"[:SHOWN_CHARS]
        return InvalidInput(what, why, fix) if self._of_call else DefinitionError(what, why, fix, where=self.where)

    def instance(self, name: str, value: object, kind: type[Any], fix: str, *, optional: bool = True) -> None:
        """Check that a value is an instance of `kind`. A bool is no number."""
        if (value is None and optional) or type(value) is kind:
            return
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.wrong(name, value, f"it is a {kind.__name__}", fix)

    def one_of(self, name: str, value: object, allowed: Collection[str]) -> None:
        """Check that a value is one of some texts."""
        if not isinstance(value, str) or value not in allowed:
            texts = ", ".join(repr(each) for each in allowed)
            raise self.wrong(name, value, f"the values are {texts}", "use one of them, or leave it out")

    def names(self, name: str, value: object, fix: str) -> tuple[str, ...]:
        """Return names that are given as a tuple or list. A text alone is refused: it is a sequence of letters."""
        if isinstance(value, (tuple, list)) and all(isinstance(each, str) and each for each in value):
            return tuple(value)
        raise self.wrong(name, value, "it is a tuple of names", fix)

    def members(self, name: str, value: Any, kind: type[Any], fix: str) -> tuple[Any, ...]:
        """Return the members of a sequence or set, each of which must be an instance of `kind`."""
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
            found = tuple(value)
            if all(isinstance(each, kind) for each in found):
                return found
        raise self.wrong(name, value, f"it is a list of {kind.__name__}", fix)

    def mapping(self, name: str, value: object, fix: str) -> None:
        """Check that a value is a dict or another mapping whose keys are texts, or None."""
        if value is not None and not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
            raise self.wrong(name, value, "it is a dict with texts as keys", fix)

    def flag(self, name: str, value: object) -> None:
        """Check that a value is True or False."""
        if not isinstance(value, bool):
            raise self.wrong(name, value, "it is True or False", f"{name}=True, or leave it out")

    def number(self, name: str, value: object, least: int, most: int) -> None:
        """Check that a value is a whole number within bounds."""
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, value, f"it is a whole number from {least:,} to {most:,}", f"{name}={least}")

    def amount(self, name: str, value: object, least: float, most: float) -> None:
        """Check that a value is a number within bounds, with or without decimals. NaN is refused."""
        if type(value) not in (int, float) or not isfinite(value) or not least <= value <= most:  # type: ignore[arg-type, operator]
            raise self.wrong(name, value, f"it is a number from {least:g} to {most:,g}", f"{name}={least:g}")

    def duration(self, name: str, value: Duration | None, *, optional: bool = True) -> None:
        """Check that a duration is above zero."""
        if value is None and not optional:
            raise self.wrong(name, value, "it is a duration", f'{name}="24h"')
        try:
            positive(f"{name} of {self.of}()", value, where=self.where)
        except DefinitionError as error:
            raise InvalidInput(error.what, error.why, error.fix) if self._of_call else error from None

    def term(self, name: str, value: Term) -> None:
        """Check that a value is business days, or a duration above zero."""
        if not isinstance(value, BusinessDays):
            self.duration(name, value, optional=False)

    def text(self, name: str, value: object, fix: str) -> None:
        """Check that a value is text that can be shown to a person."""
        if not isinstance(value, str) or not value.strip() or len(value) > TEXT_CHARS_MAX:
            raise self.wrong(name, value, f"it is text of 1 to {TEXT_CHARS_MAX:,} characters", fix)

    def is_text(self, name: str, value: object, fix: str) -> None:
        """Check that a value is text, which may be empty."""
        if not isinstance(value, str):
            raise self.wrong(name, value, "it is text", fix)

    def function(self, name: str, value: object, fix: str, *, is_async: bool = False) -> None:
        """Check that a value is a function, or None. `flow.functions` refuses async ones."""
        if value is None:
            return
        if not callable(value):
            raise self.wrong(name, value, "it is a function", fix)
        if is_async and not inspect.iscoroutinefunction(value):
            raise self.wrong(name, value, "it is an async function", fix)


# --- calls of a client -------------------------------------------------------------------------
Check: TypeAlias = Callable[[Arguments, str, Any], Any]
"""Function that returns a value as its parameter takes it, or raises InvalidInput."""
CALL_TEXT_CHARS_MAX: Final = 10_000
SHORT: Final = 200
"""A printable text of at most so many characters is valid, so a call with it needs no call of its check."""
NUMBER_MAX: Final = 2**53


def check_calls(interface: type, cls: type) -> None:
    """Let each method that a class defines for an interface check that the client is open, and its arguments.

    Arguments are checked by their annotations, because a value of a wrong type ended with the error of an inner line,
    or selected nothing. A text is accepted for a member of an enumeration of texts. A client that has `_is_closed` set
    raises Misplaced, except by `close`.
    """
    for name, declared in vars(interface).items():
        own = vars(cls).get(name)
        abstract = getattr(own, "__isabstractmethod__", False)
        if not name.startswith("_") and inspect.isfunction(declared) and inspect.isfunction(own) and not abstract:
            setattr(cls, name, _checking(declared, own))


def client_is_closed() -> Misplaced:
    """Return the error of a call of a client that its program has closed: waiting does not help."""
    return Misplaced("this client is closed", "its connections are closed", "connect again")


def _checking(declared: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    @cache
    def checks() -> Mapping[str, Check]:
        hints = get_type_hints(own)
        return {name: _check_of(hints[name]) for name in parameters if name in hints}

    parameters = [name for name, each in inspect.signature(own).parameters.items() if each.kind not in _VARIADIC]
    of = Arguments(declared.__name__, of_call=True)

    def valid(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if args[0]._is_closed and declared.__name__ != "close":
            raise client_is_closed()
        known, given = checks(), [*args]
        for i, (n, each) in enumerate(zip(parameters, args, strict=False)):
            if n in known:
                check = known[n]
                if check is not _text or type(each) is not str or not each.isprintable() or len(each) > SHORT:
                    given[i] = check(of, n, each)
        for n, each in kwargs.items():
            if n in known:
                kwargs[n] = known[n](of, n, each)
        return given, kwargs

    if inspect.iscoroutinefunction(own):

        @wraps(own)
        async def call(*args: Any, **kwargs: Any) -> Any:
            given, named = valid(args, kwargs)
            return await own(*given, **named)

        return call

    @wraps(own)
    def call_now(*args: Any, **kwargs: Any) -> Any:
        given, named = valid(args, kwargs)
        return own(*given, **named)

    return call_now


_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _check_of(hint: Any) -> Check:
    """Return the check of a type. A type that is none of the known forms is not checked."""
    if hint is Any or hint is object:
        return _unchecked
    if hint is str:
        return _text
    if hint is int:
        return _count
    origin = get_origin(hint)
    if origin is Literal:
        return partial(_choice, get_args(hint))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return partial(_member, hint)
    if origin in (Sequence, Iterable, Mapping):
        return partial(_group, origin, [_check_of(each) for each in get_args(hint)])
    if origin in (Union, UnionType):
        return _union_check(get_args(hint))
    kind = origin or hint
    return partial(_instance, (kind,)) if isinstance(kind, type) else _unchecked


def _union_check(choices: tuple[Any, ...]) -> Check:
    given = [each for each in choices if each is not type(None)]
    kinds = [get_origin(each) or each for each in given]
    check: Check = _unchecked
    if {*given} == {timedelta, str}:
        check = _duration
    elif len(given) == 1:
        check = _check_of(given[0])
    elif all(isinstance(each, type) for each in kinds):
        check = partial(_instance, tuple(kinds))
    return partial(_optional, check) if len(given) < len(choices) else check


def _unchecked(_: Arguments, __: str, value: Any) -> Any:
    return value


def _optional(check: Check, of: Arguments, name: str, value: Any) -> Any:
    return None if value is None else check(of, name, value)


def _text(of: Arguments, name: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise of.wrong(name, value, "it is text", f'{name}="…"')
    if "\0" in value or value.encode(errors="replace").decode() != value:
        raise of.wrong(name, value, "it holds a NUL or is not valid Unicode", "give text that can be stored")
    if len(value) > CALL_TEXT_CHARS_MAX:
        why = f"it has {len(value):,} characters; the limit is {CALL_TEXT_CHARS_MAX:,}"
        raise LimitExceeded(f"{name} of {of.of}() is too long", why, "cut it")
    return value


def _count(of: Arguments, name: str, value: Any) -> Any:
    of.number(name, value, 0, NUMBER_MAX)
    return value


def _duration(_: Arguments, name: str, value: Any) -> Any:
    timedelta_of(name, value)
    return value


def _choice(allowed: tuple[str, ...], of: Arguments, name: str, value: Any) -> Any:
    of.one_of(name, value, allowed)
    return value


def _member(kind: type[StrEnum], of: Arguments, name: str, value: Any) -> Any:
    of.one_of(name, value, [*kind])
    return kind(value)


def _group(kind: Any, checks: Sequence[Check], of: Arguments, name: str, value: Any) -> Any:
    if type(value) is dict:  # as nearly always; a look at its class is no call
        is_kind = kind is Mapping
    else:
        is_kind = isinstance(value, kind) and isinstance(value, Mapping) is (kind is Mapping)
    if not is_kind or isinstance(value, (str, bytes)):
        raise of.wrong(name, value, "it is a dict" if kind is Mapping else "it is a list", "give one")
    if kind is Mapping:
        keys, values = checks
        if keys is _text and values is _unchecked:
            for key in value:
                _text(of, name, key)
            return dict(value)
        return {keys(of, name, key): values(of, name, each) for key, each in value.items()}
    return [checks[0](of, name, each) for each in value]


def _instance(kinds: tuple[type, ...], of: Arguments, name: str, value: Any) -> Any:
    expected = (*kinds, int) if float in kinds else kinds
    if not isinstance(value, expected) or (isinstance(value, bool) and bool not in kinds):
        raise of.wrong(
            name, value, f"it is {' or '.join(each.__name__ for each in kinds)}", "give a value of this type"
        )
    if isinstance(value, str):
        return _text(of, name, value)
    if isinstance(value, float) and not isfinite(value):
        raise of.wrong(name, value, "it is a number", "give one")
    return value


def text_of(value: object) -> str:
    """Return a value that a person reads as text, for exceptions: their constructors refuse nothing.

    An error inside `raise Refused(404)` would hide that the receiver refused.
    """
    return value if isinstance(value, str) else str(value)
