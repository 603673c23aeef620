"""Slices: a guest's engine decides who executes a run and when, and no effect repeats."""

from typing import Literal

import pytest

from outlast.core.events import EventType
from outlast.core.version_move import transfer
from outlast.errors import Conflict, NotFound
from outlast.flow import Context, Workflow, lookup, resend
from outlast.insight.tenant_rows import TenantRows
from outlast.runtime.served_versions import move_to_scheduler
from tests.engine.world import HOUR, MINUTE, SECOND, Go, Receiver, Slow, State, World, one_node, ordering, write
from tests.guests import FakeEngine
from tests.mutants import remove

Ctx = Context[State]


def chain(erp: Receiver, n: int = 3) -> Workflow[State]:
    """Return a workflow of `n` nodes, each with one effect; the last one waits for a signal first."""
    act = write(erp)
    flow = Workflow("chain", state=State)

    @flow.node(start=True, max_visits=n)
    async def step(ctx: Ctx) -> "Literal['step', 'last']":
        ctx.state.n += 1
        ctx.state.said.append(await ctx.do(act, f"{ctx.state.n}"))
        return "step" if ctx.state.n < n else "last"

    @flow.node
    async def last(ctx: Ctx) -> None:
        await ctx.receive("go", Go)
        ctx.state.said.append(await ctx.do(act, "last"))

    return flow


@pytest.mark.req("RT-4")
@pytest.mark.every_store
async def test_a_guest_executes_a_run_in_slices(world: World) -> None:
    erp, engine = Receiver(), FakeEngine(world.time)
    flow = two_calls(erp)
    world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    assert engine.thens() == ["waits"]
    end = engine.ends[-1][2]
    assert (end.status, [(g.kind, g.id) for g in end.gates]) == ("waiting", [("signal", "go")])
    await world.signal("go")
    await world.pass_(SECOND)
    assert (world.status(), engine.thens(), len(erp.did)) == ("completed", ["waits", "ended"], 2)
    await world.pass_(MINUTE)
    assert engine.wakes == ["r1", "r1"]


async def to(world: World, scheduler: str, run: str = "r1", *, force: bool = True) -> None:
    """Let an operator move a run to another scheduler."""
    rows = TenantRows(world.store, "t")
    await move_to_scheduler(rows, "ana", run, scheduler, reason="a test", force=force, shown=None)
    await world.settle()


def two_calls(erp: Receiver) -> Workflow[State]:
    """Return a workflow that orders a, waits for go, and orders b."""
    act = write(erp)

    async def body(ctx: Ctx) -> None:
        await ctx.do(act, "a")
        await ctx.receive("go", Go)
        await ctx.do(act, "b")

    return one_node(body)


@pytest.mark.req("RT-4")
async def test_a_slice_ends_after_so_many_nodes(world: World) -> None:
    """Each node is a separate slice, and the row names the next one."""
    erp, engine = Receiver(), FakeEngine(world.time, "langgraph", nodes=1)
    flow = chain(erp, 3)
    world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("langgraph"))
    await world.pass_(SECOND)
    assert engine.thens() == ["due", "due", "due", "waits"]
    assert [end.node for _, _, end in engine.ends] == ["step", "step", "last", "last"]
    assert len(erp.did) == 3


async def test_a_slice_ends_when_its_time_is_over(world: World) -> None:
    """No node is entered after an execution budget, however many there are."""
    pace = Receiver()

    @lookup(name="pace")
    async def paced(n: int) -> int:
        await world.time.sleep(100 * SECOND)
        return n

    flow = Workflow("long", state=State)

    @flow.node(start=True, max_visits=13)
    async def step(ctx: Ctx) -> "Literal['step'] | None":
        ctx.state.n += 1
        await ctx.do(paced, ctx.state.n)
        return "step" if ctx.state.n < 13 else None

    engine = FakeEngine(world.time)
    process = world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(40 * MINUTE)
    assert process.worker.claim_time.ms == 10 * MINUTE and pace.did == []
    assert (world.status(), engine.thens()) == ("completed", ["due", "due", "ended"])


@pytest.mark.req("RT-4")
@pytest.mark.every_store
async def test_a_repeated_slice_has_no_effect(world: World) -> None:
    """Two engines of one name ask for the same run at once: one slice executes it, the other says who holds it."""
    slow = Slow()
    erp = Receiver(slow)
    flow = two_calls(erp)
    first, second = FakeEngine(world.time), FakeEngine(world.time)
    second.deaf = True
    world.worker(flow, guest=first.guest())
    two = world.worker(flow, guest=second.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(15 * SECOND)  # the bridge of either worker may be the first to wake it
    assert slow.begun.is_set()
    end = await two.worker.slice("t", "r1")
    assert (end.then, end.why) == ("held", "wk-1 executes it") and 0 < (end.after_ms or 0) <= 5 * SECOND
    slow.go.set()
    await world.pass_(SECOND)
    again = [await two.worker.slice("t", "r1") for _ in range(2)]
    assert [each.then for each in again] == ["waits", "waits"] and again[0] == again[1]
    assert (await two.worker.slice("t", "nothing")).then == "gone"
    assert (erp.did, len(erp.attempts)) == (["t:r1:1:order/a"], 1)


@pytest.mark.req("RT-4")
@pytest.mark.every_store
async def test_a_run_moved_while_it_waits_goes_on_elsewhere(world: World) -> None:
    """From our workers to a guest and back; the engine that lost it ends its loop, and nothing repeats."""
    erp, engine = Receiver(), FakeEngine(world.time)
    flow = two_calls(erp)
    world.worker(flow)
    guest = world.worker(flow, guest=engine.guest())
    await world.start(flow)
    await world.pass_(SECOND)
    await to(world, "temporal", force=False)
    await world.pass_(SECOND)
    assert (world.run().lane, engine.thens(), world.status()) == ("temporal:flow@1", ["waits"], "waiting")
    await to(world, "outlast", force=False)
    await world.pass_(SECOND)
    assert (await guest.worker.slice("t", "r1")).then == "elsewhere"
    await world.signal("go")
    await world.pass_(5 * SECOND)
    assert (world.status(), erp.did) == ("completed", ["t:r1:1:order/a", "t:r1:1:order/b"])
    assert world.verbs().count("moved") == 2 and len(erp.attempts) == 2


@pytest.mark.req("RT-4")
@pytest.mark.every_store
async def test_the_epoch_fences_a_slice_of_the_engine_before(world: World) -> None:
    """The worker freezes after its claim, its run is queued and moved, and it wakes up again before the move ends."""
    erp, engine = Receiver(), FakeEngine(world.time)
    act = write(erp)

    async def body(ctx: Ctx) -> None:
        await ctx.do(act, "a")
        await ctx.do(act, "b")

    flow = one_node(body)
    old = world.worker(flow, guest=engine.guest())
    old.wire.after("claim", old.freeze)
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    assert world.run().owner == "wk-1"
    new = world.worker(flow)
    await world.pass_(MINUTE)
    assert (world.run().owner, world.run().scheduler) == ("", "temporal")
    slow = Slow()
    erp.script.append(slow)
    await to(world, "outlast")
    await world.pass_(SECOND)
    old.thaw()
    await world.pass_(MINUTE)
    assert (world.run().owner, len(erp.attempts)) == ("wk-2", 1)
    slow.go.set()
    await world.pass_(SECOND)
    assert (world.status(), new.worker.held) == ("completed", 0)
    assert (erp.did, len(erp.attempts)) == (["t:r1:1:order/a", "t:r1:1:order/b"], 2)


@pytest.mark.req("RT-4")
async def test_a_claim_that_lost_to_a_move_changes_nothing(world: World) -> None:
    """The guest has read the row, and the run moves before its claim lands."""
    erp, engine = Receiver(), FakeEngine(world.time)
    flow = two_calls(erp)
    guest = world.worker(flow, guest=engine.guest())
    guest.wire.before("claim", lambda: world._now(to_now(world)))
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    assert (engine.thens(), world.run().owner, erp.did) == (["elsewhere"], "", [])
    world.worker(flow)
    await world.pass_(SECOND)
    assert (world.status(), len(erp.did)) == ("waiting", 1)


async def to_now(world: World) -> None:
    await world.store.commit(transfer(world.run(), "outlast", now=await world.store.now(), by="ana", reason="a test"))


@pytest.mark.req("RT-4")
@pytest.mark.every_store
async def test_a_held_or_ended_run_does_not_move(world: World) -> None:
    slow = Slow()
    erp = Receiver(slow)
    flow = two_calls(erp)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(SECOND)
    with pytest.raises(Conflict, match="wk-1 executes r1 now"):
        await to(world, "temporal")
    with pytest.raises(Conflict, match="outlast schedules r1 already"):
        await to(world, "outlast")
    slow.go.set()
    await world.pass_(SECOND)
    with pytest.raises(NotFound, match="no live worker serves temporal:flow@1"):
        await to(world, "temporal", force=False)
    await world.signal("go")
    await world.pass_(SECOND)
    with pytest.raises(Conflict, match="has ended"):
        await to(world, "temporal")


@pytest.mark.req("RT-4")
@pytest.mark.every_store
async def test_a_lost_answer_of_a_slices_claim_is_returned(world: World) -> None:
    """The claim lands and its answer is lost: the worker returns the run at its next heartbeat, and it goes on."""
    erp, engine = Receiver(), FakeEngine(world.time)
    flow = two_calls(erp)
    guest = world.worker(flow, guest=engine.guest())
    guest.wire.lost.append("claim")
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    assert (world.run().owner, erp.did) == ("wk-1", [])
    await world.pass_(15 * SECOND)
    assert engine.thens() == ["held", "waits"] and erp.did == ["t:r1:1:order/a"]


@pytest.mark.req("RT-4", "REC-1")
@pytest.mark.every_store
async def test_runs_of_a_dead_guest_worker_are_woken_on_another(world: World) -> None:
    """Killed in a call that it may have made: the other worker closes its row, and the engine continues there."""
    erp, engine = Receiver(dedupes=True), FakeEngine(world.time)
    act = write(erp, mode="resend", if_uncertain=resend(remembered_for="24h"))
    flow = ordering(act, "a", "b")
    first = world.worker(flow, guest=engine.guest())
    first.wire.before("record", first.kill)
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    world.worker(flow, guest=engine.guest())
    engine.lose("wk-1")
    await world.pass_(4 * MINUTE)
    assert (world.status(), erp.did) == ("completed", ["t:r1:1:order/a", "t:r1:1:order/b"])
    assert "requeued" in world.verbs() and len(erp.attempts) == 3


@pytest.mark.req("RT-4")
async def test_without_a_bridge_the_timer_of_the_engine_finds_the_run(world: World) -> None:
    """A wait of an hour, and every wake is lost: the engine's own timer is `after_ms`, by the store's clock."""
    erp, engine = Receiver(), FakeEngine(world.time)
    act = write(erp)

    async def body(ctx: Ctx) -> None:
        await ctx.sleep("1h")
        await ctx.do(act, "a")

    flow = one_node(body)
    world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    assert engine.ends[-1][2].after_ms == HOUR
    engine.deaf = True
    await world.pass_(HOUR)
    assert (world.status(), erp.did) == ("completed", ["t:r1:1:order/a"])


@pytest.mark.req("RT-4")
async def test_an_engine_that_was_away_is_woken_when_it_is_back(world: World) -> None:
    """Away for an hour: the runs wait, the worker says so, and the engine needs no history of them."""
    erp, engine = Receiver(), FakeEngine(world.time)
    flow = two_calls(erp)
    world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    engine.away = True
    engine.lose_history()
    await world.signal("go")
    await world.pass_(HOUR)
    health = world.worker_row("wk-1").health
    assert (health.scheduler, health.away_why, world.status()) == ("temporal", "connection refused", "waiting")
    assert HOUR - 10 * SECOND < world.time.wall() - (health.away_since or 0) <= HOUR
    engine.away = False
    await world.pass_(35 * SECOND)
    assert (world.status(), len(erp.attempts)) == ("completed", 2)
    assert world.worker_row("wk-1").health.away_since is None
    texts = [event.data()["text"] for event in world.events() if event.type == EventType.LOGGED]
    assert texts == ["temporal began a new history of this run, without its earlier slices"]


@pytest.mark.req("RT-4", "CKP-6")
async def test_an_engine_that_saw_more_than_the_store_asks_a_person(world: World) -> None:
    """Calls that the newer copy of the store recorded must not be repeated."""
    erp, engine = Receiver(), FakeEngine(world.time)
    flow = two_calls(erp)
    engine.seen["t", "r1"] = 99
    world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(HOUR)
    assert (world.reasons(), erp.attempts) == (["contradiction"], [])
    assert "temporal saw version 99 of this run" in world.run().attention[0].detail
    await world.go_on()
    await world.pass_(SECOND)
    assert (world.reasons(), world.status(), len(erp.did)) == ([], "waiting", 1)


async def test_a_worker_that_may_not_serve_tries_again(world: World) -> None:
    """Its row says so, and a store that is away in the meantime changes nothing."""
    erp, engine = Receiver(), FakeEngine(world.time)
    engine.refuses = True
    flow = ordering(write(erp), "a")
    process = world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    process.wire.reads_fail = 20
    await world.pass_(MINUTE)
    assert (world.worker_row("wk-1").health.away_why, world.status()) == ("namespace not found", "queued")
    engine.refuses = False
    await world.pass_(20 * SECOND)
    assert (world.status(), world.worker_row("wk-1").health.away_since) == ("completed", None)


async def test_one_of_several_bridges_wakes_a_run(world: World) -> None:
    """Others follow only if the run is still due: each wake is a signal in an engine's history."""
    erp, engine = Receiver(), FakeEngine(world.time)
    flow = ordering(write(erp), "a")
    for _ in range(3):
        world.worker(flow, guest=engine.guest())
    await world.pass_(10 * SECOND)
    for i in range(6):
        await world.start(flow.scheduled_by("temporal"), f"r{i}")
    await world.pass_(MINUTE)
    assert sorted(engine.wakes) == [f"r{i}" for i in range(6)]


async def test_a_due_run_that_no_slice_claims_is_woken_again_with_pauses(world: World) -> None:
    engine = FakeEngine(world.time)
    engine.deaf = True
    flow = ordering(write(Receiver()), "a")
    world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(10 * MINUTE)
    assert 8 <= len(engine.wakes) <= 16 and engine.pings > 50


async def test_a_stopping_guest_worker_gives_its_run_back(world: World) -> None:
    """The slice ends as due, so the engine continues on another worker without a wake."""
    erp, engine = Receiver(), FakeEngine(world.time)

    @lookup(name="slowly")
    async def slowly(n: int) -> int:
        await world.time.sleep(2 * SECOND)
        return n

    flow = Workflow("drained", state=State)

    @flow.node(start=True, max_visits=9)
    async def step(ctx: Ctx) -> "Literal['step'] | None":
        ctx.state.n += 1
        await ctx.do(slowly, ctx.state.n)
        return "step" if ctx.state.n < 5 else None

    first = world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(3 * SECOND)
    world.worker(flow, guest=engine.guest())
    first.worker.drain()
    await world.pass_(MINUTE)
    assert (world.status(), erp.did) == ("completed", [])
    assert {end.then for _, _, end in engine.ends} == {"due", "ended"} and engine.wakes == ["r1"]


# --- each safeguard removed once ----------------------------------------------------------------------
@pytest.mark.parametrize("removed", ["", "lanes_without_scheduler"])
async def test_without_the_scheduler_in_its_lane_our_worker_takes_it(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove("lanes_without_scheduler", monkeypatch)
    erp = Receiver()
    flow = ordering(write(erp), "a")
    await world.start(flow.scheduled_by("temporal"))
    world.worker(flow)
    await world.pass_(SECOND)
    assert len(erp.did) == (1 if removed else 0)


async def dies_and_is_closed(world: World, erp: Receiver) -> Workflow[State]:
    """Let a guest's worker die with a run, and one of ours close its row."""
    flow = two_calls(erp)
    guest = world.worker(flow, guest=FakeEngine(world.time).guest())
    guest.wire.after("claim", guest.kill)
    await world.start(flow.scheduled_by("temporal"))
    world.worker(flow)
    await world.pass_(MINUTE)
    return flow


@pytest.mark.parametrize("removed", ["", "takes_over_for_a_guest"])
async def test_without_the_queue_our_worker_claims_a_run_of_a_guest(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove("takes_over_for_a_guest", monkeypatch)
    erp = Receiver()
    await dies_and_is_closed(world, erp)
    assert erp.did == [] and world.reasons() == (["exception"] if removed else [])  # because the lane is not its own


@pytest.mark.parametrize("removed", ["", "dead_guests_runs_stay"])
async def test_without_the_queue_a_run_of_a_dead_guest_worker_cannot_move(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """Every worker of the guest is dead, and an operator lets ours continue the run."""
    if removed:
        remove("dead_guests_runs_stay", monkeypatch)
    erp = Receiver()
    await dies_and_is_closed(world, erp)
    if removed:
        with pytest.raises(Conflict, match="wk-1 executes r1 now"):
            await to(world, "outlast")
        return
    await to(world, "outlast")
    await world.pass_(SECOND)
    assert (world.status(), erp.did) == ("waiting", ["t:r1:1:order/a"])


@pytest.mark.parametrize("removed", ["", "slices_without_end"])
async def test_without_its_limit_a_slice_goes_through_all_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove("slices_without_end", monkeypatch)
    engine = FakeEngine(world.time, nodes=1)
    flow = chain(Receiver(), 3)
    world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    assert len(engine.ends) == (1 if removed else 4)


@pytest.mark.parametrize("removed", ["", "no_engine_timer"])
async def test_without_after_ms_and_a_bridge_a_run_is_stranded(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove("no_engine_timer", monkeypatch)
    engine = FakeEngine(world.time)

    async def body(ctx: Ctx) -> None:
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    engine.deaf = True
    await world.pass_(HOUR)
    assert world.status() == ("waiting" if removed else "completed")


@pytest.mark.parametrize("removed", ["", "no_sweep"])
async def test_without_sweeps_a_decision_during_an_outage_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove("no_sweep", monkeypatch)
    engine = FakeEngine(world.time)
    flow = two_calls(Receiver())
    world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    engine.away = True
    await world.signal("go")
    await world.pass_(MINUTE)
    engine.away = False
    await world.pass_(HOUR)
    assert world.status() == ("waiting" if removed else "completed")
