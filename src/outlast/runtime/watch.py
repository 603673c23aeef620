"""Waiting until something is so in the store, whoever writes it: by its wakes, and by looking again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from outlast.store.port import Store

T = TypeVar("T")
POLL_S = 0.05  # ends of runs wake nobody: look again


async def until(store: Store, look: Callable[[], Awaitable[T | None]], *, within_s: float | None = None) -> T | None:
    """What `read_run` answers once it is not None; None when `within_s` real seconds have passed without."""
    changed = asyncio.Event()
    unsubscribe = store.on_change(changed.set)
    try:
        async with asyncio.timeout(within_s):
            while True:
                changed.clear()
                if (found := await look()) is not None:
                    return found
                await _told(changed)
    except TimeoutError:
        return None
    finally:
        unsubscribe()


async def _told(changed: asyncio.Event) -> None:
    """Wait until somebody wakes us, or it is time to look all the same."""
    try:
        async with asyncio.timeout(POLL_S):  # wait_for of Python 3.11 can swallow a Ctrl-C at its end
            await changed.wait()
    except TimeoutError:
        pass  # nobody did
