"""Exceptions that mean: this process had no place for a request, so it was not sent.

A full connection pool, no free file descriptor, port, memory or thread are limits of this process or machine. They say
nothing about the receiver, so they are retried and open no circuit breaker.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Iterable, Iterator
from traceback import walk_tb
from types import FrameType
from typing import Any, Final

from outlast.flow.outcomes import NotSent

EXHAUSTED: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM, errno.EADDRINUSE}
)
NO_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EADDRINUSE})
"""Errors of a connection's own address, which only a connection that is not made yet can raise."""
NO_THREAD: Final = "can't start new thread"
UNRESOLVED: Final = frozenset({socket.EAI_MEMORY, socket.EAI_SYSTEM})
# Functions of frames in which a connection is made, so that nothing of a request was sent.
CONNECTING: Final = frozenset(
    {
        ("socket", "create_connection"),
        ("socket", "__init__"),
        ("socket", "getaddrinfo"),
        ("asyncio.base_events", "create_connection"),
        ("asyncio.base_events", "_connect_sock"),
        ("asyncio.base_events", "_ensure_resolved"),
        ("asyncio.base_events", "getaddrinfo"),
    }
)
WAITING: Final = frozenset({("aiohttp.connector", "_wait_for_available_connection")})
"""Functions that wait for a place in a client's pool, whose class of exception does not tell."""


class NoPlace(NotSent):
    """No thread of this process was free for a call."""


def is_local(chain: Iterable[BaseException]) -> bool:
    """Return True if a request that was not sent failed by a limit of this process. `chain`: with all its causes."""
    found = [each for error in chain for each in _members(error)]
    if any(_is_exhausted(each) or _passed(each, WAITING) for each in found):
        return True
    if any(isinstance(each, socket.gaierror) for each in found):
        return not _has_descriptor()  # because the resolver does not tell that it could open no file or socket
    return any("Timeout" in type(each).__name__ for each in found) and _resolver_is_full()


def proves_unsent(error: BaseException) -> bool:
    """Return True if an exception of the interpreter itself proves that a connection could not be made."""
    if isinstance(error, OSError) and error.errno in NO_ADDRESS and not isinstance(error, socket.gaierror):
        return True
    return _is_exhausted(error) and _passed(error, CONNECTING)


def _is_exhausted(error: BaseException) -> bool:
    if isinstance(error, socket.gaierror):
        return error.errno in UNRESOLVED
    if isinstance(error, OSError):
        return error.errno in EXHAUSTED or any(f"[Errno {code}]" in str(error) for code in EXHAUSTED)
    return isinstance(error, RuntimeError) and str(error) == NO_THREAD


def _members(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and those of a group: a client may try several addresses of a host."""
    yield error
    for each in getattr(error, "exceptions", ()):
        if isinstance(each, BaseException):
            yield from _members(each)


def _passed(error: BaseException, functions: frozenset[tuple[str, str]]) -> bool:
    return any(_name(frame) in functions for frame, _ in walk_tb(error.__traceback__))


def _name(frame: FrameType) -> tuple[str, str]:
    return str(frame.f_globals.get("__name__")), frame.f_code.co_name


def _has_descriptor() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in EXHAUSTED
    return True


def _resolver_is_full() -> bool:
    """Return True if host names wait for a thread of the event loop's default executor, which resolves them."""
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        return False
    queue = getattr(getattr(loop, "_default_executor", None), "_work_queue", None)
    return queue is not None and queue.qsize() > 0
