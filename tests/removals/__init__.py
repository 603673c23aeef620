"""Functions that take one safeguard away each. `tests/mutants.py` lists them; harnesses apply them from there.

Each function receives a patch: `pytest.MonkeyPatch` inside a test, `Permanent` in a process that removes one
safeguard and ends. Functions and methods are named by reference, so a rename of the code reaches them.
"""

import sys
from collections.abc import Callable
from typing import Any, Protocol


class Patch(Protocol):
    """Sets attributes and items, as `pytest.MonkeyPatch` does."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute of a class or a module."""

    def setitem(self, mapping: Any, name: Any, value: Any) -> None:
        """Set an item of a dictionary."""


class Permanent:
    """A patch that is never undone, for processes that run one mutant and end."""

    def setattr(self, target: Any, name: str, value: Any) -> None:
        setattr(target, name, value)

    def setitem(self, mapping: Any, name: Any, value: Any) -> None:
        mapping[name] = value


def replace(patch: Patch, old: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Replace a method in its class, or a function in every module of Outlast or its examples that holds it."""
    path, _, name = old.__qualname__.rpartition(".")
    if path:
        owner: Any = sys.modules[old.__module__]
        for part in path.split("."):
            owner = getattr(owner, part)
        assert vars(owner)[name] is old, f"{old.__qualname__} is not defined there"
        patch.setattr(owner, name, new)
        return
    holders = [
        (module, held)
        for module_name, module in list(sys.modules.items())
        if module_name.partition(".")[0] in ("outlast", "examples")
        for held, value in list(vars(module).items())
        if value is old
    ]
    assert holders, f"no module holds {old.__qualname__}"
    for module, held in holders:
        patch.setattr(module, held, new)
