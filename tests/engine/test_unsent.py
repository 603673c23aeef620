"""A call that was never sent needs no person, however late the store answers (S-4, S-10, S-17)."""

import gc
from datetime import timedelta

import pytest

from outlast.core.effect_verbs import is_unsent
from outlast.engine.run_session import RunSession
from outlast.flow import NotSent, Perhaps, Retry, resend
from outlast.insight.explanation import explain
from outlast.insight.tenant_rows import TenantRows
from tests.engine.world import MINUTE, SECOND, Acts, Receiver, World, ordering, write


@pytest.mark.req("EFF-3", "RUN-3")
@pytest.mark.parametrize("mode", ["ask", "reconcile"])
async def test_an_intent_whose_answer_was_lost_is_known_not_to_have_been_sent(world: World, mode: str) -> None:
    """The holder that made it goes on itself: it never called, whatever the store says of the intent."""
    shop = Receiver()
    flow = ordering(write(shop, mode=mode), "a")
    process = world.worker(flow)
    process.wire.lost.append("intend order/a")
    await world.start(flow)
    await world.pass_(MINUTE)
    assert (world.status(), world.reasons(), len(shop.attempts)) == ("completed", [], 1)


@pytest.mark.req("EFF-3", "RUN-3")
async def test_a_store_that_hangs_asks_no_person_about_an_unsent_call(world: World) -> None:
    """The intent landed, its answer came after the lease: the holder kept the call back, and recorded that."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    worker = world.worker(flow)
    gate = worker.wire.hold("intend order/a")
    await world.start(flow)
    worker.wire.away += ["renew"] * 1_000
    await world.pass_(20 * SECOND)
    gate.set()
    await world.settle()
    worker.wire.away.clear()
    await world.pass_(2 * MINUTE)
    assert (world.status(), world.reasons(), len(shop.attempts)) == ("completed", [], 1)


async def taken_over(world: World, shop: Receiver, fault: str) -> None:
    """A run whose intent was made by a worker that is replaced before it calls; its successor executes the node."""
    flow = ordering(write(shop), "a")
    first = world.worker(flow)
    if fault == "late":
        gate = first.wire.hold("intend order/a")
    else:
        first.wire.lost.append("intend order/a")
        gate = first.wire.hold("nothing")
    first.wire.after("intend order/a", first.freeze)
    await world.start(flow)
    second = world.worker(flow)
    claim = second.wire.hold("take")
    await world.pass_(MINUTE)
    assert world.run().owner == second.name
    gate.set()
    first.thaw()
    await world.pass_(10 * SECOND)
    assert shop.attempts == []
    (proof,) = world.evidence()
    assert proof.answer.status == "not_sent"
    claim.set()
    await world.pass_(MINUTE)


@pytest.mark.req("EFF-2", "EFF-3", "REC-3")
@pytest.mark.parametrize("fault", ["late", "lost"])
async def test_a_successor_calls_again_if_its_predecessor_proved_that_it_did_not(world: World, fault: str) -> None:
    """Late: the answer to the intent came when the run was taken. Lost: the holder learnt only that it was replaced."""
    shop = Receiver()
    await taken_over(world, shop, fault)
    assert (world.status(), world.reasons(), len(shop.attempts)) == ("completed", [], 1)


@pytest.mark.req("EFF-2", "EFF-3", "RUN-9")
async def test_a_person_who_was_asked_before_is_shown_that_it_was_not_sent(world: World) -> None:
    """The proof came after the question. It settles nothing by itself, as no evidence does (S-10)."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    first = world.worker(flow)
    gate = first.wire.hold("intend order/a")
    await world.start(flow)
    first.freeze()
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["effect_uncertain"]
    gate.set()
    first.thaw()
    await world.pass_(MINUTE)
    assert shop.attempts == [] and world.reasons() == ["effect_uncertain"]
    sentence = explain(await TenantRows(world.store, world.run().tenant).run_facts(world.run().run)).sentence
    assert "a replaced worker did not send it" in sentence, sentence


@pytest.mark.req("EFF-2", "EFF-3")
async def test_no_proof_is_kept_of_an_attempt_after_one_that_may_have_happened(world: World) -> None:
    """The second attempt was not sent, and the first may have been done: nothing is proven."""
    shop = Receiver(Acts(Perhaps("hung up")))
    flow = ordering(write(shop, if_uncertain=resend(remembered_for=timedelta(hours=1))), "a")
    first = world.worker(flow)
    await world.start(flow)
    assert len(shop.attempts) == 1
    gate = first.wire.hold("intend order/a")
    first.wire.after("intend order/a", first.freeze)
    await world.pass_(10 * SECOND)
    assert world.effect("order/a").attempts == 2
    world.worker(flow)
    await world.pass_(MINUTE)
    gate.set()
    first.thaw()
    await world.pass_(MINUTE)
    assert world.evidence() == [] and set(shop.did) == {"t:r1:1:order/a"}


@pytest.mark.req("EFF-2", "EFF-3")
async def test_a_lost_answer_to_an_intent_proves_nothing_of_the_attempt_before(world: World) -> None:
    """The first may have happened. The last was not sent, and the attempts are over: the effect is uncertain."""
    shop = Receiver(Acts(Perhaps("hung up")), NotSent("refused"))
    flow = ordering(write(shop, if_uncertain=resend(remembered_for=timedelta(hours=1)), retry=Retry(attempts=2)), "a")
    process = world.worker(flow)
    process.wire.after("defer order/a", lambda: process.wire.lost.append("intend order/a"))
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert (world.effect("order/a").status.value, world.reasons()) == ("uncertain", ["effect_uncertain"])


async def test_a_proof_is_of_one_attempt_of_one_claim(world: World) -> None:
    await taken_over(world, Receiver(), "late")
    proof, done = world.evidence(), world.effect("order/a")
    (at,) = [each.epoch for each in proof]
    assert is_unsent(done._replace(epoch=at, attempts=1), proof)
    for other in ({"attempts": 2}, {"epoch": at + 1}, {"key": "order/b"}, {"visit": 2}):
        assert not is_unsent(done._replace(**{"epoch": at, "attempts": 1, **other}), proof), other
    assert not is_unsent(done._replace(epoch=at, attempts=1), ())


@pytest.mark.req("EFF-2", "EFF-3")
async def test_a_proof_that_a_call_was_not_made_makes_it_impossible(world: World) -> None:
    """A call and the proof take the same entry out: whichever comes second finds it gone."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    process = world.worker(flow)
    gate = process.wire.hold("intend order/a")
    await world.start(flow)
    (holder,) = process.worker._executors._tasks
    (ledger,) = [each for each in gc.get_objects() if type(each) is RunSession and each.store is process.wire]
    assert ledger.late.give_up() and not holder.done()
    gate.set()
    await world.pass_(MINUTE)
    assert (world.status(), len(shop.attempts)) == ("completed", 1)
    assert world.effect("order/a").attempts == 2, "what was given up is not called under the same intent"
