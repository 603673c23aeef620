"""The handle: start runs, act on them and read them, over any store.

The names below are loaded at their first use, because commands that only read need no worker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from outlast.core.approvals import Actor
    from outlast.core.machine import Choice, Reason
    from outlast.runtime.execution_runtime import ClientRuntime, ExecutionRuntime
    from outlast.runtime.in_process import InProcessRuntime
    from outlast.runtime.operations import Operations
    from outlast.runtime.stores import open_store

__all__ = [
    "Actor",
    "Choice",
    "ClientRuntime",
    "ExecutionRuntime",
    "InProcessRuntime",
    "Operations",
    "Reason",
    "open_store",
]
_HOMES: Final = {
    "Actor": "outlast.core.approvals",
    "Choice": "outlast.core.machine",
    "InProcessRuntime": "outlast.runtime.in_process",
    "Operations": "outlast.runtime.operations",
    "Reason": "outlast.core.machine",
    "open_store": "outlast.runtime.stores",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES.get(name, "outlast.runtime.execution_runtime")), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
