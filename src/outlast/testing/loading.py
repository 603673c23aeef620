"""How a fresh process comes by the workflow under test: the author's own modules, imported again there."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from outlast.errors import InvalidInput
from outlast.flow.registry import WORKFLOWS
from outlast.flow.workflow import Workflow


@dataclass(frozen=True)
class CodeUnderTest:
    """What to import, and what to find there."""

    modules: tuple[tuple[str, str], ...]
    """(dotted name, file) of each module to import."""
    workflows: tuple[tuple[str, int], ...]
    """(name, version) of each workflow to serve."""
    prepare: str = ""
    """MODULE:FUNCTION, called in each process before its life begins, with its trace and what it was asked."""
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def plain(self) -> dict[str, Any]:
        """As JSON can say it."""
        return asdict(self)


def code_of(workflow: Workflow[Any], module: str) -> CodeUnderTest:
    """The code of a workflow that a test module names. Raises InvalidInput where no other process could find it."""
    names = [module, *dict.fromkeys(node.fn.__module__ for node in workflow.nodes.values())]
    known = [(name, getattr(sys.modules.get(name), "__file__", None) or "") for name in dict.fromkeys(names)]
    if not all(file for _, file in known):
        raise InvalidInput(
            f"{workflow.title} cannot be loaded by another process",
            f"{', '.join(name for name, file in known if not file)} has no file, and these processes import it anew",
            "declare the workflow in a module",
        )
    return CodeUnderTest(tuple(known), ((workflow.name, workflow.version),))


def load(code: CodeUnderTest) -> list[Workflow[Any]]:
    """Import the modules and answer the workflows. Raises InvalidInput, and whatever the author's modules raise."""
    sys.path[:] = [*code.path, *(entry for entry in sys.path if entry not in code.path)]
    modules = [_module(name, file) for name, file in code.modules]
    return [_workflow(name, version, modules) for name, version in code.workflows]


def _module(name: str, file: str) -> ModuleType:
    """The module of this file, by its own name where the path leads there, else from the file itself."""
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
            f'workflow "{name}" version {version} is not there in a fresh process',
            "the processes that are killed import the test's module anew",
            "declare it at the top of a module, not in a fixture or a test",
        )
    return found.validate()


def load_function(spec: str) -> Any:
    """The function named MODULE:FUNCTION."""
    module, _, name = spec.partition(":")
    return getattr(importlib.import_module(module), name)
