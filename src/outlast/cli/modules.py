"""Modules of authors, imported by path or dotted name, with their workflows and policies."""

import importlib
import importlib.util
import sys
from hashlib import sha256
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
    module = load_module(module_name)
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
    found = getattr(load_module(module_name), name, None)
    policy = found.policy if isinstance(found, Workflow) else found
    if not callable(policy):
        raise NotFound(f"{module_name} has no policy {name}", "the name is neither a policy nor a workflow with one")
    refuse_unrun_function(f"the policy {spec}", policy, "write it as a plain def", where=line_of(policy))
    return cast(Policy, policy)


def split(spec: str) -> tuple[str, str]:
    """Split `MODULE[:NAME]` into its two parts."""
    module, _, name = spec.rpartition(":") if ":" in spec else (spec, "", "")
    return module, name


def load_module(name: str) -> ModuleType:
    """Import the module that a command names: a file, a folder with an `__init__.py`, or a dotted name.

    Raises InvalidInput for a module that is not there, or whose name leads to another file; DefinitionError if its code
    cannot be imported.
    """
    file = _file_of(name)
    dotted = name if file is None else _dotted(file)
    try:
        if file is not None and ("." in file.stem or not _is_importable(dotted)):
            return _load(name, file)
        module = importlib.import_module(dotted)
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
    found = getattr(module, "__file__", None)
    if file is not None and found is not None and Path(found).resolve() != file:
        raise InvalidInput(
            f"{name} cannot be imported as {dotted}",
            f"{found} has this name and was imported first",
            "rename one of the two files, or leave the other one out of the command",
        )
    return module


def _load(name: str, file: Path) -> ModuleType:
    """Import a file whose name Python uses itself, or that has a dot, under another name.

    Its folder comes last on Python's path, because the modules beside it may have such names, too.
    """
    dotted = f"outlast_file_{file.stem.replace('.', '_')}_{sha256(str(file).encode()).hexdigest()[:8]}"
    if (known := sys.modules.get(dotted)) is not None:
        return known
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    spec = importlib.util.spec_from_file_location(dotted, file)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{name} is no file of Python code", fix="name a file that ends with .py")
    module = sys.modules[dotted] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:  # because a module that is half imported must not stay, whatever stopped it
        del sys.modules[dotted]
        raise
    return module


def _does_not_import(name: str, error: BaseException) -> DefinitionError:
    return DefinitionError(f"{name} cannot be imported", user_frames(error), "correct it, then try again")


def file_of_module(name: str) -> Path:
    """Return the file of a module without importing anything: a file, or a dotted name on Python's path.

    Raises InvalidInput if no such file is found.
    """
    file = _file_of(name)
    for folder in sys.path if file is None else ():
        inside = Path(folder or ".", *name.split("."))
        for each in (inside.with_name(f"{inside.name}.py"), inside / "__init__.py"):
            if each.is_file():
                return each
    if file is None or not file.is_file():
        raise InvalidInput(
            f"there is no module {name}",
            "looked for it in this folder and on Python's path",
            "name a file (flows.py), a folder, or a module (package.flows)",
        )
    return file


def _file_of(name: str) -> Path | None:
    """Return the file that a command names, None for a dotted name. Raises InvalidInput if there is no such file."""
    if not name.endswith(".py") and not Path(name).is_dir():
        _on_path(Path.cwd())
        return None
    path = Path(name).resolve()
    if not path.exists():
        raise InvalidInput(f"there is no file {name}", fix="name an existing file, or a module by its dotted name")
    return path / "__init__.py" if path.is_dir() else path


def _dotted(file: Path) -> str:
    """Return the dotted name of a file, and put the folder of its outermost package first on Python's path."""
    parts = [file.stem] if file.name != "__init__.py" else []
    folder = file.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    if not parts:  # a folder without __init__.py
        parts, folder = [file.parent.name], file.parent.parent
    if _is_importable(dotted := ".".join(parts)) or len(parts) > 1:
        _on_path(folder)
    return dotted


def _is_importable(dotted: str) -> bool:
    """Return True if Python has no module of this name itself, and each part is a name."""
    first, *rest = dotted.split(".")
    return (
        first not in sys.stdlib_module_names
        and first not in ("outlast", "__main__")
        and all(part.isidentifier() for part in rest)
    )


def _on_path(folder: Path) -> None:
    """Put a folder first on Python's path, before others that have modules of the same names."""
    if sys.path[:1] != [str(folder)]:
        sys.path[:] = [str(folder), *(each for each in sys.path if each != str(folder))]
