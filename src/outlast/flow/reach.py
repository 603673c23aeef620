"""The activities and waits that the code of a node mentions, including its helper functions.

They are read from the source, never by running it. If a name is made at run time, the node is `open`, and nothing is
concluded from a name that it does not mention.
"""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.errors import DefinitionError
from outlast.flow.activity import Activity
from outlast.flow.context import SLEEP
from outlast.flow.node import Node
from outlast.flow.registry import PRICED, SOURCES, ActivitySource, where_of
from outlast.flow.source import tree_of

WAITS: Final = {"sleep": "sleep", "receive": "receive", "collect": "collect"}
HELPERS_MAX: Final = 200
OURS: Final = "outlast."
TOOLS_MAX: Final = 200
"""Members of a collection that may be activities; a longer one is data."""


Mentions: TypeAlias = dict[str, tuple[Activity[..., Any], Any]]
"""Activities by name, each with the function that mentions it first."""


class Reach(NamedTuple):
    """The activities, waits and returns that a node's code mentions. `open`: the list may be incomplete."""

    activities: tuple[str, ...]
    waits: dict[str, str]
    returns: tuple[str, ...]
    open: bool


def reach_of(fn: Callable[..., Any]) -> Reach:
    """Return the activities, waits and returns of a node's function and its helper functions."""
    activities: Mentions = {}
    waits: dict[str, str] = {}
    is_open = False
    functions = list(_functions(inspect.unwrap(fn), activities))
    for each in functions:
        tree = tree_of(each)
        if tree is None:
            is_open = True
            continue
        for kind, name in _waits_in(tree, each.__globals__):
            if name is None:
                is_open = True
            else:
                waits[name] = kind
    tree = tree_of(functions[0])
    returns = tuple(dict.fromkeys(_returned(tree))) if tree is not None else ()
    return Reach(tuple(sorted(activities)), waits, returns, is_open)


def emits(fn: Callable[..., Any]) -> bool:
    """True if the node's function or a helper function mentions `emit`, so that its runs can produce results."""
    return any("emit" in names_in(each.__code__) for each in _functions(inspect.unwrap(fn), {}))


def writes_of_decisions(nodes: Iterable[Node]) -> Iterator[DefinitionError]:
    """Yield a mistake for each write that a node of the decision plane can reach."""
    for node in nodes:
        if node.plane != "decision":
            continue
        for activity, fn in writes_of(node.fn):
            yield DefinitionError(
                f'{node.title} has plane="decision" and can reach the write {activity.name} ({activity.where})',
                f"a decision changes nothing outside, and {fn.__name__} ({where_of(fn)}) mentions {activity.name}",
                f'put the decision into the state, and call {activity.name} in a node with plane="execution"',
                where=node.where,
            )


def writes_of(fn: Callable[..., Any]) -> list[tuple[Activity[..., Any], Any]]:
    """Return the writes that a node's code mentions, each with the function that mentions it first."""
    mentions: Mentions = {}
    for _ in _functions(inspect.unwrap(fn), mentions):
        pass  # it fills the dict
    return [mention for mention in mentions.values() if mention[0].kind == "write"]


def functions_of(fn: Callable[..., Any]) -> list[Any]:
    """Return a node's function and its helper functions."""
    return list(_functions(inspect.unwrap(fn), {}))


def models_without_price(functions: Iterable[Callable[..., Any]]) -> list[str]:
    """Return the names of models that the functions mention and whose price is not known, each once.

    A model has the methods of the port, and `propose` may get the name of one. A source of activities may have a method
    `models_without_price`.
    """
    sources = {id(source.owner): source for source in SOURCES.all()}
    found: dict[str, None] = {}
    for fn in functions:
        for each in _functions(inspect.unwrap(fn), {}):
            values = list(_named(each))
            for value in values:
                source = sources.get(id(value))
                found.update(dict.fromkeys(getattr(source, "models_without_price", list)()))
            models = [part for value in values for part in _parts(value, each) if _is_model(part)]
            unpriced = (model for model in (*models, *_proposing(each)) if not _is_priced(model))
            found.update(dict.fromkeys(model if isinstance(model, str) else model.name for model in unpriced))
    return list(found)


def _parts(value: Any, fn: Any) -> Iterator[Any]:
    """Yield a value, the members of a collection, and the attributes of a class that the function mentions."""
    yield value
    if isinstance(value, type) and not value.__module__.startswith(OURS):
        yield from (vars(value).get(name) for name in set(names_in(fn.__code__)))
    if isinstance(value, dict | list | tuple | set | frozenset) and len(value) <= TOOLS_MAX:
        yield from value.values() if isinstance(value, dict) else value


def _is_model(value: Any) -> bool:
    """Return True for an object with the methods of the port of models, and a name."""
    methods = [inspect.getattr_static(value, name, None) for name in ("request", "stream")]
    return all(map(callable, methods)) and not isinstance(value, type) and isinstance(getattr(value, "name", None), str)


def _is_priced(model: Any) -> bool:
    return all(has_price(model) for has_price in PRICED)


def _proposing(fn: Any) -> Iterator[str]:
    """Yield the names of models, as texts or names of texts, that a function gives to `propose`."""
    tree = tree_of(fn)
    for call in ast.walk(tree) if tree is not None else ():
        if not isinstance(call, ast.Call) or getattr(call.func, "attr", getattr(call.func, "id", "")) != "propose":
            continue
        for given in (*call.args[1:2], *(each.value for each in call.keywords if each.arg == "model")):
            value = given.value if isinstance(given, ast.Constant) else None
            if isinstance(given, ast.Name):
                value = value_of_name(fn, given.id)
            if isinstance(value, str) and value:
                yield value


def value_of_name(fn: Any, name: str) -> Any:
    """Return the value of a name in a function's closure or module; None if it has none yet."""
    cell = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False)).get(name)
    try:
        return fn.__globals__.get(name) if cell is None else cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _functions(fn: Any, activities: Mentions) -> Iterator[Any]:
    """Yield the function and every helper function, breadth first; add activities to the given dict."""
    seen: dict[int, Any] = {id(fn): fn}
    sources = {id(source.owner): source for source in SOURCES.all()}
    queue = [fn]
    while queue and len(seen) < HELPERS_MAX:
        each = queue.pop(0)
        yield each
        for value in _named(each):
            if found := _activities_of(value, sources):
                activities.update({one.name: (one, each) for one in found if one.name not in activities})
            elif inspect.isfunction(value) and not value.__module__.startswith(OURS) and id(value) not in seen:
                seen[id(value)] = value
                queue.append(value)


def _activities_of(value: Any, sources: Mapping[int, ActivitySource]) -> Sequence[Activity[..., Any]]:
    """Return the activities that a value holds: itself, those of a source, or the members of a collection."""
    if isinstance(value, Activity):
        return (value,)
    if id(value) in sources:
        return sources[id(value)].activities()
    if not isinstance(value, dict | list | tuple | set | frozenset) or len(value) > TOOLS_MAX:
        return ()
    return [each for each in (value.values() if isinstance(value, dict) else value) if isinstance(each, Activity)]


def _named(fn: Any) -> Iterator[Any]:
    """Yield the values of the names in a function's code: globals, closure cells and attributes of modules."""
    names = set(names_in(fn.__code__))
    for name in names:
        value = fn.__globals__.get(name)
        yield value
        if isinstance(value, ModuleType):
            yield from (vars(value).get(other) for other in names)
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the names that a function's code and its nested functions mention."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from names_in(const)


def _waits_in(tree: ast.AST, names: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield (kind, name) of each wait; the name is None if it is made at run time."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        kind, owner = WAITS.get(node.func.attr), node.func.value
        if kind is None or (isinstance(owner, ast.Name) and isinstance(names.get(owner.id), ModuleType)):
            continue  # asyncio.sleep
        if kind == "sleep":
            given = next((word.value for word in node.keywords if word.arg == "name"), ast.Constant(SLEEP))
        elif node.args:
            given = node.args[0]
        else:
            continue
        yield kind, given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else None


def _returned(tree: ast.AST) -> Iterator[str]:
    """Yield the names of nodes that the node's return statements contain."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None:
            for part in ast.walk(node.value) if isinstance(node.value, ast.IfExp) else (node.value,):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def activities_seen_by(functions: Iterable[Callable[..., Any]]) -> list[Activity[..., Any]]:
    """Return the activities in the modules of these functions: declared there or imported, also with their module.

    Closures count as well, and so do the activities of a source, for instance the tools of an agent, and those in a
    list, tuple, set or dict. An activity that only a helper function in a third module uses is not found here. It is
    found by its name, and checked at its first use.
    """
    sources = {id(source.owner): source for source in SOURCES.all()}
    seen = values_seen_by(functions)
    return list({id(one): one for value in seen for one in _activities_of(value, sources)}.values())


def values_seen_by(functions: Iterable[Callable[..., Any]]) -> list[Any]:
    """Return the values of the modules of these functions, of the modules that they import, and of closures."""
    plain: list[Any] = [inspect.unwrap(fn) for fn in functions]
    modules = {id(fn.__globals__): fn.__globals__ for fn in plain}
    near = [value for names in modules.values() for value in list(names.values())]
    near += [value for fn in plain for value in _closed_over(fn)]
    imported = {id(value): value for value in near if isinstance(value, ModuleType)}
    return near + [value for module in imported.values() for value in list(vars(module).values())]


def _closed_over(fn: Any) -> Iterator[object]:
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
