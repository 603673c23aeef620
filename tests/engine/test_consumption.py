"""An approval is checked again when it is used (S10): a forged one allows nothing."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from outlast.core.approvals import approvers_were_entitled, decide
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.approval_columns import VOTES
from outlast.core.rows.effect_rows import Approval
from outlast.engine.permission import usable_approvals
from outlast.flow import (
    Allow,
    Context,
    Deny,
    NeedsApproval,
    NotSent,
    Perhaps,
    PolicyRequest,
    RetryLater,
    Workflow,
    role,
)
from tests.engine.test_approval_attacks import Scene, scene
from tests.engine.world import MINUTE, QUIET, Acts, Receiver, State, World, one_node, write


async def decided(s: Scene, by: str, *claims: str) -> Approval:
    """Write a decision whose right was not checked, as the verb of `core` makes it."""
    chosen, now = s.row.plans[0].digest, await s.world.store.now()
    move = decide(s.row, verb="approve", chosen=chosen, by=by, claims=claims, reason="", now=now)
    await s.world.store.commit(move.commit)
    return move.row


@pytest.mark.req("GATE-2", "GATE-9")
async def test_a_call_approved_without_the_role_is_not_made(world: World) -> None:
    s = await scene(world)
    await decided(s, "eve", "sales")
    await world.settle()
    assert s.shop.attempts == [] and world.reasons() == ["policy_denied"]
    assert "approved by eve" in str(world.run().attention)


@pytest.mark.req("GATE-2")
async def test_a_call_approved_by_half_of_the_roles_is_not_made(world: World) -> None:
    s = await scene(world, by=role("boss") & role("senior"))
    await decided(s, "eve", "boss")
    await world.settle()
    assert s.shop.attempts == [] and world.reasons() == ["policy_denied"]


@pytest.mark.req("GATE-2")
async def test_a_call_approved_by_entitled_approvers_is_made(world: World) -> None:
    s = await scene(world, by=role("boss") & role("senior") | role("cfo"))
    await decided(s, "ana", "boss", "senior")
    await world.settle()
    assert world.outcome()["said"] == ["did order/a/100", "ana"]


@pytest.mark.req("GATE-8", "GATE-9")
async def test_a_vote_before_a_reassignment_counts_by_the_rule_of_its_time(world: World) -> None:
    s = await scene(world, quorum=2)
    await s.as_("ana").approve(s.id)
    await s.as_("root", "admin").reassign(s.id, "cfo", reason="on leave")
    await s.settled(s.as_("cleo", "cfo").approve(s.id))
    assert world.outcome()["said"] == ["did order/a/100", "ana", "cleo"]


@pytest.mark.req("GATE-2")
async def test_votes_that_were_tampered_with_count_for_nothing(world: World) -> None:
    """Each on a copy of an approval that two bosses gave in order."""
    s = await scene(world, quorum=2, not_requester=True)
    await s.as_("ana").approve(s.id)
    await s.as_("ben").approve(s.id)
    row, votes = s.row, s.row.votes
    assert approvers_were_entitled(row)
    for wrong in [
        [votes[0]],
        [votes[0], votes[0]],
        [votes[0], votes[1]._replace(by=row.requested_by)],
        [votes[0], votes[1]._replace(claims=("sales",))],
        [votes[0], votes[1]._replace(who="boss & cfo")],
    ]:
        assert not approvers_were_entitled(row._replace(votes_text=VOTES.encode(wrong))), wrong


@pytest.mark.req("GATE-6", "GATE-9")
async def test_only_a_valid_approval_covers_a_call(world: World) -> None:
    """Withdrawn or expired after it was given, used up, lapsed, or of another plan: each on a copy of a good one."""
    s = await scene(world)
    await decided(s, "ana", "boss")
    row = s.row._replace(consumed_by="")

    class Asked:
        def approval_digest(self, tenant: str, run: str) -> str:
            return s.row.chosen

    def usable(approval: Approval, later_ms: int = 0) -> int:
        now = SimpleNamespace(business=approval.decided_at + later_ms)
        held = SimpleNamespace(approvals={approval.id: approval}, run=world.run())
        walk: Any = SimpleNamespace(session=SimpleNamespace(held=held, clock=SimpleNamespace(now=now)))
        plan: Any = Asked()
        return len(usable_approvals(walk, plan))

    assert usable(row) == 1 and usable(row, row.valid_until - row.decided_at - 1) == 1
    assert usable(row, row.valid_until - row.decided_at) == 0
    for status in ApprovalStatus:
        assert usable(row._replace(status=status)) == (status is ApprovalStatus.APPROVED), status
    assert usable(row._replace(consumed_by="1:x")) == usable(row._replace(chosen="0" * 64)) == 0


@pytest.mark.req("GATE-6", "GATE-9")
async def test_a_call_approved_once_is_made_once(world: World) -> None:
    """A second visit makes the very same call: the approval that covered the first is used up."""
    shop = Receiver()
    order = write(shop)
    flow = Workflow("twice", state=State)

    @flow.node(start=True, max_visits=2)
    async def go(ctx: Context[State]) -> Literal["go"] | None:
        plan = order.plan("a")
        if not ctx.state.said:
            decision = await ctx.approval(plan, summary="a", by=role("boss"), within=timedelta(hours=1))
            assert decision.chosen
            plan = decision.chosen
        ctx.state.said = [*ctx.state.said, await ctx.do(plan)]
        return "go" if len(ctx.state.said) < 2 else None

    world.worker(flow.validate())
    await world.start(flow)
    await world.decide(world.pending())
    assert len(shop.attempts) == 1 and world.reasons() == ["policy_denied"]


@pytest.mark.req("GATE-6", "GATE-9")
async def test_a_call_reassigned_outside_the_policys_rule_is_not_made(world: World) -> None:
    """Policy wants the cfo; an admin hands the request to the boss, whose yes is nothing to the policy."""
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Context[State]) -> None:
        await ctx.do(order, "a")

    flow = one_node(body, policy=lambda asked: NeedsApproval("cfo-only", role("cfo")))
    s = Scene(world, shop, flow, world.worker(flow))
    await world.start(flow)
    await s.as_("root", "admin").reassign(s.id, "boss", reason="on leave")
    await s.settled(s.as_("ana").approve(s.id))
    assert shop.attempts == [] and world.reasons() == ["policy_denied"]


@pytest.mark.req("GATE-6", "GATE-9")
async def test_an_approval_that_satisfies_the_policy_is_not_requested_twice(world: World) -> None:
    """Two of the bosses changed it to what policy wants two bosses for."""
    s = await scene(world, quorum=2, editable=("amount",))
    await s.as_("ana").approve(s.id, changes={"amount": 600})
    await s.settled(s.as_("ben").approve(s.id, alternative=2))
    assert world.outcome()["said"] == ["did order/a/600", "ana", "ben"]
    assert len(world.approvals()) == 1


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("roles", [("boss",), ()])
async def test_the_requester_may_decide_unless_excluded(world: World, roles: tuple[str, ...]) -> None:
    """Nor does it take a role on record of the local operator, who holds them all."""
    s = await scene(world)
    await s.settled(decided(s, "me", *roles))
    assert world.outcome()["said"] == ["did order/a/100", "me"]


@pytest.mark.req("GATE-6", "GATE-9")
async def test_policy_is_asked_about_a_further_attempt_with_the_approval_that_covers_it(world: World) -> None:
    """A policy that lets nothing pass without an approval would deny what it let begin."""
    shop = Receiver(Acts(NotSent("busy")))
    order = write(shop)
    seen: list[bool] = []

    async def body(ctx: Context[State]) -> None:
        decision = await ctx.approval(order.plan("a"), summary="a", by=role("boss"), within=timedelta(hours=1))
        assert decision.chosen
        ctx.state.said = [await ctx.do(decision.chosen)]

    def strict(asked: PolicyRequest) -> Allow | Deny:
        if asked.occasion in ("commit", "consume"):
            seen.append(asked.approval is not None)
        return Allow() if asked.approval or asked.occasion not in ("commit", "consume") else Deny("approved-only")

    flow = one_node(body, policy=strict)
    s = Scene(world, shop, flow, world.worker(flow))
    await world.start(flow)
    await s.settled(s.as_("ana").approve(s.id))
    await world.pass_(MINUTE)
    assert (world.status(), len(shop.attempts), world.reasons()) == ("completed", 2, [])
    assert seen and all(seen)


@pytest.mark.req("EFF-7", "GATE-8")
@pytest.mark.parametrize("failure", [NotSent("busy"), RetryLater("not yet"), None])
@pytest.mark.parametrize("by_policy", [False, True])
async def test_the_ledger_names_the_approver_of_a_further_attempt(
    world: World, failure: Exception | None, by_policy: bool
) -> None:
    """The second attempt was recorded as allowed by the policy alone. None: an operator reopens the effect."""
    shop = Receiver(Acts(failure or Perhaps("no answer")))
    order = write(shop)

    async def body(ctx: Context[State]) -> None:
        if by_policy:
            ctx.state.said = [await ctx.do(order, "a")]
            return
        decision = await ctx.approval(order.plan("a"), summary="a", by=role("boss"), within=timedelta(hours=1))
        assert decision.chosen
        ctx.state.said = [await ctx.do(decision.chosen)]

    def asks(request: PolicyRequest) -> Allow | NeedsApproval:
        return NeedsApproval("orders", by=role("boss")) if by_policy else Allow("fine")

    s = Scene(world, shop, flow := one_node(body, policy=asks), world.worker(flow))
    await world.start(flow)
    await s.settled(s.as_("ana").approve(s.id))
    if failure is None:
        await world.pass_(QUIET)
        await world.resolve("order/a", "did_not_happen")
    await world.pass_(MINUTE)
    assert (world.status(), len(shop.attempts)) == ("completed", 2)
    (effect,) = world.effects()
    assert effect.allowed_by.startswith(f"{s.id} approved by ana; policy: "), effect.allowed_by
