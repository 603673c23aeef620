"""Code that still runs when a process wants to end: tasks that ignore their cancellation, and threads."""

import asyncio
import sys
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any, Final

from outlast.flow.registry import place

LEAVE_WITHIN: Final = 3.0  # seconds for tasks and threads to end, after the drain
IDLE: Final = "concurrent.futures.thread"  # module in which a thread of a pool waits for work


def left_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Cancel all tasks of a loop that does not run, and return those that do not end, each with its code."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=LEAVE_WITHIN))
    return sorted(f"task {task.get_name()} at {_place_of(task.get_coro())}" for task in tasks if not task.done())


def left_threads() -> list[str]:
    """Return the threads that would keep the process alive, each with its code. Waits for them for a moment."""
    others = [each for each in threading.enumerate() if each is not threading.current_thread() and not each.daemon]
    for thread in others:
        if not _is_idle(thread):
            thread.join(LEAVE_WITHIN / len(others))
    busy = [thread for thread in others if thread.is_alive() and not _is_idle(thread)]
    frames = sys._current_frames()
    return sorted(f"thread {each.name} at {_innermost(_stack(frames.get(each.ident or 0)))}" for each in busy)


def _is_idle(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is None or frame.f_globals.get("__name__") == IDLE


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
    """Return the file and line of the innermost frame that is neither of Outlast nor of the standard library."""
    found = ""
    for frame in frames:
        name = frame.f_globals.get("__name__", "").partition(".")[0]
        if name != "outlast" and name not in sys.stdlib_module_names:
            found = place(frame.f_code.co_filename, frame.f_lineno)
    return found or "an unknown line"
