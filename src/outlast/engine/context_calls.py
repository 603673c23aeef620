"""Calls that the context returned to the node's code, and what the code did with them (S-16).

A call without await is never made. A wait that parks resolves in a later execution only. So a race and a timer
of asyncio never end it, and a body that rests in such a call would wait for all of them without end.
"""

import asyncio
import gc
import inspect
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, Final, NamedTuple, TypeVar

from outlast.core.first_wait import WAITS_MAX
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.errors import InvalidInput, Misplaced
from outlast.flow.registry import place

F = TypeVar("F", bound=Callable[..., Any])
ASKED_MAX: Final = 64  # number of calls from which a context drops finished ones
SINGLE_WAITS: Final = frozenset({"sleep", "receive", "collect", "approval", "run", "result"})
"""Methods of the context that wait for one thing."""
WAITS: Final = SINGLE_WAITS | {"first", "ended", "map"}
"""Methods of the context that park the run."""

GivenUp = dict["ContextCall", str]
"""Waits that a body did not await to their end, each with what happened to it."""
STILL_OPEN: Final = "was still open when its node returned"
CANCELLED: Final = "was cancelled by its node"
RACED: Final = "is inside asyncio.wait or asyncio.wait_for"
FIRST_TAKES: Final = (
    "it takes calls of ctx.receive, ctx.collect, ctx.sleep, ctx.approval and ctx.run, and of the result of a child's "
    "handle, that nothing else awaits"
)
NOT_TO_ITS_END: Final = "a parked run resumes in a later execution, and neither asyncio.wait nor its timers end a wait"
END_OF_WAIT: Final = (
    "await each wait to its end, several with asyncio.gather, or the first of them with ctx.first; give it an end with "
    "timeout=, within= or until=; restart the worker, then let the run continue"
)


class Given:
    """Arguments of a wait, for `ctx.first`, which waits in its place. They may be unhashable, unlike this."""

    __slots__ = ("args", "kwargs")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs


class ContextCall(NamedTuple):
    """A coroutine that the context returned to the node's code, and the line that called for it."""

    coroutine: Any  # a CoroutineType, which has attributes that Coroutine lacks
    name: str
    file: str
    line: int
    given: Given | None = None  # of a wait

    def __str__(self) -> str:
        return f"ctx.{self.name} at {place(self.file, self.line)}"

    @property
    def state(self) -> str:
        """Return the state of the coroutine, as `inspect` names it."""
        return inspect.getcoroutinestate(self.coroutine)

    @property
    def is_open_wait(self) -> bool:
        """Return True for a wait that has started and has no answer."""
        return self.name in WAITS and self.state == inspect.CORO_SUSPENDED


# --- waits that are given to ctx.first ----------------------------------------------------------------------
def taken(given: Collection[Any], asked: Iterable[ContextCall]) -> list[ContextCall]:
    """Return the waits that `ctx.first` was given, and close their coroutines, because it waits in their place.

    Raises InvalidInput for anything but two to eight waits that nothing else has awaited.
    """
    known = {id(call.coroutine): call for call in asked}
    calls = [known.get(id(each)) for each in given]
    wrong = next((text for each, call in zip(given, calls, strict=True) if (text := _no_wait(each, call))), "")
    if not wrong and len({id(each) for each in given}) < len(given):
        wrong = "ctx.first was given one wait twice"
    if not wrong and not 1 < len(given) <= WAITS_MAX:
        wrong = f"ctx.first was given {len(given)} waits; it takes 2 to {WAITS_MAX}"
    for each in given:
        close(each)
    if wrong:
        raise InvalidInput(wrong, FIRST_TAKES, 'await ctx.first(ctx.receive("bid", Bid), ctx.sleep("48h"))')
    return [call for call in calls if call is not None]


def shown_as(method: str) -> Callable[[F], F]:
    """Return a decorator for what takes the arguments of a method of the context.

    Python names the function in the TypeError for a wrong argument, and an author knows the method only.
    """

    def named(fn: F) -> F:
        fn.__qualname__ = f"ctx.{method}"
        return fn

    return named


def close(given: Any) -> None:
    """Close a coroutine that was not started, so that Python does not warn about it. Other objects stay."""
    if inspect.iscoroutine(given) and inspect.getcoroutinestate(given) == inspect.CORO_CREATED:
        given.close()


def _no_wait(given: Any, call: ContextCall | None) -> str:
    """Return why `ctx.first` cannot take an argument; '' if it can."""
    if call is None:
        return f"ctx.first was given an object of the type {type(given).__name__}"
    if call.name not in SINGLE_WAITS:
        return f"ctx.first was given {call}, which is no wait"
    return (
        "" if call.state == inspect.CORO_CREATED else f"ctx.first was given {call}, which was awaited or given before"
    )


# --- calls that are never awaited --------------------------------------------------------------------------
def never_awaited(unawaited: Sequence[ContextCall]) -> Misplaced | None:
    """Return an error if the node never awaited one of these calls, else None. Closes them.

    A task that the node left behind may have made the call since; then it counts as awaited.
    """
    found = [str(each) for each in unawaited if each.state != inspect.CORO_CLOSED]
    for each in unawaited:
        if each.state == inspect.CORO_CREATED:
            each.coroutine.close()  # otherwise Python warns without naming the line
    if not found:
        return None
    what = f"{', '.join(found)} {'was' if len(found) == 1 else 'were'} never awaited"
    why = "a call without await may never be made"
    return Misplaced(what, why, "await it in the node, restart the worker, then let the run continue")


# --- waits that are not awaited to their end ----------------------------------------------------------------
def still_open(asked: Iterable[ContextCall]) -> GivenUp:
    """Return the waits that are open when the body returns."""
    return {each: STILL_OPEN for each in asked if each.is_open_wait}


def being_cancelled(asked: Iterable[ContextCall]) -> GivenUp:
    """Return the wait whose await gets its cancellation now."""
    return {each: CANCELLED for each in asked if each.name in WAITS and each.state == inspect.CORO_RUNNING}


def raced_waits(asked: Iterable[ContextCall], body: "asyncio.Task[Any]", package: str) -> GivenUp:
    """Return the open waits that `asyncio.wait` or `wait_for` of the author's code encloses."""
    waits = {each.coroutine: each for each in asked if each.is_open_wait}
    return {waits[each]: RACED for each in (_raced(body, package) if waits else ()) if each in waits}


def not_awaited_to_the_end(waits: GivenUp) -> Misplaced:
    """Return the error that names each wait and its line."""
    return Misplaced(
        "; ".join(f"{call} {what}" for call, what in waits.items())[:TEXT_CHARS_MAX], NOT_TO_ITS_END, END_OF_WAIT
    )


WAIT: Final = asyncio.wait.__code__
WAIT_FOR: Final = asyncio.wait_for.__code__
GROUP: Final = frozenset(
    fn.__code__ for fn in (getattr(asyncio.TaskGroup, name, None) for name in ("__aexit__", "_aexit")) if fn
)
"""The method in which a task group waits for its tasks."""
LIBRARIES: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
AWAITS_MAX: Final = 10_000  # awaits of one body that are looked at


def _raced(body: asyncio.Task[Any], package: str) -> Iterator[Any]:
    """Yield the coroutines that `asyncio.wait` or `wait_for` of the author's code encloses.

    Libraries that wait for all their tasks in rounds are left out. `package`: the author's package, which may be
    installed like a library.
    """
    left: list[tuple[Any, bool, FrameType | None]] = [(body, False, None)]
    for _ in range(AWAITS_MAX):
        if not left:
            return
        awaited, racing, caller = left.pop()
        waiter = getattr(awaited, "_fut_waiter", None)  # of a task, at the end of its chain of coroutines
        left += ((child, racing, caller) for child in (*getattr(awaited, "_children", ()), *_shielded(awaited)))
        if isinstance(awaited, asyncio.Task):
            awaited = awaited.get_coro()
        while (frame := _first(awaited := _generator_of(awaited), FRAMES)) is not None:
            racing = racing or (_is_race(frame) and not _in_library(caller, package))
            if racing:
                yield awaited
            left += ((child, racing, frame) for child in _enclosed(frame))
            caller, awaited = frame, _first(awaited, AWAITED)
        if waiter is not None:
            left.append((waiter, racing, caller))


FRAMES: Final = ("cr_frame", "ag_frame", "gi_frame")
AWAITED: Final = ("cr_await", "ag_await", "gi_yieldfrom")


STEPS: Final = frozenset({"async_generator_asend", "async_generator_athrow", "anext_awaitable"})
"""Types of what `anext`, `async for` and the methods of an asynchronous generator await."""


def _generator_of(awaited: Any) -> Any:
    """Return the asynchronous generator of such a step, which no attribute names; any other object itself."""
    while type(awaited).__name__ in STEPS:
        held = gc.get_referents(awaited)
        step = (each for each in held if inspect.isasyncgen(each) or type(each).__name__ in STEPS)
        awaited = next(step, None)
    return awaited


def _first(awaited: Any, names: tuple[str, ...]) -> Any:
    """Return the first of these attributes that a coroutine or generator has, or None."""
    for name in names:
        if (found := getattr(awaited, name, None)) is not None:
            return found
    return None


def _is_race(frame: FrameType) -> bool:
    """Return True for `asyncio.wait`, and for a `wait_for` that has a timeout."""
    return frame.f_code is WAIT or (frame.f_code is WAIT_FOR and frame.f_locals["timeout"] is not None)


def _enclosed(frame: FrameType) -> Iterator[Any]:
    """Yield the tasks for which a call of asyncio waits through another future."""
    if frame.f_code is WAIT:
        yield from frame.f_locals["fs"]
    elif frame.f_code is WAIT_FOR:
        yield frame.f_locals["fut"]  # a task before Python 3.12, afterwards mostly the coroutine that it awaits
    elif frame.f_code in GROUP:
        yield from getattr(frame.f_locals["self"], "_tasks", ())


def _shielded(outer: Any) -> Iterator[Any]:
    """Yield the task for which a future of `asyncio.shield` waits."""
    for callback, *_ in getattr(outer, "_callbacks", None) or ():
        if getattr(callback, "__qualname__", "").startswith("shield."):
            yield from (inner for inner in inspect.getclosurevars(callback).nonlocals.values() if inner is not outer)


def _in_library(caller: FrameType | None, package: str) -> bool:
    """Return True if the caller is code of an installed library, not of the author."""
    if caller is None or caller.f_globals.get("__name__", "").partition(".")[0] == package:
        return False
    return caller.f_code.co_filename.startswith(LIBRARIES)
