"""What waits for its turn to be written, and how its answer gets back to whoever submitted it."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from outlast.core.budget import LINGER, SECOND
from outlast.core.commit import Chain, Commit, Done
from outlast.core.rows import Run
from outlast.errors import Rejected
from outlast.store.fair import NOTHING, Held
from outlast.store.port import Step

AnyFuture = asyncio.Future[Any] | Future[Any]
PAUSE_S: Final = LINGER / 2 / SECOND
"""Of the first wait for company; it is halved at each, so that what nobody awaits waits LINGER at most (S-10)."""


class Take(NamedTuple):
    """A take that waits for its turn."""

    lanes: Sequence[str]
    n: int
    step: Step
    owners: Sequence[str]
    held: Held = NOTHING
    label: str = "take"


class Task(NamedTuple):
    """Anything that needs a transaction of its own: it is given a session and answers a value."""

    run: Callable[[Any], Any]
    label: str


Answer = Done | tuple[Run, ...] | Exception | object


class Ticket:
    """One piece of work, its place in the queue, and its answer once there is one."""

    __slots__ = ("answer", "chain", "future", "linger", "loop", "out_of_bounds", "work")

    def __init__(
        self,
        work: Commit | Take | Task,
        future: AnyFuture,
        loop: asyncio.AbstractEventLoop | None,
        chain: Chain | None = None,
        linger: bool = False,
    ) -> None:
        self.work = work
        self.future = future
        self.loop = loop
        self.chain = chain
        self.linger = linger
        self.out_of_bounds: Rejected | None = None  # it keeps its place all the same, so that its chain breaks there
        self.answer: Answer = None


def deliver(tickets: Iterable[Ticket]) -> None:
    """Give every ticket's answer to its future, with one call into each event loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Ticket]] = defaultdict(list)
    for ticket in tickets:
        if ticket.loop is None:
            _resolve((ticket,))
        else:
            by_loop[ticket.loop].append(ticket)
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, group)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to hear


def _resolve(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        future, answer = ticket.future, ticket.answer
        if future.done():
            continue  # its awaiter was cancelled
        if isinstance(answer, Exception):
            future.set_exception(answer)
            if ticket.linger:
                future.exception()  # read: nobody may be awaiting it
        else:
            future.set_result(answer)
