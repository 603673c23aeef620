"""Approvals: decided once, never after expiry, consumed by one effect of exactly what was approved (S-20)."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.commit import Mapping
from outlast.core.run_transition import rearmed
from outlast.errors import Conflict
from outlast.flow import (
    Allow,
    Context,
    Deny,
    NeedsApproval,
    NotSent,
    Perhaps,
    Policy,
    PolicyRequest,
    Refused,
    RetryLater,
    role,
)
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

Ctx = Context[State]
BOSS = role("boss")


def asking(act: Any, *, within: timedelta = timedelta(hours=1), valid_for: timedelta = timedelta(hours=24)) -> Any:
    """Workflow that requests approval of one order, and makes it if approved."""

    async def body(ctx: Ctx) -> None:
        decision = await ctx.approval(
            act.plan("a", 100), summary="Order a", by=BOSS, within=within, valid_for=valid_for
        )
        if decision.approved:
            ctx.state.said = [await ctx.do(decision.chosen)]
        else:
            ctx.state.said = [f"no: {decision.reason} ({decision.by})"]

    return one_node(body)


@pytest.mark.req("GATE-1", "GATE-9")
@pytest.mark.every_store
async def test_the_run_waits_as_a_row_and_does_what_was_approved_once(world: World) -> None:
    """No task runs while it waits; the commit that intends the effect consumes the approval."""
    shop = Receiver()
    flow = asking(write(shop))
    process = world.worker(flow)
    await world.start(flow)
    approval = world.pending()
    assert (world.status(), world.run().owner, process.worker.held) == ("waiting", "", 0)
    assert world.waiting()[0][0] == "approval"
    assert (approval.summary, approval.who) == ("Order a", "boss")
    await world.decide(approval)
    (left,) = world.approvals()
    assert world.status() == "completed"
    assert (left.status.value, left.consumed_by, left.decided_by) == ("approved", "1:order/a", "boss")
    assert world.effect("order/a").approval == approval.id
    assert len(shop.did) == 1


@pytest.mark.req("GATE-1", "GATE-9")
async def test_a_rejection_is_an_answer(world: World) -> None:
    """Nothing is done, and the node goes on with who and why."""
    shop = Receiver()
    flow = asking(write(shop))
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending(), approve=False)
    assert world.outcome()["said"] == ["no: because (boss)"]
    assert shop.attempts == []


@pytest.mark.req("GATE-9")
@pytest.mark.every_store
async def test_of_many_decisions_one_counts_and_the_others_name_the_winner(world: World) -> None:
    """All have read the same pending approval; the first commit wins."""
    flow = asking(write(Receiver()))
    await world.start(flow)
    process = world.worker(flow)
    await world.settle()
    process.kill()
    approval = world.pending()
    await world.decide(approval, by="first")
    for each in range(5):
        with pytest.raises(Conflict, match="first approved it"):
            await world.decide(approval, approve=bool(each % 2), by=f"late-{each}")
    assert world.approvals()[0].decided_by == "first"


@pytest.mark.req("GATE-1", "FAIL-5")
async def test_a_late_decision_is_refused_and_expiry_decides_nothing(world: World) -> None:
    """At expiry by the store's clock: neither approved nor rejected; the run calls a person."""
    shop = Receiver()
    flow = asking(write(shop), within=timedelta(hours=1))
    process = world.worker(flow)
    await world.start(flow)
    approval = world.pending()
    process.freeze()  # the expiry is not recorded yet
    await world.pass_(HOUR)
    with pytest.raises(Conflict, match="expired"):
        await world.decide(approval)
    process.kill()
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.approvals()[0].status.value == "expired"
    assert world.reasons() == ["approval_timeout"]
    assert shop.attempts == []
    with pytest.raises(Conflict):
        await world.decide(world.approvals()[0])


@pytest.mark.req("GATE-9")
async def test_no_decision_is_accepted_after_a_cancel(world: World) -> None:
    """The commit of the cancel withdraws pending approvals, whether or not a worker holds the run."""
    flow = asking(write(Receiver()))
    process = world.worker(flow)
    await world.start(flow)
    process.kill()
    approval = world.pending()
    await world.cancel()
    with pytest.raises(Conflict):
        await world.decide(approval)
    assert world.approvals()[0].status.value == "withdrawn"


@pytest.mark.req("GATE-9")
async def test_an_approval_requested_while_a_cancel_lands_is_withdrawn(world: World) -> None:
    """The cancel comes right before, or right after, the commit that asks: no pending approval is left."""
    for part in ("before", "after"):
        flow = asking(write(Receiver()))
        process = world.worker(flow)
        getattr(process.wire, part)(f"{part} ask", lambda part=part: world.cancel_now(part))
        await world.start(flow, part)
        assert world.status(part) == "cancelled"
        assert [a.status.value for a in world.approvals(part)] in ([], ["withdrawn"])
        process.kill()


@pytest.mark.req("GATE-9")
async def test_other_bytes_than_those_approved_never_run(world: World) -> None:
    """After an approval was asked for, an order of another amount, or a second one, is policy_denied."""
    shop = Receiver()
    order = write(shop, key="order/{what}/{amount}")

    async def body(ctx: Ctx) -> None:
        await ctx.approval(order.plan("a", 100), summary="Order a", by=BOSS, within=timedelta(hours=1))
        await ctx.do(order, "a", 1_000_000)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending())
    assert world.reasons() == ["policy_denied"]
    assert shop.attempts == []


@pytest.mark.req("GATE-9")
async def test_only_the_chosen_alternative_runs(world: World) -> None:
    """A decision for the second plan: that one runs, a `do` of the first is denied, whatever policy allows."""
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        decision = await ctx.approval(
            order.plan("a"), summary="a or b", by=BOSS, within=timedelta(hours=1), alternatives=[order.plan("b")]
        )
        assert decision.chosen
        await ctx.do(decision.chosen)
        await ctx.do(order, "a")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    approval = world.pending()
    await world.decide(approval, alternative=1)
    assert [k.rsplit(":", 1)[1] for k in shop.did] == ["order/b"]
    assert world.reasons() == ["policy_denied"]


@pytest.mark.req("GATE-9")
async def test_approval_of_a_changed_plan_is_requested_again(world: World) -> None:
    """The node requests another plan while the approval is pending: the old request is withdrawn."""
    shop = Receiver()
    order = write(shop)
    amount = [100]

    async def body(ctx: Ctx) -> None:
        plan = order.plan("a", amount[0])
        decision = await ctx.approval(plan, summary=f"{amount[0]}", by=BOSS, within=timedelta(hours=1))
        ctx.state.said = [await ctx.do(decision.chosen)] if decision.chosen else []

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    first = world.pending()
    amount[0] = 200
    await world.signal("nudge")
    assert [a.status.value for a in world.approvals()] == ["withdrawn", "pending"] or len(world.approvals()) == 2
    with pytest.raises(Conflict):
        await world.decide(first)
    await world.decide(world.pending())
    assert world.status() == "completed"
    assert json.loads(world.effect("order/a").args)["amount"] == 200


@pytest.mark.req("GATE-9")
async def test_two_approvals_of_one_activity_need_names(world: World) -> None:
    """Under one name each would withdraw the other, so the second request is refused with the remedy."""
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        for each in "ab":
            await ctx.approval(order.plan(each), summary=each, by=BOSS, within=timedelta(hours=1))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending())
    assert world.reasons() == ["exception"]
    assert "name=" in world.attention()[0].detail


@pytest.mark.req("GATE-9")
async def test_an_approval_that_lapsed_is_requested_again(world: World) -> None:
    """valid_for counts from the decision; afterwards the approval allows nothing."""
    shop = Receiver()
    flow = asking(write(shop), within=timedelta(hours=20), valid_for=timedelta(minutes=30))
    first = world.worker(flow)
    await world.start(flow)
    first.kill()
    await world.decide(world.pending())
    await world.pass_(30 * MINUTE)
    world.worker(flow)
    await world.pass_(MINUTE)
    assert shop.attempts == []
    await world.decide(world.pending())
    assert world.status() == "completed"
    assert [bool(a.consumed_by) for a in world.approvals()] == [False, True]


@pytest.mark.req("GATE-9", "FAIL-3")
@pytest.mark.every_store
async def test_an_approval_survives_a_crash_between_its_consumption_and_the_call(world: World) -> None:
    """Consumed and intended in one commit: the successor's attempt is the same effect, covered by the same yes."""
    shop = Receiver(Slow(), dedupes=True)
    flow = asking(write(shop, mode="reconcile"))
    first = world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending())
    first.kill()
    world.worker(flow)
    await world.pass_(QUIET + MINUTE)
    assert world.status() == "completed"
    (approval,) = world.approvals()
    assert approval.consumed_by == "1:order/a"
    assert len(shop.did) == 1


@pytest.mark.req("GATE-9", "EFF-2")
async def test_an_open_effect_whose_approval_lapsed_calls_a_person(world: World) -> None:
    """After valid_until an open effect calls a person in every mode; after "did not happen" it is requested again."""
    shop = Receiver(Acts(Perhaps("lost")), dedupes=True)
    flow = asking(write(shop, mode="reconcile"), valid_for=timedelta(minutes=2))
    shop.tells = []
    first = world.worker(flow)
    first.wire.after("defer order/a", first.kill)
    await world.start(flow)
    await world.decide(world.pending())
    shop.did.clear()  # it never arrived
    await world.pass_(QUIET)
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["effect_uncertain"]
    assert "approval_lapsed" in world.effect("order/a").error_text
    await world.resolve("order/a", "did_not_happen")
    assert len(shop.attempts) == 1
    assert world.reasons() == []
    await world.decide(world.pending())
    assert world.status() == "completed"
    assert len(shop.attempts) == 2


@pytest.mark.req("GATE-9")
async def test_a_call_is_not_sent_after_its_approval_has_lapsed(world: World) -> None:
    """The intent's deadline ends with the approval, also for a holder that was suspended in between."""
    shop = Receiver()
    flow = asking(write(shop), valid_for=timedelta(seconds=5))
    process = world.worker(flow)
    gate = process.wire.hold("intend order/a")
    await world.start(flow)
    await world.decide(world.pending())
    await world.pass_(6 * SECOND)
    gate.set()
    await world.settle()
    assert shop.attempts == []


@pytest.mark.req("GATE-9")
async def test_an_intent_computed_with_an_old_mapping_is_refused_and_made_again(world: World) -> None:
    """Business time skips just before the intent lands: its last moment ends with the approval by the new time."""
    shop = Receiver()
    flow = asking(write(shop), valid_for=timedelta(seconds=10))
    process = world.worker(flow)
    gate = process.wire.hold("intend order/a")

    def skip() -> None:
        now = world.core.now()
        world._now(world.store.set_mapping(Mapping(0, now.real, now.business + 8 * SECOND, 1.0), rearmed))

    process.wire.before("intend order/a", skip)
    await world.start(flow)
    await world.decide(world.pending())
    await world.pass_(3 * SECOND)
    gate.set()
    await world.settle()
    assert shop.attempts == []


@pytest.mark.req("GATE-9", "EFF-4")
async def test_a_retry_beyond_the_approval_is_not_made(world: World) -> None:
    """Attempts are covered while not_after ≤ valid_until; the wait before the next one outlasted it."""
    shop = Receiver(RetryLater("busy", after=timedelta(seconds=20)))
    flow = asking(write(shop), valid_for=timedelta(seconds=10))
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending())
    await world.pass_(MINUTE)
    assert len(shop.attempts) == 1
    assert world.status() != "completed"


# --- policy ------------------------------------------------------------------------------------------
def policy_of(verdict: Callable[[PolicyRequest], Any]) -> Policy:
    return verdict


@pytest.mark.req("EFF-1")
async def test_policy_sees_each_write_before_its_intent(world: World) -> None:
    """Allow names its rule on the effect; deny is attention and nothing is intended."""
    shop = Receiver()
    seen: list[PolicyRequest] = []

    def policy(request: PolicyRequest) -> Allow | Deny:
        seen.append(request)
        return Deny("no-b", "never b") if request.arguments["what"] == "b" else Allow("small orders")

    flow = ordering(write(shop), "a", "b", policy=policy)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["policy_denied"]
    assert "no-b" in world.attention()[0].detail
    assert [e.key for e in world.effects()] == ["order/a"]
    assert "small orders" in world.effect("order/a").allowed_by
    assert (seen[0].activity, seen[0].requested_by, seen[0].node) == ("order", "me", "only")


@pytest.mark.req("GATE-9", "GATE-1")
@pytest.mark.parametrize("approve", [True, False])
async def test_policy_may_ask_a_person(world: World, approve: bool) -> None:
    """The plan is put to the person by the engine; a no is a refusal of the call, which the author can catch."""
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        try:
            ctx.state.said = [await ctx.do(order, "a")]
        except Refused as failed:
            ctx.state.said = [failed.code]
        await ctx.receive("go", Go)

    flow = one_node(body, policy=lambda request: NeedsApproval("big", BOSS, "Really?"))
    world.worker(flow)
    await world.start(flow)
    assert world.pending().summary == "Really?"
    await world.decide(world.pending(), approve=approve)
    await world.signal("go")
    assert world.outcome()["said"] == ["did order/a" if approve else "approval_rejected"]
    assert len(shop.did) == int(approve)


@pytest.mark.req("GATE-9", "EFF-4")
async def test_a_run_s_end_leaves_no_approval_open(world: World) -> None:
    """The commit that ends the run withdraws approvals that are pending or unused."""
    shop = Receiver(NotSent("down"))
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        await ctx.approval(order.plan("a"), summary="a", by=BOSS, within=timedelta(hours=1))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending())
    assert world.status() == "completed"
    assert world.approvals()[0].status.value == "withdrawn"
