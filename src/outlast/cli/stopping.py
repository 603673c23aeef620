"""How a process that serves is told to stop: once in order, twice at once."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Final

import click

from outlast.cli.failure import INTERRUPTED
from outlast.runtime.open import MEMORY

SLOW_S: Final = 1.0  # from then on a person wants to know what it is doing


def at_ctrl_c(stop: Callable[[], None], *, says: bool = False, watched: bool = False) -> None:
    """Call `stop` at the first SIGINT or SIGTERM; leave at the second: what still runs is taken over by others.

    Where stopping takes a while a line says so, unless `stop` `says` it. `watched`: by a process that hands on the
    Ctrl-C which the terminal gave to both, that tells people, and that ends this one in time.
    """
    stops: list[None] = []
    loop = asyncio.get_running_loop()

    def told() -> None:
        stops.append(None)
        if len(stops) > 1 and not watched:
            os._exit(INTERRUPTED)
        if not says and not watched:
            loop.call_later(SLOW_S, slowly)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told)


def stopped(store: str, again: str) -> str:
    """The last line of a process that served a store: where the runs are, and what takes them on."""
    if store == MEMORY:
        return f"Stopped. Its store was this process's memory: what it held is gone. Anew: {again}"
    return f"Stopped. Every run is safe in {store} and goes on with: {again}"


def slowly() -> None:
    """Say what is waited for, and how not to wait."""
    click.echo("stopping: what is under way ends first; once more to leave at once, which is safe too", err=True)
