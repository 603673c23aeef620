"""Checks of the arguments of public constructors and decorators, when they are called.

One option name has one type everywhere. A value of another type is refused with the option, the value and a fix: a text
is no sequence of texts, a bool is no number, NaN is no amount.
"""

import inspect
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from math import isfinite
from typing import Any, Final, overload

from outlast.core.durations import Duration, timedelta_of
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.errors import DefinitionError, InvalidInput

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


def text_of(value: object) -> str:
    """Return a value that a person reads as text, for exceptions: their constructors refuse nothing.

    An error inside `raise Refused(404)` would hide that the receiver refused.
    """
    return value if isinstance(value, str) else str(value)
