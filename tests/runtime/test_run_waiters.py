"""Waits for the end of runs: commits of this process announce it, those of others are polled with one read for all."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest

from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import Run, is_over
from outlast.errors import NotFound, Unavailable
from outlast.runtime import run_waiters
from outlast.runtime.run_waiters import RunWaiters
from tests.conformance.subject import ended, run_row

GUARD_S = 10.0  # ends a test that would hang


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop."""

    @wraps(test)
    def run(*args: Any, **given: Any) -> None:
        asyncio.run(test(*args, **given))

    return run


class Rows:
    """A store without reports: rows, and the reads of them."""

    def __init__(self, *runs: str) -> None:
        self.rows = {("acme", run): run_row(run) for run in runs}
        self.reads: list[Sequence[Key]] = []
        self.after_read: Callable[[], None] = lambda: None
        self.error: Exception | None = None

    async def load_many(self, kind: Any, keys: Sequence[Key], *, listed: bool = False) -> tuple[Run | None, ...]:
        self.reads.append(keys)
        if self.error is not None:
            raise self.error
        found = tuple(self.rows.get(key) for key in keys)
        self.after_read()
        return found

    def end(self, run: str) -> Run:
        row = self.rows["acme", run] = ended(self.rows["acme", run])
        return row


class Reporting(Rows):
    """A store that reports what this process commits."""

    def __init__(self, *runs: str) -> None:
        super().__init__(*runs)
        self.callbacks: list[Callable[..., None]] = []

    def on_commit(self, callback: Callable[..., None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def end(self, run: str) -> Run:
        row = super().end(run)
        for callback in self.callbacks:
            callback("acme", run, row)
        return row


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the second read of a waiter come too late for any test."""
    monkeypatch.setattr(run_waiters, "POLL_S", 10 * GUARD_S)
    monkeypatch.setattr(run_waiters, "POLL_MAX_S", 10 * GUARD_S)


@asynccontextmanager
async def waiting(store: Rows, *runs: str) -> AsyncIterator[list["asyncio.Task[Run]"]]:
    """Wait for the ends of these runs, each read once before the block runs."""
    waiters = RunWaiters(store)  # type: ignore[arg-type]
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(waiters.wait("acme", run, is_over)) for run in runs]
        while not store.reads:  # noqa: ASYNC110 - the fake store has no event for it
            await asyncio.sleep(0)
        yield tasks
    assert waiters._loops == {}, "no task and no subscription is left"


@in_loop
async def test_an_end_by_this_process_is_heard_without_a_read(no_poll: None) -> None:
    store = Reporting("r1")
    async with waiting(store, "r1") as (task,):
        row = store.end("r1")
    assert task.result() is row and len(store.reads) == 1 and store.callbacks == []


@in_loop
async def test_an_end_after_the_read_and_before_its_answer_is_not_missed(no_poll: None) -> None:
    """The subscription is older than the read. Subscribed after it, the waiter would hear of no end."""
    store = Reporting("r1")
    rows = []
    store.after_read = lambda: rows.append(store.end("r1"))
    async with waiting(store, "r1") as (task,):
        pass
    assert task.result() is rows[0]


@in_loop
async def test_an_end_before_the_wait_is_read(no_poll: None) -> None:
    store = Reporting("r1")
    row = store.end("r1")
    async with waiting(store, "r1") as (task,):
        pass
    assert task.result() is row


@pytest.mark.parametrize("kind", [Rows, Reporting])
@in_loop
async def test_an_end_by_another_process_is_found_by_the_poll(kind: type[Rows]) -> None:
    store = kind("r1")
    async with waiting(store, "r1") as (task,):
        row = Rows.end(store, "r1")
    assert task.result() is row


@in_loop
async def test_many_waiters_are_read_together(no_poll: None) -> None:
    names = [f"r{i}" for i in range(100)]
    store = Reporting(*names)
    async with waiting(store, *names, *names) as tasks:
        for name in names:
            store.end(name)
    assert [len(keys) for keys in store.reads] == [100]
    assert [task.result().run for task in tasks] == [*names, *names]


@in_loop
async def test_a_waiter_that_comes_later_is_read_at_once(no_poll: None) -> None:
    store = Reporting("r1", "r2")
    waiters = RunWaiters(store)  # type: ignore[arg-type]
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        group.create_task(waiters.wait("acme", "r1", is_over))
        while not store.reads:  # noqa: ASYNC110 - the fake store has no event for it
            await asyncio.sleep(0)
        store.rows["acme", "r2"] = ended(store.rows["acme", "r2"])
        assert is_over(await waiters.wait("acme", "r2", is_over))
        store.end("r1")
    assert store.reads == [(("acme", "r1"),), (("acme", "r2"),)]


@in_loop
async def test_errors_reach_the_waiter() -> None:
    def refuses(row: Run) -> bool:
        raise Unavailable("gone")

    async with asyncio.timeout(GUARD_S):
        with pytest.raises(NotFound):
            await RunWaiters(Rows()).wait("acme", "r1", is_over)  # type: ignore[arg-type]
        with pytest.raises(Unavailable):
            await RunWaiters(Rows("r1")).wait("acme", "r1", refuses)  # type: ignore[arg-type]
        store = Rows("r1")
        store.error = Unavailable("gone")
        with pytest.raises(Unavailable):
            await RunWaiters(store).wait("acme", "r1", is_over)  # type: ignore[arg-type]


@in_loop
async def test_a_cancelled_waiter_leaves_the_others() -> None:
    store = Reporting("r1")
    waiters = RunWaiters(store)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await waiters.wait("acme", "r1", is_over)
    assert waiters._loops == {} and store.callbacks == []
    async with waiting(store, "r1") as (task,):
        store.end("r1")
    assert is_over(task.result())
