"""Rules about keys: a key names the business object, so that a re-run and a second start mean the same call."""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from outlast.flow.options import Retry
from outlast.lint.io_calls import is_chance
from outlast.lint.rules import Found, rule
from outlast.lint.source_file import (
    AnyFunction,
    DeclaredActivity,
    Function,
    SourceFile,
    constant,
    duration,
    option,
    parameters,
)

FIELD: Final = re.compile(r"\{(\w+)[^{}]*\}")
CONTENT: Final = re.compile(
    r"amounts?|body|cents|comment|content|currency|html|messages?|note|price|prompt|quantity|subject|sum|text|total"
)
"""Parameters that say how much or in which words. Two objects may have the same."""
CHANCE: Final = re.compile(
    r"attempts?|counter|idx|index|nonce|now|position|request_id|retr(?:y|ies)|rnd|time|timestamp|trace_id|tries|"
    r"try_number|ts|unix_time|uuid"
)
"""Parameters that are another value in the next execution, by their names."""
CHILD_OPTIONS: Final = frozenset({"once_per", "parent_close", "undo", "no_undo", "scheduler"})
FREE_TEXT: Final = ("text", "arguments", "messages")
"""Attributes of a proposal that a model writes freely."""


def declared(source: SourceFile, role: str = "activity") -> Iterator[tuple[Function, str, ast.expr]]:
    """Yield each activity of the file that has a key, with its template."""
    for each in source.functions:
        key = option(each.decorator, "key")
        if each.role == role and key is not None and isinstance(template := constant(key), str):
            yield each, template, key


@rule(
    "OL101",
    "The key of a write names no business object, so calls for two of them are one call, or a contradiction.",
    'put what identifies the object into the key: key="refund/{order_id}"',
)
def _key_without_identity(source: SourceFile) -> Found:
    for each, template, key in declared(source):
        fields = FIELD.findall(template)
        if fields and all(CONTENT.fullmatch(name.lower()) for name in fields):
            yield key, f"{each.node.name} is identified by {', '.join(fields)} only"
        elif not fields and (parameters(each.node) or constant(option(each.decorator, "once_per")) == "tenant"):
            yield key, f"{each.node.name} has the same key {template!r} for all arguments"


@rule(
    "OL102",
    "A re-run makes another key of a time, a random value, an attempt or a position, and would call again.",
    'make the key of business identity, or of ctx.uuid("name"), which is the same in each re-run',
)
def _key_of_chance(source: SourceFile) -> Found:
    for each, template, key in declared(source):
        chance = [name for name in FIELD.findall(template) if CHANCE.fullmatch(name.lower())]
        if chance:
            yield key, f"{each.node.name} has {', '.join(chance)} in its key"
    activities = activities_of(source)
    for code in source.node_code:
        origins = _origins(source, code)
        for call in source.own_calls(code):
            for field, given in _key_arguments(source, call, activities):
                if why := _chance_in(source, given, origins):
                    yield given, f"{field} of the key is made of {why}"
            for given in _child_arguments(source, call):
                if why := _chance_in(source, given, origins):
                    yield given, f"the key or the input of a child is made of {why}"
            if (ident := _id_of_signal(call)) is not None and (why := _chance_in(source, ident, origins)):
                yield ident, f"the id of a signal is made of {why}"


def activities_of(source: SourceFile) -> dict[str, DeclaredActivity]:
    """Return the activities and lookups that the file declares or imports, by their names in the file."""
    found = dict(source.imported)
    for each in source.functions:
        if each.role in ("activity", "lookup"):
            template = constant(option(each.decorator, "key"))
            retry = option(each.decorator, "retry")
            attempts = constant(option(retry, "attempts")) if isinstance(retry, ast.Call) else None
            found[each.node.name] = DeclaredActivity(
                FIELD.findall(template) if isinstance(template, str) else (),
                [parameter.arg for parameter in parameters(each.node)],
                duration(source, option(each.decorator, "timeout")),
                attempts if isinstance(attempts, int) else Retry().attempts,
            )
    return found


def _key_arguments(
    source: SourceFile, call: ast.Call, activities: Mapping[str, DeclaredActivity]
) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments of a call of an activity that are in its key, with the names of their fields."""
    given: list[ast.expr] = []
    if source.context_call(call, ("do",)) and call.args and isinstance(call.args[0], ast.Name):
        name, given = call.args[0].id, call.args[1:]
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "plan" and isinstance(call.func.value, ast.Name):
        name, given = call.func.value.id, call.args
    else:
        return
    if (activity := activities.get(name)) is not None:
        words = {each.arg: each.value for each in call.keywords if each.arg}
        words |= dict(zip(activity.parameters, given, strict=False))
        yield from ((field, words[field]) for field in activity.key_fields if field in words)


def _child_arguments(source: SourceFile, call: ast.Call) -> Iterator[ast.expr]:
    """Yield the input and the key of a child that a node starts. Without a key, it is made of the input."""
    if source.context_call(call, ("run", "start")):
        yield from call.args[1:]
        yield from (each.value for each in call.keywords if each.arg not in CHILD_OPTIONS)


def _id_of_signal(call: ast.Call) -> ast.expr | None:
    """Return the id of a signal that a node sends to a child or to its parent."""
    called = call.func
    return option(call, "id") if isinstance(called, ast.Attribute) and called.attr == "signal" else None


def _origins(source: SourceFile, function: Function) -> dict[str, str]:
    """Return the names of a function whose value is another one in a re-run, each with its origin."""
    found: dict[str, str] = {}
    for _ in range(3):  # names that are made of other names
        for each in ast.walk(function.node):
            if isinstance(each, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.AugAssign) and each.value is not None:
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                why = _chance_in(source, each.value, found)
                found |= {t.id: why for t in targets if isinstance(t, ast.Name) and why}
            elif isinstance(each, ast.For | ast.AsyncFor | ast.comprehension) and _is_numbered(source, each.iter):
                target = each.target
                if isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
                    found[target.elts[0].id] = "a position (enumerate)"
    return found


def _is_numbered(source: SourceFile, expr: ast.expr) -> bool:
    return isinstance(expr, ast.Call) and source.meaning(expr.func) == "enumerate"


def _chance_in(source: SourceFile, expr: ast.expr, origins: Mapping[str, str]) -> str:
    """Return which part of an expression is another one in a re-run, or ''."""
    queue: list[ast.AST] = [expr]
    while queue:
        each = queue.pop(0)
        if isinstance(each, ast.Call) and is_chance(called := source.meaning(each.func)):
            return f"{called}()"
        if isinstance(each, ast.Name) and each.id in origins:
            return origins[each.id]
        if isinstance(each, ast.Attribute) and each.attr in FREE_TEXT and _is_proposal(source, each.value):
            return "the free text of a model"
        if isinstance(each, ast.Await) and isinstance(each.value, ast.Call) and source.context_call(each.value):
            continue  # its answer is recorded
        if not isinstance(each, AnyFunction | ast.Lambda):
            queue += ast.iter_child_nodes(each)
    return ""


def _is_proposal(source: SourceFile, expr: ast.expr) -> bool:
    return source.meaning(expr).startswith("outlast.agent.propose()")
