"""Import of the workflow under test in a new process."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from outlast.errors import InvalidInput
from outlast.flow.reach import values_seen_by
from outlast.flow.registry import WORKFLOWS
from outlast.flow.workflow import Workflow


@dataclass(frozen=True)
class CodeUnderTest:
    """The modules to import, and the workflows to find in them."""

    modules: tuple[tuple[str, str], ...]
    """(dotted name, file) of each module to import."""
    workflows: tuple[tuple[str, int], ...]
    """(name, version) of each workflow to serve."""
    prepare: str = ""
    """MODULE:FUNCTION, called at the start of each process with its crash hook and its request."""
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain JSON data."""
        return asdict(self)


def code_of(workflow: Workflow[Any], module: str) -> CodeUnderTest:
    """Return the code of a workflow in a test module. Raises InvalidInput if no other process could import it."""
    served = served_with(workflow)
    names = [module, *(node.fn.__module__ for each in served for node in each.nodes.values())]
    known = [(name, getattr(sys.modules.get(name), "__file__", None) or "") for name in dict.fromkeys(names)]
    if not all(file for _, file in known):
        raise InvalidInput(
            f"{workflow.title} cannot be loaded by another process",
            f"{', '.join(name for name, file in known if not file)} has no file to import again",
            "declare the workflow in a module",
        )
    return CodeUnderTest(tuple(known), tuple((each.name, each.version) for each in served))


def served_with(workflow: Workflow[Any]) -> list[Workflow[Any]]:
    """Return the workflow and those that its runs may start: each that its modules name, and those that these name.

    The first of a name counts.
    """
    found = {workflow.name: workflow}
    queue = [workflow]
    while queue:
        seen = values_seen_by(node.fn for node in queue.pop().nodes.values())
        further = [value for value in seen if isinstance(value, Workflow) and value.name not in found]
        found.update({each.name: each for each in reversed(further)})
        queue += further
    return list(found.values())


def load(code: CodeUnderTest) -> list[Workflow[Any]]:
    """Import the modules and return the workflows. Raises InvalidInput, and every error of the author's modules."""
    sys.path[:] = [*code.path, *(entry for entry in sys.path if entry not in code.path)]
    modules = [_module(name, file) for name, file in code.modules]
    return [_workflow(name, version, modules) for name, version in code.workflows]


def _module(name: str, file: str) -> ModuleType:
    """Import a module by its name if that leads to this file, else from the file itself."""
    name = name if name != "__main__" else Path(file).stem
    try:
        found = importlib.import_module(name)
        if not file or _same(found, file):
            return found
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _same(module: ModuleType, file: str) -> bool:
    return Path(module.__file__ or "").resolve() == Path(file).resolve()


def _workflow(name: str, version: int, modules: Sequence[ModuleType]) -> Workflow[Any]:
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Workflow) and (value.name, value.version) == (name, version):
                return value.validate()
    found = WORKFLOWS.find(name)
    if not isinstance(found, Workflow) or found.version != version:
        raise InvalidInput(
            f'workflow "{name}" version {version} is not found in a new process',
            "the processes under test import the test's module again",
            "declare it at the top of a module, not in a fixture or a test",
        )
    return found.validate()


def load_function(spec: str) -> Any:
    """Return the function named MODULE:FUNCTION."""
    module, _, name = spec.partition(":")
    return getattr(importlib.import_module(module), name)
