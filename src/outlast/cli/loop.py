"""The event loop of a process that serves."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """What `main` answers, from a loop in C where the extra `service` has brought one: HTTP costs a quarter less."""
    with asyncio.Runner(loop_factory=_quickest()) as runner:
        return runner.run(main)


def _quickest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:  # not for this system, or the extra is not here
        return None
    return new_event_loop
