"""Commits share transactions, urgent ones go ahead, and the hot path reads nothing."""

import asyncio
import fcntl
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from typing_extensions import override

from outlast.core import crash_points
from outlast.core.commit import Chain, Commit, Instant, Put
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.run_rows import EVENT, RUN, Run
from outlast.core.rows.store_rows import STORE, WORKER, WRITER, Writer
from outlast.store import sql
from outlast.store.batching_store import LoopStore
from outlast.store.queries import Moving
from outlast.store.sql import SQL
from outlast.store.sqlite import writer
from outlast.store.sqlite.database import OFF, Database
from outlast.store.sqlite.session import SqliteSession
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.writer import BATCH_MAX
from outlast.store.tickets import Ticket
from tests.conformance.subject import (
    T0,
    append_message,
    claimed,
    done,
    effect_row,
    ended,
    event_row,
    fence,
    held,
    intend,
    message_row,
    moved,
    puts,
    record,
    run_row,
    start,
    worker_row,
)
from tests.store.helpers import opened


class Batches:
    """Labels of the commits of each transaction, recorded by the store's crash points."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.landed: list[list[str]] = []
        monkeypatch.setattr(crash_points, "hook", self.hook)

    def hook(self, name: str, labels: Sequence[str]) -> None:
        if name == "store.batch:after":
            self.landed.append(list(labels))


async def batch_number(store: SqliteStore) -> int:
    row = await store.load(WRITER, (STORE, store.writer))
    assert isinstance(row, Writer)
    return row.batch


def test_pending_commits_share_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commits that are pending when a transaction starts are in it, up to the limit."""
    batches = Batches(monkeypatch)

    async def meet() -> None:
        async with opened(tmp_path / "s.db") as store:
            futures = [store.submit(start(run_row(f"run-{i}"))._replace(label=f"{i}")) for i in range(2_500)]
            await asyncio.gather(*futures)
            assert await batch_number(store) == len(batches.landed) < 20

    asyncio.run(meet())
    assert [label for batch in batches.landed for label in batch] == [f"{i}" for i in range(2_500)]
    assert max(map(len, batches.landed)) <= BATCH_MAX


def test_a_lingering_commit_waits_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record shares the transaction of the advance a moment later, and lands alone without one."""
    batches = Batches(monkeypatch)

    async def meet() -> None:
        async with opened(tmp_path / "s.db") as store:
            mine = await held(store)
            effect, chain = effect_row(), Chain()
            await store.commit(intend(effect, mine), chain=chain)
            batches.landed.clear()
            first = store.submit(record(effect, mine)._replace(label="record"), chain=chain, linger=True)
            await asyncio.sleep(0)  # the record is with the writer before the advance is spoken
            write = Put(RUN, moved(mine), mine.version)
            await store.commit(Commit((write,), fence(mine), label="advance"), chain=chain)
            await first
            alone = store.submit(append_message(message_row())._replace(label="alone"), linger=True)
            await alone

    asyncio.run(meet())
    assert batches.landed == [["record", "advance"], ["alone"]]


def test_an_urgent_commit_lands_in_its_own_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal lands alone, after the open batch and before all queued commits."""
    batches = Batches(monkeypatch)

    async def meet() -> int:
        async with opened(tmp_path / "s.db") as store:
            await store.commit(Commit(puts(worker_row())))
            batches.landed.clear()
            many = [store.submit(start(run_row(f"run-{i}"))._replace(label="run")) for i in range(3 * BATCH_MAX)]
            write = Put(WORKER, worker_row()._replace(version=2), 1)
            await asyncio.sleep(0)  # the loop hands the commits over
            before = len(batches.landed)
            store.urgent_sync(Commit((write,), label="renewal"))
            await asyncio.gather(*many)
            return before

    before = asyncio.run(meet())
    where = batches.landed.index(["renewal"])
    assert where - before <= 1, "at most the batch that was open came before it"
    assert sum(len(batch) for batch in batches.landed[where + 1 :]) >= BATCH_MAX


def test_the_hot_path_reads_nothing(tmp_path: Path) -> None:
    """Once a run is known, intend, record and advance run no SELECT."""

    async def meet() -> list[str]:
        async with opened(tmp_path / "s.db") as store:
            mine, statements = await held(store), []
            await store.commit(intend(effect_row(key="warm"), mine))
            store._session.db.set_trace_callback(statements.append)
            for i in range(5):
                effect, chain = effect_row(key=f"invite/{i}", visit=mine.visit), Chain()
                await store.commit(intend(effect, mine), chain=chain)
                store.submit(record(effect, mine), chain=chain, linger=True)
                after = moved(mine, visit=mine.visit + 1, seq=mine.seq + 1)
                writes = (Put(RUN, after, mine.version), Put(EVENT, event_row(seq=after.seq), 0))
                await store.commit(Commit(writes, fence(mine, inbox_seq=0)), chain=chain)
                mine = after
            store._session.db.set_trace_callback(None)
            return statements

    statements = asyncio.run(meet())
    assert [text for text in statements if text.lstrip().upper().startswith("SELECT")] == []
    assert sum(text.startswith("BEGIN") for text in statements) == 10


def test_ten_commits_of_many_runs_cost_two_transactions_a_round(tmp_path: Path) -> None:
    """Runs in parallel share transactions: the disk is written per round, not per run."""

    async def walk(store: SqliteStore, mine: Run) -> None:
        for i in range(5):
            effect, chain = effect_row(mine.run, key=f"invite/{i}"), Chain()
            await store.commit(intend(effect, mine), chain=chain)
            store.submit(record(effect, mine), chain=chain, linger=True)
            after = moved(mine, seq=mine.seq + 1)
            await store.commit(Commit((Put(RUN, after, mine.version),), fence(mine)), chain=chain)
            mine = after

    async def meet() -> int:
        async with opened(tmp_path / "s.db") as store:
            runs = [await held(store, f"run-{i}") for i in range(50)]
            before = await batch_number(store)
            await asyncio.gather(*(walk(store, run) for run in runs))
            return await batch_number(store) - before

    assert asyncio.run(meet()) < 100, "750 commits; one at a time they would be 750 transactions"


def plan(db: sqlite3.Connection, statement: str) -> str:
    """Return SQLite's plan of a statement."""
    values = [1] * statement.count("?")
    return "; ".join(str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", values))


def statements() -> dict[str, str]:
    """Return every statement of the writer, by name."""
    found = {
        "due": sql.DUE, "over": sql.OVER, "snapshot": sql.LAST_SNAPSHOT, "shared": sql.SHARED, "receipt": sql.RECEIPT,
        "rearm": sql.REARM,
    }  # fmt: skip
    for kind in KINDS:
        found[f"{kind.name} by key"] = SQL[kind.name].select
        found[f"{kind.name} update"] = SQL[kind.name].update
        if SQL[kind.name].forget:
            found[f"forget {kind.name}s"] = SQL[kind.name].forget
    return found


@pytest.mark.parametrize("name", statements())
def test_no_statement_scans_a_table(name: str, tmp_path: Path) -> None:
    """Every statement finds its rows by an index, in order, however many runs exist."""
    database = Database(tmp_path / "s.db", synchronous=OFF)
    database.migrate()
    db = database.connect()
    found = plan(db, statements()[name])
    db.close()
    assert "SCAN" not in found, found
    assert "TEMP B-TREE" not in found, found


def test_a_run_that_ends_between_two_statements_comes_once() -> None:
    """It comes as it ended. Another tenant's run with the same id is another run."""
    was, other = claimed(run_row(), "w", Instant(1, 1, 0)), claimed(run_row(tenant="globex"), "w", Instant(1, 1, 0))
    assert Moving("acme", 0, 9).answer([[was, other], [ended(was)]]) == (other, ended(was))


def test_the_plan_test_can_fail(tmp_path: Path) -> None:
    database = Database(tmp_path / "s.db", synchronous=OFF)
    database.migrate()
    db = database.connect()
    assert "SCAN" in plan(db, sql.UNOWNED), "a change of the mapping may scan; nothing else does"
    db.execute("DROP INDEX run_due")
    assert "SCAN" in plan(db, sql.DUE)
    db.close()


EFFECT_CHANGES: Final = {
    "activity": "other", "digest": "other", "node": "other", "args": b"2", "ordinal": 2, "epoch": 2, "first_at": T0 + 1,
    "not_after": T0 + 30_001, "settle_after": T0 + 60_001, "covered_until": 1, "approval": "a", "allowed_by": "p",
    "undo": "no: other", "interrupted": 1, "undoes": "1:x",
}  # fmt: skip


def test_an_update_of_an_intended_effect_writes_every_changed_column(tmp_path: Path) -> None:
    """The narrow update of a settled effect is used only if all columns that it omits are unchanged."""

    async def meet() -> None:
        async with opened(tmp_path / "s.db") as store:
            mine = await held(store)
            for i, (name, value) in enumerate(EFFECT_CHANGES.items()):
                effect = effect_row(key=f"invite/{i}")
                await store.commit(intend(effect, mine))
                after = done(effect)._replace(**{name: value})  # type: ignore[arg-type]
                await store.commit(Commit((Put(EFFECT, after, 1),), fence(mine)))
                assert await store.load(EFFECT, effect[:4]) == after, name

    asyncio.run(meet())


def test_a_settled_effect_names_few_columns(tmp_path: Path) -> None:
    async def meet() -> list[str]:
        statements: list[str] = []
        async with opened(tmp_path / "s.db") as store:
            mine = await held(store)
            await store.commit(intend(effect_row(), mine))
            store._session.db.set_trace_callback(statements.append)
            await store.commit(record(effect_row(), mine))
            store._session.db.set_trace_callback(None)
            assert await store.load(EFFECT, effect_row()[:4]) == done(effect_row())
        return [text for text in statements if text.startswith("UPDATE effect")]

    (update,) = asyncio.run(meet())
    assert "first_at" not in update


class Threads:
    """Threads in which batches were landed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.pause = threading.Event()  # cleared: the writer's thread stops before it lands
        self.pause.set()
        kept = SqliteSession.land

        def land(session: SqliteSession, tickets: Sequence[Ticket], *, waits: bool = True) -> bool:
            if waits:
                self.pause.wait()
            landed = kept(session, tickets, waits=waits)
            self.names += [threading.current_thread().name] * landed
            return landed

        patch.setattr(SqliteSession, "land", land)


async def turns() -> None:
    """Let the loop run its scheduled callbacks."""
    for _ in range(4):
        await asyncio.sleep(0)


async def advance(store: SqliteStore, mine: Run, chain: Chain) -> Run:
    """Move a run by one version and wait for the answer."""
    after = moved(mine)
    await store.commit(Commit((Put(RUN, after, mine.version),), fence(mine)), chain=chain)
    return after


def test_a_run_alone_lands_in_the_thread_of_its_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first turn of a chain goes to the writer's thread; later ones need it only if another chain came between."""
    threads = Threads(monkeypatch)
    monkeypatch.setattr(writer, "HERE_MAX_MS", 10_000)  # a batch on a loaded disk is no slow one here

    async def meet() -> None:
        async with opened(tmp_path / "s.db") as store:
            first, second = await held(store, "run-1"), await held(store, "run-2")
            one, other = Chain(), Chain()
            threads.names.clear()
            for _ in range(3):
                first = await advance(store, first, one)
            assert threads.names == ["outlast-writer", "MainThread", "MainThread"]
            second = await advance(store, second, other)
            first = await advance(store, first, one)
            assert threads.names[3:] == ["outlast-writer"] * 2
            await store.commit(start(run_row("run-3")))
            assert threads.names[5:] == ["outlast-writer"]
            assert await store.load(RUN, first[:2]) == first

    asyncio.run(meet())


def test_a_run_alone_waits_for_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the thread has commits to land, later ones of the chain follow them there."""
    threads = Threads(monkeypatch)

    async def meet() -> None:
        async with opened(tmp_path / "s.db") as store:
            mine, chain = await held(store), Chain()
            mine = await advance(store, mine, chain)
            await store.commit(start(run_row("run-2")))
            threads.names.clear()
            threads.pause.clear()
            first = asyncio.ensure_future(advance(store, mine, chain))
            await turns()
            second = asyncio.ensure_future(advance(store, moved(mine), chain))
            await turns()
            threads.pause.set()
            await asyncio.gather(first, second)

    asyncio.run(meet())
    assert set(threads.names) == {"outlast-writer"}


def test_a_run_alone_does_not_stop_its_loop_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another process holds the write lock, the thread waits for it."""
    threads = Threads(monkeypatch)

    async def meet() -> None:
        async with opened(tmp_path / "s.db") as store:
            mine, chain = await held(store), Chain()
            for _ in range(2):
                mine = await advance(store, mine, chain)
            threads.names.clear()
            lock = os.open(tmp_path / "s.db.lock", os.O_RDWR)
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = asyncio.ensure_future(advance(store, mine, chain))
            await turns()
            assert not waiting.done()
            os.close(lock)
            await waiting

    asyncio.run(meet())
    assert threads.names == ["outlast-writer"]


class Failing(LoopStore):
    """A store whose resources cannot be released."""

    @override
    async def _close_in_loop(self) -> None:
        raise OSError("the server is away")


def test_a_close_that_fails_ends_the_thread_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failing, "__abstractmethods__", frozenset())
    store = Failing("outlast-failing")  # type: ignore[abstract]
    with pytest.raises(OSError, match="the server is away"):
        asyncio.run(store.close())
    assert not store._thread.is_alive() and store._loop.is_closed()
