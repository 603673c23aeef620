"""Timers and races of asyncio around a wait of the context, found in the source of a node's code.

A wait that parks is answered in a later execution. A timer of the process, or another call of asyncio, never ends it,
so such code is refused when its workflow is loaded. Code that the source does not show is found by the engine while
the node runs, if it awaits `asyncio.wait` or `wait_for`.
"""

import ast
import asyncio
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias, get_origin

from outlast.errors import DefinitionError
from outlast.flow.context import Context
from outlast.flow.node import Node
from outlast.flow.reach import OURS, functions_of, names_in
from outlast.flow.registry import place
from outlast.flow.source import tree_of

WAITS: Final = frozenset({"sleep", "receive", "collect", "approval", "first"})
RACES: Final = (asyncio.wait, asyncio.wait_for, asyncio.as_completed)
TIMERS: Final = frozenset(
    {("asyncio", "timeout"), ("asyncio", "timeout_at"), ("async_timeout", "timeout"), ("async_timeout", "timeout_at")}
    | {("anyio", name) for name in ("move_on_after", "move_on_at", "fail_after", "fail_at")}
)
"""Functions whose `with` block a timer cancels, by package and name."""
RACE_NAMES: Final = frozenset(race.__name__ for race in RACES) | {name for _, name in TIMERS}
WITHOUT_END: Final = ("timeout", "delay", "when", "deadline")
"""Parameters that are None for a timer that never ends its block."""

ADDS: Final = ("append", "add", "extend", "update")
Assigned: TypeAlias = tuple[int, ast.expr, bool]
"""Line of an assignment to a name, its value, and whether it replaces the value before."""


class RacedWait(NamedTuple):
    """A wait inside a race or timer: the name and place of both."""

    race: str
    race_at: str
    wait: str
    wait_at: str


def waits_in_races(nodes: Iterable[Node]) -> Iterator[DefinitionError]:
    """Yield a mistake for each wait of a node's code that a timer or race of asyncio encloses."""
    for node in nodes:
        seen: set[RacedWait] = set()
        for fn in functions_of(node.fn):
            source = _Source.of(fn, is_node=fn is inspect.unwrap(node.fn)) if _may_race(fn) else None
            for found in source.raced() if source is not None else ():
                if found not in seen:
                    seen.add(found)
                    yield _mistake(node, found)


def contexts_of(fn: Callable[..., Any], *, is_node: bool) -> frozenset[str]:
    """Return the names of the parameters of a function that are contexts."""
    parameters = list(inspect.signature(fn, follow_wrapped=False).parameters)
    found = {name for name in parameters if name == "ctx" or _is_context(fn, name)}
    return frozenset(found | set(parameters[:1] if is_node else ()))


def _mistake(node: Node, found: RacedWait) -> DefinitionError:
    return DefinitionError(
        f"{node.title} has ctx.{found.wait} ({found.wait_at}) inside {found.race} ({found.race_at})",
        "a run that waits occupies no process, so neither a timer nor a race of asyncio ends its wait",
        "give the wait timeout=, within= or until=; await several with asyncio.gather, or the first with ctx.first",
        where=found.race_at,
    )


def raced_waits(
    module: ast.Module, function: ast.FunctionDef | ast.AsyncFunctionDef, contexts: frozenset[str]
) -> Iterator[tuple[str, ast.expr, str]]:
    """Yield the race, its place and the wait of each one in a function of a file that is not loaded.

    `contexts`: names of contexts. The names of the function mean what the imports of the file say.
    """
    names: dict[str, Any] = {}
    for node in module.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= _imported(node)
    for race, at, (wait, _) in _Source(function, contexts, names).raced_nodes():
        yield race, at, wait


class _Source:
    """Source of one function: its tree, and the values that its names have."""

    def __init__(
        self, tree: ast.AST, contexts: frozenset[str], names: Mapping[str, Any], file: str = "", first_line: int = 1
    ) -> None:
        """`names`: those of its module and of the functions around it."""
        self._contexts = contexts
        self._file = file
        self._line = first_line - 1
        self._names = names
        self._globals: dict[str, Any] = {}
        self._locals: dict[str, list[Assigned]] = {}
        self._nested: dict[str, ast.AST] = {}
        self._tree = tree
        outer = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)), None)
        for node in ast.walk(tree):
            self._note(node, outer)

    @classmethod
    def of(cls, fn: Any, *, is_node: bool = False) -> "_Source | None":
        """Return the source of a function, or None if it cannot be read."""
        if (tree := tree_of(fn)) is None:
            return None
        contexts = contexts_of(fn, is_node=is_node)
        names = fn.__globals__ | dict(inspect.getclosurevars(fn).nonlocals)
        return cls(tree, contexts, names, fn.__code__.co_filename, fn.__code__.co_firstlineno)

    # --- names ---------------------------------------------------------------------------------------------
    def _note(self, node: ast.AST, outer: ast.AST | None) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node is not outer:
                self._nested[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._globals |= _imported(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._assign(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._assign(node.target, node.value, replaces=False)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._assign(node.target, node.iter)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDS:
            for added in node.args:
                self._assign(node.func.value, added, replaces=False)

    def _assign(self, target: ast.expr, value: ast.expr, *, replaces: bool = True) -> None:
        if isinstance(target, ast.Name):
            self._locals.setdefault(target.id, []).append((value.lineno, value, replaces))
        elif isinstance(target, ast.Tuple | ast.List):
            each = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] * len(target.elts)
            for part, given in zip(target.elts, each, strict=False):
                self._assign(part, given, replaces=replaces)

    def _values(self, name: str, line: int) -> list[ast.expr]:
        """Return the values that a name may have at a line: the last one assigned before it, and what was added."""
        before = [each for each in self._locals.get(name, ()) if each[0] <= line]
        start = max((i for i, (_, _, replaces) in enumerate(before) if replaces), default=0)
        return [value for _, value, _ in before[start:]]

    def _object(self, node: ast.expr) -> Any:
        """Return the object that a name or an attribute of a module refers to, or None."""
        if isinstance(node, ast.Name):
            if node.id in self._globals:
                return self._globals[node.id]
            return self._names.get(node.id) if node.id not in self._locals else None
        if isinstance(node, ast.Attribute) and isinstance(owner := self._object(node.value), ModuleType):
            return getattr(owner, node.attr, None)
        return None

    def _at(self, node: ast.expr) -> str:
        return place(self._file, self._line + node.lineno)

    # --- races ---------------------------------------------------------------------------------------------
    def raced(self) -> Iterator[RacedWait]:
        """Yield each wait inside a race or timer of this function."""
        for name, race, wait in self.raced_nodes():
            yield RacedWait(name, self._at(race), *wait)

    def raced_nodes(self) -> Iterator[tuple[str, ast.expr, tuple[str, str]]]:
        """Yield the name and place of each race around a wait, and the name and place of the wait."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and any(self._object(node.func) is race for race in RACES):
                name = f"asyncio.{self._object(node.func).__name__}"
                if name == "asyncio.wait_for" and _never_ends(node):
                    continue
                yield from self._found(name, node, [*node.args, *(word.value for word in node.keywords)])
            elif isinstance(node, ast.With | ast.AsyncWith):
                for item in node.items:
                    if (timer := self._timer(item.context_expr)) is not None:
                        yield from self._found(timer, item.context_expr, node.body)

    def _found(
        self, name: str, race: ast.expr, enclosed: Iterable[ast.AST]
    ) -> Iterator[tuple[str, ast.expr, tuple[str, str]]]:
        found = next((wait for each in enclosed if (wait := self.wait_in(each, set())) is not None), None)
        if found is not None:
            yield name, race, found

    def _timer(self, expr: ast.expr) -> str | None:
        """Return the name of a timer that an expression makes, or None."""
        if isinstance(expr, ast.Name):
            values = self._values(expr.id, expr.lineno)
            return self._timer(values[-1]) if values and not isinstance(values[-1], ast.Name) else None
        if not isinstance(expr, ast.Call) or _never_ends(expr):
            return None
        made = self._object(expr.func)
        name = (getattr(made, "__module__", None) or "").partition(".")[0], getattr(made, "__name__", "")
        return ".".join(name) if name in TIMERS else None

    # --- waits ---------------------------------------------------------------------------------------------
    def wait_in(self, node: ast.AST, seen: set[Any], *, pending: bool = False) -> tuple[str, str] | None:
        """Return the name and place of a wait of the context that a piece of code begins or awaits, or None.

        `pending`: only waits that the code has started and not awaited.
        """
        if node in seen or (pending and isinstance(node, ast.Await)) or isinstance(node, ast.Lambda):
            return None
        seen.add(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return None  # it runs only if it is called
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr in WAITS and self._is_ctx(called.value):
                return called.attr, self._at(node)
            if (found := self._wait_of_helper(called, seen)) is not None:
                return found
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            for value in self._values(node.id, node.lineno):
                if (found := self.wait_in(value, seen, pending=True)) is not None:
                    return found
        inner = (self.wait_in(child, seen, pending=pending) for child in ast.iter_child_nodes(node))
        return next((found for found in inner if found is not None), None)

    def _wait_of_helper(self, called: ast.expr, seen: set[Any]) -> tuple[str, str] | None:
        """Return a wait in the body of a function that is called: one of this source, or a helper of a module."""
        nested = self._nested.get(called.id) if isinstance(called, ast.Name) else None
        if isinstance(nested, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (self.wait_in(each, seen) for each in nested.body)
            return next((found for found in inner if found is not None), None)
        helper = self._object(called)
        if not inspect.isfunction(helper) or helper.__module__.startswith(OURS) or helper in seen:
            return None
        seen.add(helper)
        source = _Source.of(helper)
        return source.wait_of_body(seen) if source is not None else None

    def wait_of_body(self, seen: set[Any]) -> tuple[str, str] | None:
        """Return a wait of the whole function, or None."""
        outer = next((n for n in ast.walk(self._tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)), None)
        inner = (self.wait_in(each, seen) for each in (outer.body if outer is not None else ()))
        return next((found for found in inner if found is not None), None)

    def _is_ctx(self, owner: ast.expr) -> bool:
        if isinstance(owner, ast.Attribute):
            return owner.attr in ("ctx", "_ctx")
        return isinstance(owner, ast.Name) and (owner.id == "ctx" or owner.id in self._contexts)


def _may_race(fn: Any) -> bool:
    """Return True if a function mentions a race or a timer. The sources of the others are not read."""
    names = set(names_in(fn.__code__))
    given = (getattr(fn.__globals__.get(name), "__name__", "") for name in names)  # under another name
    return not names.isdisjoint(RACE_NAMES) or not RACE_NAMES.isdisjoint(given)


def _is_context(fn: Callable[..., Any], parameter: str) -> bool:
    """Return True if a parameter is annotated as a context of a node."""
    hint = fn.__annotations__.get(parameter)
    if isinstance(hint, str):
        hint = fn.__globals__.get(hint.partition("[")[0], hint)
    return (get_origin(hint) or hint) is Context


def _never_ends(call: ast.Call) -> bool:
    """Return True if the timer of a call is None."""
    given = [word.value for word in call.keywords if word.arg in WITHOUT_END] or call.args[-1:]
    return bool(given) and isinstance(given[0], ast.Constant) and given[0].value is None


def _imported(node: ast.Import | ast.ImportFrom) -> Mapping[str, Any]:
    """Return the names that an import in a function defines, of modules that are loaded."""
    if isinstance(node, ast.Import):
        found = {alias.asname or alias.name.partition(".")[0]: alias for alias in node.names}
        return {
            name: sys.modules.get(alias.name if alias.asname else alias.name.partition(".")[0])
            for name, alias in found.items()
        }
    module = sys.modules.get(node.module or "")
    return {alias.asname or alias.name: getattr(module, alias.name, None) for alias in node.names}
