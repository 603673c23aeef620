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
    plain: list[Any] = [inspect.unwrap(fn) for fn in functions]
    modules = {id(fn.__globals__): fn.__globals__ for fn in plain}
    near = [value for names in modules.values() for value in list(names.values())]
    near += [value for fn in plain for value in _closed_over(fn)]
    imported = {id(value): value for value in near if isinstance(value, ModuleType)}
    near += [value for module in imported.values() for value in list(vars(module).values())]
    return list({id(value): value for value in near if isinstance(value, Activity)}.values())


def _closed_over(fn: Any) -> Iterator[object]:
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
