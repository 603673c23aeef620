"""The signals that a workflow may receive, with their models, as read from the source of its nodes."""

import ast
from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel

from outlast.flow.reach import functions_of
from outlast.flow.source import tree_of
from outlast.flow.workflow import Workflow

RECEIVERS: Final = ("receive", "collect")


def signals_of(workflow: Workflow[Any, Any, Any]) -> dict[str, type[BaseModel]]:
    """Return the models of signals by name. A wait whose name or model is made at run time is left out."""
    found: dict[str, type[BaseModel]] = {}
    for node in workflow.nodes.values():
        for fn in functions_of(node.fn):
            found.update(_received(fn))
    return found


def _received(fn: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    tree = tree_of(fn)
    for call in ast.walk(tree) if tree is not None else ():
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        if call.func.attr not in RECEIVERS or len(call.args) < 2:
            continue
        name, model = _value(fn, call.args[0]), _value(fn, call.args[1])
        if isinstance(name, str) and isinstance(model, type) and issubclass(model, BaseModel):
            yield name, model


def _value(fn: Any, node: ast.expr) -> Any:
    """Return a constant, or the value of a name or an attribute in a function's closure or module; else None."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Attribute):
        return getattr(_value(fn, node.value), node.attr, None)
    if not isinstance(node, ast.Name):
        return None
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False))
    try:
        return cells[node.id].cell_contents if node.id in cells else fn.__globals__.get(node.id)
    except ValueError:  # not assigned yet
        return None
