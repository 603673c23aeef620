"""Queued work of a durable store: tickets, and how a batch answers them."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from outlast.core.commit import Chain, Commit, Done, Instant, Mapping
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import RUN, Run
from outlast.errors import Corrupt, Rejected, Stale, StoreError
from outlast.store.batch import Batch
from outlast.store.bounds import check
from outlast.store.fair_queueing import NONE_HELD, HeldCounts, chosen
from outlast.store.port import Step
from outlast.store.sql import readable_runs, warn_once

REFUSED_MAX: Final = 10_000
AnyFuture = asyncio.Future[Any] | Future[Any]


class Take(NamedTuple):
    """Queued call of `Store.take`."""

    lanes: Sequence[str]
    n: int
    step: Step
    owners: Sequence[str]
    held: HeldCounts = NONE_HELD
    label: str = "take"


class Task(NamedTuple):
    """Queued function that is called with the writer's session and runs its own transaction."""

    run: Callable[[Any], Any]
    label: str


Answer = Done | tuple[Run, ...] | Exception | object


class Ticket:
    """Queued work with its future. The answer is set by the session and delivered by the writer."""

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
        self.out_of_bounds: Rejected | None = None  # still queued, so that its chain breaks in order
        self.answer: Answer = None


def deliver(tickets: Iterable[Ticket]) -> None:
    """Resolve the futures of these tickets with one call into each event loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Ticket]] = defaultdict(list)
    for ticket in tickets:
        if ticket.loop is None:
            resolve((ticket,))
        else:
            by_loop[ticket.loop].append(ticket)
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(resolve, group)
        except RuntimeError:
            pass  # the loop is closed, and its futures with it


def resolve(tickets: Sequence[Ticket]) -> None:
    """Resolve the futures of these tickets. Called in the thread of their loop."""
    for ticket in tickets:
        future, answer = ticket.future, ticket.answer
        if future.done():
            continue  # the caller was cancelled
        if isinstance(answer, Exception):
            future.set_exception(answer)
            if ticket.linger:
                future.exception()  # marks it as retrieved: the caller need not await it
        else:
            future.set_result(answer)


def judge(ticket: Ticket, batch: Batch) -> object:
    """Return the answer to a commit's ticket. A refusal breaks the commit's chain."""
    work = ticket.work
    assert isinstance(work, Commit), "a take reads rows, a task runs its own transaction"
    try:
        if ticket.out_of_bounds is not None:
            raise ticket.out_of_bounds
        return batch.land(work, ticket.chain)
    except (StoreError, Corrupt) as error:
        if ticket.chain is not None:
            batch.broken.add(ticket.chain)
        return error if isinstance(error, StoreError) else Rejected(str(error))


def refuse(tickets: Iterable[Ticket], error: StoreError) -> None:
    """Answer all tickets with one error and break their chains."""
    for ticket in tickets:
        ticket.answer = error
        if ticket.chain is not None:
            ticket.chain.broken = True


class Offers:
    """Due runs as one taker may move them. It leaves out those that cannot be read, or that no commit may write again.

    They stay due, and each is logged once. A list of runs shows why, and `outlast fsck` names them.
    """

    def __init__(self) -> None:
        self._refused: dict[Key, int] = {}  # version of each run that no commit may write

    def read(self, found: Iterable[Sequence[Any]]) -> list[Run]:
        """Return those of the selected runs that can be read and may be moved."""
        return self.of(readable_runs(found))

    def of(self, runs: Iterable[Run]) -> list[Run]:
        """Return those of the runs that may be moved."""
        return [run for run in runs if self._refused.get(run[:2]) != run.version]

    def moves(self, step: Step, runs: Iterable[Run], now: Instant, mapping: Mapping) -> list[tuple[Run, Commit | None]]:
        """Return the commit that moves each run, None for one that stays."""
        moves: list[tuple[Run, Commit | None]] = []
        for run in runs:
            try:
                commit = step(run, now, mapping)
                if commit is not None:
                    check(commit)
            except (Corrupt, Rejected) as error:
                if len(self._refused) >= REFUSED_MAX:
                    self._refused.clear()
                self._refused[run[:2]] = run.version
                warn_once(run, error.what)
                commit = None
            moves.append((run, commit))
        return moves


def rows_to_read(take: Take, batch: Batch) -> int:
    """Return how many runs to read, since runs changed in this batch may no longer be candidates."""
    return take.n + len(batch.changes[RUN.name])


def candidates(take: Take, batch: Batch, found: Iterable[Run]) -> list[Run]:
    """Return at most `take.n` runs as earlier commits of the batch leave them.

    If owners are given, their runs come in the order of the owners, else due runs in the order of `chosen`.
    """
    changed = batch.changes[RUN.name]
    runs = [left.row for left in changed.values() if isinstance(left.row, Run)]
    runs += [run for run in found if run[:2] not in changed]
    if take.owners:
        runs = [run for run in runs if run.owner in take.owners]
        runs.sort(key=lambda run: (take.owners.index(run.owner), run.tenant, run.run))
        return runs[: take.n]
    real, lanes = batch.now.real, take.lanes
    due = [run for run in runs if run.due_at is not None and run.due_at <= real and run.lane in lanes]
    return chosen(due, take.n, take.held)


def taken(moves: Sequence[tuple[Run, Commit | None]], batch: Batch) -> tuple[Run, ...]:
    """Land the commits of a take and return the runs whose commit landed, as it leaves them."""
    left: list[Run] = []
    for run, commit in moves:
        if commit is not None and _lands(commit, batch):
            row = batch.row(RUN, run[:2])
            assert row is not None
            left.append(row)
    return tuple(left)


def _lands(commit: Commit, batch: Batch) -> bool:
    try:
        batch.land(commit)
    except Stale:
        return False  # a row that it names has changed: the run is not taken now
    return True
