"""Rules about functions that the engine may call at any time and again: policies, outcomes and reconcile functions."""

import ast

from outlast.lint.io_calls import FILE_METHODS, WRITING_METHODS, acts_outside
from outlast.lint.rules import Found, rule
from outlast.lint.source_file import SourceFile


@rule(
    "OL201",
    "A policy or an outcome is computed again and again, and nothing records what it does.",
    "let it compute from its arguments only; put the call into a node, and its answer into the state",
)
def _effect_in_a_pure_function(source: SourceFile) -> Found:
    activities = {each.node.name for each in source.functions if each.role in ("activity", "lookup")}
    for code in source.functions:
        if code.role not in ("policy", "outcome"):
            continue
        for call in source.own_calls(code):
            called = source.meaning(call.func)
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if acts_outside(called) or name in activities or method in FILE_METHODS:
                yield call, f"{called or name or f'.{method}()'} in the {code.role} {code.node.name}"


@rule(
    "OL202",
    "A reconcile function only finds out what happened. Whatever it sends is recorded nowhere and may be sent again.",
    "ask with a request that changes nothing, and return Happened, DidNotHappen or Unknown",
)
def _effect_in_reconcile(source: SourceFile) -> Found:
    writes = {each.node.name for each in source.functions if each.role == "activity"}
    for code in source.functions:
        if code.role != "reconcile":
            continue
        for call in source.own_calls(code):
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            called = source.meaning(call.func)
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if name in writes or (method in ("do", "do_all") and source.uses_outlast and _on_context(call)):
                yield call, f"a call of {name or f'ctx.{method}'} in {code.node.name}"
            elif method in WRITING_METHODS and acts_outside(called):
                yield call, f"{called} in {code.node.name}"


def _on_context(call: ast.Call) -> bool:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Call):
        return getattr(owner.func, "id", getattr(owner.func, "attr", "")) == "current_context"
    return isinstance(owner, ast.Name) and owner.id == "ctx"
