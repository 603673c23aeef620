"""Preparations that take the kill out of a crash case. The case must notice each of them."""

import os
import signal
from typing import Any

from outlast.testing.crash_values import CrashHook


def not_killed(hook: CrashHook, ask: dict[str, Any]) -> None:
    """Forget the crash point, so that no process dies."""
    hook._point = None


def killed_elsewhere(hook: CrashHook, ask: dict[str, Any]) -> None:
    """Kill the process at the first crash point that it reaches."""
    if hook._point is None:
        return

    def reached(point: str, label: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    hook.reached = reached  # type: ignore[method-assign]


def exits(hook: CrashHook, ask: dict[str, Any]) -> None:
    """End the process at the crash point by itself, without a signal."""
    crash_point, hook._point = hook._point, None
    reached = hook.reached

    def ending(point: str, label: str) -> None:
        reached(point, label)
        if crash_point and hook.seen[-1] == crash_point:
            os._exit(0)

    hook.reached = ending  # type: ignore[method-assign]
