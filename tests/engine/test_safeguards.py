"""Each safeguard removed once: the failure that it prevents happens, so its tests are not empty."""

import asyncio
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from outlast.core.approvals import Actor, PersonDecision
from outlast.core.commit import Commit, Done
from outlast.engine import commands
from outlast.flow import Context, Perhaps, Refused, Workflow, activity, lookup, resend, role
from tests.engine.world import (
    HOUR,
    MINUTE,
    QUIET,
    SECOND,
    Acts,
    Go,
    Receiver,
    Slow,
    State,
    World,
    one_node,
    ordering,
    write,
)
from tests.mutants import remove

Ctx = Context[State]
Patch = pytest.MonkeyPatch


@pytest.mark.req("EFF-3", "RUN-3", "FAIL-12")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_last_check_a_replaced_holder_calls_a_second_time(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """Replaced between its intent and its call, it sends the call."""
    if not guarded:
        remove("no_last_check", monkeypatch)
    shop = Receiver()
    flow = ordering(write(shop, mode="reconcile"), "a")
    first = world.worker(flow)
    gate = first.wire.hold("intend order/a")
    await world.start(flow)
    first.freeze()
    world.worker(flow)
    await world.pass_(QUIET + MINUTE)
    assert world.status() == "completed"
    first.thaw()
    gate.set()
    await world.pass_(MINUTE)
    assert len(shop.did) == (1 if guarded else 2)


@pytest.mark.req("EFF-3", "EFF-2")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_settle_time_a_call_in_flight_is_made_twice(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """«Not found» while the first request is still on its way is taken as proof."""
    if not guarded:
        remove("no_settle_time", monkeypatch)
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop, mode="reconcile"), "a")
    first = world.worker(flow)
    await world.start(flow)
    first.kill()
    world.worker(flow)
    await world.pass_(20 * SECOND)
    slow.go.set()  # it lands now, well within its timeout
    await world.pass_(QUIET)
    assert len(shop.did) == (1 if guarded else 2)


@pytest.mark.req("RUN-3", "REC-1")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_fence_a_replaced_holder_writes_over_its_successor(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """Its late record settles an effect that a person is being asked about."""
    if not guarded:
        remove("unfenced_commits", monkeypatch)
    slow = Slow()
    shop = Receiver(slow)
    order = write(shop, mode="reconcile")
    flow = ordering(order, "a")
    first = world.worker(flow)
    await world.start(flow)
    first.freeze()
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.status() == "recovering"
    slow.go.set()
    first.thaw()
    await world.pass_(SECOND)
    assert (world.effect("order/a").settled_by == "call") is not guarded


@pytest.mark.req("EFF-1", "FAIL-3")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_a_durable_intent_a_crash_forgets_the_call(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """The successor knows of nothing and calls again."""
    if not guarded:
        remove("call_first", monkeypatch)
    slow = Slow(acts_first=True)
    shop = Receiver(slow)
    flow = ordering(write(shop), "a")
    first = world.worker(flow)
    await world.start(flow)
    assert slow.begun.is_set()
    first.kill()
    monkeypatch.undo()
    world.worker(flow)
    await world.pass_(QUIET)
    assert len(shop.did) == (1 if guarded else 2)


@pytest.mark.req("RUN-3")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_inbox_check_a_run_parks_with_unread_messages(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """A message that arrived after the execution read its mailbox, before it parked, is never read."""
    if not guarded:
        remove("no_inbox_check", monkeypatch)

    async def body(ctx: Ctx) -> None:
        await ctx.receive("go", Go)

    flow = one_node(body)
    process = world.worker(flow)
    process.wire.before("r1 park", lambda: world.signal_now("go"))
    await world.start(flow)
    await world.pass_(HOUR)
    assert (world.status() == "completed") is guarded


@pytest.mark.req("GATE-9")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_digest_another_plan_than_the_approved_one_runs(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """A plan of another amount is taken for the one the person saw."""
    if not guarded:
        remove("no_digest", monkeypatch)
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        await ctx.approval(order.plan("a", 1), summary="one", by=role("boss"), within=timedelta(hours=1))
        await ctx.do(order, "a", 1_000_000)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending())
    assert (shop.attempts == []) is guarded


@pytest.mark.req("GATE-9")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_compare_and_set_two_decisions_are_both_accepted(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """Both people read the pending approval, then both write: the second decision is accepted too."""
    if not guarded:
        remove("decided_twice", monkeypatch)
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        await ctx.approval(order.plan("a"), summary="a", by=role("boss"), within=timedelta(hours=1))

    flow = one_node(body)
    process = world.worker(flow)
    await world.start(flow)
    process.kill()
    approval = world.pending()
    both_have_read, commit = asyncio.Barrier(2), world.store.commit

    async def commit_after_both_reads(decision: Commit) -> Done:
        await both_have_read.wait()
        return await commit(decision)

    monkeypatch.setattr(world.store, "commit", commit_after_both_reads)
    boss, choices = Actor("boss", claims=("boss",)), (PersonDecision("approve", ""), PersonDecision("reject", ""))
    both = (commands.decide_approval(world.store, "t", approval.id, boss, c, lambda run: None) for c in choices)
    answers = await asyncio.gather(*both, return_exceptions=True)
    accepted = [a for a in answers if not isinstance(a, BaseException)]
    assert len(accepted) == (1 if guarded else 2)


@pytest.mark.req("GATE-1", "FAIL-5")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_expiry_in_the_condition_a_late_decision_counts(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """The expiry is not recorded yet: the row is still pending."""
    if not guarded:
        remove("no_expiry", monkeypatch)
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        decision = await ctx.approval(order.plan("a"), summary="a", by=role("boss"), within=timedelta(hours=1))
        if decision.chosen:
            await ctx.do(decision.chosen)

    flow = one_node(body)
    process = world.worker(flow)
    await world.start(flow)
    process.kill()
    await world.pass_(HOUR)
    with pytest.raises(commands.Conflict) if guarded else _nothing():
        await world.decide(world.pending())
    world.worker(flow)
    await world.pass_(MINUTE)
    assert len(shop.did) == (0 if guarded else 1)


class _nothing:  # noqa: N801 - used in place of pytest.raises
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


@pytest.mark.req("EFF-3")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_settle_time_a_persons_no_is_followed_by_two_effects(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """He looked while the first call was still on its way."""
    if not guarded:
        remove("no_too_early", monkeypatch)
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop), "a")
    first = world.worker(flow)
    await world.start(flow)
    first.kill()
    world.worker(flow)
    await world.pass_(20 * SECOND)
    assert world.reasons() == ["effect_uncertain"] and shop.did == []
    with pytest.raises(commands.Conflict) if guarded else _nothing():
        await world.resolve("order/a", "did_not_happen")
    slow.go.set()
    await world.pass_(SECOND)
    assert len(shop.did) == (1 if guarded else 2)


@pytest.mark.req("CKP-1")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_result_of_the_execution_a_swallowed_wait_is_skipped(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """The body goes on after the cancellation, returns, and the node ends although nothing was received."""
    if not guarded:
        remove("swallowed_wait", monkeypatch)

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.receive("go", Go)
        except asyncio.CancelledError:
            ctx.state.said = ["went on"]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert (world.status() == "waiting") is guarded


@pytest.mark.req("GATE-1")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_report_a_wait_that_was_given_up_waits_for_ever(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """The body returns over an open wait; no signal is to come, and no person learns of it."""
    if not guarded:
        remove("given_up_waits", monkeypatch)

    async def body(ctx: Ctx) -> None:
        task = asyncio.create_task(ctx.receive("go", Go))
        await ctx.sleep("1h")
        ctx.state.said = [f"{task.done()}"]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(3 * HOUR)  # its sleep ends after one
    assert (world.reasons() == ["exception"]) is guarded and world.status() == "waiting"


@pytest.mark.req("EFF-2")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_window_a_repeat_is_sent_to_a_receiver_that_has_forgotten(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """The window is over; the receiver takes the same key for a new order."""
    if not guarded:
        remove("no_window", monkeypatch)
    shop = Receiver(Acts(Perhaps("lost")), dedupes=False)  # forgotten at once
    flow = ordering(write(shop, if_uncertain=resend(remembered_for=timedelta(seconds=100))), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert len(shop.did) == (1 if guarded else 2)


@pytest.mark.req("EFF-2", "EFF-3")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_settle_time_a_refused_call_is_executed_by_its_earlier_request(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """The worker dies over its request; the receiver refuses the repetition, then executes the first request."""
    if not guarded:
        remove("early_refusals_count", monkeypatch)
    slow = Slow()
    shop = Receiver(slow, Refused("sold_out"), dedupes=True)
    flow = ordering(write(shop, if_uncertain=resend(remembered_for=timedelta(hours=1))), "a")
    first = world.worker(flow)
    await world.start(flow)
    first.kill()
    world.worker(flow)
    await world.pass_(20 * SECOND)
    assert len(shop.attempts) == 2 and shop.did == []
    slow.go.set()
    await world.pass_(QUIET)
    assert len(shop.did) == 1
    assert world.effect("order/a").status.value == ("done" if guarded else "refused")


@pytest.mark.req("CKP-2")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_inbox_number_in_bind_a_message_before_the_deadline_loses(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """A freeze between reading the mailbox and binding "deadline": the note of that time is passed over."""
    if not guarded:
        remove("no_inbox_check_in_bind", monkeypatch)

    async def body(ctx: Ctx) -> None:
        await world.time.sleep(2 * MINUTE)
        got = await ctx.receive("go", Go, until=ctx.now() + timedelta(minutes=2))
        ctx.state.said = [got.word if got else "deadline"]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    await world.signal("go", word="in time")  # the walk read its mailbox at its start
    await world.pass_(5 * MINUTE)
    assert world.outcome()["said"] == ["in time" if guarded else "deadline"]


@pytest.mark.req("GATE-4")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_order_an_entry_of_the_author_writes_the_row_before_the_engine_explains_it(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """The ceiling changes the row together with its event. A crash in between would lose the event."""
    if not guarded:
        remove("log_before_engine", monkeypatch)
    slow = Slow()
    order = write(Receiver("ok", slow, "ok"))
    flow = Workflow("limited", state=State, ceiling="2h")

    @flow.node(start=True)
    async def one(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await ctx.sleep("3h")
        ctx.log("woke", "it woke up")
        await ctx.do(order, "b")

    world.worker(flow.validate())
    await world.start(flow)
    await world.nights(flow, until=world.time.wall() + 4 * HOUR)
    assert slow.begun.is_set() and bool(world.run().attention) is not guarded
    slow.go.set()
    await world.pass_(MINUTE)
    verbs = world.verbs()
    assert (verbs.index("attention") < verbs.index("logged")) is guarded


@pytest.mark.req("EFF-1", "CKP-2")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_a_difference_to_an_advance_an_entry_after_a_refused_commit_loses_an_answer(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """Two lookups collide under one key. The answer of the effect beside them comes after the entry."""
    if not guarded:
        remove("log_counts_as_advance", monkeypatch)
    slow = Slow()
    order = write(Receiver(slow))

    @lookup(name="one", key="same/{what}")
    async def one(what: str) -> int:
        await asyncio.sleep(0)
        return 1

    @lookup(name="two", key="same/{what}")
    async def two(what: str) -> int:
        await asyncio.sleep(0)
        return 2

    async def body(ctx: Ctx) -> None:
        task = asyncio.ensure_future(ctx.do(order, "x"))
        await slow.begun.wait()
        collision = asyncio.gather(ctx.do(one, "a"), ctx.do(two, "a"), return_exceptions=True)
        await asyncio.sleep(0)
        ctx.log("line", "between")
        slow.go.set()
        await asyncio.gather(task, collision)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert (world.effect("order/x").status.value == "done") is guarded
    assert ("effect_uncertain" in world.reasons()) is not guarded


@pytest.mark.req("APP-3", "GATE-6")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_check_of_planes_a_decision_acts(world: World, monkeypatch: Patch, guarded: bool) -> None:
    """The write is an attribute of an object, so the check at loading does not find it."""
    if not guarded:
        remove("no_plane_check", monkeypatch)
    shop = Receiver()
    box, flow = SimpleNamespace(act=write(shop)), Workflow("decides", state=State)

    @flow.node(start=True, plane="decision")
    async def decide(ctx: Ctx) -> None:
        await ctx.do(box.act, "a")

    world.worker(flow.validate())
    await world.start(flow)
    assert (len(shop.did), world.reasons()) == ((0, ["exception"]) if guarded else (1, []))


@pytest.mark.req("EFF-9")
@pytest.mark.parametrize(
    ("removed", "status", "calls"),
    [("", "waiting", 1), ("new_keys_not_held", "waiting", 2), ("missing_keys_forgotten", "completed", 2)],
)
async def test_without_the_hold_or_the_record_of_the_visit_a_key_of_a_clock_acts_twice(
    world: World, monkeypatch: Patch, removed: str, status: str, calls: int
) -> None:
    """Without the hold, a person is asked after the second call; without the record, never."""
    if removed:
        remove(removed, monkeypatch)
    shop, walks = Receiver(), list[int]()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        await ctx.do(order, f"at-{len(walks)}")
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert (world.status(), len(shop.did)) == (status, calls)


@pytest.mark.req("EFF-9", "GATE-9")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_comparison_of_plans_approvers_are_asked_without_end(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    if not guarded:
        remove("other_plans_put_to_approvers", monkeypatch)
    shop, walks = Receiver(), list[int]()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        made = await ctx.approval(order.plan(f"p{len(walks)}"), summary="a", by=role("boss"), within="96h")
        await ctx.do(made.chosen)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    for _ in range(3):
        for each in world.approvals():
            if each.status == "pending":
                await world.decide(each)
                await world.pass_(SECOND)
    assert (world.reasons() == ["node_diverged"]) is guarded and shop.did == []
    assert len(world.approvals()) == (1 if guarded else 4)


@pytest.mark.req("CKP-8")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_bound_a_wait_of_a_thousand_years_is_written(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    if not guarded:
        remove("waits_of_any_length", monkeypatch)

    async def body(ctx: Ctx) -> None:
        await ctx.sleep("365000d")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert (world.reasons(), len(world.waits())) == ((["exception"], 0) if guarded else ([], 1))


@pytest.mark.req("EFF-9", "CKP-2")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_its_record_an_error_that_was_caught_is_an_answer_later(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    """The first execution ordered without a price. The re-run gets the price, and asks for another order."""
    if not guarded:
        remove("caught_errors_not_recorded", monkeypatch)
    shop, asked = Receiver(), list[str]()
    order = write(shop)

    @lookup
    async def price(of: str) -> str:
        asked.append(of)
        if len(asked) == 1:
            raise KeyError(of)
        return "5"

    async def body(ctx: Ctx) -> None:
        try:
            said = await ctx.do(price, "a")
        except KeyError:
            said = "none"
        await ctx.do(order, said)
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert (world.status(), world.reasons()) == (("completed", []) if guarded else ("waiting", ["node_diverged"]))


@pytest.mark.req("EFF-2")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_check_a_call_that_never_ran_is_done(world: World, monkeypatch: Patch, guarded: bool) -> None:
    if not guarded:
        remove("unrun_work_is_done", monkeypatch)
    paid: list[str] = []

    @activity(key="pay/{what}", no_undo="x")
    async def pay(what: str) -> str:
        return cast(str, partial(paid.append, what))

    async def body(ctx: Ctx) -> None:
        await ctx.do(pay, "a")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert (world.effect("pay/a").status, paid) == ("uncertain" if guarded else "done", [])
