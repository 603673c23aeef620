"""Every store of this package passes the exam that ships: memory, SQLite, either behind a wrapper that adds nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

import pytest

from outlast.store.memory import MemoryCore, MemoryStore
from outlast.store.port import Store
from outlast.store.postgres.store import PostgresStore, open_postgres
from outlast.store.sqlite import open_without_sync
from outlast.testing.faults import FaultyStore
from tests.conformance import PROMISES, HandClock, Promise
from tests.postgres import server

# Which requirement a promise shows, beside the semantics it names.
REQUIREMENTS = {
    "the_older_version_loses": "RUN-3",
    "one_of_many_wins": "RUN-3",
    "the_replaced_holder_writes_nothing": "RUN-3",
    "tenants_do_not_meet": "RUN-5",
    "no_run_is_taken_twice": "REC-5",
    "a_backlog_keeps_nobody_waiting": "RUN-5",
    "an_overdue_slice_can_be_taken": "REC-1",
    "runs_of_a_closed_owner_are_taken_by_name": "REC-1",
    "a_closed_worker_never_renews": "REC-3",
    "a_commit_lands_whole": "RT-2",
    "one_start_key_starts_one_run": "RUN-4",
    "a_decision_and_its_note_are_one": "GATE-9",
    "an_event_is_noted_in_the_commit_that_writes_it": "OUT-1",
    "what_is_told_is_forgotten_whole_or_not_at_all": "OUT-2",
    "a_stored_answer_is_kept_for_a_week": "RUN-4",
    "a_worker_long_gone_is_forgotten": "REC-3",
    "a_cursor_has_one_holder": "OUT-2",
}


class Memory:
    """Writers that share one memory."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.core = MemoryCore(self.clock)

    async def open(self, writer: str) -> Store:
        return MemoryStore(self.core, writer)

    async def close(self) -> None:
        pass


class Sqlite:
    """Writers that share one file, each as a process of its own would: with its own lock, thread and connections."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.path = folder / "store.db"
        self.opened: list[Store] = []

    async def open(self, writer: str) -> Store:
        store = await open_without_sync(self.path, writer=writer, clock=self.clock)
        self.opened.append(store)
        return store

    async def close(self) -> None:
        for store in self.opened:
            await store.close()


class Postgres:
    """Writers that share one schema of a real server, each with connections of its own."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.schema = f"exam_{token_hex(6)}"
        self.opened: list[PostgresStore] = []

    async def open(self, writer: str) -> Store:
        url = f"{server.url()}?schema={self.schema}"
        store = await open_postgres(url, writer=writer, clock=self.clock)
        self.opened.append(store)
        return store

    async def close(self) -> None:
        for store in self.opened:
            await store.close()
        await server.drop(self.schema)


class Faultless(Memory):
    """The wrapper that can fail, never failing."""

    async def open(self, writer: str) -> Store:
        return FaultyStore(await super().open(writer), lambda name, commit: None)


class FaultlessSqlite(Sqlite):
    """The same around SQLite."""

    async def open(self, writer: str) -> Store:
        return FaultyStore(await super().open(writer), lambda name, commit: None)


Subjects = Memory | Sqlite | Postgres


def cases() -> list[object]:
    return [
        pytest.param(promise, marks=pytest.mark.req(REQUIREMENTS[promise.__name__]), id=promise.__name__)
        if promise.__name__ in REQUIREMENTS
        else pytest.param(promise, id=promise.__name__)
        for promise in PROMISES
    ]


@pytest.mark.parametrize("make", [Memory, Sqlite, Postgres, Faultless, FaultlessSqlite])
@pytest.mark.parametrize("promise", cases())
def test_store_keeps(promise: Promise, make: Callable[[Path], Subjects], tmp_path: Path) -> None:
    async def exam() -> None:
        subject = make(tmp_path)
        try:
            await promise(subject)
        finally:
            await subject.close()

    asyncio.run(exam())


def test_no_promise_is_missing() -> None:
    """A module of promises that nobody collects, or a promise without a sentence, would prove nothing."""
    names = {promise.__name__ for promise in PROMISES}
    assert len(names) == len(PROMISES) > 50
    assert set(REQUIREMENTS) <= names
    assert all((promise.__doc__ or "").strip().endswith((".", ").")) for promise in PROMISES)
