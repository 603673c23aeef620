"""An author's rows and the effect commit together or not at all, whatever is killed, cut or replaced."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import asyncpg
import pytest

from outlast import Refused, RetryLater
from outlast.core.approvals import Actor
from outlast.core.durations import Liveness
from outlast.core.machine import EffectStatus, LeaseStatus, RunStatus
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.engine.lease import closed
from outlast.engine.worker import WorkerProcess
from outlast.errors import DefinitionError, Stale
from outlast.flow import activity
from outlast.runtime.local_worker import worker_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.store.postgres.store import PostgresStore
from outlast.upkeep.fsck import Fsck
from tests import forked
from tests.postgres import bank, server
from tests.postgres.proxy import OF_AUTHORS, Wire, wire

GIVE_UP_S = 60
SHORT = Liveness(
    heartbeat_window=1_500, heartbeat_every=400, attempt_timeout=8_000, start_budget=1_000, settle_margin=1_000
)
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def accounts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Create accounts for each test, in a schema that is not the store's."""
    monkeypatch.setenv("BANK", f"bank_{token_hex(6)}")
    asyncio.run(bank.open_bank(server.url()))
    yield
    asyncio.run(server.drop(bank.schema()))


class Office:
    """A store, its workers in this process, and its operators."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        workflows = {"credits": bank.credit_runs}
        self.people = Operations(store, tenant="t", actor=Actor("ann"), workflows=workflows)
        self.tasks: list[asyncio.Task[None]] = []
        self.workers: list[WorkerProcess] = []

    def hire(self, live: Liveness = SHORT) -> WorkerProcess:
        worker = worker_of(self.store, [bank.credit_runs], live=live)
        self.workers.append(worker)
        self.tasks.append(asyncio.create_task(worker.run()))
        return worker

    async def close_row_of(self, worker: WorkerProcess) -> None:
        """Close a live worker's row. A renewal may come between the read and the write: then read again."""
        while True:
            row = await self.store.load(WORKER, (STORE, worker.id))
            assert isinstance(row, Worker)
            try:
                await self.store.commit(closed(row))
                return
            except Stale:
                assert row.status is LeaseStatus.ALIVE

    async def start(self, run: str = "r1", **given: Any) -> None:
        await self.people.start_run("credits", {"how": "plain", **given}, run_id=run)

    async def start_and_wait(self, run: str = "r1", **given: Any) -> None:
        """Start a run and wait until its body is inside the transaction, where it waits for the books."""
        bank.books.may_go_on.clear()
        await self.start(run, **given)
        await bank.books.inside.wait()

    async def run(self, run: str = "r1") -> Run:
        row = await self.store.load(RUN, ("t", run))
        assert isinstance(row, Run)
        return row

    async def until(self, holds: Callable[[Run], Any], run: str = "r1") -> Run:
        async with asyncio.timeout(GIVE_UP_S):
            while not holds(row := await self.run(run)):  # noqa: ASYNC110 - no event says what rows are
                await asyncio.sleep(0.02)
        return row

    async def ended(self, run: str = "r1") -> Run:
        return await self.until(lambda row: row.owner == "ended", run)

    async def effects(self, run: str = "r1") -> list[Effect]:
        return [e for e in await self.store.rows(EFFECT, ("t", run)) if isinstance(e, Effect)]

    async def close(self) -> None:
        for worker in self.workers:
            worker.drain()
        await asyncio.gather(*self.tasks)
        found = (await Fsck(self.store, chain=True).look()).findings
        await self.store.close()
        assert not found


@contextlib.asynccontextmanager
async def office(url: str, *, workers: int = 1) -> AsyncIterator[Office]:
    bank.books = books = bank.Books()
    assert books.calls == 0
    store = await open_store(url)
    assert isinstance(store, PostgresStore)
    opened = Office(store)
    try:
        for _ in range(workers):
            opened.hire()
        yield opened
    finally:
        bank.books.may_go_on.set()
        await opened.close()


@contextlib.asynccontextmanager
async def cut_office(url: str) -> AsyncIterator[tuple[Office, Wire]]:
    """Open an office whose store is reached by a proxy that can be cut."""
    with wire(server.url()) as line:
        async with office(f"{line.url}?{url.partition('?')[2]}") as here:
            yield here, line


async def the_bank() -> tuple[int, int]:
    return await bank.found(server.url())


# --- what is promised --------------------------------------------------------------------------
@pytest.mark.req("EFF-1", "EFF-2")
@pytest.mark.parametrize("how", ["plain", "serializable", "shared"])
def test_the_row_and_the_effect_commit_together(url: str, how: str) -> None:
    async def live() -> None:
        async with office(url) as here:
            await here.start(how=how)
            assert (await here.ended()).status is RunStatus.COMPLETED
            assert await the_bank() == (10, 1)
            (effect,) = await here.effects() or await here.store.rows(EFFECT, ("t", "", 0))
            assert isinstance(effect, Effect)
            assert (effect.status, effect.response, effect.attempts) == (EffectStatus.DONE, b'"10"', 1)
            assert bank.books.calls == 1

    asyncio.run(live())


@pytest.mark.req("EFF-2")
def test_one_of_two_runs_makes_a_shared_effect(url: str) -> None:
    """Both bodies run. The second COMMIT finds the effect, rolls its rows back, and uses the answer."""

    async def live() -> None:
        async with office(url) as here:
            bank.books.may_go_on.clear()
            await here.start("r1", how="shared")
            await here.start("r2", how="shared")
            await bank.books.inside.wait()
            bank.books.may_go_on.set()
            for run in ("r1", "r2"):
                assert (await here.ended(run)).status is RunStatus.COMPLETED
            assert await the_bank() == (10, 1)

    asyncio.run(live())


@pytest.mark.req("EFF-8")
def test_an_undo_commits_with_the_rows_it_undoes(url: str) -> None:
    async def live() -> None:
        async with office(url) as here:
            await here.start(how="undone")
            assert (await here.ended()).status is RunStatus.CANCELLED
            assert await the_bank() == (0, 2)
            done, undo = sorted(await here.effects(), key=lambda e: e.ordinal)
            assert (done.status, undo.status) == (EffectStatus.UNDONE, EffectStatus.DONE)

    asyncio.run(live())


@pytest.mark.req("GATE-2")
def test_an_approval_is_consumed_by_the_same_commit(url: str) -> None:
    async def live() -> None:
        async with office(url) as here:
            await here.start(how="approved")
            await here.until(lambda row: "approval" in row.waiting_for_text and not row.owner)
            (approval,) = await here.people.rows.approvals_of("r1")
            bank.books.may_go_on.clear()
            await here.people.approve(approval.id)
            await bank.books.inside.wait()
            (approval,) = await here.people.rows.approvals_of("r1")
            assert not approval.consumed_by and not await here.effects()
            bank.books.may_go_on.set()
            assert (await here.ended()).status is RunStatus.COMPLETED
            (approval,) = await here.people.rows.approvals_of("r1")
            (effect,) = await here.effects()
            assert approval.consumed_by == f"1:{effect.key}" and effect.approval == approval.id
            assert await the_bank() == (10, 1)

    asyncio.run(live())


# --- what a body can come to -------------------------------------------------------------------
async def _breaks_a_constraint(db: "asyncpg.Connection[Any]") -> None:
    await db.execute(f"UPDATE {bank.schema()}.account SET cents = 5000")


async def _swallows_an_error(db: "asyncpg.Connection[Any]") -> None:
    with contextlib.suppress(asyncpg.PostgresError):
        await _breaks_a_constraint(db)


async def _rolls_back(db: "asyncpg.Connection[Any]") -> None:
    await db.execute("ROLLBACK")


async def _commits(db: "asyncpg.Connection[Any]") -> None:
    await db.execute("COMMIT")


async def _commits_and_begins(db: "asyncpg.Connection[Any]") -> None:
    await db.execute("COMMIT")
    await db.execute("BEGIN")


@pytest.mark.req("EFF-4")
@pytest.mark.parametrize(
    ("fail", "attempts"),
    [
        (asyncpg.SerializationError("could not serialize"), 2),
        (asyncpg.DeadlockDetectedError("deadlock"), 2),
        (RetryLater("later"), 2),
        (ConnectionResetError("gone"), 2),
    ],
)
def test_a_transient_error_is_tried_again(url: str, fail: Exception, attempts: int) -> None:
    async def live() -> None:
        async with office(url) as here:
            bank.books.fail = [fail]
            await here.start()
            assert (await here.ended()).status is RunStatus.COMPLETED
            (effect,) = await here.effects()
            assert effect.attempts == attempts and await the_bank() == (10, 1)

    asyncio.run(live())


@pytest.mark.req("EFF-4")
@pytest.mark.parametrize(
    ("fail", "code"),
    [
        (Refused("no_such_account"), "no_such_account"),
        (ValueError("a mistake"), "retries_exhausted"),
        (_breaks_a_constraint, "retries_exhausted"),
        (_swallows_an_error, "retries_exhausted"),
        (_rolls_back, "retries_exhausted"),
    ],
)
def test_a_permanent_error_is_refused_and_rolled_back(url: str, fail: Any, code: str) -> None:
    async def live() -> None:
        async with office(url) as here:
            bank.books.fail = [fail]
            await here.start()
            await here.until(lambda row: row.attention)
            (effect,) = await here.effects()
            assert effect.status is EffectStatus.REFUSED and f'"{code}"' in effect.error_text
            assert await the_bank() == (0, 0)

    asyncio.run(live())


@pytest.mark.req("EFF-3")
@pytest.mark.parametrize("ends", [_commits, _commits_and_begins])
def test_a_body_that_commits_by_itself_makes_the_effect_uncertain(url: str, ends: Any) -> None:
    async def live() -> None:
        async with office(url) as here:
            bank.books.fail = [ends]
            await here.start()
            await here.until(lambda row: row.attention)
            (effect,) = await here.effects()
            assert effect.status is EffectStatus.UNCERTAIN and "the activity ended the transaction" in effect.error_text
            assert await the_bank() == (10, 1)

    asyncio.run(live())


@pytest.mark.req("EFF-4")
def test_two_serializable_bodies_that_collide_are_both_done(url: str) -> None:
    """Two transactions read and write the same account. The loser is rolled back and tried again."""

    async def live() -> None:
        async with office(url) as here:
            bank.books.may_go_on.clear()
            for n in range(4):
                await here.start(f"r{n}", how="serializable")
            await bank.books.inside.wait()
            bank.books.may_go_on.set()
            for n in range(4):
                assert (await here.ended(f"r{n}")).status is RunStatus.COMPLETED
            assert await the_bank() == (40, 4)
            assert bank.books.calls > 4

    asyncio.run(live())


# --- cancels, holders that were replaced ---------------------------------------------------------
@pytest.mark.req("EFF-8")
def test_a_cancel_during_the_body_rolls_it_back(url: str) -> None:
    async def live() -> None:
        async with office(url) as here:
            await here.start_and_wait()
            await here.people.cancel("r1", reason="changed my mind")
            bank.books.may_go_on.set()
            assert (await here.ended()).status is RunStatus.CANCELLED
            assert await the_bank() == (0, 0) and not await here.effects()

    asyncio.run(live())


@pytest.mark.req("EFF-1")
def test_a_message_during_the_body_changes_nothing(url: str) -> None:
    async def live() -> None:
        async with office(url) as here:
            await here.start_and_wait()
            await here.people.signal("r1", "hello", {})
            bank.books.may_go_on.set()
            assert (await here.ended()).status is RunStatus.COMPLETED
            assert await the_bank() == (10, 1) and bank.books.calls == 1

    asyncio.run(live())


@pytest.mark.req("REC-3")
def test_a_holder_that_was_replaced_while_the_body_ran_commits_nothing(url: str) -> None:
    """The first holder is stopped in its body until another has the run. Its COMMIT is then refused."""

    async def live() -> None:
        async with office(url) as here:
            await here.start_and_wait()
            old = await here.run()
            zombies = bank.books
            await here.close_row_of(here.workers[0])  # as a worker does that takes it for dead
            bank.books = bank.Books()
            here.hire()
            await here.until(lambda row: row.owner == here.workers[1].id)
            zombies.may_go_on.set()
            async with asyncio.timeout(GIVE_UP_S):
                while here.workers[0].held:  # noqa: ASYNC110 - no event says it
                    await asyncio.sleep(0.02)
            assert (await here.ended()).status is RunStatus.COMPLETED
            assert (await here.run()).epoch > old.epoch
            assert (zombies.calls, bank.books.calls) == (1, 1)
            (effect,) = await here.effects()
            assert effect.epoch > old.epoch, "it is the successor's"
            assert await the_bank() == (10, 1)

    asyncio.run(live())


# --- lost answers ----------------------------------------------------------------------------------
@pytest.mark.req("EFF-2")
@pytest.mark.parametrize("cut", ["before", "after"])
def test_the_result_of_a_transaction_with_a_lost_answer_is_found(url: str, cut: Any) -> None:
    async def live() -> None:
        async with cut_office(url) as (here, line):
            await here.start_and_wait()
            line.cut_next, line.only = cut, OF_AUTHORS
            bank.books.may_go_on.set()
            assert (await here.ended()).status is RunStatus.COMPLETED
            assert line.cuts == 1 and await the_bank() == (10, 1)
            assert bank.books.calls == (1 if cut == "after" else 2)

    asyncio.run(live())


@pytest.mark.req("EFF-2")
def test_a_connection_cut_inside_the_body_leaves_nothing(url: str) -> None:
    async def live() -> None:
        async with cut_office(url) as (here, line):
            await here.start_and_wait()
            await asyncio.to_thread(line.cut_all)
            bank.books.may_go_on.set()
            assert (await here.ended()).status is RunStatus.COMPLETED
            assert await the_bank() == (10, 1)

    asyncio.run(live())


# --- deaths --------------------------------------------------------------------------------------
PLACES = ("call:before", "call:after", "store.batch:before", "store.batch:inside", "store.batch:after")


@pytest.mark.req("EFF-2", "REC-1")
@pytest.mark.parametrize("place", PLACES)
def test_a_death_leaves_the_whole_transaction_or_nothing(url: str, place: str, tmp_path: Path) -> None:
    """A process is killed at the point. The two tables agree, and its successor makes one booking in all."""

    async def live() -> None:
        store = await open_store(url)
        people = Operations(store, tenant="t", actor=Actor("ann"), workflows={"credits": bank.credit_runs})
        await people.start_run("credits", {"how": "plain"}, run_id="r1")
        command = ("tests.postgres.teller", url, place)
        died = await asyncio.to_thread(forked.run, *command, cwd=ROOT, timeout=GIVE_UP_S)
        assert died.returncode == -signal.SIGKILL
        effects = await store.rows(EFFECT, ("t", "r1"))
        after = place == "store.batch:after"
        assert [e.status for e in effects if isinstance(e, Effect)] == [EffectStatus.DONE] * after
        assert await the_bank() == ((10, 1) if after else (0, 0))
        await store.close()
        async with office(url) as here:
            assert (await here.ended()).status is RunStatus.COMPLETED
            assert await the_bank() == (10, 1) and bank.books.calls == (0 if after else 1)

    asyncio.run(live())


# --- where it cannot be ------------------------------------------------------------------------------
@pytest.mark.req("RT-5")
@pytest.mark.parametrize("url", ["memory:", "sqlite:{}"])
def test_a_store_without_transactions_is_refused_before_the_run_starts(url: str, tmp_path: Path) -> None:
    async def live() -> None:
        store = await open_store(url.format(tmp_path / "o.db"))
        try:
            with pytest.raises(DefinitionError, match="transaction=True"):
                worker_of(store, [bank.credit_runs])
        finally:
            await store.close()

    asyncio.run(live())


def test_an_activity_that_cannot_be_transactional_is_refused_when_declared() -> None:
    from datetime import timedelta

    from outlast import resend

    with pytest.raises(DefinitionError, match="is not async"):

        @activity(key="a", transaction=True, no_undo="no")
        def plain() -> None: ...

    with pytest.raises(DefinitionError, match="never uncertain"):

        @activity(key="b", transaction=True, if_uncertain=resend(remembered_for=timedelta(days=1)), no_undo="no")
        async def repeated() -> None: ...

    @activity(key="c", transaction=True, no_undo="no")
    async def inside() -> None: ...

    with pytest.raises(DefinitionError, match="never uncertain"):

        @inside.reconcile
        async def find() -> Any: ...
