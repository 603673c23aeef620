"""Awaits of the tasks of a node's body, read from their coroutines and futures.

A body may be parked only if none of its tasks can continue. The engine knows the futures of those waits that never
resolve; a task that waits for anything else may continue by itself.

asyncio has no public way to ask a task what it waits for. So two private fields are read: `Task._fut_waiter`, the
future of a task, and `_children` of the future that `gather` returns. Without them each park of a body with tasks
would wait for the grace of a second. If an interpreter drops one of them, a body is parked later, never too early: a
missing field reads as "may continue". `tests/engine/test_body_tasks.py` fails then, on each interpreter that it runs
on.
"""

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from outlast.flow.registry import place

DEPTH_MAX: Final = 20  # depth of nested gathers that are inspected before the grace of one second
GROUPS: Final = ("asyncio.taskgroups", "asyncio.tasks")  # modules of TaskGroup and of asyncio.wait


def waits_forever(waiter: Any, never: Callable[[Any], bool], depth: int = 0) -> bool:
    """Return True if a task or future waits only for awaits that never resolve.

    `never` tells whether a future is one of these.
    """
    if never(waiter):
        return True
    if depth > DEPTH_MAX:
        return False
    if isinstance(waiter, asyncio.Task):
        inner = getattr(waiter, "_fut_waiter", None)  # None also while the task is about to run
        if inner is None:
            return False
        return waits_forever(inner, never, depth + 1) or _group_waits_forever(waiter.get_coro(), never, depth)
    # of a gather; any other future has no children, and something else may resolve it
    children = [child for child in getattr(waiter, "_children", ()) if not child.done()]
    return bool(children) and all(waits_forever(child, never, depth + 1) for child in children)


def _group_waits_forever(coro: Any, never: Callable[[Any], bool], depth: int) -> bool:
    """Return True if a coroutine waits for a task group, or in `asyncio.wait`, and all its tasks wait forever."""
    while (inner := getattr(coro, "cr_await", None)) is not None and hasattr(inner, "cr_frame"):
        coro = inner
    frame = getattr(coro, "cr_frame", None)
    if frame is None or frame.f_globals.get("__name__") not in GROUPS:
        return False
    group = frame.f_locals.get("self")
    tasks = getattr(group, "_tasks", None) or frame.f_locals.get("fs") or ()
    left = [each for each in tasks if not each.done()]
    ends = frame.f_locals.get("timeout") is not None  # of asyncio.wait
    return bool(left) and not ends and all(waits_forever(each, never, depth + 1) for each in left)


def author_line(coro: Any) -> str:
    """Return the file and line at which the innermost frame of an author in a chain of awaits waits; '' if none."""
    found = ""
    while (frame := getattr(coro, "cr_frame", None)) is not None:
        if not frame.f_globals.get("__name__", "").startswith(("outlast.", "asyncio.")):
            found = place(frame.f_code.co_filename, frame.f_lineno)
        elif found:  # the outer frames are the engine's
            break
        coro = coro.cr_await
    return found


def calling_line() -> str:
    """Return the file and line of the author's code that makes the current call; '' if a task of asyncio makes it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("outlast."):
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__name__", "").startswith("asyncio"):
        return ""
    return place(frame.f_code.co_filename, frame.f_lineno)


def knows_context_of(coro: Any, execution: object) -> bool:
    """Return True if a frame in a chain of awaits can reach the context of an execution."""
    while (frame := getattr(coro, "cr_frame", None)) is not None:
        for value in frame.f_locals.values():
            held = getattr(value, "__dict__", None) or {}
            if any(getattr(each, "_execution", None) is execution for each in (value, *held.values())):
                return True
        coro = coro.cr_await
    return False
