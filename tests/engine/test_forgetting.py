"""Retention: a worker deletes expired rows, a few at a time (RUN-4)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.durations import ANSWERS_KEPT, DAY, FORGET_EVERY, LEDGER_KEPT, RUNS_KEPT, WORKERS_KEPT, Liveness
from outlast.core.graph_threads import GraphData
from outlast.core.machine import LeaseStatus
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.graph_rows import GRAPH_THREAD
from outlast.core.rows.run_rows import RUN
from outlast.core.rows.store_rows import META, REQUEST, STORE, WORKER, Meta, Request, Worker
from outlast.engine.store_maintenance import AT_ONCE, PURGED, PURGED_AT_ONCE, DailyPurge, purge_of
from outlast.errors import Corrupt
from outlast.flow import Context
from outlast.runtime.graph_threads import GraphThreads, NewCheckpoint
from tests.engine.process import Process
from tests.engine.world import MINUTE, SECOND, Receiver, State, World, one_node, ordering, write

BEAT = 5 * SECOND


def flow() -> Any:
    return ordering(write(Receiver()), "a")


def asleep() -> Any:
    """A run that has an effect and does not end within the test."""
    act = write(Receiver())

    async def body(ctx: Context[State]) -> None:
        ctx.state.said.append(await ctx.do(act, "b"))
        await ctx.sleep(timedelta(days=365), name="year")

    return one_node(body, name="asleep")


async def answered(world: World, key: str, ago_ms: int, status: int = 201) -> None:
    row = Request("t", key, 1, "ana", "hold", "digest", status, "{}", b"", world.time.wall() - ago_ms)
    await world.store.commit(Commit((Put(REQUEST, row, 0),)))


def keys(world: World) -> list[str]:
    return [row.key for row in world.core.rows.under(REQUEST, ()) if isinstance(row, Request)]


def counting(process: Process, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of rows that each pass of this process deletes."""
    forgotten: list[int] = []
    store = process.worker._store
    before: Callable[[int], Any] = store.forget

    async def forget(n: int) -> int:
        forgotten.append(await before(n))
        return forgotten[-1]

    monkeypatch.setattr(store, "forget", forget)
    return forgotten


@pytest.mark.req("RUN-4")
async def test_answers_kept_for_a_week_are_deleted_after_it(world: World) -> None:
    async def story() -> None:
        await answered(world, "young", 0)
        await answered(world, "refused", 0, status=-1)
        await answered(world, "under way", 0, status=0)
        await answered(world, "almost", ANSWERS_KEPT - FORGET_EVERY)
        await answered(world, "old", ANSWERS_KEPT + 1)
        world.worker(flow())
        await world.pass_(BEAT + SECOND)
        assert keys(world) == ["almost", "refused", "under way", "young"]
        await world.pass_(FORGET_EVERY + BEAT)
        assert keys(world) == ["refused", "under way", "young"]
        await world.off_duty()
        await world.pass_(ANSWERS_KEPT - FORGET_EVERY - MINUTE)
        world.worker(flow())
        await world.pass_(BEAT + SECOND)
        assert keys(world) == ["refused", "under way", "young"], "nothing that is still promised"
        await world.pass_(FORGET_EVERY + BEAT)
        assert keys(world) == []

    await world.live(story)


@pytest.mark.req("RUN-4")
async def test_a_deletion_is_bounded_and_rare_if_there_is_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        for i in range(2 * AT_ONCE + 1):
            await answered(world, f"old-{i:03}", ANSWERS_KEPT + MINUTE)
        forgotten = counting(world.worker(flow()), monkeypatch)
        await world.pass_(BEAT + SECOND)
        assert forgotten == [AT_ONCE]
        await world.pass_(2 * BEAT)
        assert forgotten == [AT_ONCE, AT_ONCE, 1]
        await world.pass_(FORGET_EVERY - 2 * BEAT)
        assert len(forgotten) == 3, "no further look, however often its heart beats"
        await world.pass_(3 * BEAT)
        assert forgotten == [AT_ONCE, AT_ONCE, 1, 0]

    await world.live(story)


@pytest.mark.req("REC-3")
async def test_a_service_restarted_for_months_has_few_worker_rows(world: World) -> None:
    async def story() -> None:
        now = world.time.wall()
        for i in range(300):
            lease = now - WORKERS_KEPT - MINUTE
            row = Worker(STORE, f"gone-{i}", 1, LeaseStatus.CLOSED, lease, "flow@1", "", lease, lease, "")
            await world.store.commit(Commit((Put(WORKER, row, 0),)))
        one = world.worker(flow())
        await world.pass_(2 * BEAT + SECOND)
        assert [row.id for row in world.core.rows.under(WORKER, ()) if isinstance(row, Worker)] == [one.worker.id]

    await world.live(story)


@pytest.mark.req("CKP-7")
async def test_old_runs_are_purged_once_a_day_by_one_worker(world: World) -> None:
    async def story() -> None:
        world.worker(flow(), name="first")
        for n in range(PURGED_AT_ONCE + 5):
            await world.start(flow(), run=f"r{n}")
        await world.pass_(MINUTE)
        assert len(runs(world)) == PURGED_AT_ONCE + 5
        await world.nights(flow(), until=world.time.wall() + RUNS_KEPT - MINUTE, name="early")
        assert len(runs(world)) == PURGED_AT_ONCE + 5, "none has been over for so long"
        await world.nights(flow(), until=world.time.wall() + DAY + MINUTE, name="a")
        world.worker(flow(), name="b")
        await world.pass_(4 * BEAT)
        assert runs(world) == []
        done = purge_of(world.core.rows.get(META, PURGED))
        assert done is not None and (done.by, done.runs) == ("a", PURGED_AT_ONCE + 5)
        await world.pass_(FORGET_EVERY + BEAT)
        assert purge_of(world.core.rows.get(META, PURGED)) == done, "neither of them does it again today"

    await world.live(story)


@pytest.mark.req("CKP-7")
async def test_ledgers_are_purged_before_their_runs(world: World) -> None:
    async def story() -> None:
        n = PURGED_AT_ONCE + 5
        world.worker(flow(), name="first")
        for i in range(n):
            await world.start(flow(), run=f"r{i}")
        await world.start(waiting := asleep(), run="waits")
        await world.pass_(MINUTE)
        await world.nights(flow(), waiting, until=world.time.wall() + LEDGER_KEPT - MINUTE, name="early")
        assert len(ledgers(world)) == n + 1, "none has been over for so long"
        await world.nights(flow(), waiting, until=world.time.wall() + DAY + MINUTE, name="a")
        await world.pass_(4 * BEAT)
        assert [row.run for row in ledgers(world)] == ["waits"] and len(runs(world)) == n + 1
        done = purge_of(world.core.rows.get(META, PURGED))
        assert done is not None and (done.by, done.runs, done.ledgers) == ("a", 0, n)
        await world.nights(flow(), waiting, until=world.time.wall() + RUNS_KEPT, name="b")
        await world.pass_(4 * BEAT)
        assert [row.run for row in runs(world)] == [row.run for row in ledgers(world)] == ["waits"]
        done = purge_of(world.core.rows.get(META, PURGED))
        assert done is not None and (done.by, done.runs, done.ledgers) == ("b", n, 0)

    await world.live(story)


@pytest.mark.req("CKP-7")
@pytest.mark.parametrize(("runs_kept", "ledger_kept"), [(0, 0), (0, LEDGER_KEPT), (RUNS_KEPT, 0)])
async def test_what_is_kept_without_limit_is_never_purged(world: World, runs_kept: int, ledger_kept: int) -> None:
    async def story() -> None:
        live = Liveness(runs_kept=runs_kept, ledger_kept=ledger_kept)
        world.worker(flow(), name="first", live=live)
        await world.start(flow())
        await world.pass_(MINUTE)
        if runs_kept:
            await world.nights(flow(), until=world.time.wall() + 2 * LEDGER_KEPT, name="between", live=live)
            await world.pass_(4 * BEAT)
            assert (len(runs(world)), len(ledgers(world))) == (1, 1)
        await world.nights(flow(), until=world.time.wall() + 2 * RUNS_KEPT, name="later", live=live)
        await world.pass_(4 * BEAT)
        assert (len(runs(world)), len(ledgers(world))) == (0 if runs_kept else 1, 0 if runs_kept or ledger_kept else 1)
        assert (world.core.rows.get(META, PURGED) is None) == (not runs_kept and not ledger_kept)

    await world.live(story)


@pytest.mark.req("CKP-7")
@pytest.mark.parametrize("kept", [90 * DAY, 0])
async def test_unused_threads_of_langgraph_are_purged_if_their_retention_is_set(world: World, kept: int) -> None:
    async def story() -> None:
        live = Liveness(threads_kept=kept)
        threads = GraphThreads(world.store, "t")
        for n in range(30):
            await put_first(threads, f"t{n}")
        await world.nights(flow(), until=world.time.wall() + 90 * DAY, name="early", live=live)
        await world.pass_(4 * BEAT)
        assert len(world.core.rows.under(GRAPH_THREAD, ())) == 30, "none has been unused for so long"
        await put_first(threads, "used")
        await world.nights(flow(), until=world.time.wall() + 2 * DAY, name="late", live=live)
        await world.pass_(8 * BEAT)
        assert len(world.core.rows.under(GRAPH_THREAD, ())) == (1 if kept else 31)
        done = purge_of(world.core.rows.get(META, PURGED))
        assert done is not None and done.threads == (30 if kept else 0)

    await world.live(story)


async def put_first(threads: GraphThreads, thread: str) -> None:
    data = GraphData("msgpack", b"\x80")
    await threads.put(NewCheckpoint(thread, "", "c1", "", {"step": -1}, data, {"log": data}, (), begins=True))


def test_the_row_of_a_purge_of_an_earlier_version_is_read() -> None:
    value = '{"at": 1, "by": "w", "runs": 2, "ledgers": 3}'
    assert purge_of(Meta(*PURGED, 4, value)) == DailyPurge(1, "w", 2, 3, 0)
    for broken in ("[]", "7", "{", '{"at": 1, "by": "w", "runs": 2, "ledgers": 3, "threads": "x"}'):
        with pytest.raises(Corrupt):
            purge_of(Meta(*PURGED, 4, broken))


def runs(world: World) -> list[Any]:
    return world.core.rows.under(RUN, ())


def ledgers(world: World) -> list[Any]:
    return world.core.rows.under(EFFECT, ())
