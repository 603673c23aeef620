"""Functions of authors that do not run when they are called: async functions, generators, and wrappers of them.

A call of such a function returns a coroutine or a generator, and its body has not started. Where Outlast expects the
answer, it would record a call that never ran. So a definition refuses each such function that it can see, and each
caller refuses such an answer.
"""

import contextlib
import functools
import inspect
from collections.abc import Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import is_dataclass
from types import AsyncGeneratorType, FunctionType, GeneratorType, MethodType
from typing import Any, Final

from pydantic import BaseModel

from outlast.errors import DefinitionError
from outlast.flow.registry import place, where_of

GENERATORS: Final = frozenset({GeneratorType, AsyncGeneratorType})
_DEPTH_MAX: Final = 100
_PARTS_MAX: Final = 10_000  # parts of one answer that are looked at
_LATER: Final = {
    GeneratorType: ("a generator", "run", "collect its items and return them"),
    AsyncGeneratorType: ("an async generator", "run", "collect its items and return them"),
    map: ("a map", "run", "collect its items and return them"),
    filter: ("a filter", "run", "collect its items and return them"),
    Future: ("a Future", "read", "return its result()"),
    FunctionType: ("a function", "called", "call it and return its answer"),
    MethodType: ("a method", "called", "call it and return its answer"),
    functools.partial: ("a partial", "called", "call it and return its answer"),
}
"""Kinds of a value whose work runs later, or may still run: what it is, what was not done with it, what to do."""
_MANAGER: Final = ("a context manager", "entered", "enter it with a with block")


class NeverAwaited(TypeError):
    """A function of an author returned a coroutine or a generator, whose body has not run."""


def refuse_unrun(value: object, fn: object, *, plain: bool = False) -> None:
    """Close a value whose work has not run, and raise NeverAwaited for it.

    `fn`: the function that returned it. `plain`: it cannot be async. Returns for any other value.
    """
    if hasattr(value, "__await__") or type(value) in GENERATORS:
        raise never_awaited(value, fn, plain=plain)


def never_awaited(value: object, fn: object, *, plain: bool = False) -> NeverAwaited:
    """Return the error for a value whose work has not run. Closes it, so that nothing warns of it."""
    if isinstance(value, Coroutine | Generator):
        value.close()
    name = getattr(fn, "__name__", type(fn).__name__)
    if isinstance(value, Coroutine):
        kind, verb, how = "a coroutine", "awaited", ""
    else:
        kind, verb, how = _runs_later(value) or (f"an awaitable ({type(value).__name__})", "awaited", "")
    if not how:
        how = "return the answer from a plain def" if plain else f"write async def {name} and await it there"
    return NeverAwaited(f"`{name}` returned {kind} that was never {verb} ({line_of(fn)}): {how}")


def _runs_later(value: object) -> tuple[str, str, str] | None:
    return _LATER.get(type(value)) or (_MANAGER if type(value).__module__ == contextlib.__name__ else None)


def unrun_part(answer: object) -> object:
    """Return a part of an answer whose work has not run, or may still run; None if there is no such part.

    Only an answer that cannot be stored may have one.
    """
    left, seen = [answer], set[int]()
    while left and len(seen) < _PARTS_MAX:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if hasattr(type(each), "__await__") or _runs_later(each) is not None:
            return each
        if isinstance(each, Mapping):
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            left += each
        elif is_dataclass(each) or isinstance(each, BaseModel):
            left += vars(each).values() if hasattr(each, "__dict__") else ()
    return None


def layers(fn: object) -> Iterator[Any]:
    """Yield a callable and those that it wraps, outermost first: partial, method, object with `__call__`, wrapper."""
    for _ in range(_DEPTH_MAX):
        yield fn
        if isinstance(fn, functools.partial | functools.partialmethod):
            fn = fn.func
        elif isinstance(fn, staticmethod | classmethod) or inspect.ismethod(fn):
            fn = fn.__func__
        elif (wrapped := getattr(fn, "__wrapped__", None)) is not None:
            fn = wrapped
        elif not isinstance(fn, FunctionType | type) and inspect.ismethod(call := getattr(fn, "__call__", None)):  # noqa: B004 - the method itself is read
            fn = call
        else:
            return


def unrun_kind(fn: object) -> str:
    """Return the kind of the innermost body that a call of `fn` only prepares; '' if the call runs it.

    A wrapper made with `functools.wraps` counts as the function that it wraps.
    """
    return _unrun(fn)[0]


def _unrun(fn: object) -> tuple[str, object]:
    for layer in layers(fn):
        if inspect.isasyncgenfunction(layer):
            return "async generator", layer
        if inspect.iscoroutinefunction(layer):
            return "async def", layer
        if inspect.isgeneratorfunction(layer):
            return "generator", layer
    return "", fn


def activity_place(fn: Any, decorator: str) -> str:
    """Return file and line of the function of an activity. Raises DefinitionError unless its call runs it."""
    if not inspect.isfunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise DefinitionError(
            f"{decorator} was put on {fn!r}",
            f"{line_of(fn)}: an activity is a function, async def or def, that returns its response",
            "write it as a function outside of any class",
        )
    refuse_wrapped(decorator, fn)
    return where_of(fn)


def refuse_wrapped(decorator: str, fn: Any) -> None:
    """Raise DefinitionError for a plain function around one whose body its call does not run."""
    kind, inner = _unrun(fn)
    if not kind or inner is fn:
        return
    name, where = getattr(fn, "__name__", repr(fn)), line_of(fn)
    if kind == "async def":
        why = "it returns a coroutine that nothing awaits"
        fix = f"write the wrapper ({where}) as async def, with: return await fn(*args, **kwargs)"
    else:
        why, fix = "its body runs only while the result is read", f"write {name} as a function that returns a list"
    raise DefinitionError(
        f"{decorator} was put on {name}, a def around {_article(kind)} ({line_of(inner)})",
        f"{why}, so the body of {name} would never run",
        fix,
        where=where,
    )


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] == "a" else f"a {kind}"


def refuse_unrun_function(title: str, fn: object, fix: str, *, where: str) -> None:
    """Raise DefinitionError for an async function or a generator where the answer of a plain call is used."""
    if kind := unrun_kind(fn):
        written_as = {"async def": "is async", "generator": "is a generator"}.get(kind, "is an async generator")
        raise DefinitionError(f"{title} {written_as}", f"{line_of(fn)}: it is called without await", fix, where=where)


def line_of(fn: object) -> str:
    """Return file and line of a function, or of the first one that a callable wraps; its repr without one.

    Of a wrapper it is the line of the wrapper itself.
    """
    for layer in layers(fn):
        if isinstance(layer, FunctionType):
            return place(layer.__code__.co_filename, layer.__code__.co_firstlineno)
    return repr(fn)
