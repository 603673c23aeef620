"""Late answers of replaced holders, and keys that another call uses (S-10, S-18)."""

import asyncio
import json
from datetime import timedelta

import pytest

from outlast.core.durations import Liveness
from outlast.core.machine import CHOICES, Choice, Reason
from outlast.errors import Conflict
from outlast.flow import Context, DidNotHappen, Happened, Perhaps, Unknown, activity, this_call
from outlast.flow.calls import LateAnswer
from outlast.insight.explanation import explain
from outlast.insight.tenant_rows import TenantRows
from tests.engine.world import (
    MINUTE,
    QUIET,
    SECOND,
    Acts,
    Receiver,
    Slow,
    State,
    World,
    one_node,
    ordering,
    reading,
    write,
)


# --- evidence ----------------------------------------------------------------------------------------------
@pytest.mark.req("EFF-2", "REC-3")
async def test_a_reconcile_gets_the_late_answers_of_a_replaced_worker(world: World) -> None:
    """The late answer is read just before the receiver is asked, so it counts if it came after the claim."""
    slow = Slow(acts_first=True)
    shop = Receiver(slow)
    told: list[tuple[LateAnswer, ...]] = []

    @activity(key="order/{what}", no_undo="a test undoes nothing")
    async def order(what: str) -> str:
        return await shop.call()

    @order.reconcile
    async def find(what: str) -> Happened[str] | DidNotHappen | Unknown:
        call = this_call()
        assert call.reconciling
        told.append(call.evidence)
        if call.evidence:
            return Happened(str(call.evidence[0].response), "by evidence")
        return Unknown("the shop's list is closed")

    flow = ordering(order, "a")
    first = world.worker(flow)
    await world.start(flow)
    first.freeze()
    world.worker(flow)
    await world.pass_(16 * SECOND)
    assert told == [()], "asked at once, with no evidence yet"
    first.thaw()
    slow.go.set()
    await world.pass_(5 * SECOND)
    (late,) = world.evidence()
    assert late.answer.status == "done" and world.status() != "completed", "evidence settles nothing"
    await world.pass_(QUIET)
    assert world.status() == "completed" and world.outcome()["said"] == ["did order/a"]
    assert [(e.status, e.response, e.epoch) for e in told[-1]] == [("done", "did order/a", late.epoch)]
    assert world.effect("order/a").external_id == "by evidence" and shop.did == ["t:r1:1:order/a"]


@pytest.mark.req("EFF-2", "REC-3")
async def test_evidence_that_came_after_the_claim_is_read_too(world: World) -> None:
    """The successor waits for the settle time without releasing the run; the answer comes during the wait."""
    slow = Slow(acts_first=True)
    shop = Receiver(slow)
    told: list[int] = []

    @activity(key="order/{what}", no_undo="a test undoes nothing", timeout=timedelta(seconds=18))
    async def order(what: str) -> str:
        return await shop.call()

    @order.reconcile
    async def find(what: str) -> Happened[str] | DidNotHappen | Unknown:
        told.append(len(this_call().evidence))
        return Unknown("the shop's list is closed")

    flow = ordering(order, "a")
    live = Liveness(start_budget=500, settle_margin=500)
    first = world.worker(flow, live=live)
    await world.start(flow)
    first.freeze()
    second = world.worker(flow, live=live, name="second")
    for _ in range(300):
        if not told:
            await world.pass_(100)
    first.thaw()
    slow.go.set()
    await world.settle()
    assert len(world.evidence()) == 1 and world.run().owner == second.name
    await world.pass_(6 * SECOND)
    assert told[0] == 0 and told[-1] == 1
    assert world.reasons() == ["effect_uncertain"], "told of it, it still cannot tell"


@pytest.mark.req("EFF-2", "REC-3", "RUN-9")
async def test_a_person_sees_the_late_answer_and_it_settles_nothing_by_itself(world: World) -> None:
    """An `ask` effect whose replaced worker later got an answer stays uncertain; who is asked is shown the answer."""
    slow = Slow(acts_first=True)
    flow = ordering(write(Receiver(slow)), "a")
    first = world.worker(flow)
    await world.start(flow)
    first.freeze()
    world.worker(flow)
    await world.pass_(16 * SECOND)
    assert world.reasons() == ["effect_uncertain"]
    first.thaw()
    slow.go.set()
    await world.pass_(MINUTE)
    assert world.effect("order/a").status.value == "uncertain"
    doubt = (await TenantRows(world.store, world.run().tenant).uncertain_evidence([world.run()]))["r1", 1, "order/a"]
    assert [e.answer.response_text for e in doubt.evidence] == ['"did order/a"']
    sentence = explain(await TenantRows(world.store, world.run().tenant).run_facts(world.run().run)).sentence
    assert 'a replaced worker later got: done "did order/a"' in sentence


# --- "did not happen", before and after the settle time ------------------------------------------------------
@pytest.mark.req("EFF-3", "EFF-2")
async def test_did_not_happen_is_offered_and_accepted_from_the_same_instant_on(world: World) -> None:
    """The command is not offered, and refused with the time that is left, until a call in flight can no longer land."""
    flow = ordering(write(Receiver(Acts(Perhaps("hung up")))), "a")
    world.worker(flow)
    await world.start(flow)
    until = world.effect("order/a").settle_after
    assert not any(
        "--did-not-happen" in each
        for each in explain(await TenantRows(world.store, world.run().tenant).run_facts(world.run().run)).unblock
    )
    with pytest.raises(Conflict, match="may still arrive for another 180 s, until 20"):
        await world.resolve("order/a", "did_not_happen")
    await world.pass_(until - world.time.wall())
    assert any(
        "--did-not-happen" in each
        for each in explain(await TenantRows(world.store, world.run().tenant).run_facts(world.run().run)).unblock
    )
    await world.resolve("order/a", "did_not_happen")
    assert world.effect("order/a").status.value == "done"


# --- a contradiction, and the answer that is recorded --------------------------------------------------------
class Changing:
    """An activity whose arguments differ between executions, as they do after a change of its code."""

    def __init__(self, shop: Receiver, mode: str = "ask") -> None:
        self.order = write(shop, mode=mode)
        self.amount = 1
        self.flow = one_node(self.body)

    async def body(self, ctx: Context[State]) -> None:
        ctx.state.said.append(await ctx.do(self.order, "a", self.amount))
        ctx.state.said.append(await ctx.do(self.order, "b", 1))


@pytest.mark.req("EFF-1", "EFF-7")
async def test_the_recorded_answer_is_used_for_exactly_the_chosen_call(world: World) -> None:
    """No call is made; the choice outlives workers; a third digest is another contradiction."""
    shop = Receiver("first", Perhaps("hung up"))
    changing = Changing(shop)
    world.worker(changing.flow)
    await world.start(changing.flow)
    changing.amount = 2
    await world.pass_(QUIET)
    await world.resolve("order/b", "happened", response=b'"b by hand"')
    assert world.reasons() == ["contradiction"]
    (entry,) = world.attention()
    assert (entry.key, entry.visit) == ("order/a", 1) and Choice.USE_RECORDED in entry.choices()
    await world.off_duty()
    await world.answer("contradiction", "use_recorded", key="order/a")
    world.worker(changing.flow)
    await world.settle()
    assert world.status() == "completed" and world.outcome()["said"] == ["first", "b by hand"]
    assert len(shop.attempts) == 2, "one call for each key"


@pytest.mark.req("EFF-1")
async def test_another_digest_than_the_one_allowed_calls_a_person_again(world: World) -> None:
    shop = Receiver("first", Perhaps("hung up"))
    changing = Changing(shop)
    world.worker(changing.flow)
    await world.start(changing.flow)
    changing.amount = 2
    await world.pass_(QUIET)
    await world.resolve("order/b", "give_up")
    changing.amount = 3
    await world.answer("contradiction", "use_recorded")
    assert world.reasons() == ["contradiction"], "it was allowed for 2, and now it is 3"
    await world.answer("contradiction", "use_recorded")
    assert "contradiction" not in world.reasons()
    changing.amount = 1
    assert len(shop.attempts) == 2


@pytest.mark.req("EFF-1", "EFF-2")
async def test_an_open_recorded_call_settles_first_with_its_arguments(world: World) -> None:
    """The predecessor died in the call: the receiver is asked about the recorded arguments, and its answer is used."""
    slow = Slow(acts_first=True)
    shop = Receiver(slow)
    changing = Changing(shop, mode="reconcile")
    first = world.worker(changing.flow)
    await world.start(changing.flow)
    first.kill()
    changing.amount = 2
    world.worker(changing.flow)
    await world.pass_(16 * SECOND)
    assert world.reasons() == ["contradiction"] and world.effect("order/a").status.value == "intended"
    await world.answer("contradiction", "use_recorded")
    effect = world.effect("order/a")
    assert (effect.status.value, effect.settled_by) == ("done", "reconcile")
    assert json.loads(effect.args) == {"what": "a", "amount": 1}
    assert world.status() == "completed" and shop.did == ["t:r1:1:order/a", "t:r1:1:order/b"]


@pytest.mark.req("EFF-1")
async def test_calls_at_the_same_moment_may_share_the_answer_of_the_first(world: World) -> None:
    shop = Receiver()
    order = write(shop)

    async def both(ctx: Context[State]) -> None:
        ctx.state.said = list(await asyncio.gather(ctx.do(order, "a", 1), ctx.do(order, "a", 2)))

    flow = one_node(both)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["contradiction"]
    await world.answer("contradiction", "use_recorded")
    assert world.outcome()["said"] == ["did order/a", "did order/a"] and len(shop.attempts) == 1


@pytest.mark.req("EFF-1")
async def test_a_record_of_another_activity_is_not_offered(world: World) -> None:
    """Its answer has another type: code is corrected, or the run ended."""
    shop = Receiver()
    pay, ship = write(shop, name="pay", key="do/{what}"), write(shop, name="ship", key="do/{what}")

    async def body(ctx: Context[State]) -> None:
        await ctx.do(pay, "a")
        await ctx.do(ship, "a")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    (entry,) = world.attention()
    assert Choice.USE_RECORDED not in entry.choices() and Choice.USE_RECORDED in CHOICES[Reason.CONTRADICTION]
    with pytest.raises(Conflict, match="does not offer use_recorded here"):
        await world.answer("contradiction", "use_recorded")


@pytest.mark.req("EFF-1")
async def test_a_lookups_recorded_answer_may_be_used_too(world: World) -> None:
    price = reading(lambda: "42", key="price")

    async def body(ctx: Context[State]) -> None:
        ctx.state.said = [await ctx.do(price, "a"), await ctx.do(price, "b")]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["contradiction"]
    await world.answer("contradiction", "use_recorded")
    assert world.outcome()["said"] == ["42", "42"]
