"""Attacks on an approval: each fails closed with its refusal, and the receiver gets no call."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from types import FrameType
from typing import Any, Literal

import pytest

from outlast.core.approvals import Actor, decide, votes_of
from outlast.core.codec import digest
from outlast.core.rows.approval_columns import PLANS, PlanChange
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.engine.approval_waits import offered_call
from outlast.errors import Conflict, Forbidden, InvalidInput, LimitExceeded, NotFound, OutlastError
from outlast.flow import Allow, Context, Deny, NeedsApproval, PolicyRequest, Verdict, Workflow, person, role
from outlast.runtime.operations import Operations
from tests.engine.world import HOUR, MINUTE, Go, Receiver, State, World, one_node, write

Ctx = Context[State]
BOSS = role("boss")


def guard(asked: PolicyRequest) -> Verdict:
    """Deny orders above 1,000; require two bosses above 500."""
    amount = asked.arguments.get("amount", 0)
    assert isinstance(amount, int)
    if amount > 1_000:
        return Deny("limit", "never above 1,000")
    return NeedsApproval("large", BOSS, quorum=2) if amount > 500 else Allow("small")


@dataclass
class Scene:
    """One pending approval, who decides it, and the receiver behind it."""

    world: World
    shop: Receiver
    flow: Any
    process: Any

    def as_(self, name: str, *roles: str, tenant: str = "t", loaded: bool = True) -> Operations:
        held = frozenset(roles or ("boss",))
        flows = {self.flow.name: self.flow} if loaded else {}
        actor = Actor(name, held, tuple(sorted(held)))
        return Operations(self.world.store, tenant=tenant, actor=actor, workflows=flows)

    @property
    def row(self) -> Approval:
        return self.world.approvals()[0]

    @property
    def id(self) -> str:
        return self.row.id

    async def settled(self, call: Awaitable[Any]) -> Any:
        left = await call
        await self.world.settle()
        return left


async def scene(world: World, **options: Any) -> Scene:
    shop = Receiver()
    order = write(shop, key="order/{what}/{amount}")
    given = {"by": BOSS, "within": timedelta(hours=1), "alternatives": [order.plan("b", 100)], **options}

    async def body(ctx: Ctx) -> None:
        decision = await ctx.approval(order.plan("a", 100), summary="Order a", **given)
        if decision.chosen:
            ctx.state.said = [await ctx.do(decision.chosen), *decision.approvers]

    flow = one_node(body, policy=guard)
    process = world.worker(flow)
    await world.start(flow)
    return Scene(world, shop, flow, process)


Attack = Callable[[Scene], Awaitable[Any]]
ATTACKS: dict[str, tuple[dict[str, Any], type[OutlastError], str, Attack]] = {}


def attack(name: str, error: type[OutlastError], refusal: str, **options: Any) -> Callable[[Attack], Attack]:
    def keep(fn: Attack) -> Attack:
        ATTACKS[name] = (options, error, refusal, fn)
        return fn

    return keep


@attack("wrong role", Forbidden, "role")
async def _(s: Scene) -> None:
    await s.as_("eve", "sales").approve(s.id)


@attack("half of the roles", Forbidden, "role", by=BOSS & role("senior"))
async def _(s: Scene) -> None:
    await s.as_("eve", "boss").approve(s.id)


@attack("every role, but another name", Forbidden, "role", by=person("ana"))
async def _(s: Scene) -> None:
    await s.as_("bo", "boss", "ana", "admin").approve(s.id)


@attack("another tenant", NotFound, "")
async def _(s: Scene) -> None:
    await s.as_("eve", tenant="other").approve(s.id)


@attack("the requester approves", Forbidden, "requester", not_requester=True)
async def _(s: Scene) -> None:
    await s.as_("me").approve(s.id)


@attack("the requester rejects", Forbidden, "requester", not_requester=True)
async def _(s: Scene) -> None:
    await s.as_("me").reject(s.id, reason="x")


@attack("the requester votes", Forbidden, "requester", not_requester=True, quorum=2)
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id)
    await s.as_("me").approve(s.id)


@attack("one person votes twice", Conflict, "voted", quorum=2)
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id)
    await s.as_("ana").approve(s.id)


@attack("a voter rejects what he approved", Conflict, "voted", quorum=2)
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id)
    await s.as_("ana").reject(s.id, reason="x")


@attack("votes for two plans", Conflict, "other_vote", quorum=2)
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id)
    await s.as_("ben").approve(s.id, alternative=1)


@attack("a replayed vote: the version as read before it", Conflict, "moved", quorum=2)
async def _(s: Scene) -> None:
    old = s.row
    for _ in range(2):
        await s.as_("ana").approve(s.id, version=old.version)


@attack("an alternative beyond those offered", NotFound, "")
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id, alternative=2)


@attack("a program with the role", Forbidden, "not_a_person")
async def _(s: Scene) -> None:
    bot = s.as_("bot")
    bot.actor = replace(bot.actor, person=False)
    await bot.approve(s.id)


def alter(s: Scene, index: int = 0) -> None:
    """Change the stored arguments of a plan, and leave the digest beside them as it was."""
    plans = list(s.row.plans)
    plans[index] = plans[index]._replace(arguments_text=plans[index].arguments_text.replace("100", "999"))
    s.world.core.rows.put(APPROVAL, s.row[: APPROVAL.key], s.row._replace(plans_text=PLANS.encode(plans)))


@attack("the arguments shown are not those of the digest", Conflict, "altered")
async def _(s: Scene) -> None:
    alter(s)
    await s.as_("ana").approve(s.id)


@attack("the arguments of another alternative are not those of its digest", Conflict, "altered")
async def _(s: Scene) -> None:
    alter(s, 1)
    await s.as_("ana").approve(s.id)


@attack("a change of a plan whose arguments are not those of its digest", Conflict, "altered", editable=("amount",))
async def _(s: Scene) -> None:
    alter(s)
    await s.as_("ana").approve(s.id, changes={"amount": 50})


@attack("the second vote, after the arguments were altered", Conflict, "altered", quorum=2)
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id)
    alter(s)
    await s.as_("ben").approve(s.id)


@attack("another round that is not offered", Conflict, "no_further_round")
async def _(s: Scene) -> None:
    await s.as_("ana").reject(s.id, reason="x", again=True)


@attack("expired by one millisecond", Conflict, "expired")
async def _(s: Scene) -> None:
    s.process.freeze()
    await s.world.pass_(s.row.within_until - (await s.world.store.now()).business + 1)
    await s.as_("ana").approve(s.id)


@attack("the last vote comes too late", Conflict, "expired", quorum=2)
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id)
    s.process.freeze()
    await s.world.pass_(HOUR)
    await s.as_("ben").approve(s.id)


@attack("the first vote comes too late", Conflict, "expired", quorum=2)
async def _(s: Scene) -> None:
    s.process.freeze()
    await s.world.pass_(HOUR)
    await s.as_("ana").approve(s.id)


@attack("claimed too late", Conflict, "expired")
async def _(s: Scene) -> None:
    s.process.freeze()
    await s.world.pass_(HOUR)
    await s.as_("ana").claim_approval(s.id)


@attack("decided while the cancel lands", Conflict, "withdrawn")
async def _(s: Scene) -> None:
    old = s.row
    s.process.freeze()
    s.world.cancel_now()
    await s.as_("ana").approve(s.id, version=old.version)


@attack("decided when the run has ended", Conflict, "withdrawn")
async def _(s: Scene) -> None:
    await s.world.cancel()
    await s.as_("ana").approve(s.id)


@attack("a field that may not be changed", Conflict, "not_editable", editable=("amount",))
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id, changes={"what": "z"})


@attack("a change where none is offered", Conflict, "not_editable")
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id, changes={"amount": 1})


@attack("a value of another type", InvalidInput, "", editable=("amount",))
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id, changes={"amount": "much"})


@attack("a change that changes nothing", Conflict, "unchanged", editable=("amount",))
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id, changes={"amount": 100})


@attack("a change without the code that checks it", InvalidInput, "", editable=("amount",))
async def _(s: Scene) -> None:
    await s.as_("ana", loaded=False).approve(s.id, changes={"amount": 5})


@attack("a change that policy denies", Conflict, "policy_denied", editable=("amount",))
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id, changes={"amount": 1_001})


@attack("a change for which policy wants two people", Conflict, "policy_asks", editable=("amount",))
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id, changes={"amount": 600})


@attack("a change of what its code makes otherwise by now", Conflict, "drift", editable=("amount",))
async def _(s: Scene) -> None:
    first, *others = s.row.plans
    made = digest("t", "r1", "order", "order/a", first.arguments_text.encode())  # as the code made it when it asked
    plans = [first._replace(key="order/a", digest=made), *others]
    s.world.core.rows.put(APPROVAL, ("t", "r1", s.id), s.row._replace(plans_text=PLANS.encode(plans)))
    await s.as_("ana").approve(s.id, changes={"amount": 5})


@attack("a change of a change", Conflict, "not_offered", editable=("amount",), quorum=2)
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id, changes={"amount": 90})
    await s.as_("ben").approve(s.id, alternative=2, changes={"amount": 80})


@attack("reassigned by a person without the right", Forbidden, "role")
async def _(s: Scene) -> None:
    await s.as_("eve", "sales").reassign(s.id, "sales", reason="x")


@attack("decided by those it was taken from", Forbidden, "role")
async def _(s: Scene) -> None:
    await s.as_("ana").reassign(s.id, "cfo", reason="too large for us")
    await s.as_("ben").approve(s.id)


@attack("decided with the row as it was before it was reassigned", Conflict, "moved")
async def _(s: Scene) -> None:
    old = s.row
    await s.as_("ana").reassign(s.id, "cfo", reason="too large for us")
    await s.as_("ben", "boss", "cfo").approve(s.id, version=old.version)


@attack("claimed with the row as it was before it was reassigned", Conflict, "moved")
async def _(s: Scene) -> None:
    old = s.row
    await s.as_("ana").reassign(s.id, "cfo", reason="too large for us")
    await s.as_("ben", "boss", "cfo").claim_approval(s.id, version=old.version)


@attack("decided after another person has decided", Conflict, "decided")
async def _(s: Scene) -> None:
    old = s.row
    await s.as_("ana").reject(s.id, reason="no")
    await s.as_("ben").approve(s.id, version=old.version)


@attack("claimed after it was decided", Conflict, "decided")
async def _(s: Scene) -> None:
    await s.as_("ana").reject(s.id, reason="no")
    await s.as_("ben").claim_approval(s.id)


@attack("handed to others after it was decided", Conflict, "decided")
async def _(s: Scene) -> None:
    await s.as_("ana").reject(s.id, reason="no")
    await s.as_("ben").reassign(s.id, "cfo", reason="x")


@attack("handed to others without a reason", InvalidInput, "")
async def _(s: Scene) -> None:
    await s.as_("ana").reassign(s.id, "cfo", reason=" ")


@attack("reassigned with a reason that cannot be stored", LimitExceeded, "")
async def _(s: Scene) -> None:
    await s.as_("ana").reassign(s.id, "cfo", reason="x" * 100_000)


@attack("decided with a reason that cannot be stored", LimitExceeded, "")
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id, reason="x" * 100_000)


@attack("decided with a reason that no store can hold", InvalidInput, "")
async def _(s: Scene) -> None:
    await s.as_("ana").approve(s.id, reason="\ud800")


@pytest.mark.req("GATE-2", "GATE-9", "GATE-6")
@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_fails_closed_with_its_own_refusal(world: World, name: str) -> None:
    """The receiver got no request, and nothing was approved."""
    options, error, refusal, act = ATTACKS[name]
    s = await scene(world, **options)
    with pytest.raises(error) as caught:
        await act(s)
    assert getattr(caught.value, "refusal", "") == refusal
    assert type(caught.value) is error
    await world.settle()
    assert s.shop.attempts == []
    assert s.row.status.value != "approved"


def test_there_are_at_least_twenty() -> None:
    assert len(ATTACKS) >= 20


@pytest.mark.req("FAIL-5", "GATE-9")
async def test_fail_5_an_approval_arrives_after_expiry(world: World) -> None:
    """One millisecond late by the store's clock: refused as expired, nothing done, and the run calls a person."""
    s = await scene(world)
    s.process.freeze()
    await world.pass_(s.row.within_until - (await world.store.now()).business - 1)
    await world.pass_(1)
    with pytest.raises(Conflict) as caught:
        await s.as_("ana").approve(s.id)
    assert caught.value.refusal == "expired"
    s.process.kill()
    world.worker(s.flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["approval_timeout"] and s.shop.attempts == []


# --- what is in order ---------------------------------------------------------------------------------
@pytest.mark.req("GATE-9", "GATE-8")
async def test_two_people_approve_and_the_second_wakes_the_run(world: World) -> None:
    s = await scene(world, quorum=2, not_requester=True)
    await s.settled(s.as_("ana").approve(s.id, reason="fine"))
    assert (s.row.status.value, world.status(), world.run().inbox_seq) == ("pending", "waiting", 0)
    await s.settled(s.as_("ben").approve(s.id, reason="me too"))
    assert world.outcome()["said"] == ["did order/a/100", "ana", "ben"]
    assert [(v.by, v.reason) for v in votes_of(s.row)] == [("ana", "fine"), ("ben", "me too")]
    assert "ana, ben" in world.effects()[0].allowed_by


@pytest.mark.req("GATE-9")
async def test_one_rejection_rejects_and_the_votes_stay_on_record(world: World) -> None:
    s = await scene(world, quorum=3)
    await s.as_("ana").approve(s.id)
    await s.settled(s.as_("ben").reject(s.id, reason="no"))
    assert (s.row.status.value, s.row.decided_by) == ("rejected", "ben")
    assert [v.by for v in s.row.votes] == ["ana"] and s.shop.attempts == []


@pytest.mark.req("GATE-9")
async def test_of_many_who_vote_at_once_each_counts_once_and_the_quorum_decides(world: World) -> None:
    s = await scene(world, quorum=3)
    calls = [s.as_(f"p{i % 4}").approve(s.id) for i in range(8)]
    ended = await s.settled(asyncio.gather(*calls, return_exceptions=True))
    refused = {e.refusal for e in ended if isinstance(e, Conflict)}
    voters = [v.by for v in votes_of(s.row)]
    assert len(voters) == len(set(voters)) == 3 and refused <= {"voted", "decided"}
    assert len(s.shop.did) == 1


@pytest.mark.req("GATE-9", "GATE-6")
async def test_exactly_the_changed_plan_runs(world: World) -> None:
    """Key and digest are computed again; the policy sees the plan at the decision and at its use."""
    s = await scene(world, editable=("amount",))
    await s.settled(s.as_("ana").approve(s.id, changes={"amount": 90}))
    row = s.row
    entry = row.plans[2]
    assert entry.change is not None and (entry.change.by, entry.change.of, entry.key) == ("ana", 0, "order/a/90")
    assert entry.change.values() == {"amount": 90} and row.chosen == entry.digest
    assert world.outcome()["said"] == ["did order/a/90", "ana"]
    (effect,) = world.effects()
    assert json.loads(effect.args) == {"what": "a", "amount": 90} and effect.approval == row.id


@pytest.mark.req("GATE-9", "GATE-6")
async def test_policy_is_asked_again_when_an_approval_is_used(world: World) -> None:
    """Facts change between decision and call: the policy may deny a plan that it allowed before."""
    shop, order = Receiver(), None
    closed: list[bool] = []
    order = write(shop)
    seen: list[PolicyRequest] = []

    def policy(asked: PolicyRequest) -> Verdict:
        seen.append(asked)
        return Deny("closed", "the shop is closed") if closed else Allow("open")

    async def body(ctx: Ctx) -> None:
        decision = await ctx.approval(order.plan("a"), summary="a", by=BOSS, within=timedelta(hours=1))
        assert decision.chosen
        await ctx.do(decision.chosen)

    flow = one_node(body, policy=policy)
    world.worker(flow)
    await world.start(flow)
    closed.append(True)
    await world.decide(world.pending(), by="ana")
    assert world.reasons() == ["policy_denied"] and shop.attempts == []
    (asked,) = seen
    assert asked.occasion == "consume" and asked.approval is not None and asked.approval.by == ("ana",)
    closed.clear()
    await world.go_on()
    assert world.status() == "completed" and seen[-1].occasion == "consume"


@pytest.mark.req("GATE-9", "GATE-6")
async def test_an_approval_by_a_role_that_the_policy_does_not_accept_does_not_count(world: World) -> None:
    """The node asked the boss and the policy requires the cfo: the cfo is asked too."""
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        decision = await ctx.approval(order.plan("a"), summary="a", by=BOSS, within=timedelta(hours=1))
        assert decision.chosen
        await ctx.do(decision.chosen)

    flow = one_node(body, policy=lambda asked: NeedsApproval("cfo-only", role("cfo")))
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending())
    assert shop.attempts == []
    assert world.pending().who == "cfo"


@pytest.mark.req("GATE-8")
async def test_acknowledgements_and_reassignments_are_recorded(world: World) -> None:
    s = await scene(world)
    await s.as_("ana").claim_approval(s.id)
    assert s.row.claimed_by == "ana"
    await s.settled(s.as_("root", "admin").reassign(s.id, "cfo", reason="too large"))
    (note,) = [n for n in world.messages() if n.kind == "reassign"]
    told = json.loads(note.payload)
    assert (note.actor, told["from"], told["to"], told["reason"]) == ("root", "boss", "cfo", "too large")
    assert s.row.claimed_by == "" and world.waiting()[0][0] == "approval"
    await s.settled(s.as_("cy", "cfo").approve(s.id))
    assert world.status() == "completed"


@pytest.mark.req("GATE-9")
async def test_a_plan_written_into_the_row_does_not_run(world: World) -> None:
    """The holder computes a changed plan again and does not run it if a field differs that is not editable."""
    s = await scene(world, editable=("amount",))
    old = s.row
    order = s.flow.activity("order")
    forged = order.plan("z", 100)
    entry = offered_call(forged, s.world.run())._replace(change=PlanChange(0, "eve", 1, "{}"))
    now = await world.store.now()
    move = decide(
        old, verb="approve", chosen=entry.digest, by="eve", claims=["boss"], reason="", now=now, changed=entry
    )
    await world.store.commit(move.commit)
    await world.settle()
    assert s.shop.attempts == [] and world.reasons() == ["exception"]
    assert "can no longer be made as it was approved" in world.attention()[0].detail
    assert world.core.rows.get(APPROVAL, ("t", "r1", old.id))


async def test_an_altered_request_can_be_rejected(world: World) -> None:
    """Only approval is refused: a rejection lets nothing run."""
    s = await scene(world)
    alter(s)
    await s.settled(s.as_("ana").reject(s.id, reason="not what was asked"))
    assert (world.approvals()[0].status.value, s.shop.did) == ("rejected", [])


async def test_an_approval_altered_before_its_use_is_withdrawn_and_requested_again(world: World) -> None:
    """The plan that runs is the one that people can read: approved again, from a row that matches its digest."""
    s = await scene(world)
    s.process.kill()
    await s.as_("ana").approve(s.id)
    alter(s)
    world.worker(s.flow)
    await world.pass_(MINUTE)
    assert s.shop.did == []
    assert [a.status.value for a in world.approvals()] == ["withdrawn", "pending"]
    await s.settled(s.as_("ana").approve(world.pending().id))
    assert (world.status(), len(s.shop.did)) == ("completed", 1)


async def test_an_altered_approval_of_an_earlier_node_allows_nothing(world: World) -> None:
    """Another visit makes the call without a request: a person is called, and the receiver gets no call."""
    shop = Receiver()
    order = write(shop, key="order/{what}/{amount}", once_per="run")
    flow = Workflow("two", state=State)

    @flow.node(start=True)
    async def ask(ctx: Ctx) -> Literal["wait"]:
        decision = await ctx.approval(order.plan("a", 100), summary="Order a", by=BOSS, within=timedelta(hours=1))
        assert decision.approved
        return "wait"

    @flow.node
    async def wait(ctx: Ctx) -> None:
        await ctx.receive("go", Go)
        await ctx.do(order, "a", 100)

    flow.validate()
    process = world.worker(flow)
    await world.start(flow)
    s = Scene(world, shop, flow, process)
    await s.settled(s.as_("ana").approve(s.id))
    alter(s)
    await world.signal("go")
    assert world.reasons() == ["policy_denied"]
    assert "does not match the approved digest" in world.attention()[0].detail
    assert shop.did == []


async def test_a_decision_enters_each_module_once(world: World) -> None:
    """Operations call the command, the command calls one function of core, and the written row is shown."""
    s = await scene(world)
    ana, approval = s.as_("ana"), s.id
    names = ("runtime.operations", "engine.commands", "engine.approvals", "core.approvals", "insight.approval_reads")
    modules = {f"outlast.{name}": name for name in names}
    calls: list[tuple[str, str]] = []

    def record(frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        if event == "call" and caller is not None:
            pair = [modules.get(each.f_globals.get("__name__", "")) for each in (caller, frame)]
            if pair[0] and pair[1] and pair[0] != pair[1]:
                calls.append((pair[0], f"{pair[1]}.{frame.f_code.co_name}"))

    sys.setprofile(record)
    try:
        await ana.approve(approval)
    finally:
        sys.setprofile(None)
    assert calls[:3] == [
        ("runtime.operations", "engine.commands.decide_approval"),
        ("engine.commands", "core.approvals.person_decides"),
        ("runtime.operations", "insight.approval_reads.approval_summary"),
    ]
    assert {caller for caller, _ in calls[3:]} == {"insight.approval_reads"}, "the view of the row calls no command"
