"""The exam every store must pass: promises over a store factory, with two writers wherever two can be.

Give each promise a fresh `Subject`: it opens as many writers as asked for on the same data, all on its hand-moved
clock. A promise returns when it is kept and raises AssertionError when it is broken; its docstring says what it is.
Nothing is skipped: a store either keeps all of them or is none.
"""

from inspect import getmembers, iscoroutinefunction
from types import ModuleType
from typing import Final

from tests.conformance import commits, fairness, mailbox, ownership, publishing, reading, sharing, store_time, writers
from tests.conformance.subject import HandClock, Promise, Subject

__all__ = ["PROMISES", "HandClock", "Promise", "Subject"]


def _promises(module: ModuleType) -> list[Promise]:
    """The public coroutine functions a module defines, each of which is one promise."""
    found = [f for name, f in getmembers(module, iscoroutinefunction) if not name.startswith("_")]
    return [f for f in found if f.__module__ == module.__name__]


PROMISES: Final[tuple[Promise, ...]] = tuple(
    promise
    for module in (commits, fairness, mailbox, ownership, reading, sharing, publishing, store_time, writers)
    for promise in _promises(module)
)
