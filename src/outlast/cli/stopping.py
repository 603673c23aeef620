"""How a process that serves is told to stop: once in order, twice at once."""

import asyncio
import os
import signal
from collections.abc import Callable

from outlast.cli.failure import INTERRUPTED


def at_ctrl_c(stop: Callable[[], None], *, watched: bool = False) -> None:
    """Call `stop` at the first SIGINT or SIGTERM; leave at the second: what still runs is taken over by others.

    `watched`: by a process that hands on the Ctrl-C which the terminal gave to both, and that ends this one in time.
    """
    stops: list[None] = []

    def told() -> None:
        stops.append(None)
        if len(stops) > 1 and not watched:
            os._exit(INTERRUPTED)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told)
