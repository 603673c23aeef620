"""Rules about the code of nodes, which runs again after each wait, crash and deploy."""

import ast
from typing import Final

from outlast.flow.races import raced_waits
from outlast.lint.io_calls import FILE_METHODS, SLEEPS, acts_outside, is_chance
from outlast.lint.rules import Found, rule
from outlast.lint.source_file import Function, SourceFile, constant, parameters

STOPS: Final = frozenset({"asyncio.CancelledError", "asyncio.exceptions.CancelledError"})
"""Exceptions by which a run leaves the process while it waits."""


@rule(
    "OL301",
    "A node runs again after each wait and crash, so this is done again, and its answer may be another one.",
    "move it into an @activity (it changes something) or a @lookup (it only reads), and call it with ctx.do",
)
def _io_in_a_node(source: SourceFile) -> Found:
    for code, call, called in source.node_calls():
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if acts_outside(called):
            yield call, f"{called} in {code.node.name}"
        elif method in FILE_METHODS and not called.startswith("outlast."):
            yield call, f".{method}() in {code.node.name}"


@rule(
    "OL302",
    "A node runs again after each wait and crash, and takes another way if the time or a random value decides.",
    'use ctx.now(), ctx.random("name") or ctx.uuid("name"), which are the same in each re-run',
)
def _chance_in_a_node(source: SourceFile) -> Found:
    for code, call, called in source.node_calls():
        if is_chance(called) and called not in _HARMLESS:
            yield call, f"{called}() in {code.node.name}"


_HARMLESS: Final = frozenset(
    {"id", "object", "os.getpid", "time.perf_counter", "time.monotonic", "time.monotonic_ns", "itertools.count"}
)
"""They decide nothing by themselves: durations for a log, identities of objects."""


@rule(
    "OL303",
    "This wait occupies the worker, and a crash begins it again; a wait of the context is a row.",
    'write await ctx.sleep("5m")',
)
def _sleep_in_a_node(source: SourceFile) -> Found:
    for code, call, called in source.node_calls():
        if called in SLEEPS and call.args and constant(call.args[0]) != 0:
            yield call, f"{called} in {code.node.name}"


@rule(
    "OL304",
    "A run that waits leaves the process by an exception that this catches, so the code after it runs too early.",
    "catch Refused, or Exception; or raise the exception again",
)
def _swallowed_wait(source: SourceFile) -> Found:
    for code in source.node_code:
        for each in ast.walk(code.node):
            if isinstance(each, ast.Try | ast.With | ast.AsyncWith) and _waits(source, each.body):
                for place, caught in _catching(source, each):
                    yield place, f"{caught} in {code.node.name}"


def _catching(source: SourceFile, block: ast.Try | ast.With | ast.AsyncWith) -> Found:
    """Yield the parts of a block that catch the exception of a run that waits, and do not raise it again."""
    if isinstance(block, ast.Try):
        for handler in block.handlers:
            if (caught := _caught(source, handler.type)) and not _raises(handler.body):
                yield handler, caught
        return
    for call in (item.context_expr for item in block.items):
        if isinstance(call, ast.Call) and source.meaning(call.func) == "contextlib.suppress":
            yield from ((call, f"suppress({caught})") for given in call.args if (caught := _caught(source, given)))


def _caught(source: SourceFile, expr: ast.expr | None) -> str:
    """Return the exception of a handler that also stops a run that waits, or ''."""
    if expr is None:
        return "except:"
    for each in expr.elts if isinstance(expr, ast.Tuple) else [expr]:
        name = source.meaning(each) or (each.id if isinstance(each, ast.Name) else "")
        if name == "BaseException" or name in STOPS:
            return name
    return ""


def _raises(body: list[ast.stmt]) -> bool:
    return any(isinstance(each, ast.Raise) for stmt in body for each in ast.walk(stmt))


def _waits(source: SourceFile, body: list[ast.stmt]) -> bool:
    calls = (each for stmt in body for each in ast.walk(stmt) if isinstance(each, ast.Call))
    return any(source.context_call(each) for each in calls)


@rule(
    "OL305",
    "A call that is not awaited is not made.",
    "write await before it, and async before the def around it",
)
def _forgotten_await(source: SourceFile) -> Found:
    coroutines = {
        each.node.name
        for each in source.functions
        if isinstance(each.node, ast.AsyncFunctionDef) and each.role in ("plain", "context")
    }
    for code in (*source.node_code, *(each for each in source.functions if each.role in _CALLED_BY_THE_ENGINE)):
        given = {each.arg for each in parameters(code.node)}
        for call in source.own_calls(code):
            called = call.func.id if isinstance(call.func, ast.Name) else ""
            helper = called if called in coroutines and called not in given else ""
            if (name := source.context_call(call) or helper) and _is_lost(source, call, code):
                yield call, f"{f'ctx.{name}' if name != helper else name} in {code.node.name}"


_CALLED_BY_THE_ENGINE: Final = frozenset({"activity", "lookup", "reconcile", "undo"})


def _is_lost(source: SourceFile, call: ast.Call, code: Function) -> bool:
    """Return True if nothing takes the coroutine of a call.

    Its statement is the call, a name that nothing reads, or the answer of a `def` that the engine calls.
    """
    parent = source.parent(call)
    if isinstance(parent, ast.Expr):
        return True
    if isinstance(parent, ast.Return):
        return code.role in _CALLED_BY_THE_ENGINE and isinstance(code.node, ast.FunctionDef)
    if not isinstance(parent, ast.Assign) or not all(isinstance(each, ast.Name) for each in parent.targets):
        return False
    names = {each.id for each in parent.targets if isinstance(each, ast.Name)}
    read = (each for each in ast.walk(code.node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
    return all(each.id not in names for each in read)


@rule(
    "OL306",
    "A run that waits occupies no process, so neither a timer nor a race of asyncio ends its wait.",
    "give the wait timeout=, within= or until=; await all of several with asyncio.gather, or the first with ctx.first",
)
def _race_around_a_wait(source: SourceFile) -> Found:
    contexts = frozenset(each.context for each in source.functions if each.context)
    for code in source.node_code:
        for race, at, wait in raced_waits(source.tree, code.node, contexts):
            yield at, f"ctx.{wait} inside {race} in {code.node.name}"
