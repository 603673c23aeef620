"""Code that still runs when a worker or a process wants to end: tasks that ignore their cancellation, and threads."""

import asyncio
import gc
import sys
import threading
from collections.abc import Collection, Iterable
from contextvars import Context, ContextVar
from types import FrameType
from typing import Any, Final

from outlast.flow.registry import place

LEAVE_WITHIN: Final = 2.0  # seconds for tasks and threads to end, after the drain
IDLE: Final = (("concurrent.futures.thread", "_worker"), ("outlast.engine.thread_pool", "_serve"))
"""Modules and functions in which the thread of a pool waits for work."""
LIBRARIES: Final = "site-packages"
UNKNOWN: Final = "an unknown line"
held_by: Final[ContextVar[tuple[object, str]]] = ContextVar("outlast_held_by", default=(None, ""))
"""Lease and run for which a task works. Tasks that an author's code creates inherit it."""


def tasks_under(lease: object) -> list[str]:
    """Return the tasks of the running loop that work for runs of a lease, each with its code.

    A task of the engine is none of these. A task is the author's if a line of its code waits.
    """
    found = []
    for task in asyncio.all_tasks():
        of, run = _context_of(task).get(held_by, (None, ""))
        if of is lease and task is not asyncio.current_task() and (at := _place_of(task.get_coro())):
            found.append(f"task {task.get_name()} of {run} at {at}")
    return sorted(found)


def end_tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    """Cancel all tasks of a loop that does not run, and return those that do not end."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=LEAVE_WITHIN))
    return [task for task in tasks if not task.done()]


def named_tasks(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Return the name of each task, with its code."""
    return sorted(f"task {task.get_name()} at {_place_of(task.get_coro()) or UNKNOWN}" for task in tasks)


def left_threads(before: Collection[threading.Thread] = (), *, wait: bool = True) -> list[str]:
    """Return the threads that would keep the process alive, each with its code. Waits for them for a moment.

    Threads of `before` do not count.
    """
    others = [
        each
        for each in threading.enumerate()
        if each is not threading.current_thread() and not each.daemon and each not in before
    ]
    for thread in others if wait else ():
        if not _is_idle(thread):
            thread.join(LEAVE_WITHIN / len(others))
    return busy_threads(others)


def busy_threads(threads: Iterable[threading.Thread]) -> list[str]:
    """Return those of the threads that do not wait for work, each with its code."""
    frames = sys._current_frames()
    return sorted(
        f"thread {each.name} at {_innermost(_stack(frames.get(each.ident or 0))) or UNKNOWN}"
        for each in threads
        if each.is_alive() and not _is_idle(each)
    )


def place_of_thread(thread: threading.Thread, inside: str) -> str:
    """Return the file and line of an author that a thread executes inside a package; '' if none."""
    frames = _stack(sys._current_frames().get(thread.ident or 0))
    names = [frame.f_globals.get("__name__", "").startswith(inside) for frame in frames]
    return _innermost(frames[len(names) - names[::-1].index(True) :] if any(names) else ())


def _context_of(task: asyncio.Task[Any]) -> Context:
    """Return the context of a task. `Task.get_context` is new in Python 3.12."""
    if hasattr(task, "get_context"):
        found: Context = task.get_context()
        return found
    return next((each for each in gc.get_referents(task) if isinstance(each, Context)), Context())


def _is_idle(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is None or (frame.f_globals.get("__name__"), frame.f_code.co_name) in IDLE


def _place_of(coro: Any) -> str:
    frames = []
    while (frame := getattr(coro, "cr_frame", None)) is not None:
        frames.append(frame)
        coro = coro.cr_await
    return _innermost(frames)


def _stack(frame: FrameType | None) -> list[FrameType]:
    found: list[FrameType] = []
    while frame is not None:
        found.insert(0, frame)
        frame = frame.f_back
    return found


def _innermost(frames: Iterable[FrameType]) -> str:
    """Return the file and line of the innermost frame that is neither of Outlast nor of the standard library.

    A frame of an installed library only counts if there is no other.
    """
    found, of_library = "", ""
    for frame in frames:
        name = frame.f_globals.get("__name__", "").partition(".")[0]
        if name != "outlast" and name not in sys.stdlib_module_names:
            at = place(frame.f_code.co_filename, frame.f_lineno)
            if LIBRARIES in frame.f_code.co_filename:
                of_library = at
            else:
                found = at
    return found or of_library
