"""One file of Python code as the rules see it: what its names mean, and which part of a workflow each function is.

Nothing of the file runs. A name means what an import or an assignment of the file says, so a rule recognizes
`datetime.now` under each of its names. A name that is a parameter of the function means nothing.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from outlast.core.durations import FAR, milliseconds
from outlast.flow.source import syntax_tree

AnyFunction: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Assignment: TypeAlias = (
    ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.withitem | ast.For | ast.AsyncFor | ast.comprehension
)
Role: TypeAlias = Literal["activity", "lookup", "reconcile", "undo", "policy", "outcome", "context", "plain"]
DECORATORS: Final[Mapping[str, Role]] = {
    "outlast.activity": "activity",
    "outlast.flow.activity": "activity",
    "outlast.lookup": "lookup",
    "outlast.flow.lookup": "lookup",
}
PURE_OPTIONS: Final[Mapping[str, Role]] = {"policy": "policy", "outcome": "outcome"}
"""Options of a workflow whose function the engine calls at any time, again and again."""
COROUTINES: Final = frozenset(
    {
        "do",
        "do_all",
        "approval",
        "allowed",
        "check",
        "recorded",
        "sleep",
        "receive",
        "collect",
        "first",
        "emit",
        "ended",
    }
)
"""Methods of a context that must be awaited."""
UNITS: Final = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")
WAITS: Final = frozenset({"approval", "sleep", "receive", "collect", "first"})


class Function(NamedTuple):
    """A function of the file. `context`: the name of its parameter that is a context, or ''."""

    node: AnyFunction
    role: Role
    context: str
    decorator: ast.Call | None
    """The decorator that declares an activity or lookup, if it has options."""


class DeclaredActivity(NamedTuple):
    """An activity or lookup that the file can call: the fields of its key, its parameters, and its longest calls."""

    key_fields: Sequence[str]
    parameters: Sequence[str]
    timeout_ms: int | None
    """None if it is not stated."""
    attempts: int


class SourceFile:
    """The syntax tree of a file with its functions. Raises SyntaxError.

    `imported`: activities that it imports from elsewhere, by the names that it has for them.
    """

    def __init__(self, text: str, imported: Mapping[str, DeclaredActivity] = MappingProxyType({})) -> None:
        self.imported: Final = imported
        self.tree: Final = syntax_tree(text)
        self.nodes: Final[list[ast.AST]] = [self.tree]
        """Every node of the file, in the order of `ast.walk`. Rules read this list, because each walk costs as much."""
        self._parents: Final[dict[ast.AST, ast.AST]] = {}
        for node in self.nodes:
            for child in ast.iter_child_nodes(node):
                self._parents[child] = node
                self.nodes.append(child)
        self._names = dict(_imports(self.tree))
        for each in self.tree.body:  # names that stand for others: now = datetime.now, client = httpx.AsyncClient()
            if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
                meaning = self.meaning(each.value)
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                self._names |= {t.id: meaning for t in targets if isinstance(t, ast.Name) and meaning}

    # --- names -------------------------------------------------------------------------------------------------
    def meaning(self, expr: ast.expr) -> str:
        """Return the dotted name of an expression, `()` after each call, or '' if the file does not tell."""
        if isinstance(expr, ast.Await):
            return self.meaning(expr.value)
        if isinstance(expr, ast.Call):
            called = self.meaning(expr.func)
            return f"{called}()" if called else ""
        if isinstance(expr, ast.Attribute):
            owner = self.meaning(expr.value)
            return f"{owner}.{expr.attr}" if owner else ""
        if not isinstance(expr, ast.Name):
            return ""
        for each in self.around(expr):
            if isinstance(each, AnyFunction) and expr.id in (known := self._locals(each)):
                return known[expr.id]
        return self._names.get(expr.id, expr.id if expr.id in _BUILTINS else "")

    def _locals(self, function: AnyFunction) -> Mapping[str, str]:
        """Return what the names of a function mean that it assigns itself; '' for those that the file does not tell."""
        if function not in self._known_locals:
            found: dict[str, str] = {each.arg: "" for each in parameters(function)}
            self._known_locals[function] = found
            found |= dict(_imports(function))
            for each in self._assignments.get(function, ()):
                for name, value in _assigned(each):
                    found[name] = self.meaning(value) if value is not None else ""
        return self._known_locals[function]

    @cached_property
    def _known_locals(self) -> dict[AnyFunction, dict[str, str]]:
        return {}

    @cached_property
    def _assignments(self) -> Mapping[ast.AST, Sequence[ast.AST]]:
        """Parts that assign names, by each function around them: a walk of each would read inner ones again."""
        found: dict[ast.AST, list[ast.AST]] = {}
        for each in self.nodes:
            if isinstance(each, Assignment):
                for function in self.around(each):
                    if isinstance(function, AnyFunction):
                        found.setdefault(function, []).append(each)
        return found

    @cached_property
    def module_values(self) -> Mapping[str, ast.expr]:
        """Values that the file assigns to names at its top level."""
        return {name: value for each in self.tree.body for name, value in _assigned(each) if value is not None}

    @cached_property
    def module_texts(self) -> frozenset[object]:
        """Texts in the values of the file's top level, such as addresses."""
        parts = (part for each in self.tree.body if not isinstance(each, AnyFunction) for part in ast.walk(each))
        return frozenset(each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str))

    # --- places ------------------------------------------------------------------------------------------------
    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node that contains another one."""
        return self._parents.get(node)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that contain another one, from the inside out."""
        each = self._parents.get(node)
        while each is not None:
            yield each
            each = self._parents.get(each)

    # --- functions ---------------------------------------------------------------------------------------------
    @cached_property
    def functions(self) -> list[Function]:
        """Every function of the file with its role."""
        options = dict(self._pure_functions())
        return [self._function(each, options) for each in self.nodes if isinstance(each, AnyFunction)]

    def _function(self, node: AnyFunction, options: Mapping[str, Role]) -> Function:
        for each in node.decorator_list:
            call = each if isinstance(each, ast.Call) else None
            target = call.func if call is not None else each
            if (role := DECORATORS.get(self.meaning(target))) is not None:
                return Function(node, role, "", call)
            if isinstance(target, ast.Attribute) and target.attr in ("reconcile", "undo"):
                return Function(node, cast(Role, target.attr), "", call)
        context = next((each.arg for each in parameters(node) if self._is_context(each)), "")
        if context:
            return Function(node, "context", context, None)
        return Function(node, options.get(node.name, "plain"), "", None)

    def _is_context(self, parameter: ast.arg) -> bool:
        hint = parameter.annotation
        if isinstance(hint, ast.Subscript):
            hint = hint.value
        if hint is None:
            return parameter.arg == "ctx" and self.uses_outlast
        return self.meaning(hint) in ("outlast.Context", "outlast.flow.Context", "outlast.flow.context.Context")

    @cached_property
    def uses_outlast(self) -> bool:
        """True if the file imports Outlast."""
        return any(name.partition(".")[0] == "outlast" for name in self._names.values())

    def _pure_functions(self) -> Iterator[tuple[str, Role]]:
        """Yield the names of functions that a workflow has as policy or outcome, with their role."""
        for each in self.calls:
            if self.meaning(each.func) in ("outlast.Workflow", "outlast.workflow"):
                for word in each.keywords:
                    if word.arg and word.arg in PURE_OPTIONS and isinstance(word.value, ast.Name):
                        yield word.value.id, PURE_OPTIONS[word.arg]

    @cached_property
    def node_code(self) -> list[Function]:
        """Functions that run in a node: those with a context, and those of the file that they call."""
        by_name = {each.node.name: each for each in self.functions if each.role == "plain"}
        found = {each.node: each for each in self.functions if each.role == "context"}
        queue = list(found.values())
        while queue:
            for call in ast.walk(queue.pop().node):
                name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
                helper = by_name.get(name)
                if helper is not None and helper.node not in found:
                    found[helper.node] = helper
                    queue.append(helper)
        return list(found.values())

    # --- calls -------------------------------------------------------------------------------------------------
    @cached_property
    def calls(self) -> Sequence[ast.Call]:
        """Every call of the file."""
        return [each for each in self.nodes if isinstance(each, ast.Call)]

    @cached_property
    def classes(self) -> Sequence[ast.ClassDef]:
        """Every class of the file."""
        return [each for each in self.nodes if isinstance(each, ast.ClassDef)]

    def own_calls(self, function: Function) -> Sequence[ast.Call]:
        """Return each call of a function that no other function inside it makes, with those of its lambdas."""
        return self._calls_of.get(function.node, ())

    def node_calls(self) -> Iterator[tuple[Function, ast.Call, str]]:
        """Yield each call of the code of nodes: its function, the call, and the meaning of the name that it calls."""
        yield from ((code, call, self.meaning(call.func)) for code in self.node_code for call in self.own_calls(code))

    @cached_property
    def _calls_of(self) -> dict[AnyFunction | None, list[ast.Call]]:
        """Calls of the bodies of functions, in their order. Decorators and defaults belong to the function around."""
        found: dict[AnyFunction | None, list[ast.Call]] = {}
        stack: list[tuple[ast.AST, AnyFunction | None]] = [(self.tree, None)]
        while stack:
            node, around = stack.pop()
            if isinstance(node, ast.Call):
                found.setdefault(around, []).append(node)
            body: set[ast.AST] = set(node.body) if isinstance(node, AnyFunction) else set()
            inner = node if isinstance(node, AnyFunction) else None
            children = reversed([*ast.iter_child_nodes(node)])
            stack.extend((each, inner if inner is not None and each in body else around) for each in children)
        return found

    def context_call(self, call: ast.Call, names: Iterable[str] = COROUTINES) -> str:
        """Return the method of a context that a call calls, if it is one of these; else ''."""
        called = call.func
        if not isinstance(called, ast.Attribute) or called.attr not in names:
            return ""
        owner = called.value
        if isinstance(owner, ast.Attribute):
            return called.attr if owner.attr in ("ctx", "_ctx") and self.uses_outlast else ""
        if not isinstance(owner, ast.Name):
            return ""
        inside = (each for each in self.around(call) if isinstance(each, AnyFunction))
        return called.attr if any(self._contexts.get(each) == owner.id for each in inside) else ""

    @cached_property
    def _contexts(self) -> dict[AnyFunction, str]:
        return {each.node: each.context for each in self.functions if each.context}


_BUILTINS: Final = frozenset(each.__name__ for each in (open, id, hash, input, enumerate, object))


def parameters(function: AnyFunction) -> list[ast.arg]:
    """Return the parameters of a function in their order, without `*args` and `**kwargs`."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that an import defines, and what it means. Imports inside functions belong to these."""
    queue: list[ast.AST] = list(ast.iter_child_nodes(tree))
    while queue:
        each = queue.pop(0)
        if isinstance(each, ast.Import):
            for alias in each.names:
                yield (alias.asname, alias.name) if alias.asname else ((n := alias.name.partition(".")[0]), n)
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            names = ((alias.asname or alias.name, alias.name) for alias in each.names if alias.name != "*")
            every = ((name, name) for name in (_exports(each.module) if each.names[0].name == "*" else ()))
            yield from ((name, f"{each.module}.{meant}") for name, meant in (*every, *names))
        elif not isinstance(each, AnyFunction | ast.expr):  # no expression contains an import
            queue += ast.iter_child_nodes(each)


def _exports(module: str) -> Iterable[str]:
    """Return the names that `from MODULE import *` defines: those of Outlast's packages, which are loaded."""
    return getattr(sys.modules.get(module), "__all__", ()) if module.partition(".")[0] == "outlast" else ()


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each name that a statement assigns, with its value if it is this one."""
    targets: list[tuple[ast.expr, ast.expr | None]]
    if isinstance(node, ast.Assign):
        targets = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        targets = [(node.target, node.value)]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        targets = [(node.optional_vars, node.context_expr)]
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        targets = [(node.target, None)]
    else:
        return
    for target, value in targets:
        if isinstance(target, ast.Name):
            yield target.id, value
        else:
            yield from ((each.id, None) for each in ast.walk(target) if isinstance(each, ast.Name))


def constant(expr: ast.AST | None) -> object:
    """Return the value of a literal, or None."""
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.USub) and isinstance(expr.operand, ast.Constant):
        value = expr.operand.value
        return -value if isinstance(value, int | float) else None
    return expr.value if isinstance(expr, ast.Constant) else None


def option(call: ast.Call | None, name: str) -> ast.expr | None:
    """Return the keyword argument of a call, or None."""
    return next((each.value for each in call.keywords if each.arg == name), None) if call is not None else None


def duration(source: SourceFile, expr: ast.expr | None) -> int | None:
    """Return a literal duration in milliseconds, or None: "24h", timedelta(hours=24), or a name for one of them.

    Any duration that no `timedelta` holds is a little more than 100 years.
    """
    if isinstance(expr, ast.Name):
        expr = source.module_values.get(expr.id)
    if isinstance(text := constant(expr), str):
        try:
            return milliseconds(text)
        except ValueError:
            return None
    if isinstance(expr, ast.Call) and source.meaning(expr.func) == "datetime.timedelta":
        given = {word.arg: constant(word.value) for word in expr.keywords}
        given |= dict(zip(("days", "seconds"), map(constant, expr.args), strict=False))
        if given and all(name in UNITS and isinstance(value, int | float) for name, value in given.items()):
            try:
                return round(timedelta(**given).total_seconds() * 1_000)  # type: ignore[arg-type]  # looked at above
            except OverflowError:
                return FAR + 1
    return None
