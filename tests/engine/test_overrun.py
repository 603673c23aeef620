"""An executor that waits for a call or commit without end releases its run, visibly (REC-2)."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from outlast.core.commit import Commit, Done
from outlast.engine.attempts import ActivityCaller
from outlast.errors import Unavailable
from outlast.flow import Context, Happened, Perhaps, Workflow, activity, lookup
from tests.engine.world import MINUTE, SECOND, Receiver, State, World, one_node, ordering, write

Ctx = Context[State]
BUDGET = 600 * SECOND  # of the defaults


async def never_ends(go: asyncio.Event) -> None:
    """Swallow cancellations, the engine's timeout included."""
    for _ in range(5):
        with suppress(asyncio.CancelledError):
            await go.wait()
            return


def quick() -> Workflow[State]:
    async def body(ctx: Ctx) -> None:
        pass

    return one_node(body, name="quick")


async def serves_on(world: World, *workers: Any) -> None:
    """Each worker has a place free again."""
    await world.start(quick(), "after")
    await world.pass_(MINUTE)
    assert world.status("after") == "completed"
    assert [each.worker.held for each in workers] == [0] * len(workers)


@pytest.mark.req("REC-2")
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_node_that_never_returns_calls_a_person_before_its_claim_ends(world: World, workers: int) -> None:
    async def body(ctx: Ctx) -> None:
        await asyncio.Event().wait()

    flow = one_node(body)
    serving = [world.worker(flow, quick(), concurrency=1) for _ in range(workers)]
    await world.start(flow)
    await world.pass_(BUDGET - 30 * SECOND)
    assert world.reasons() == [], "it may take its time"
    await world.pass_(30 * SECOND)
    assert world.reasons() == ["exception"]
    (entry,) = world.attention()
    assert "node only does not return" in entry.detail and "waits at tests/engine/test_overrun.py:" in entry.detail
    assert world.verbs().count("claimed") == 1
    await serves_on(world, *serving)


@pytest.mark.req("REC-2")
async def test_a_node_of_a_process_that_stood_still_is_given_time_to_return(world: World) -> None:
    go = asyncio.Event()

    async def body(ctx: Ctx) -> None:
        await go.wait()

    flow = one_node(body)
    process = world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    process.freeze()
    await world.pass_(BUDGET)
    process.thaw()
    await world.pass_(SECOND)
    go.set()
    await world.pass_(SECOND)
    assert (world.status(), world.reasons()) == ("completed", [])


@pytest.mark.req("REC-2", "EFF-2")
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_call_that_swallows_its_timeout_is_uncertain_and_its_late_answer_is_evidence(
    world: World, workers: int
) -> None:
    go = asyncio.Event()

    @activity(key="act/{what}", name="act", no_undo="a test")
    async def act(what: str) -> str:
        await never_ends(go)
        return "late"

    flow = ordering(act, "a")
    serving = [world.worker(flow, quick(), concurrency=1) for _ in range(workers)]
    await world.start(flow)
    await world.pass_(119 * SECOND)
    assert world.status() == "running"
    await world.pass_(12 * SECOND)
    assert world.reasons() == ["effect_uncertain"]
    assert world.effect("act/a").code == "timeout"
    await serves_on(world, *serving)
    before = world.events()
    go.set()
    await world.settle()
    assert world.events() == before and world.effect("act/a").status.value == "uncertain"
    assert [e.answer.response_text for e in world.evidence()] == ['"late"']


@pytest.mark.req("REC-2", "EFF-6")
async def test_an_undo_that_swallows_its_timeout_is_asked_about_as_a_failed_undo(world: World) -> None:
    go = asyncio.Event()

    @activity(key="act/{what}", name="act")
    async def act(what: str) -> str:
        return what

    @act.undo
    async def take_back(done: str, what: str) -> None:
        await never_ends(go)

    async def body(ctx: Ctx) -> None:
        await ctx.do(act, "a")
        await ctx.sleep("48h")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    await world.pass_(3 * MINUTE)
    assert world.reasons() == ["undo_failed"]
    await world.answer("undo_failed", "done_by_hand")
    assert world.status() == "cancelled"
    go.set()
    await world.settle()


@pytest.mark.req("REC-2")
@pytest.mark.parametrize("within", ["itself", "a task", "a gather"])
async def test_a_lookup_that_swallows_its_timeout_fails_in_the_node(world: World, within: str) -> None:
    go = asyncio.Event()

    @lookup(name="price")
    async def price(what: str) -> str:
        if within == "itself":
            await never_ends(go)
        elif within == "a task":
            await asyncio.ensure_future(never_ends(go))
        else:
            await asyncio.gather(never_ends(go), asyncio.sleep(1))
        return "late"

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.do(price, "a")
        except TimeoutError as error:
            ctx.state.said.append(str(error))

    flow = one_node(body)
    serving = world.worker(flow, quick(), concurrency=1)
    await world.start(flow)
    await world.pass_(131 * SECOND)
    assert world.status() == "completed" and "did not end" in world.outcome()["said"][0]
    go.set()
    await serves_on(world, serving)


@pytest.mark.req("REC-2")
async def test_a_reconcile_that_swallows_its_timeout_leaves_its_effect_uncertain(world: World) -> None:
    go = asyncio.Event()
    act = write(Receiver(Perhaps("lost")))

    @act.reconcile
    async def find(what: str, amount: int = 1) -> Happened[str]:
        await never_ends(go)
        return Happened("late")

    flow = ordering(act, "a")
    serving = world.worker(flow, quick(), concurrency=1)
    await world.start(flow)
    await world.pass_(131 * SECOND)
    assert world.reasons() == ["effect_uncertain"]
    go.set()
    await world.settle()
    assert world.effect("order/a").status.value == "uncertain"
    await serves_on(world, serving)


@pytest.mark.req("REC-4")
async def test_the_timeouts_of_all_calls_are_read_once_in_each_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run once read the timeouts of all: with 10,000 calls, seconds of CPU in each look."""
    reads: list[float] = []
    overdue = ActivityCaller.overdue

    def read(self: ActivityCaller, since_s: float) -> Any:
        reads.append(since_s)
        return overdue(self, since_s)

    go = asyncio.Event()

    @activity(key="stays/{what}", name="stays", no_undo="a test")
    async def stays(what: str) -> str:
        await go.wait()
        return "late"

    flow = ordering(stays, "a")
    world.worker(flow, concurrency=5)
    await world.start(flow, "first")
    monkeypatch.setattr(ActivityCaller, "overdue", read)
    await world.pass_(MINUTE)
    alone = len(reads)
    for run in ("second", "third", "fourth", "fifth"):
        await world.start(flow, run)
    reads.clear()
    await world.pass_(MINUTE)
    assert alone and len(reads) == alone
    go.set()


@pytest.mark.req("REC-2", "REC-3")
async def test_an_executor_beyond_its_claim_is_given_up_and_the_run_is_claimed_again(world: World) -> None:
    """Whatever it waits for: here an answer of the store to the intent that never comes."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    serving = world.worker(flow, quick(), concurrency=1)
    answers = serving.wire.hold("intend")
    await world.start(flow)
    await world.pass_(BUDGET)
    assert serving.worker.held == 1
    del serving.wire._held["intend"]  # the next answers come
    await world.pass_(30 * SECOND)
    assert serving.worker.held == 0 and world.reasons() == ["effect_uncertain"], "as after a death"
    answers.set()
    await world.settle()
    assert shop.attempts == [], "the holder that was given up sends nothing"
    await serves_on(world, serving)


@pytest.mark.req("REC-2", "FAIL-5")
@pytest.mark.parametrize("reads", [True, False])
async def test_a_holder_that_waits_for_a_store_without_writes_keeps_its_answers(
    world: World, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """No other worker can claim the run, and the answer of the call is kept, e.g. while the disk is full."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    serving = world.worker(flow)

    def refuses(commit: Commit) -> Done:
        raise Unavailable("no space")

    def away() -> None:
        monkeypatch.setattr(serving.wire, "urgent_sync", refuses)
        serving.wire.away += ["record"] * 10_000
        serving.wire.reads_fail = 0 if reads else 10_000

    serving.wire.before("record", away)
    await world.start(flow)
    await world.pass_(BUDGET + 5 * MINUTE)
    assert serving.worker.held == 1
    monkeypatch.undo()
    serving.wire.away.clear()
    serving.wire.reads_fail = 0
    await world.pass_(30 * SECOND)
    assert world.status() == "completed" and len(shop.did) == 1
