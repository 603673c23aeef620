"""Finds the worked example: in the wheel beside the package, in a checkout beside `src`."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import outlast
from outlast.errors import NotFound


class Example(NamedTuple):
    """The package of the negotiation, and the folder from which it is imported."""

    package: str
    root: Path

    def part(self, name: str) -> ModuleType:
        """One module of it."""
        if str(self.root) not in sys.path:
            sys.path.append(str(self.root))
        return importlib.import_module(f"{self.package}.{name}")

    def environment(self, **more: str) -> dict[str, str]:
        """The environment in which a process of its own can import it."""
        path = os.environ.get("PYTHONPATH")
        return {**os.environ, "PYTHONPATH": f"{self.root}{os.pathsep}{path}" if path else f"{self.root}", **more}


def locate() -> Example:
    """Where the example is. Raises NotFound when this installation came without it."""
    package = Path(outlast.__file__).parent
    for root, name in (
        (package.parent, f"{package.name}._examples.negotiation"),
        (package.parents[1], "examples.negotiation"),
    ):
        if root.joinpath(*name.split("."), "workflow.py").exists():
            return Example(name, root)
    raise NotFound("the negotiation example is not installed", "it comes with the wheel and with a checkout")
