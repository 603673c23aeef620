"""Commits of one run or chain land in order, all others at once, and every ticket is answered (S-7)."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

import pytest

from outlast.core.commit import Chain, Commit, Mapping, Put
from outlast.core.durations import HOUR, MINUTE
from outlast.core.rows.run_columns import TIMERS, Timer
from outlast.core.rows.run_rows import MESSAGE, RUN, Run
from outlast.core.rows.store_rows import META, WORKER
from outlast.core.run_transition import rearmed
from outlast.errors import Rejected, Stale, StoreError, Unavailable, Uncertain
from outlast.store.dynamodb.connection import CONNECTIONS, URGENT_CONNECTIONS
from outlast.store.dynamodb.items import Stamp, encode
from outlast.store.dynamodb.landing import Lander
from outlast.store.dynamodb.reads import DynamoReads
from outlast.store.dynamodb.receipts import SHARDS_MAX
from outlast.store.dynamodb.store import open_dynamodb
from outlast.store.store_clock import StoreClock, mapping_row
from outlast.store.tickets import Take, Ticket
from tests.conformance.subject import (
    LANE,
    T0,
    append_message,
    claim_by,
    claimed,
    fence,
    message_row,
    moved,
    parked,
    put_run,
    puts,
    run_row,
    start,
    token_row,
    worker_row,
)
from tests.dynamodb import server
from tests.dynamodb.proxy import Fate
from tests.dynamodb.writers import Bench, Writer, on_a_bench
from tests.mutants import remove

WRITE = "TransactWriteItems"
MAPPINGS = 4


def of_run(name: str) -> Any:
    """Return a predicate: the transaction writes this run."""
    return lambda body: any(name in str(action) for action in body["TransactItems"])


async def take(writer: Writer, n: int, worker: str, owners: tuple[str, ...] = ()) -> list[str]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Run, ...]] = loop.create_future()
    writer.scheduler.submit([Ticket(Take((LANE,), n, claim_by(worker), owners), future, loop)])
    return [run.run for run in await future]


async def renew(writer: Writer, version: int) -> None:
    """Write this version of a worker's row as a heartbeat does."""
    loop = asyncio.get_running_loop()
    renewed: asyncio.Future[Any] = loop.create_future()
    row = worker_row()._replace(version=version)
    await writer.scheduler.submit_first(Ticket(Commit((Put(WORKER, row, version - 1),)), renewed, loop))
    await renewed


@on_a_bench
async def test_a_slow_commit_delays_its_run_only(bench: Bench) -> None:
    a = await bench.writer()
    await asyncio.gather(a.submit(start(run_row("slow"))), a.submit(start(run_row("fast"))))
    bench.through.rule(WRITE, Fate.HOLD, where=of_run("slow"))
    held = a.submit(put_run(run_row("slow")))
    later = a.submit(put_run(moved(run_row("slow"))))
    both = a.submit(Commit((*put_run(moved(run_row("slow"), node="x")).writes, *puts(token_row()))))
    await asyncio.gather(*(a.submit(append_message(message_row("fast"))) for _ in range(20)))
    await bench.through.until(lambda: bool(bench.through.seen(WRITE, Fate.HOLD)))
    assert not (held.done() or later.done() or both.done())
    await asyncio.to_thread(bench.through.release)
    await held
    await later
    with pytest.raises(Stale):
        await both
    assert (await bench.row(RUN, ("acme", "fast"))).inbox_seq == 20


@on_a_bench
async def test_a_chain_breaks_in_order(bench: Bench) -> None:
    """After a refusal, all later commits of the chain are refused, and commits of others are not."""
    a = await bench.writer()
    await a.land(start(run_row()))
    chain, row = Chain(), run_row()
    good, stale = a.submit(put_run(row), chain), a.submit(put_run(row), chain)
    after = [a.submit(Commit(puts(token_row(f"{i}"))), chain) for i in range(5)]
    other = a.submit(Commit(puts(token_row("other"))))
    await good
    with pytest.raises(Stale, match="version"):
        await stale
    for each in after:
        with pytest.raises(Stale, match="chain"):
            await each
    await other


@on_a_bench
async def test_a_commit_out_of_bounds_breaks_its_chain(bench: Bench) -> None:
    a = await bench.writer()
    loop = asyncio.get_running_loop()
    chain = Chain()
    bad: asyncio.Future[Any] = loop.create_future()
    ticket = Ticket(Commit(puts(token_row())), bad, loop, chain)
    ticket.out_of_bounds = Rejected("too large")
    a.scheduler.submit([ticket])
    later = a.submit(Commit(puts(token_row())), chain)
    with pytest.raises(Rejected):
        await bad
    with pytest.raises(Stale, match="chain"):
        await later


def test_a_bug_answers_its_ticket(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of ours is Uncertain, breaks the chain and leaves the shard usable."""

    async def bug(bench: Bench) -> None:
        a = await bench.writer()
        kept = Lander._judge

        def judge(self: Lander, commits: tuple[Commit, ...], *args: Any) -> Any:
            if commits[0].label == "bug":
                raise ZeroDivisionError
            return kept(self, commits, *args)

        monkeypatch.setattr(Lander, "_judge", judge)
        chain = Chain()
        bad = a.submit(Commit(puts(token_row()), label="bug"), chain)
        later = a.submit(Commit(puts(token_row())), chain)
        with pytest.raises(Uncertain):
            await bad
        with pytest.raises(Stale, match="chain"):
            await later
        await asyncio.gather(*(a.submit(Commit(puts(token_row(f"{i}")))) for i in range(5)))

    on_a_bench(bug)(env)


@on_a_bench
async def test_a_renewal_waits_for_no_other_commit(bench: Bench) -> None:
    """All shards but that of renewals are busy. No more than SHARDS_MAX transactions are under way."""
    a = await bench.writer()
    bench.through.rule(WRITE, Fate.HOLD, 1_000, where=lambda body: "token" in str(body))
    many = [a.submit(Commit(puts(token_row(f"{i}")))) for i in range(60)]
    await bench.through.until(lambda: len(bench.through.seen(WRITE, Fate.HOLD)) == SHARDS_MAX)
    for version in (1, 2):
        await renew(a, version)
    assert len(bench.through.seen(WRITE, Fate.HOLD)) == SHARDS_MAX
    bench.through.rules.clear()
    await asyncio.to_thread(bench.through.release)
    await asyncio.gather(*many)
    await a.scheduler.close()
    with pytest.raises(Unavailable, match="closed"):
        await a.submit(Commit(puts(token_row("late"))))


@on_a_bench
async def test_a_renewal_waits_for_no_read(bench: Bench) -> None:
    """The reads of the runs that a worker took over hold all connections but those of renewals."""
    a = await bench.writer(answer_s=2.0)
    reads = DynamoReads(a.connection, StoreClock(bench.clock))
    bench.through.rule("Query", Fate.HOLD, 1_000)
    many = [asyncio.ensure_future(reads.under(MESSAGE, ("acme", f"run-{i}"))) for i in range(100)]
    most = CONNECTIONS - URGENT_CONNECTIONS
    await bench.through.until(lambda: len(bench.through.seen("Query", Fate.HOLD)) >= most)
    for version in (1, 2):
        await renew(a, version)
    assert len(bench.through.seen("Query", Fate.HOLD)) == most
    bench.through.rules.clear()
    await asyncio.to_thread(bench.through.release)
    await asyncio.gather(*many)


@pytest.mark.req("REC-5")
@on_a_bench
async def test_a_lagging_index_delays_a_take_only(bench: Bench) -> None:
    """A run that the index does not show yet is found later, and one that it still shows is not taken twice."""
    a, b = await bench.writer(), await bench.writer("writer-b", direct=True)
    names = {f"run-{i}" for i in range(12)}
    assert await take(a, 5, "w") == []
    bench.through.lag(0.4, Random(3))
    taken: list[str] = []
    assert await take(a, 5, "w") == []
    for name in sorted(names):
        await b.land(start(run_row(name)))
    looks = 0
    while len(taken) < len(names):
        taken += await take(a if looks % 3 else b, 2, f"worker-{looks}")
        looks += 1
        assert looks < 60
    assert sorted(taken) == sorted(names)
    assert await take(a, 20, "w") == []
    assert bench.through.index is not None and bench.through.index.stale > 0


@on_a_bench
async def test_a_run_armed_by_an_old_mapping_wakes_in_time(bench: Bench) -> None:
    """The process that changed the mapping died before it moved any run. The take moves them, and none is early."""
    a = await bench.writer()
    at = T0 + 96 * HOUR
    timers = TIMERS.encode([Timer("sleep", at)])
    await a.land(start(run_row("asleep", due_at=at, timers_text=timers)))
    await a.land(start(run_row("owned")))
    owned = claimed(run_row("owned"), "worker-1", a.lander.now())
    await a.land(Commit((Put(RUN, owned, 1),)))
    faster = Mapping(1, T0, T0, 1_000.0)
    await _put_meta(bench, faster)
    assert await take(a, 5, "w") == []
    due_at = (await bench.row(RUN, ("acme", "asleep"))).due_at
    assert due_at == faster.real(at)
    bench.clock.time = due_at - 1
    assert await take(a, 5, "w") == []
    bench.clock.time = due_at
    assert await take(a, 5, "w") == ["asleep"]
    bench.clock.time = owned.due_at or 0
    assert await take(a, 5, "worker-2") == ["owned"]


async def _started(writer: Writer, count: int) -> list[str]:
    names = [f"run-{i:02d}" for i in range(count)]
    await asyncio.gather(*(writer.land(start(run_row(name))) for name in names))
    return names


@pytest.mark.req("REC-6")
@on_a_bench
async def test_claims_of_one_take_share_transactions(bench: Bench) -> None:
    """A run that another writer has, or that keeps changing, stops no other one of its transaction."""
    a, b = await bench.writer(), await bench.writer("writer-b", direct=True)
    names = await _started(a, 60)
    call, sizes = a.connection.call, list[int]()

    async def changing(operation: str, **request: Any) -> dict[str, Any]:
        """Let the other writer be faster."""
        if operation == WRITE:
            sizes.append(len(request["TransactItems"]))
            if of_run("run-03")(request) and sizes[-1] > 10:
                await b.land(append_message(message_row("run-03")))
            if of_run("run-07")(request) and sizes[-1] > 10:
                theirs = claimed(run_row("run-07"), "worker-b", b.lander.now())
                with suppress(Stale):
                    await b.land(Commit((Put(RUN, theirs, 1),)))
        return await call(operation, **request)

    a.connection.call = changing  # type: ignore[method-assign]
    assert sorted(await take(a, 60, "worker-a")) == [name for name in names if name != "run-07"]
    assert (await bench.row(RUN, ("acme", "run-07"))).owner == "worker-b"
    assert sorted(sizes)[-4:] == [12, 49, 49, 50]  # a receipt and claims: all, then without run-07, then one by one


@pytest.mark.req("REC-6")
@on_a_bench
async def test_writers_share_out_the_runs_that_both_claim(bench: Bench) -> None:
    writers = [await bench.writer(), await bench.writer("writer-b", direct=True)]
    names = await _started(writers[0], 60)
    found = await asyncio.gather(*(take(each, 60, f"worker-{each.name}") for each in writers))
    assert sorted([*found[0], *found[1]]) == names


@pytest.mark.req("EFF-1")
@on_a_bench
async def test_a_lost_answer_of_several_claims_is_found_out_once(bench: Bench) -> None:
    a = await bench.writer()
    names = await _started(a, 30)
    bench.through.rule(WRITE, Fate.LOSE, 1, where=of_run("run-03"))
    bench.through.rule(WRITE, Fate.DROP, 1, where=of_run("run-29"))
    assert sorted(await take(a, 30, "worker-a")) == names
    assert [(await bench.row(RUN, ("acme", name))).epoch for name in names] == [1] * 30


async def _put_meta(bench: Bench, mapping: Mapping) -> None:
    """Land a clock mapping as a process does that dies before it tells the writers."""
    b = await bench.writer("dies", direct=True)
    row = mapping_row(mapping)
    await b.connection.call("PutItem", TableName=f"{bench.env}-runs", Item=encode(META, row, Stamp("dies", 0, 1))[0])


@pytest.mark.parametrize(
    ("safeguard", "fails"),
    [
        ("commits_of_a_run_at_once", test_a_slow_commit_delays_its_run_only),
        ("renewals_wait_for_reads", test_a_renewal_waits_for_no_read),
        ("older_mappings_not_searched", test_a_run_armed_by_an_old_mapping_wakes_in_time),
    ],
)
def test_a_removed_safeguard_is_noticed(
    safeguard: str, fails: Callable[[str], None], env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(safeguard, monkeypatch)
    with pytest.raises((AssertionError, StoreError)):
        fails(env)


async def sleepers(bench: Bench, dice: Random, runs: int) -> None:
    """Put runs to sleep while the clock mapping changes and indexes lag.

    Every run is taken, and none before its business instant.
    """
    stores = [
        await open_dynamodb(server.url(bench.env, bench.through.endpoint), writer=name, clock=bench.clock)
        for name in ("writer-a", "writer-b")
    ]
    wakes: dict[str, int] = {}
    numbers = count()
    taken: set[str] = set()
    bench.through.lag(0.5, dice)
    lagging = bench.through.index
    assert lagging is not None

    async def begin() -> None:
        name, store = f"run-{next(numbers)}", dice.choice(stores)
        now = await store.now()
        wakes[name] = at = now.business + dice.randrange(20 * HOUR)
        run = claimed(run_row(name), "holder", now)._replace(version=1, due_at=now.real + 1_000 * HOUR)
        await store.commit(start(run))
        while True:
            mapping = store.mapping()
            due_at = mapping.real(at)
            after = parked(run)._replace(due_at=due_at, timers_text=TIMERS.encode([Timer("sleep", at)]))
            try:
                await store.commit(Commit((Put(RUN, after, 1),), fence(run, mapping=mapping.version)))
                return
            except Stale as error:
                if error.reason != "mapping":
                    raise

    async def change() -> None:
        store = dice.choice(stores)
        now = await store.now()
        await store.set_mapping(Mapping(0, now.real, now.business, dice.choice([1.0, 60.0, 3_600.0])), rearmed)

    async def look() -> None:
        store = dice.choice(stores)
        for run in await store.take((LANE,), 3, claim_by("worker")):
            now = await store.now()
            assert now.business >= wakes[run.run], (run.run, "is early")
            taken.add(run.run)

    try:
        while len(wakes) < runs or stores[0].mapping().version < MAPPINGS or lagging.stale < MAPPINGS:
            await asyncio.gather(*(dice.choice([begin, begin, begin, change, look])() for _ in range(4)))
            bench.clock.time += dice.randrange(60_000)
        for _ in range(400):
            bench.clock.time += 10 * MINUTE
            await look()
            if len(taken) == len(wakes):
                break
        assert taken == wakes.keys()
    finally:
        for store in stores:
            await store.close()


@pytest.mark.req("REC-6")
def test_no_wake_up_is_lost_or_early(env: str) -> None:
    """A longer campaign: OUTLAST_TEST_SLEEPERS=60 pytest tests/dynamodb/test_scheduling.py -k early."""

    async def asleep(bench: Bench) -> None:
        await sleepers(bench, Random(5), int(os.environ.get("OUTLAST_TEST_SLEEPERS", "20")))

    on_a_bench(asleep)(env)
