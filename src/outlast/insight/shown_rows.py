"""Errors of reads: a value of one run that cannot be shown is Corrupt, and a read after a commit is Uncertain."""

import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from outlast.errors import Corrupt, StoreReplaced, Unavailable, Uncertain

log = logging.getLogger("outlast.runtime")
P = ParamSpec("P")
N = TypeVar("N")
T = TypeVar("T")
Self_ = TypeVar("Self_")
OF_VALUES: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of code that computes with a stored value of another shape than it writes."""


@contextmanager
def showing(named: str) -> Iterator[None]:
    """Raise Corrupt for a value of a run, or of an approval, that cannot be shown. `named`: its id."""
    try:
        yield
    except OF_VALUES as error:
        log.exception("the rows of %s cannot be shown", named)
        why = "a stored value has another form than Outlast writes, or its reader has a fault"
        fix = "check the store: outlast fsck; if it finds nothing, report this"
        raise Corrupt(f"the rows of {named} cannot be shown: {error!r}", why, fix) from error


def of_one(
    read: Callable[Concatenate[Self_, N, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Self_, N, P], Coroutine[Any, Any, T]]:
    """Make a method that reads one run, or one approval, raise Corrupt for a value that it cannot show.

    Its first argument is the id, or a request whose first field is the id.

    The rows of each run are its own: a list of many replaces such a row (`core/row_checks.py`).
    """

    @functools.wraps(read)
    async def method(self: Self_, asked: N, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with showing(asked if isinstance(asked, str) else next(iter(vars(asked).values()))):
            return await read(self, asked, *args, **kwargs)

    return method


async def after_commit(read: Awaitable[T]) -> T:
    """Return what is read after a commit has landed. Raises Uncertain if the store has become unavailable."""
    try:
        return await read
    except StoreReplaced:
        raise
    except Unavailable as error:  # whose message says that nothing was written
        raise Uncertain("it is done, but the result cannot be read", error.reason) from error
