"""Waiting for what blocks, without keeping the process from ending."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def aside(call: Callable[[], T]) -> T:
    """What `call` answers or raises, from a thread of its own, which the end of the process does not wait for, as it
    does for those of `asyncio.to_thread`: Ctrl-C ends a command that waits for its turn to write a file."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # whoever stops waiting leaves it to its end
    threading.Thread(target=_answer, args=(call, answer), name="outlast-aside", daemon=True).start()
    return await asyncio.wrap_future(answer)


def _answer(call: Callable[[], T], answer: "Future[T]") -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # it belongs to whoever waits
        answer.set_exception(error)
