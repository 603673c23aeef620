"""Modules of authors, imported by path or dotted name, with their workflows and policies."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from outlast.cli.exit_codes import user_frames
from outlast.errors import DefinitionError, InvalidInput, NotFound, OutlastError
from outlast.flow.functions import line_of, refuse_unrun_function
from outlast.flow.policy import Policy
from outlast.flow.policy_file import policy_from_file
from outlast.flow.workflow import Workflow, workflows_of


def load_workflows(spec: str) -> list[Workflow[Any]]:
    """Return the workflows of `MODULE[:NAME]`: all of the module, or every version of one name or variable.

    Raises InvalidInput for a missing module, NotFound for a missing name, DefinitionError for a broken module.
    """
    module_name, name = split(spec)
    module = _import(module_name)
    found = workflows_of(module)
    if name:
        variable = getattr(module, name, None)
        named = [w for w in found if w.name == name] or [w for w in found if w is variable]
        if not named:
            known = ", ".join(sorted({w.name for w in found})) or "none at all"
            raise NotFound(f"{module_name} has no workflow {name}", f"it has {known}", "name one of them")
        return named
    if not found:
        raise NotFound(
            f"{module_name} has no workflow", "no name of the module is a Workflow", "name the module that declares one"
        )
    return found


def load_policy(spec: str) -> Policy:
    """Return the policy of `MODULE:NAME` (a function, or a workflow's policy), or of a file of rules.

    Raises InvalidInput, NotFound, DefinitionError.
    """
    if spec.endswith(".cedar"):
        return policy_from_file(spec)
    module_name, name = split(spec)
    if not name:
        raise InvalidInput(f"{spec} names no policy", "a module may have several", "write MODULE:NAME or rules.cedar")
    found = getattr(_import(module_name), name, None)
    policy = found.policy if isinstance(found, Workflow) else found
    if not callable(policy):
        raise NotFound(f"{module_name} has no policy {name}", "the name is neither a policy nor a workflow with one")
    refuse_unrun_function(f"the policy {spec}", policy, "write it as a plain def", where=line_of(policy))
    return cast(Policy, policy)


def split(spec: str) -> tuple[str, str]:
    """Split `MODULE[:NAME]` into its two parts."""
    module, _, name = spec.rpartition(":") if ":" in spec else (spec, "", "")
    return module, name


def _import(name: str) -> ModuleType:
    dotted = _dotted(name)
    try:
        return importlib.import_module(dotted)
    except OutlastError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (dotted == error.name or dotted.startswith(f"{error.name}.")):
            raise InvalidInput(
                f"there is no module {name}",
                f"looked for {dotted} in this folder and on Python's path",
                "name a file (flows.py) or a module (package.flows)",
            ) from error
        raise _does_not_import(name, error) from error
    except (Exception, SystemExit) as error:  # an author's module may raise anything while it is imported
        raise _does_not_import(name, error) from error


def _does_not_import(name: str, error: BaseException) -> DefinitionError:
    return DefinitionError(f"{name} cannot be imported", user_frames(error), "correct it, then try again")


def _dotted(name: str) -> str:
    """Return the dotted name of a module, and put the folder of its outermost package on Python's path."""
    if not name.endswith(".py") and not Path(name).is_dir():
        _on_path(Path.cwd())
        return name
    path = Path(name).resolve()
    if not path.exists():
        raise InvalidInput(f"there is no file {name}", fix="name an existing file, or a module by its dotted name")
    parts = [path.stem] if path.stem != "__init__" else []
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    _on_path(folder)
    return ".".join(parts)


def _on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
