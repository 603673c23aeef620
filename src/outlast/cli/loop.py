"""The event loop of a process that serves."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from outlast.engine.user_code import ends_process, text_of

T = TypeVar("T")
log = logging.getLogger("outlast.engine")


def run(main: Coroutine[Any, Any, T], *, fast: bool = True) -> T:
    """Run `main` to its end and return its result.

    `fast`: use the loop in C if the extra `service` has brought one, because HTTP costs a quarter less on it.

    A task that ends with SystemExit or KeyboardInterrupt ends an event loop, and workflow code may create tasks. Unless
    a signal raised it, the loop goes on: the exception is the result of that task, and its awaiter receives it.
    """
    begun: list[asyncio.Task[T]] = []

    async def goes_on() -> T:
        if not begun:
            begun.append(asyncio.create_task(main))
        return await begun[0]

    with asyncio.Runner(loop_factory=_quickest() if fast else None) as runner:
        while True:
            try:
                return runner.run(goes_on())
            except (SystemExit, KeyboardInterrupt) as error:
                if not begun or begun[0].done() or ends_process(error):
                    raise
                log.error("a task of a workflow raised %s; this process goes on", text_of(error))


def _quickest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:  # not for this system, or the extra is not here
        return None
    return new_event_loop
