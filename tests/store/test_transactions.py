"""On SQLite, an author's rows and the effect land together or not at all, whatever fails or is killed."""

import asyncio
import contextlib
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from outlast import Context, Workflow, activity
from outlast.core.approvals import Actor
from outlast.core.limits import AUTHOR_PREFIX, AUTHOR_STATEMENTS_MAX
from outlast.core.machine import EffectStatus, RunStatus
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.run_rows import RUN, Run
from outlast.errors import DefinitionError, Misplaced
from outlast.runtime.local_worker import worker_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from outlast.store.sqlite.transactions import RowsChanged
from outlast.upkeep.fsck import Fsck
from tests import forked
from tests.store import bank

GIVE_UP_S = 60
ROOT = Path(__file__).parents[2]


class Office:
    """A store with tables of an author, and its operators."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store, self.path = store, path
        self.people = Operations(store, tenant="t", actor=Actor("ann"), workflows={"credits": bank.credits_})

    async def start(self, run: str = "r1", **given: Any) -> None:
        await self.people.start_run("credits", given, run_id=run)

    async def until(self, holds: Callable[[Run], Any], run: str = "r1") -> Run:
        async with asyncio.timeout(GIVE_UP_S):
            while True:
                row = await self.store.load(RUN, ("t", run))
                assert isinstance(row, Run)
                if holds(row):
                    return row
                await asyncio.sleep(0.02)

    async def ended(self, run: str = "r1") -> Run:
        return await self.until(lambda row: row.owner == "ended", run)

    async def effects(self, run: str = "r1") -> list[Effect]:
        return [e for e in await self.store.rows(EFFECT, ("t", run)) if isinstance(e, Effect)]


@contextlib.asynccontextmanager
async def office(folder: Path, *, works: bool = True) -> AsyncIterator[Office]:
    """Open a store with the bank's tables and, if it `works`, a worker. Afterwards fsck finds nothing."""
    path = folder / "outlast.db"
    bank.hooks.clear()
    store = await open_store(f"sqlite:{path}")
    bank.make(path)
    worker = worker_of(store, [bank.credits_], live=bank.LIVE)
    task = asyncio.create_task(worker.run()) if works else None
    try:
        yield Office(store, path)
    finally:
        if task is not None:
            worker.drain()
            await task
        findings = (await Fsck(store, chain=True).look()).findings
        await store.close()
        assert not findings


async def hook(folder: Path, body: Callable[[Any], Any], then: Callable[[Office], Any]) -> None:
    """Start a run whose first call begins with `body`."""
    async with office(folder) as here:
        bank.hooks.append(body)
        await here.start()
        await then(here)


@pytest.mark.req("EFF-1", "EFF-2")
@pytest.mark.parametrize("how", ["plain", "read"])
def test_the_rows_and_the_effect_land_together(tmp_path: Path, how: str) -> None:
    async def live() -> None:
        async with office(tmp_path) as here:
            await here.start(how=how)
            assert (await here.ended()).status is RunStatus.COMPLETED
            assert bank.found(here.path) == (10, 1)
            (effect,) = await here.effects()
            assert (effect.status, effect.response, effect.attempts) == (EffectStatus.DONE, b'"10"', 1)

    asyncio.run(live())


def test_nothing_is_written_while_the_function_runs(tmp_path: Path) -> None:
    """Its reads see the last committed state, and another program may write: no lock is held."""

    async def body(db: Any) -> None:
        await db.execute(bank.ADD, 500, "alice")
        assert await db.fetchval("SELECT cents FROM app_account") == 0
        other = sqlite3.connect(tmp_path / "outlast.db", timeout=5)
        with other:
            other.execute(bank.ADD, (1, "alice"))
        other.close()
        assert await db.fetchval("SELECT cents FROM app_account") == 1

    async def then(here: Office) -> None:
        assert (await here.ended()).status is RunStatus.COMPLETED
        assert bank.found(here.path) == (511, 1)

    asyncio.run(hook(tmp_path, body, then))


@pytest.mark.req("EFF-4")
def test_a_call_whose_rows_another_one_changed_is_made_again(tmp_path: Path) -> None:
    """The first call reads 0 cents, and another program books before it lands: its update would lose that booking."""

    async def body(db: Any) -> None:
        other = sqlite3.connect(tmp_path / "outlast.db", timeout=5)
        await db.execute("UPDATE app_account SET cents = 7 WHERE cents = 0", rows=1)
        with other:
            other.execute(bank.ADD, (1, "alice"))
        other.close()

    async def then(here: Office) -> None:
        assert (await here.ended()).status is RunStatus.COMPLETED
        (effect,) = await here.effects()
        assert (effect.attempts, bank.found(here.path)) == (2, (11, 1))

    asyncio.run(hook(tmp_path, body, then))


async def _breaks_a_constraint(db: Any) -> None:
    await db.execute("UPDATE app_account SET cents = 5000")


async def _takes_too_long(db: Any) -> None:
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    await db.execute(f"{numbers} UPDATE app_account SET cents = (SELECT count(*) FROM n)")


async def _adds_too_many(db: Any) -> None:
    for _ in range(AUTHOR_STATEMENTS_MAX + 1):
        await db.execute(bank.ADD, 1, "alice")


async def _adds_too_much(db: Any) -> None:
    await db.execute("UPDATE app_account SET name = ?", "x" * 1_000_001)


async def _gives_a_value_of_its_own(db: Any) -> None:
    await db.execute(bank.ADD, Path("x"), "alice")


@pytest.mark.req("EFF-4")
@pytest.mark.parametrize(
    ("fail", "text"),
    [
        (_breaks_a_constraint, "CHECK constraint failed"),
        (_takes_too_long, "interrupted"),
        (_adds_too_many, "at most 100 statements"),
        (_adds_too_much, "1,000,000 bytes"),
        (_gives_a_value_of_its_own, "convert the value"),
    ],
)
def test_a_call_that_fails_leaves_no_row(tmp_path: Path, fail: Any, text: str) -> None:
    async def then(here: Office) -> None:
        await here.until(lambda row: row.attention)
        (effect,) = await here.effects()
        assert effect.status is EffectStatus.REFUSED and text in effect.error_text, effect.error_text
        assert bank.found(here.path) == (0, 0)
        bank.hooks.clear()
        await here.start("r2")
        assert (await here.ended("r2")).status is RunStatus.COMPLETED, "the store serves on"

    asyncio.run(hook(tmp_path, fail, then))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run SET version = 9",
        "DELETE FROM effect",
        "INSERT INTO app_booking (run, cents) SELECT run, 1 FROM run",
        "COMMIT",
        "SAVEPOINT s",
        "PRAGMA synchronous = OFF",
        "ATTACH 'x.db' AS x",
        "CREATE TABLE app_more (n INTEGER)",
        "CREATE TRIGGER app_t AFTER INSERT ON run BEGIN DELETE FROM effect; END",
        "DROP TABLE app_account",
        "UPDATE app_trap SET n = 1",
        "UPDATE app_account SET cents = 1; UPDATE app_account SET cents = 2",
        "UPDATE nothing SET n = 1",
    ],
)
def test_a_statement_touches_only_rows_of_tables_with_the_prefix(tmp_path: Path, statement: str) -> None:
    """It is refused where the author wrote it. `app_trap` has a trigger that deletes effects."""

    async def live() -> None:
        async with office(tmp_path, works=False) as here:
            with sqlite3.connect(here.path) as other:
                other.execute("CREATE TABLE app_trap (n INTEGER)")
                other.execute("CREATE TRIGGER app_trigger AFTER UPDATE ON app_trap BEGIN DELETE FROM effect; END")
            other.close()
            async with here.store.transaction(1_000) as transaction:  # type: ignore[attr-defined]
                with pytest.raises((sqlite3.Error, sqlite3.Warning)):
                    await transaction.connection.execute(statement)
                with pytest.raises((sqlite3.Error, sqlite3.Warning)):
                    await transaction.connection.fetch(statement)
            with pytest.raises(Misplaced, match="after the call has ended"):
                await transaction.connection.execute(bank.ADD, 1, "alice")
            assert bank.found(here.path) == (0, 0)

    asyncio.run(live())


def test_no_table_of_the_store_has_the_prefix_of_authors() -> None:
    assert [kind.name for kind in KINDS if kind.name.startswith(AUTHOR_PREFIX)] == []


def test_the_error_that_is_tried_again_is_the_only_passing_one(tmp_path: Path) -> None:
    async def live() -> None:
        async with office(tmp_path, works=False) as here, here.store.transaction(1_000) as opened:  # type: ignore[attr-defined]
            assert opened.is_passing(RowsChanged("0 rows"))
            assert not opened.is_passing(sqlite3.IntegrityError("UNIQUE"))

    asyncio.run(live())


def test_a_serializable_transaction_is_refused_before_the_worker_serves(tmp_path: Path) -> None:
    @activity(key="serial/{n}", transaction="serializable", no_undo="booked is booked")
    async def serial(n: int) -> None:
        """Do nothing."""

    flow = Workflow("serial", state=bank.Credit)

    @flow.node(start=True)
    async def go(ctx: Context[bank.Credit]) -> None:
        await ctx.do(serial, 1)

    async def live() -> None:
        async with office(tmp_path, works=False) as here:
            with pytest.raises(DefinitionError, match="write transaction=True"):
                worker_of(here.store, [flow])

    asyncio.run(live())


# --- kills -----------------------------------------------------------------------------------------
@pytest.mark.req("EFF-1", "EFF-2")
@pytest.mark.parametrize(
    ("point", "landed"), [("store.batch:before", False), ("store.batch:inside", False), ("store.batch:after", True)]
)
def test_a_killed_worker_leaves_both_or_neither(tmp_path: Path, point: str, landed: bool) -> None:
    """SIGKILL before the statements, after them and before COMMIT, and after COMMIT. The next worker does it once."""
    url = f"sqlite:{tmp_path / 'outlast.db'}"

    async def begin() -> None:
        async with office(tmp_path, works=False) as here:
            await here.start()

    async def look() -> bool:
        store = await open_store(url)
        try:
            effects = await store.rows(EFFECT, ("t", "r1"))
            return any(isinstance(e, Effect) and e.status is EffectStatus.DONE for e in effects)
        finally:
            await store.close()

    async def go_on() -> None:
        store = await open_store(url)
        worker = worker_of(store, [bank.credits_], live=bank.LIVE)
        task = asyncio.create_task(worker.run())
        assert (await Office(store, tmp_path).ended()).status is RunStatus.COMPLETED
        worker.drain()
        await task
        await store.close()

    asyncio.run(begin())
    done = forked.run("tests.store.bank", url, point, cwd=ROOT, capture_output=True, timeout=GIVE_UP_S)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (bank.found(tmp_path / "outlast.db"), asyncio.run(look())) == (
        ((10, 1), True) if landed else ((0, 0), False)
    )
    asyncio.run(go_on())
    assert bank.found(tmp_path / "outlast.db") == (10, 1)


def test_a_backup_has_the_rows_of_the_author(tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    copy = tmp_path / "copies" / "copy.db"

    async def live() -> None:
        async with office(tmp_path) as here:
            await here.start()
            await here.ended()

    asyncio.run(live())
    done = forked.run(
        "outlast", "--store", f"sqlite:{tmp_path / 'outlast.db'}", "backup", str(copy), cwd=ROOT, capture_output=True,
        text=True, timeout=GIVE_UP_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert bank.found(copy) == (10, 1)
