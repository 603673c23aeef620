"""Leases: one holder at a time, replaced when it dies, harmless when it only seemed dead (S-2, S-4)."""

import asyncio
import threading
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import pytest

from outlast.core.durations import Liveness
from outlast.core.machine import LeaseStatus
from outlast.engine import commands
from outlast.engine.capacity import LostClaim
from outlast.errors import Conflict
from outlast.flow import Context, Workflow, activity, lookup, resend
from tests.engine.world import (
    HOUR,
    MINUTE,
    QUIET,
    SECOND,
    Go,
    Receiver,
    Slow,
    State,
    World,
    one_node,
    ordering,
    threads_rest,
    write,
)

Ctx = Context[State]


@pytest.mark.req("REC-1", "REC-5", "FAIL-6")
@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.every_store
async def test_of_many_workers_one_claims_a_run(world: World, n: int) -> None:
    """All poll at the same moment; one claim, one execution, one call."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    for _ in range(n):
        world.worker(flow)
    await world.settle()
    await world.start(flow)
    assert world.status() == "completed"
    assert world.verbs().count("claimed") == 1
    assert len(shop.attempts) == 1


@pytest.mark.req("REC-1", "REC-3", "REC-4", "RUN-2")
@pytest.mark.every_store
async def test_a_dead_worker_is_replaced_within_its_heartbeat_window(world: World) -> None:
    """Its row is closed once it has expired, its runs are taken, and they are `recovering`."""
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop, mode="reconcile"), "a")
    first = world.worker(flow)
    await world.start(flow)
    world.worker(flow)
    await world.settle()
    owner = world.run().owner
    dead = next(p for p in world.processes if p.name == owner)
    assert slow.begun.is_set() and dead is first
    dead.kill()
    await world.pass_(16 * SECOND)
    assert world.worker_row(owner).status is LeaseStatus.CLOSED
    assert "taken_over" in world.verbs()
    assert world.status() == "recovering"


@pytest.mark.req("REC-3", "REC-4")
async def test_two_workers_share_the_runs_of_a_dead_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One closes its row. The other looked 5 s later, when the first one had claimed all of ten thousand runs."""
    monkeypatch.setattr("outlast.engine.capacity.TAKE_OVER_MAX", 2)
    flow = ordering(write(Receiver(*[Slow() for _ in range(4)]), mode="reconcile"), "a")
    dead = world.worker(flow)
    for n in range(4):
        await world.start(flow, f"r{n}")
    others = [world.worker(flow), world.worker(flow)]
    await world.settle()
    for other in others:  # the answer to the first claims of the worker that closes the row is slow
        other.wire.after(f"close worker {dead.name}", partial(other.wire.hold, "take"))
    dead.kill()
    await world.pass_(16 * SECOND)
    owners = [world.run(f"r{n}").owner for n in range(4)]
    assert sorted(owners) == [others[0].name] * 2 + [others[1].name] * 2


@pytest.mark.req("REC-3", "RUN-3", "EFF-3", "FAIL-12")
@pytest.mark.every_store
async def test_a_worker_that_was_frozen_and_replaced_sends_nothing_and_records_nothing(world: World) -> None:
    """A zombie wakes between its intent and its call: the last-instant check refuses; its row never renews again."""
    shop = Receiver()
    flow = ordering(write(shop, mode="reconcile"), "a")
    first = world.worker(flow)
    gate = first.wire.hold("intend order/a")
    await world.start(flow)
    first.freeze()
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.run().owner != "wk-1"
    first.thaw()
    gate.set()
    await world.pass_(SECOND)
    assert shop.attempts == []
    await world.pass_(QUIET)
    assert world.status() == "completed"
    assert len(shop.did) == 1
    row = world.worker_row("wk-1")
    assert row.status is LeaseStatus.CLOSED
    assert first.task.done() or first.worker.held == 0


@pytest.mark.req("REC-1", "REC-3")
async def test_a_worker_whose_lease_has_run_out_renews_it_before_it_claims(world: World) -> None:
    """Found by seed 2014127: it claimed a run, could not call, and handed it back, again and again."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    process = world.worker(flow)
    await world.settle()
    process.wire.away.extend(["renew"] * 4)
    await world.pass_(16 * SECOND)  # no worker closes its row
    await world.start(flow)
    await world.pass_(SECOND)
    assert "claimed" not in world.verbs()
    process.wire.away.clear()
    await world.pass_(10 * SECOND)
    assert (world.status(), world.effect("order/a").attempts, len(shop.attempts)) == ("completed", 1, 1)


@pytest.mark.req("EFF-3")
async def test_a_call_is_not_sent_after_the_last_moment_of_its_intent(world: World) -> None:
    """Without a replacement: 30 s after the intent it is too late; it is intended again and made once."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    process = world.worker(flow)
    gate = process.wire.hold("intend order/a")
    await world.start(flow)
    await world.pass_(31 * SECOND)  # the worker is alive and renews; only this answer was slow
    before = world.effect("order/a").attempts
    gate.set()
    await world.settle()
    await world.pass_(5 * SECOND)
    assert before == 1 and world.effect("order/a").attempts > 1
    assert (world.status(), len(shop.attempts)) == ("completed", 1)


@pytest.mark.req("EFF-3")
@pytest.mark.parametrize("which", ["boot_off", "wall_off", "mono_off"])
async def test_clocks_that_did_not_advance_alike_stop_the_call(world: World, which: str) -> None:
    """A suspended machine: one of its clocks did not advance. Nothing is sent under that intent."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    process = world.worker(flow)
    gate = process.wire.hold("intend order/a")
    await world.start(flow)
    setattr(process.clock, which, 2 * SECOND)
    gate.set()
    await world.settle()
    assert world.effect("order/a").attempts >= 2 or shop.attempts == []
    await world.pass_(10 * SECOND)
    assert (world.status(), len(shop.attempts)) == ("completed", 1)


@pytest.mark.req("EFF-3", "RUN-3", "EFF-2", "FAIL-12")
@pytest.mark.every_store
async def test_an_answer_that_comes_after_the_run_was_taken_is_kept_as_evidence(world: World) -> None:
    """The late record is fenced; the answer is there for reconcilers and people."""
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop), "a")
    first = world.worker(flow)
    await world.start(flow)
    first.freeze()
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["effect_uncertain"]
    slow.go.set()
    first.thaw()
    await world.pass_(MINUTE)
    (late,) = world.evidence()
    assert "did order/a" in late.answer_text
    assert world.effect("order/a").status.value == "uncertain"


@pytest.mark.req("REC-1", "REC-2", "RUN-3")
async def test_a_run_past_its_execution_budget_is_taken_from_a_living_worker(world: World) -> None:
    """600 s by default; the holder that overran it is fenced and stops."""

    @lookup(name="minute")
    async def minute(n: int) -> int:
        await asyncio.sleep(60)
        return n

    async def body(ctx: Ctx) -> None:
        ctx.state.n += 1
        for n in range(60 if world.run().owner == "wk-1" else 0):
            await ctx.do(minute, n)
        await ctx.receive("go", Go)

    flow = one_node(body)
    first = world.worker(flow)
    await world.start(flow)
    due = world.run().due_at
    world.worker(flow, name="wk-2")
    await world.pass_(599 * SECOND)
    assert (world.run().owner, world.run().due_at) == ("wk-1", due)
    await world.pass_(2 * SECOND)
    assert world.status() == "waiting"
    assert first.task.done() is False
    await world.pass_(HOUR)
    assert world.status() == "waiting"
    assert world.verbs()[-1] == "parked"


@pytest.mark.req("REC-2")
async def test_one_stuck_run_does_not_block_others(world: World) -> None:
    """A run held beyond its budget stays due; other runs of the lane are still claimed, without a busy loop."""

    async def stuck(ctx: Ctx) -> None:
        await world.time.sleep(100 * HOUR)

    flow, ok = one_node(stuck, name="stuck"), ordering(write(Receiver()), "a")
    world.worker(flow, ok, concurrency=2)
    await world.start(flow, "s")
    await world.pass_(601 * SECOND)
    await world.start(ok, "r1")
    await world.pass_(10 * SECOND)
    assert world.status("r1") == "completed"


@pytest.mark.req("REC-2")
async def test_an_owned_run_s_due_at_moves_with_advance_only(world: World) -> None:
    """Renewals write one row, the worker's; a second node gets a new budget."""
    flow = Workflow("two", state=State)

    @flow.node(start=True)
    async def one(ctx: Ctx) -> Literal["two"]:
        await world.time.sleep(300 * SECOND)
        return "two"

    @flow.node
    async def two(ctx: Ctx) -> None:
        await world.time.sleep(500 * SECOND)

    world.worker(flow)
    await world.start(flow)
    due, version = world.run().due_at, world.run().version
    assert due is not None
    await world.pass_(299 * SECOND)
    assert (world.run().due_at, world.run().version) == (due, version)
    await world.pass_(2 * SECOND)
    assert world.run().due_at == due + 300 * SECOND
    await world.pass_(500 * SECOND)
    assert world.status() == "completed"


@pytest.mark.req("REC-1", "REC-3")
async def test_a_claim_whose_answer_was_lost_is_given_back(world: World) -> None:
    """The store assigns it to this worker, which does not execute it: the next heartbeat releases it."""
    flow = ordering(write(Receiver()), "a")
    process = world.worker(flow)
    process.wire.lose_takes = True
    await world.start(flow)
    assert (world.status(), process.worker.held) == ("running", 0)
    await world.pass_(11 * SECOND)
    assert world.status() == "completed"
    assert "handed_back" in world.verbs()


@pytest.mark.req("REC-1", "REC-3")
async def test_nothing_is_given_back_while_the_answer_to_a_take_is_on_its_way(world: World) -> None:
    """The model's trace: comparing then would rob a healthy holder, which is this worker itself."""
    flow = ordering(write(Receiver()), "a")
    process = world.worker(flow)
    gate = process.wire.hold("take")
    await world.start(flow)
    await world.pass_(12 * SECOND)
    assert "handed_back" not in world.verbs()
    gate.set()
    await world.settle()
    assert world.status() == "completed"
    assert "handed_back" not in world.verbs()


@pytest.mark.req("REC-1", "REC-3")
async def test_the_answers_to_two_takes_at_once_are_both_waited_for(world: World) -> None:
    """One take for due runs, one for a dead worker's: the first one's answer says nothing of the second's."""
    slow = Slow()
    flow = ordering(write(Receiver(slow), mode="reconcile"), "a")
    dead = world.worker(flow)
    await world.start(flow, "orphan")
    dead.kill()
    heir = world.worker(flow)
    gate = heir.wire.hold("take")
    await world.pass_(16 * SECOND)  # it has taken the orphan, and does not know it yet
    assert world.run("orphan").owner == "wk-2"
    await world.pass_(12 * SECOND)
    assert "handed_back" not in world.verbs("orphan")
    gate.set()
    await world.pass_(QUIET)
    assert world.status("orphan") == "completed"


@pytest.mark.req("REC-3")
async def test_a_closed_worker_stops_and_must_start_under_a_new_id(world: World) -> None:
    """It learns at its next renewal, stops before its next write, and what it held is run elsewhere."""

    async def body(ctx: Ctx) -> None:
        await world.time.sleep(40 * SECOND)
        await ctx.receive("go", Go)

    flow = one_node(body)
    first = world.worker(flow)
    await world.start(flow)
    first.freeze()
    world.worker(flow)
    await world.pass_(20 * SECOND)
    first.thaw()
    await world.pass_(90 * SECOND)
    assert first.task.done()
    assert world.worker_row("wk-1").status is LeaseStatus.CLOSED
    assert world.status() == "waiting"


@pytest.mark.req("REC-3")
async def test_a_drained_worker_gives_back_what_it_holds(world: World) -> None:
    """SIGTERM: it claims no run; at the next checkpoint the run is due for another worker."""
    slow = Slow()
    shop = Receiver(slow)
    order = write(shop)
    flow = Workflow("two", state=State)

    @flow.node(start=True)
    async def one(ctx: Ctx) -> Literal["two"]:
        await ctx.do(order, "a")
        return "two"

    @flow.node
    async def two(ctx: Ctx) -> None:
        await ctx.do(order, "b")

    first = world.worker(flow)
    await world.start(flow)
    first.worker.drain()
    slow.go.set()
    await world.settle()
    assert (world.status(), world.run().node, world.run().owner) == ("queued", "two", "")
    assert first.task.done()
    assert world.worker_row("wk-1").status is LeaseStatus.CLOSED
    world.worker(flow)
    await world.settle()
    assert world.status() == "completed"
    assert len(shop.did) == 2


@pytest.mark.req("REC-3", "EFF-3")
async def test_a_call_beyond_the_drain_grace_is_left_open(world: World) -> None:
    """The execution ends with its tasks: none begins another call after the worker's row is closed."""
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop, mode="reconcile"), "a", "b")
    first = world.worker(flow)
    await world.start(flow)
    first.worker.drain()
    await world.pass_(26 * SECOND)
    assert first.task.done()
    slow.go.set()
    await world.settle()
    assert [k.rsplit(":", 1)[1] for k in shop.attempts] == ["order/a"]
    world.worker(flow)
    await world.pass_(QUIET)
    assert world.status() == "completed"
    assert sorted(set(shop.did)) == sorted(shop.did)


@pytest.mark.req("REC-1")
async def test_a_worker_takes_over_only_runs_of_its_lanes(world: World) -> None:
    """The dead worker served two lanes, its successor serves one: the other's runs wait for one who can."""

    async def stuck(ctx: Ctx) -> None:
        await world.time.sleep(5 * MINUTE)

    one, two = one_node(stuck, name="one"), one_node(stuck, name="two")
    first = world.worker(one, two)
    await world.start(one, "r-one")
    await world.start(two, "r-two")
    first.kill()
    second = world.worker(two)
    await world.pass_(MINUTE)
    assert world.run("r-two").owner == second.name
    assert world.run("r-one").owner == first.name
    third = world.worker(one)
    await world.pass_(MINUTE)
    assert world.run("r-one").owner == third.name


# --- activities in threads ------------------------------------------------------------------------------
def threaded(began: threading.Event, go: threading.Event, did: list[str], **options: object) -> object:
    @activity(key="sync/{what}", name="sync", no_undo="a test", **options)  # type: ignore[call-overload]
    def sync(what: str) -> str:
        began.set()
        go.wait(10)
        did.append(what)
        return f"did {what}"

    return sync


@pytest.mark.req("EFF-3")
async def test_a_plain_function_runs_in_a_thread_and_is_recorded(world: World) -> None:
    """The event loop stays free."""
    began, go, did = threading.Event(), threading.Event(), []  # type: ignore[var-annotated]
    flow = ordering(threaded(began, go, did), "a")
    world.worker(flow)
    await world.start(flow)
    await asyncio.to_thread(began.wait)
    assert world.effect("sync/a").status.value == "intended"
    go.set()
    while world.status() != "completed":
        await asyncio.to_thread(lambda: None)
        await world.settle()
    assert did == ["a"]


@pytest.mark.req("EFF-2", "EFF-3")
async def test_a_thread_that_outlives_its_timeout_calls_a_person_in_every_mode(world: World) -> None:
    """It may still send, so neither a repeat nor a look-up is proof: abandoned, uncertain."""
    began, go, did = threading.Event(), threading.Event(), []  # type: ignore[var-annotated]
    mode = resend(remembered_for=timedelta(hours=5))
    flow = ordering(threaded(began, go, did, if_uncertain=mode, timeout=timedelta(seconds=20)), "a")
    world.worker(flow)
    await world.start(flow)
    await asyncio.to_thread(began.wait)
    await world.pass_(20 * SECOND)
    assert world.reasons() == ["effect_uncertain"]
    go.set()


@pytest.mark.req("EFF-3")
@pytest.mark.parametrize("patience", [19, 9])
async def test_a_call_queued_behind_a_hanging_thread_is_made_once_that_is_given_up(world: World, patience: int) -> None:
    """One thread hangs. The next call has not started, so it is never uncertain, and is made later."""
    began, go, did = threading.Event(), threading.Event(), []  # type: ignore[var-annotated]
    hangs = threaded(began, go, did, timeout=timedelta(seconds=20))
    queued = threaded(began, go, did, timeout=timedelta(seconds=patience))

    async def body(ctx: Ctx) -> None:
        first = asyncio.ensure_future(ctx.do(hangs, "a"))  # type: ignore[arg-type]
        await world.time.sleep(5 * SECOND)
        await ctx.do(queued, "b")  # type: ignore[arg-type]
        await first

    flow = one_node(body)
    world.worker(flow, concurrency=1)
    await world.start(flow)
    await asyncio.to_thread(began.wait)
    began.clear()
    await world.pass_(19 * SECOND)
    assert not began.is_set()
    await world.pass_(SECOND)
    assert await asyncio.to_thread(began.wait, 10)
    go.set()
    while world.effect("sync/b").status.value == "intended":
        await asyncio.to_thread(lambda: None)
        await world.settle()
    assert world.effect("sync/b").status.value == "done"
    assert [a.key for a in world.attention()] == ["sync/a"]


@pytest.mark.req("EFF-3")
async def test_a_stop_iteration_in_a_thread_is_an_outcome_like_any_other(world: World) -> None:
    """An exception that futures refuse to carry must not make the call hang until its timeout."""

    @activity(key="stop/{what}", name="stop", no_undo="a test")
    def stop(what: str) -> str:
        return next(iter([]))

    flow = ordering(stop, "a")
    world.worker(flow)
    await world.start(flow)
    await threads_rest(world)
    assert world.reasons() == ["effect_uncertain"]
    assert "StopIteration" in world.effect("stop/a").error_text


async def test_durations_of_a_deployment_are_checked() -> None:
    """A heartbeat that leaves no room for two lost renewals is refused."""
    with pytest.raises(ValueError, match="two lost renewals"):
        Liveness(heartbeat_every=10_000).checked()


@pytest.mark.req("REC-1")
async def test_a_claim_may_be_lost_while_lost_claims_are_checked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(ctx: Any) -> None:
        pass

    worker = world.worker(one_node(body)).worker
    await world.settle()
    lost = worker._capacity.lost_claims
    lost |= {("t", name): LostClaim(0) for name in ("x", "y")}
    load = type(worker._store).load

    async def load_later(store: Any, *args: Any) -> Any:
        lost["t", "z"] = LostClaim(0)
        return await load(store, *args)

    monkeypatch.setattr(type(worker._store), "load", load_later)
    await worker._claims.return_lost()
    assert list(lost) == [("t", "z")]


@pytest.mark.req("REC-3")
@pytest.mark.every_store
async def test_a_worker_that_is_asked_to_drain_gives_its_runs_back_and_stops(world: World) -> None:
    """It reads the request at its next heartbeat, takes no further run, and ends as on request, not as a dead one."""
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop, mode="reconcile"), "a")
    first = world.worker(flow)
    await world.start(flow)
    assert slow.begun.is_set() and world.run().owner == first.name
    for reason in ("a new machine", "twice"):
        row, ask = await commands.drain_worker(world.store, first.name, actor="ana", reason=reason)
        assert (row.id, ask.by, ask.reason) == (first.name, "ana", "a new machine")
    await world.pass_(6 * SECOND)
    assert world.run().owner == first.name and not first.task.done(), "its call may end"
    await world.start(flow, "r2")
    assert world.run("r2").owner == ""
    slow.go.set()
    await world.pass_(SECOND)
    assert world.worker_row(first.name).status is LeaseStatus.CLOSED and not world.worker_row(first.name).died_holding
    assert first.task.done() and (world.status(), world.run("r2").owner) == ("completed", "")
    with pytest.raises(Conflict, match="it has stopped"):
        await commands.drain_worker(world.store, first.name, actor="ana", reason="late")
    world.worker(flow)
    await world.pass_(SECOND)
    assert [world.status(run) for run in ("r1", "r2")] == ["completed", "completed"]
    assert world.run().crash_count == 0 and len(shop.attempts) == 2
