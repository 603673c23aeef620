"""Source of authors' functions: its syntax tree, and the docstring that `python -OO` leaves out of the code."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any, Final

PARSED_MAX: Final = 10
NO_DOCSTRINGS: Final = 2
"""Level of optimization at which Python compiles no docstrings: `-OO`, or PYTHONOPTIMIZE=2."""


def syntax_tree(source: str) -> ast.Module:
    """Parse source text. Raises SyntaxError.

    Up to Python 3.11.7 a parser that another thread interrupts raises SystemError (python/cpython#106905), so it is
    asked again.
    """
    for _ in range(PARSED_MAX - 1):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    return ast.parse(source)


def tree_of(fn: Any) -> ast.Module | None:
    """Return the syntax tree of a function, or None if its source cannot be read."""
    try:
        return syntax_tree(textwrap.dedent(inspect.getsource(fn)))
    except (OSError, TypeError):  # made at run time
        return None
    except (SyntaxError, SystemError):  # a lambda in the middle of a line
        return None


def docstring_of(fn: Callable[..., Any]) -> str | None:
    """Return the docstring of a function, under `python -OO` from its source. A model reads it to choose a tool."""
    if fn.__doc__ is not None or sys.flags.optimize < NO_DOCSTRINGS:
        return fn.__doc__
    tree = tree_of(fn)
    first = tree.body[0] if tree is not None and tree.body else None
    if isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.get_docstring(first, clean=False)
    return None
