"""Where in an author's files something is declared, and what its annotations mean."""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints


def where_of(fn: Callable[..., Any]) -> str:
    """File and line of a function, relative to the working directory where it lies below it."""
    code = inspect.unwrap(fn).__code__
    return place(code.co_filename, code.co_firstlineno)


def where_called(depth: int) -> str:
    """File and line of the caller `depth` frames above the function that asks."""
    frame = sys._getframe(depth + 1)
    return place(frame.f_code.co_filename, frame.f_lineno)


def locals_of_caller(depth: int) -> Mapping[str, Any]:
    """A copy of the names local to the caller `depth` frames above; empty at module level."""
    frame = sys._getframe(depth + 1)
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def hints_of(fn: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of `fn`, with text resolved by its module and then `names`. Raises NameError if that fails."""
    return get_type_hints(fn, localns=dict(names), include_extras=True)


def place(filename: str, line: int) -> str:
    """Return "file:line", relative to the working directory where the file lies below it."""
    path = Path(filename)
    try:
        return f"{path.relative_to(Path.cwd())}:{line}"
    except (ValueError, OSError):  # not below it, or the directory is gone
        return f"{filename}:{line}"
