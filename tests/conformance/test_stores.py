"""Every store passes the conformance suite: memory, SQLite, PostgreSQL, DynamoDB, and FaultyStore without faults."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

import pytest

from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from outlast.store.memory import MemoryCore, MemoryStore
from outlast.store.port import Store
from outlast.store.postgres.store import PostgresStore, open_postgres
from outlast.store.sqlite.store import open_without_sync
from outlast.testing.faults import FaultyStore
from tests.conformance import PROMISES, HandClock, Promise
from tests.dynamodb import server as dynamodb
from tests.postgres import server

# Requirements shown by a promise, besides the semantics in its docstring.
REQUIREMENTS = {
    "a_commit_for_an_older_version_is_stale": "RUN-3",
    "one_of_many_writers_wins": "RUN-3",
    "the_replaced_holder_writes_nothing": "RUN-3",
    "tenants_are_isolated": "RUN-5",
    "no_run_is_taken_twice": "REC-5",
    "a_backlog_does_not_delay_other_tenants": "RUN-5",
    "a_run_past_its_budget_can_be_taken": "REC-1",
    "runs_are_taken_by_owner": "REC-1",
    "a_closed_worker_never_renews": "REC-3",
    "of_two_requests_to_drain_none_is_lost": "REC-3",
    "of_two_assignments_none_is_lost": "GATE-8",
    "a_commit_lands_whole": "RT-2",
    "one_start_key_starts_one_run": "RUN-4",
    "a_decision_lands_with_its_message": "GATE-9",
    "an_event_is_noted_by_the_commit_that_writes_it": "OUT-1",
    "a_published_event_is_removed_with_its_commit": "OUT-2",
    "a_stored_answer_is_kept_for_a_week": "RUN-4",
    "purge_keeps_tokens": "CKP-7",
    "a_tree_is_purged_as_one": "CKP-7",
    "a_shared_effect_outlives_its_runs": "CKP-7",
    "a_ledger_goes_before_its_run": "CKP-7",
    "forget_deletes_old_workers": "REC-3",
    "a_cursor_has_one_holder": "OUT-2",
    "copies_land_before_their_run": "RUN-10",
    "copies_that_were_given_up_are_deleted": "RUN-10",
    "a_fork_is_refused_if_its_ancestor_changed": "RUN-10",
    "a_copied_answer_is_used_once": "RUN-10",
    "a_note_refuses_an_intent_that_names_the_version": "RUN-10",
}


class Memory:
    """Writers on one MemoryCore."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.core = MemoryCore(self.clock)

    async def open(self, writer: str) -> Store:
        return MemoryStore(self.core, writer)

    async def close(self) -> None:
        pass


class Sqlite:
    """Writers on one file, each with its own lock, thread and connections, like processes."""

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
    """Writers on one schema of a real server, each with its own connections."""

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


class Dynamo:
    """Writers on one environment of a real endpoint or of an emulator, each with its own connections."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.env = f"exam-{token_hex(6)}"
        self.opened: list[DynamoStore] = []

    async def open(self, writer: str) -> Store:
        store = await open_dynamodb(dynamodb.url(self.env), writer=writer, clock=self.clock)
        self.opened.append(store)
        return store

    async def close(self) -> None:
        for store in self.opened:
            await store.close()
        await dynamodb.discard(self.env)


class Faultless(Memory):
    """FaultyStore without faults around memory."""

    async def open(self, writer: str) -> Store:
        return FaultyStore(await super().open(writer), lambda name, commit: None)


class FaultlessSqlite(Sqlite):
    """FaultyStore without faults around SQLite."""

    async def open(self, writer: str) -> Store:
        return FaultyStore(await super().open(writer), lambda name, commit: None)


Subjects = Memory | Sqlite | Postgres | Dynamo


def cases() -> list[object]:
    return [
        pytest.param(promise, marks=pytest.mark.req(REQUIREMENTS[promise.__name__]), id=promise.__name__)
        if promise.__name__ in REQUIREMENTS
        else pytest.param(promise, id=promise.__name__)
        for promise in PROMISES
    ]


@pytest.mark.req("RT-5")
@pytest.mark.parametrize("make", [Memory, Sqlite, Postgres, Dynamo, Faultless, FaultlessSqlite])
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
    """Every promise is collected and has a docstring."""
    names = {promise.__name__ for promise in PROMISES}
    assert len(names) == len(PROMISES) > 50
    assert set(REQUIREMENTS) <= names
    assert all((promise.__doc__ or "").strip().endswith((".", ").")) for promise in PROMISES)
