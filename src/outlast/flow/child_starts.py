"""Child runs that the code of a node starts: each says what undoes it, unless its workflow makes no write (S-30).

A start is found by the name of its workflow in the source. One that is named at run time is refused there.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any, Final, Protocol

from outlast.errors import DefinitionError
from outlast.flow.node import Node
from outlast.flow.races import contexts_of
from outlast.flow.reach import functions_of, names_in, value_of_name
from outlast.flow.registry import WORKFLOWS, place
from outlast.flow.source import tree_of

STARTS: Final = frozenset({"run", "start"})
ANSWERS: Final = frozenset({"undo", "no_undo"})


class Started(Protocol):
    """A workflow that a node starts."""

    name: str

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the writes that its code mentions."""
        ...


def undecided_children(nodes: Iterable[Node]) -> Iterator[DefinitionError]:
    """Yield a mistake for each start of a child that names neither an undo nor a reason, if its workflow writes."""
    for node in nodes:
        for fn in functions_of(node.fn):
            if not STARTS.isdisjoint(names_in(fn.__code__)):
                yield from _undecided(node, fn)


def _undecided(node: Node, fn: Callable[..., Any]) -> Iterator[DefinitionError]:
    contexts, tree = contexts_of(fn, is_node=fn is inspect.unwrap(node.fn)), tree_of(fn)
    for call in ast.walk(tree) if tree is not None else ():
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in STARTS):
            continue
        owner, options = call.func.value, {word.arg for word in call.keywords}
        if not (isinstance(owner, ast.Name) and owner.id in contexts) or None in options or options & ANSWERS:
            continue
        started = _workflow_of(fn, call.args[0]) if call.args else None
        if started is not None and started.writes:
            where = place(fn.__code__.co_filename, fn.__code__.co_firstlineno - 1 + call.lineno)
            yield DefinitionError(
                f"{node.title} starts {started.name} with neither undo= nor no_undo= ({where})",
                f"it may call {', '.join(started.writes[:3])}, and its parent may fail after that",
                "give it undo=activity.plan(…), or no_undo='why nothing is to be undone'",
                where=where,
            )


def _workflow_of(fn: Callable[..., Any], named: ast.expr) -> Started | None:
    """Return the workflow that an expression of a function's code names; None if it is made at run time."""
    parts: list[str] = []
    while isinstance(named, ast.Attribute):
        parts.insert(0, named.attr)
        named = named.value
    if not isinstance(named, ast.Name) or named.id in fn.__code__.co_varnames:
        return None
    value = reduce(lambda found, part: getattr(found, part, None), parts, value_of_name(fn, named.id))
    return next((each for each in WORKFLOWS.all() if each is value), None)
