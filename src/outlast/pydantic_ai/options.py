"""Checks of the options of the capabilities and of DurableTool, when they are constructed."""

import inspect
from collections.abc import Collection
from typing import Any, Final

from outlast.core.durations import Duration
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.errors import DefinitionError
from outlast.flow.functions import unrun_kind
from outlast.flow.options import positive

SHOWN_CHARS: Final = 200


class Options:
    """Checks of the options of one constructor. Each raises DefinitionError with the option, its value and a fix.

    - `of`: name of the constructor.
    - `where`: file and line of its call.
    """

    def __init__(self, of: str, where: str) -> None:
        self.of: Final = of
        self.where: Final = where

    def wrong(self, name: str, value: object, why: str, fix: str) -> DefinitionError:
        """Return the error for an option."""
        return DefinitionError(f"{self.of}({name}={value!r})"[:SHOWN_CHARS], why, fix, where=self.where)

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
        """Return names that are given as a tuple or list. A text alone is none, because it is a sequence of letters."""
        if isinstance(value, (tuple, list)) and all(isinstance(each, str) and each for each in value):
            return tuple(value)
        raise self.wrong(name, value, "it is a tuple of names", fix)

    def flag(self, name: str, value: object) -> None:
        """Check that a value is True or False."""
        if not isinstance(value, bool):
            raise self.wrong(name, value, "it is True or False", f"{name}=True, or leave it out")

    def number(self, name: str, value: object, least: int, most: int) -> None:
        """Check that a value is a whole number within bounds."""
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, value, f"it is a whole number from {least} to {most}", f"{name}={least}")

    def duration(self, name: str, value: Duration | None, *, optional: bool = True) -> None:
        """Check that a duration is above zero."""
        if value is None and not optional:
            raise self.wrong(name, value, "it is a duration", f'{name}="24h"')
        positive(f"{name} of {self.of}()", value, where=self.where)

    def text(self, name: str, value: object, fix: str) -> None:
        """Check that a value is text that can be shown to a person."""
        if not isinstance(value, str) or not value.strip() or len(value) > TEXT_CHARS_MAX:
            raise self.wrong(name, value, f"it is text of 1 to {TEXT_CHARS_MAX:,} characters", fix)

    def function(self, name: str, value: object, fix: str, *, is_async: bool = False) -> None:
        """Check that a value is a function, or None."""
        if value is None:
            return
        if not callable(value):
            raise self.wrong(name, value, "it is a function", fix)
        if is_async and not inspect.iscoroutinefunction(value):
            raise self.wrong(name, value, "it is an async function", fix)
        if not is_async and unrun_kind(value):
            raise self.wrong(name, value, "it is a function without async", fix)
