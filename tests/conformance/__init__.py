"""Conformance suite of stores: promises that every store keeps, most of them with two writers.

Give each promise a fresh `Subject`, which opens any number of writers on the same data and a clock moved by hand. A
promise is a coroutine function. It raises AssertionError if the store breaks it, and its docstring states it. No
promise may be skipped.
"""

from inspect import getmembers, iscoroutinefunction
from types import ModuleType
from typing import Final

from tests.conformance import (
    budgets,
    commits,
    copies,
    fairness,
    mailbox,
    measuring,
    ownership,
    publishing,
    reading,
    sharing,
    store_time,
    threads,
    trees,
    writers,
)
from tests.conformance.subject import HandClock, Promise, Subject

__all__ = ["PROMISES", "HandClock", "Promise", "Subject"]


def _promises(module: ModuleType) -> list[Promise]:
    """Return the public coroutine functions that a module defines."""
    found = [f for name, f in getmembers(module, iscoroutinefunction) if not name.startswith("_")]
    return [f for f in found if f.__module__ == module.__name__]


PROMISES: Final[tuple[Promise, ...]] = tuple(
    promise
    for module in (
        budgets,
        commits,
        copies,
        fairness,
        mailbox,
        measuring,
        ownership,
        reading,
        sharing,
        publishing,
        store_time,
        threads,
        trees,
        writers,
    )
    for promise in _promises(module)
)
