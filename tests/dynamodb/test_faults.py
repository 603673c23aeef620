"""Throttling, conflicts, lost answers, lagging indexes and torn reads: no commit is lost or lands twice."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from examples.negotiation import record
from outlast.core.commit import Commit, Put
from outlast.core.rows.run_rows import EVENT, RUN, Run
from outlast.errors import StoreUnusable
from outlast.store.port import RunRows
from tests.conformance import subject as make
from tests.conformance.subject import LANE, TENANT
from tests.dynamodb import server
from tests.dynamodb.load import Driver, Ledger, audit, opened, watch
from tests.dynamodb.proxy import ALWAYS, Body, Fate, Wire, wire
from tests.examples.helpers import market
from tests.examples.test_auction import auction
from tests.mutants import remove

WRITE = "TransactWriteItems"
SENT = {"invitations": 5 + 4 * 4, "feedback": 4 * 5, "orders": 1, "messages": 4}
RUNS = tuple(f"run-{i}" for i in range(4))


@pytest.fixture
def line() -> Iterator[Wire]:
    with wire(server.emulator()) as made:
        yield made


@pytest.fixture
def through(env: str, line: Wire) -> str:
    return server.url(env, line.endpoint)


@pytest.mark.req("RT-5")
@pytest.mark.parametrize("fate", [Fate.DROP, Fate.LOSE, Fate.THROTTLE, Fate.CONFLICT, Fate.FAIL_AFTER])
def test_a_store_opens_although_answers_are_lost(through: str, line: Wire, fate: Fate) -> None:
    """The writer's row is inserted once. A second writer of the same name is refused."""

    async def live() -> None:
        line.rule(WRITE, fate, 2)
        store = await opened(through, "w")
        assert len(line.seen(WRITE, fate)) == 2
        await store.commit(make.start(make.run_row()))
        line.rule(WRITE, fate, 1)
        with pytest.raises(StoreUnusable, match="exists already"):
            await opened(through, "w")
        await store.close()

    asyncio.run(live())


class Fault(NamedTuple):
    """How a fault begins, and how often the record says that it happened."""

    begin: Callable[[Wire, Random], None]
    count: Callable[[Wire], int]


def begin(line: Wire, operation: str, fate: Fate, share: float, dice: Random) -> None:
    """Give a share of the requests a fate once a writer is registered. To open a store takes a few good answers."""

    def chosen(body: Body) -> bool:
        return dice.random() < share and any(
            request.status == 200 for request in line.record[:50] if request.operation == WRITE
        )

    line.rule(operation, fate, ALWAYS, where=chosen)


def throttle(line: Wire, dice: Random) -> None:
    begin(line, "", Fate.THROTTLE, 0.1, dice)


def conflict(line: Wire, dice: Random) -> None:
    line.overlaps = True
    begin(line, WRITE, Fate.CONFLICT, 0.1, dice)


LOSSES = (Fate.DROP, Fate.LOSE, Fate.HALF, Fate.FAIL, Fate.FAIL_AFTER)


def lose(line: Wire, dice: Random) -> None:
    for fate in LOSSES:
        begin(line, WRITE, fate, 0.04, dice)
        begin(line, "UpdateItem", fate, 0.04, dice)


def lag(line: Wire, dice: Random) -> None:
    line.lag(0.3, dice)


def cut_pages(line: Wire, dice: Random) -> None:
    line.page_limit, line.batch_limit = 2, 2


FAULTS = {
    "throttling": Fault(throttle, lambda line: len(line.seen("", Fate.THROTTLE))),
    "conflicts": Fault(conflict, lambda line: len(line.seen(WRITE, Fate.CONFLICT))),
    "lost answers": Fault(lose, lambda line: min(len(line.seen("", fate)) for fate in LOSSES)),
    "lagging indexes": Fault(lag, lambda line: line.index.stale if line.index is not None else 0),
    "half-read pages": Fault(cut_pages, lambda line: sum("ExclusiveStartKey" in q.body for q in line.seen("Query"))),
}


@pytest.mark.req("RT-5", "RUN-3")
@pytest.mark.parametrize("names", [("conflicts",), tuple(FAULTS)])
def test_two_writers_lose_nothing_under_faults(names: tuple[str, ...], env: str, line: Wire) -> None:
    """What was acknowledged is there once, and what was refused is not."""

    async def live() -> None:
        ledger, dice = Ledger(), Random(7)
        stores = [await opened(server.url(env, line.endpoint), f"w{i}") for i in range(2)]
        for name in names:
            FAULTS[name].begin(line, dice)
        drivers = [Driver(store, store.writer, ledger) for store in stores]

        def enough() -> bool:
            return len(ledger.done) >= 80

        reads, *_ = await asyncio.gather(
            watch(stores[0], RUNS, enough), *(driver.drive(RUNS, enough) for driver in drivers)
        )
        assert reads > 0
        for store in stores:
            await store.close()
        judge = await opened(server.url(env), "judge")
        assert await audit(judge, RUNS, ledger) > 20
        await judge.close()

    asyncio.run(live())
    happened = {name: FAULTS[name].count(line) for name in names}
    assert all(happened[name] for name in names if name != "lagging indexes"), happened  # few runs are due here


@pytest.mark.req("RT-5", "RUN-1", "RUN-2", "EFF-1")
@pytest.mark.parametrize("names", [("throttling", "conflicts", "lost answers"), ("lagging indexes", "half-read pages")])
def test_an_auction_ends_right_under_faults(
    names: tuple[str, ...], through: str, line: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five rounds, an approval and an order, each letter sent once."""
    for name in names:
        FAULTS[name].begin(line, Random(5))
    with market(tmp_path, "calm") as m:
        state, bought = asyncio.run(auction(m, through, monkeypatch))
        counts = record.summary(record.read(m.record), state.run)
    assert (state.shown, bought.rounds_held) == ("AWARDED", 5)
    assert {kind: counts[kind].sent for kind in SENT} == SENT
    assert {count.repeated for count in counts.values()} == {0}
    assert all(FAULTS[name].count(line) > 1 for name in names), {name: FAULTS[name].count(line) for name in names}


# --- reads ---------------------------------------------------------------------------------------------
async def read_between_pages(env: str, line: Wire) -> tuple[Run, RunRows]:
    """Hold the second page back while another writer lands an effect, a move and a message. Return its run, too."""
    writer = await opened(server.url(env), "w0")
    mine = await make.held(writer)
    for n in range(4):
        await writer.commit(make.append_message(make.message_row(payload=b"%d" % n)))
    reader = await opened(server.url(env, line.endpoint), "w1")
    line.page_limit = 2
    line.rule("Query", Fate.HOLD, where=lambda body: "ExclusiveStartKey" in body)
    reading = asyncio.create_task(reader.run_rows(((TENANT, "run-1"),)))
    await line.until(lambda: bool(line.seen("Query", Fate.HOLD)))
    await writer.commit(make.intend(make.effect_row(), mine))
    await writer.commit(make.put_run(await make.the_run(writer), node="later"))
    await writer.commit(make.append_message(make.message_row(payload=b"4")))
    await asyncio.to_thread(line.release)
    (rows,) = await reading
    assert rows is not None
    run = await make.the_run(writer)
    await reader.close()
    await writer.close()
    return run, rows


@pytest.mark.req("CKP-1")
def test_the_rows_of_a_run_are_read_again_if_it_moved_between_two_pages(env: str, line: Wire) -> None:
    run, rows = asyncio.run(read_between_pages(env, line))
    assert rows.run == run and (run.node, run.inbox_seq) == ("later", 5)
    assert [message.n for message in rows.messages] == [1, 2, 3, 4, 5]
    assert [effect.key for effect in rows.effects] == ["invite/1"]


def test_without_the_second_read_the_rows_are_of_two_moments(
    env: str, line: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove("run_read_once", monkeypatch)
    run, rows = asyncio.run(read_between_pages(env, line))
    assert rows.run != run and len(rows.messages) > rows.run.inbox_seq


@pytest.mark.req("CKP-1")
@pytest.mark.parametrize("padded", [True, False])
def test_a_run_continues_from_its_newest_event(url: str, padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without zeros in front of its number, event 9 would be the newest of twelve."""
    if not padded:
        remove("numbers_not_padded", monkeypatch)

    async def live() -> int:
        store = await opened(url, "w")
        row = await make.held(store)
        for seq in range(2, 13):
            after = make.moved(row, seq=seq)
            await store.commit(Commit((Put(RUN, after, row.version), Put(EVENT, make.event_row(seq=seq), 0))))
            row = after
        (rows,) = await store.run_rows((row[:2],))
        await store.close()
        assert rows is not None
        return rows.last.seq

    assert asyncio.run(live()) == (12 if padded else 9)


@pytest.mark.req("REC-5")
def test_a_lagging_index_delays_a_take_and_never_makes_a_wrong_one(through: str, line: Wire) -> None:
    async def live() -> None:
        store = await opened(through, "w")
        await store.commit(make.start(make.run_row()))
        line.lag(0.0, Random(1))
        assert await store.take((LANE,), 5, lambda run, now, mapping: None) == ()  # copies the index
        (taken,) = await store.take((LANE,), 5, make.claim_by("worker-1"))
        await store.commit(make.start(make.run_row("run-2")))
        assert await store.take((LANE,), 5, make.claim_by("worker-2")) == (), "run-1 is taken, run-2 is not shown yet"
        assert await make.the_run(store) == taken
        line.catch_up()
        assert [run.run for run in await store.take((LANE,), 5, make.claim_by("worker-2"))] == ["run-2"]
        assert line.index is not None and line.index.stale > 0
        assert await store.load(RUN, (TENANT, "run-1")) == taken
        await store.close()

    asyncio.run(live())
