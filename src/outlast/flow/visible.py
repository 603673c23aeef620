"""Which activities a workflow can see: a plan stored by name must be found again in another process."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from outlast.flow.activity import Activity


def activities_seen_by(functions: Iterable[Callable[..., Any]]) -> list[Activity[..., Any]]:
    """The activities in the modules of these functions, declared there or imported, directly or with their module.

    What the functions close over counts too. An activity used only by a helper in a third module is not seen; it
    is found by its name alone, and checked when it is first used.
    """
    found: dict[int, Activity[..., Any]] = {}
    for fn in functions:
        for value in _names_around(inspect.unwrap(fn)):
            for each in vars(value).values() if isinstance(value, ModuleType) else (value,):
                if isinstance(each, Activity):
                    found[id(each)] = each
    return list(found.values())


def _names_around(fn: Any) -> Iterator[object]:
    yield from list(fn.__globals__.values())
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
