"""For people who test with Outlast: every crash, a hostile world, skipped time, nodes alone, the exam of stores.

Each name loads what it needs when it is first used. `every_crash` needs the extra: `pip install 'outlast[testing]'`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from outlast.errors import InvalidInput, to_install

if TYPE_CHECKING:
    from outlast.testing.alone import Walked, node
    from outlast.testing.app import App, Maker
    from outlast.testing.behaviour import garbage, huge, ok, resets, slow, status, times_out, too_many
    from outlast.testing.clock import skip
    from outlast.testing.crashes import End
    from outlast.testing.every import every_crash
    from outlast.testing.faults import FaultKind, FaultyStore
    from outlast.testing.script import (
        Asked,
        approve,
        approve_all,
        choose,
        did_not_happen,
        happened,
        reject,
        send,
    )
    from outlast.testing.world import World

_HOMES: Final = {
    "outlast.testing.faults": ("FaultKind", "FaultyStore"),
    "outlast.testing.alone": ("Walked", "node"),
    "outlast.testing.app": ("App", "Maker"),
    "outlast.testing.behaviour": ("garbage", "huge", "ok", "resets", "slow", "status", "times_out", "too_many"),
    "outlast.testing.clock": ("skip",),
    "outlast.testing.crashes": ("End",),
    "outlast.testing.every": ("every_crash",),
    "outlast.testing.script": (
        *("Asked", "approve", "approve_all", "choose", "did_not_happen", "happened", "reject", "send"),
    ),
    "outlast.testing.world": ("World",),
}

__all__ = [
    "App",
    "Asked",
    "End",
    "FaultKind",
    "FaultyStore",
    "Maker",
    "Walked",
    "World",
    "approve",
    "approve_all",
    "choose",
    "did_not_happen",
    "every_crash",
    "garbage",
    "happened",
    "huge",
    "node",
    "ok",
    "reject",
    "resets",
    "send",
    "skip",
    "slow",
    "status",
    "times_out",
    "too_many",
]


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names), "")
    if not home:
        raise AttributeError(f"module 'outlast.testing' has no attribute {name!r}")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name not in ("h11", "pytest"):
            raise
        raise InvalidInput(
            f"outlast.testing.{name} needs {error.name}",
            "it is not installed: the core does without it",
            to_install("testing"),
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
