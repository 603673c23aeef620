"""Preparations that take the kill out of a crash test: a harness that proves its deaths must see through each."""

import os
import signal
from typing import Any

from outlast.testing.crash_points import CrashHook


def unkilled(trace: CrashHook, ask: dict[str, Any]) -> None:
    """Nothing dies: the cell is forgotten."""
    trace._cell = None


def killed_elsewhere(trace: CrashHook, ask: dict[str, Any]) -> None:
    """Something dies of the right signal, at the wrong place: whatever is reached first."""
    if trace._cell is None:
        return

    def reached(point: str, label: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    trace.reached = reached  # type: ignore[method-assign]


def ends_politely(trace: CrashHook, ask: dict[str, Any]) -> None:
    """At the cell the process ends by itself, with its finally blocks and its flushes."""
    cell, trace._cell = trace._cell, None
    reached = trace.reached

    def ending(point: str, label: str) -> None:
        reached(point, label)
        if cell and trace.seen[-1] == cell:
            os._exit(0)

    trace.reached = ending  # type: ignore[method-assign]
