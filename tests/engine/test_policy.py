"""Policy before a model, after it, before each write and on resume; a denial is a recorded outcome (GATE-6)."""

import json
from typing import Any

import pytest

from outlast.core.events import EventType
from outlast.core.rows.effect_rows import MEMO
from outlast.flow import (
    Allow,
    Context,
    Deny,
    NeedsApproval,
    NotSent,
    Perhaps,
    PolicyRequest,
    Refused,
    Verdict,
    Workflow,
    role,
)
from outlast.flow.policy import policy_version
from tests.engine.test_approval_attacks import Scene
from tests.engine.world import MINUTE, QUIET, Acts, Go, Receiver, State, World, one_node, ordering, reading, write

Ctx = Context[State]


def denials(world: World) -> list[dict[str, Any]]:
    return [json.loads(e.body)["data"] for e in world.events() if e.type == EventType.DENIED]


def memos(world: World) -> list[dict[str, Any]]:
    rows = world.core.rows.under(MEMO, ("t", "r1"))
    return [json.loads(m.response) for m in rows if m.key.startswith("policy/")]


@pytest.mark.req("FAIL-1", "GATE-6", "GATE-7")
async def test_fail_1_a_model_proposes_a_disallowed_tool(world: World) -> None:
    """Checked, denied and recorded with proposer, rule and version; no call is made.

    If the program makes the call despite the denial, the effect is denied too, and a person is called.
    """
    shop = Receiver()
    wipe, order = write(shop, name="wipe"), write(shop)

    def policy(asked: PolicyRequest) -> Verdict:
        return Deny("no-wiping", "never") if asked.activity == "wipe" else Allow("rest")

    async def body(ctx: Ctx) -> None:
        offered = await ctx.allowed([order, wipe])
        ctx.state.said = [a.name for a in offered]
        plan = wipe.plan("everything")
        verdict = await ctx.check(plan, proposed_by="model:m-1")
        assert verdict == Deny("no-wiping", "never")
        await ctx.receive("go", Go)
        await ctx.do(plan)

    flow = one_node(body, policy=policy)
    world.worker(flow)
    await world.start(flow)
    (told,) = denials(world)
    assert (told["activity"], told["effect_key"], told["occasion"]) == ("wipe", "wipe/everything", "proposal")
    assert (told["rule"], told["policy_version"]) == ("no-wiping", policy_version(policy))
    assert told["proposed_by"] == "model:m-1" and len(told["arguments_digest"]) == 64
    assert "everything" not in json.dumps({**told, "key": "", "text": "", "effect_key": ""})  # only their digest
    await world.signal("go")
    assert world.reasons() == ["policy_denied"]
    assert [d["occasion"] for d in denials(world)] == ["proposal", "resume"]
    assert shop.attempts == [] and world.effects() == []
    assert {(m["activity"], m["occasion"], m["verdict"]) for m in memos(world)} == {
        ("order", "offer", "allow"),
        ("wipe", "offer", "deny"),
        ("wipe", "proposal", "deny"),
        ("wipe", "resume", "deny"),
    }


@pytest.mark.req("GATE-6", "EFF-1")
async def test_offers_and_checks_are_fixed_within_the_visit_and_effects_are_judged_again(world: World) -> None:
    """S-13 for what the node observes; facts that changed are seen by the write itself, on resume."""
    shop = Receiver()
    order = write(shop)
    look = reading(lambda: "7")
    open_ = [True]
    seen: list[str] = []
    observed: list[Any] = []

    def policy(asked: PolicyRequest) -> Verdict:
        seen.append(f"{asked.occasion} {asked.activity}")
        return Allow("open") if open_[0] else Deny("closed")

    async def body(ctx: Ctx) -> None:
        offered = [a.name for a in await ctx.allowed([order, look])]
        observed.append((offered, await ctx.check(order.plan("a"))))
        await ctx.receive("go", Go)
        await ctx.do(order, "a")

    flow = one_node(body, policy=policy)
    world.worker(flow)
    await world.start(flow)
    open_[0] = False
    await world.signal("go")
    assert observed == [(["order", "price"], Allow("open"))] * 2
    assert seen == ["offer order", "offer price", "proposal order", "resume order"]
    assert world.reasons() == ["policy_denied"] and shop.attempts == []
    open_[0] = True
    await world.go_on()
    assert world.status() == "completed" and len(shop.did) == 1
    assert len(denials(world)) == 1


@pytest.mark.req("GATE-6")
async def test_a_successor_s_attempt_is_asked_about_as_resume(world: World) -> None:
    """The first attempt was allowed; its outcome is not known; another needs the policy's word of today."""
    shop = Receiver(Acts(Perhaps("lost")), dedupes=True)
    shop.tells = []
    seen: list[str] = []

    def policy(asked: PolicyRequest) -> Verdict:
        seen.append(asked.occasion)
        return Allow("open") if len(seen) == 1 else Deny("closed")

    flow = ordering(write(shop, mode="reconcile"), "a", policy=policy)
    first = world.worker(flow)
    first.wire.after("defer order/a", first.kill)
    await world.start(flow)
    shop.did.clear()  # it never arrived
    await world.pass_(QUIET)
    world.worker(flow)
    await world.pass_(MINUTE)
    assert seen == ["commit", "resume"]
    assert world.reasons() == ["policy_denied"] and len(shop.attempts) == 1


@pytest.mark.req("GATE-6", "GATE-8")
async def test_the_ledger_names_verdict_rule_and_version(world: World) -> None:
    def policy(asked: PolicyRequest) -> Verdict:
        return Allow("small orders")

    flow = ordering(write(Receiver()), "a", policy=policy)
    world.worker(flow)
    await world.start(flow)
    assert world.effect("order/a").allowed_by == f"policy: allow small orders @{policy_version(policy)}"


@pytest.mark.req("GATE-6")
async def test_a_value_that_is_no_verdict_allows_nothing(world: World) -> None:
    shop = Receiver()
    flow = ordering(write(shop), "a", policy=lambda asked: True)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and "answers Allow, Deny or NeedsApproval" in world.attention()[0].detail
    assert shop.attempts == []


@pytest.mark.req("GATE-6")
async def test_a_check_tells_that_an_approval_is_needed(world: World) -> None:
    order = write(Receiver())
    demand = NeedsApproval("big", role("cfo") | role("boss"), "Really?", quorum=2, not_requester=True)
    got: list[Verdict] = []

    async def body(ctx: Ctx) -> None:
        got.append(await ctx.check(order.plan("a")))
        await ctx.receive("go", Go)

    flow = one_node(body, policy=lambda asked: demand)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go")
    assert got == [demand, demand]
    assert denials(world) == []


def test_a_policys_version_is_declared_or_derived_from_its_source() -> None:
    def one(asked: PolicyRequest) -> Verdict:
        return Allow()

    def two(asked: PolicyRequest) -> Verdict:
        return Deny("x")

    class Versioned:
        version = "7"

        def __call__(self, asked: PolicyRequest) -> Verdict:
            return Allow()

    assert policy_version(one) == policy_version(one) != policy_version(two)
    assert policy_version(Versioned()) == "7" and policy_version(None) == ""


@pytest.mark.req("GATE-6", "GATE-7")
async def test_a_denial_may_be_raised_in_the_node_and_every_re_run_of_the_visit_gets_it(world: World) -> None:
    """The facts change while the approval waits, and change back before a re-run: the node's answer stays."""
    shop = Receiver()
    order = write(shop)
    open_ = [True]
    asked_on: list[str] = []

    def policy(asked: PolicyRequest) -> Verdict:
        asked_on.append(asked.occasion)
        return NeedsApproval("boss", role("boss")) if open_[0] else Deny("closed", "on Sundays")

    flow = Workflow("flow", state=State, policy=policy)

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        try:
            await ctx.do(order.plan("a"), proposed=True)
        except Refused as refused:
            ctx.state.said.append(f"{refused.code}: {refused.detail}")
        await ctx.receive("go", Go)

    s = Scene(world, shop, flow.validate(), world.worker(flow))
    await world.start(flow)
    open_[0] = False
    await s.settled(s.as_("ana").approve(s.id))
    assert asked_on == ["commit", "consume"] and world.reasons() == [] and world.status() == "waiting"
    open_[0] = True
    await world.signal("go")
    assert world.outcome()["said"] == ["policy_denied: closed: on Sundays"] and shop.attempts == []
    assert asked_on == ["commit", "consume"] and [d["occasion"] for d in denials(world)] == ["consume"]


@pytest.mark.req("GATE-6")
async def test_a_denial_of_a_call_that_was_sent_before_is_not_raised(world: World) -> None:
    """Its effect is open, so a person is called."""
    shop = Receiver(Acts(NotSent("busy")))
    allowed = [True]

    def policy(asked: PolicyRequest) -> Verdict:
        return Allow() if allowed.pop() else Deny("closed")

    flow = Workflow("flow", state=State, policy=policy)

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.do(write(shop).plan("a"), proposed=True))

    allowed.insert(0, False)
    world.worker(flow.validate())
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["policy_denied"] and len(shop.attempts) == 1


@pytest.mark.req("GATE-6", "GATE-9")
@pytest.mark.parametrize("proposed", [True, False])
async def test_a_proposed_call_that_only_lacks_an_approval_is_put_to_the_same_approvers(
    world: World, proposed: bool
) -> None:
    """Policy allows the second call, and the first one of its activity was put to a person (S-20)."""
    shop = Receiver()
    order = write(shop)

    def policy(asked: PolicyRequest) -> Verdict:
        return NeedsApproval("large", role("boss"), within="4h") if asked.key == "order/a" else Allow("small")

    flow = Workflow("flow", state=State, policy=policy)

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        for item in "abc":
            try:
                ctx.state.said.append(await ctx.do(order.plan(item), proposed=proposed))
            except Refused as refused:
                ctx.state.said.append(f"{refused.code}: {refused.detail}")

    s = Scene(world, shop, flow.validate(), world.worker(flow))
    await world.start(flow)
    await s.settled(s.as_("ana").approve(s.id))
    if not proposed:
        assert world.reasons() == ["policy_denied"] and len(shop.did) == 1
        return
    asked = {row.wait: row for row in world.approvals()}
    first, second = asked["policy/order/a"], asked["policy/order/b"]
    assert second.who == first.who == "boss"
    assert second.within_until - second.asked_at == first.within_until - first.asked_at
    await s.settled(s.as_("ana").approve(second.id))
    [third] = [row for row in world.approvals() if row.wait == "policy/order/c"]
    await s.settled(s.as_("ana").reject(third.id, reason="enough"))
    assert world.reasons() == [] and len(shop.did) == 2
    assert world.outcome()["said"][2] == "approval_rejected: ana: enough"
