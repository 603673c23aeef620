"""A restored store repeats nothing by itself: calls of the lost time are proven or asked about (I42)."""

from datetime import timedelta
from typing import Any

import pytest

from outlast.core import mailbox
from outlast.core.effect_verbs import NOT_SENT
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_columns import ANSWER, EvidenceAnswer
from outlast.core.rows.effect_rows import EFFECT, EVIDENCE, Evidence
from outlast.core.rows.row_kind import key_of
from outlast.engine.store_maintenance import recover
from outlast.errors import Unavailable
from outlast.flow import Context, Perhaps, RateLimit, RetryLater, Unknown, resend
from outlast.store.memory import MemoryCore, MemoryStore
from outlast.upkeep.fsck import violations
from tests.engine.world import MINUTE, QUIET, SECOND, Go, Receiver, Slow, State, World, one_node, ordering, write


def backup(world: World) -> MemoryCore:
    """Return the rows of a backup taken now."""
    copy = MemoryCore(world.time)
    for kind in KINDS:
        for row in world.core.rows.under(kind, ()):
            copy.rows.put(kind, key_of(kind, row), row)
    return copy


async def restore(world: World, copy: MemoryCore) -> Any:
    """Every process stops; the backup takes the store's place; and the operator says so."""
    for process in world.processes:
        process.kill()
    await world.settle()
    world.core = world.ground.core = copy
    world.store = MemoryStore(copy, f"people-{len(world.processes)}-restored")
    recovered = await recover(world.store, new_id="g-2", actor="op")
    await world.settle()
    return recovered


def waiting_then(act: Any) -> Any:
    """A node that waits for a word, and then writes: the backup is taken while it waits."""

    async def body(ctx: Context[State]) -> None:
        await ctx.receive("go", Go)
        ctx.state.said.append(await ctx.do(act, "a"))

    return one_node(body)


async def lost_time(world: World, flow: Any) -> MemoryCore:
    """A run whose write was made and recorded after the backup; the backup."""
    world.worker(flow)
    await world.start(flow)
    copy = backup(world)
    await world.signal("go")
    assert world.status() == "completed"
    return copy


async def go_on_after(world: World, flow: Any, copy: MemoryCore) -> None:
    """Recover, serve, say "continue", and send the lost signal again."""
    await restore(world, copy)
    assert world.reasons() == ["restored"]
    assert world.run().restored == 2
    world.worker(flow, name="wk-new")
    await world.pass_(10 * MINUTE)
    assert world.reasons() == ["restored"], "nothing goes on until a person says so"
    await world.go_on()
    await world.signal("go")


@pytest.mark.req("TEST-4", "EFF-3")
async def test_ask_a_person_says_whether_it_happened_in_the_lost_time(world: World) -> None:
    shop = Receiver()
    flow = waiting_then(write(shop))
    await go_on_after(world, flow, await lost_time(world, flow))
    assert world.reasons() == ["effect_uncertain"]
    assert len(shop.attempts) == 1, "nothing was called again"
    await world.resolve("order/a", "happened", response=b'"did order/a"')
    assert world.status() == "completed"
    assert shop.did == ["t:r1:1:order/a"]


@pytest.mark.req("TEST-4", "EFF-3")
async def test_ask_a_person_says_that_it_did_not_happen_and_it_is_done_once(world: World) -> None:
    """The word never came in the lost time, so nothing was called; "did not happen" counts after the settle time."""
    shop = Receiver()
    flow = waiting_then(write(shop))
    world.worker(flow)
    await world.start(flow)
    await go_on_after(world, flow, backup(world))
    await world.pass_(QUIET)
    await world.resolve("order/a", "did_not_happen")
    assert world.status() == "completed"
    assert shop.did == ["t:r1:1:order/a"]


@pytest.mark.req("TEST-4", "EFF-2")
async def test_reconcile_the_receiver_is_asked_and_nothing_is_called(world: World) -> None:
    shop = Receiver()
    flow = waiting_then(write(shop, mode="reconcile"))
    await go_on_after(world, flow, await lost_time(world, flow))
    assert world.status() == "completed"
    assert (len(shop.attempts), shop.asked) == (1, 1)
    assert world.effect("order/a").settled_by == "reconcile"


@pytest.mark.req("TEST-4", "EFF-2")
async def test_reconcile_a_call_unknown_to_the_receiver_is_made_after_the_settle_time(world: World) -> None:
    shop = Receiver()
    flow = waiting_then(write(shop, mode="reconcile"))
    world.worker(flow)
    await world.start(flow)
    await go_on_after(world, flow, backup(world))
    assert (shop.did, shop.asked) == ([], 1)
    await world.pass_(QUIET)
    assert world.status() == "completed"
    assert shop.did == ["t:r1:1:order/a"]


@pytest.mark.req("TEST-4", "EFF-2")
async def test_a_call_that_may_be_lost_keeps_no_slot_while_its_outcome_is_looked_up(world: World) -> None:
    shop = Receiver()
    flow = waiting_then(write(shop, mode="reconcile", limit=RateLimit(concurrent=1)))
    world.worker(flow)
    await world.start(flow)
    await go_on_after(world, flow, backup(world))
    await world.pass_(QUIET)
    assert world.status() == "completed"
    assert shop.did == ["t:r1:1:order/a"]


@pytest.mark.req("TEST-4", "EFF-2")
@pytest.mark.parametrize(("window", "again"), [(timedelta(days=2), True), (timedelta(minutes=8), False)])
async def test_resend_the_same_key_while_the_receiver_surely_remembers_it(
    world: World, window: timedelta, again: bool
) -> None:
    """The first intent is lost, so the window counts from the run's start: eight minutes are over by now."""
    shop = Receiver(dedupes=True)
    flow = waiting_then(write(shop, if_uncertain=resend(remembered_for=window)))
    await go_on_after(world, flow, await lost_time(world, flow))
    assert shop.did == ["t:r1:1:order/a"]
    assert len(shop.attempts) == 1 + again
    assert world.reasons() == ([] if again else ["effect_uncertain"])


async def open_at_the_backup(world: World, shop: Receiver, slow: Slow, **options: Any) -> Any:
    """A run whose second call was in flight at the backup; it is restored, and the worker serves."""
    flow = ordering(write(shop, **options), "a", "b")
    world.worker(flow)
    await world.start(flow)
    await slow.begun.wait()
    recovered = await restore(world, backup(world))
    assert (recovered.runs, recovered.effects, recovered.generation.n) == (1, 1, 2)
    assert world.reasons() == ["restored"] and [e.status.value for e in world.effects()] == ["done", "intended"]
    assert world.effect("order/b").code == "restored"
    world.worker(flow, name="wk-new")
    await world.pass_(10 * MINUTE)
    assert world.reasons() == ["restored"] and (len(shop.attempts), shop.asked) == (2, 0), "nothing before continue"
    return flow


@pytest.mark.req("TEST-4", "EFF-2")
async def test_an_effect_open_at_the_backup_is_sent_again_to_a_receiver_that_remembers(world: World) -> None:
    slow = Slow(acts_first=True)
    shop = Receiver("did order/a", slow, dedupes=True)
    await open_at_the_backup(world, shop, slow, if_uncertain=resend(remembered_for=timedelta(days=2)))
    await world.answer("restored", "continue")
    assert world.outcome()["said"] == ["did order/a", "did order/b"]
    assert (len(shop.attempts), len(shop.did)) == (3, 2)


@pytest.mark.req("TEST-4", "EFF-2")
@pytest.mark.parametrize("happened", [True, False])
async def test_the_receiver_is_asked_about_an_effect_open_at_the_backup(world: World, happened: bool) -> None:
    slow = Slow(acts_first=happened)
    shop = Receiver("did order/a", slow)
    await open_at_the_backup(world, shop, slow, mode="reconcile")
    await world.answer("restored", "continue")
    assert (world.status(), shop.asked, world.reasons()) == ("completed", 1, [])
    assert (len(shop.attempts), len(shop.did)) == (2 if happened else 3, 2)


@pytest.mark.req("TEST-4", "EFF-3")
async def test_a_person_is_asked_about_an_effect_open_at_the_backup_that_declares_nothing(world: World) -> None:
    slow = Slow()
    shop = Receiver("did order/a", slow)
    await open_at_the_backup(world, shop, slow)
    await world.answer("restored", "continue")
    assert world.reasons() == ["effect_uncertain"] and world.effect("order/b").code == "restored"
    await world.resolve("order/b", "happened", response=b'"did order/b"')
    assert world.outcome()["said"] == ["did order/a", "did order/b"] and len(shop.attempts) == 2


@pytest.mark.req("TEST-4", "EFF-3")
async def test_a_wait_for_another_attempt_proves_nothing_after_a_restore(world: World) -> None:
    """In the backup the last attempt had no effect. In the lost time the next one was made."""
    shop = Receiver(RetryLater("busy", after=timedelta(minutes=1)))
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    copy = backup(world)
    await world.pass_(2 * MINUTE)
    assert world.status() == "completed"
    await restore(world, copy)
    world.worker(flow, name="wk-new")
    await world.go_on()
    await world.pass_(10 * MINUTE)
    assert world.reasons() == ["effect_uncertain"] and (len(shop.attempts), len(shop.did)) == (2, 1)


@pytest.mark.req("TEST-4", "EFF-3")
async def test_a_proof_that_a_call_was_not_sent_proves_nothing_after_a_restore(world: World) -> None:
    """The evidence is of the last attempt in the backup; the attempt of the lost time is not in it."""
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    copy = backup(world)
    row = copy.rows.get(EFFECT, ("t", "r1", 1, "order/a"))
    assert row is not None and row.attempts == 1
    proof = EvidenceAnswer(NOT_SENT, attempt=1)
    evidence = Evidence("t", "r1", 1, "order/a", row.epoch, ANSWER.encode(proof), 1)
    copy.rows.put(EVIDENCE, evidence[:5], evidence)
    await restore(world, copy)
    world.worker(flow, name="wk-new")
    await world.go_on()
    await world.pass_(10 * MINUTE)
    assert world.reasons() == ["effect_uncertain"] and len(shop.attempts) == 1


@pytest.mark.req("TEST-4", "EFF-3")
async def test_an_effect_that_was_reopened_at_the_backup_is_settled_as_declared(world: World) -> None:
    """A person had answered "did not happen", and the call was made again in the lost time."""
    shop = Receiver(Perhaps("lost"))
    shop.tells = [Unknown("no record")] * 20
    flow = ordering(write(shop, mode="reconcile"), "a")
    process = world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * QUIET)
    assert world.reasons() == ["effect_uncertain"]
    process.kill()
    await world.resolve("order/a", "did_not_happen")
    copy = backup(world)
    world.worker(flow)
    await world.pass_(MINUTE)
    assert (world.status(), len(shop.did)) == ("completed", 1)
    shop.tells, asked = [], shop.asked
    await restore(world, copy)
    world.worker(flow, name="wk-new")
    await world.go_on()
    await world.pass_(10 * MINUTE)
    assert (world.status(), shop.asked, len(shop.did)) == ("completed", asked + 1, 1)


@pytest.mark.req("TEST-4", "REC-3")
async def test_no_process_of_the_lost_time_can_write(world: World) -> None:
    """A worker that still runs: its rows are closed, its batches are refused, and it makes no call."""
    shop = Receiver()
    flow = waiting_then(write(shop))
    zombie = world.worker(flow)
    await world.start(flow)
    core = world.core
    await recover(world.store, new_id="g-2", actor="op")
    await world.signal("go")
    await world.pass_(20 * SECOND)
    assert shop.attempts == []
    assert world.reasons() == ["restored"]
    with pytest.raises(Unavailable):
        await zombie.worker._store.commit(_anything(core))


def _anything(core: MemoryCore) -> Any:
    return mailbox.append_message(tenant="t", run="r1", kind="signal", name="x", actor="me", now=core.now())


@pytest.mark.req("TEST-4", "CKP-3")
async def test_the_history_of_a_restored_run_is_whole(world: World) -> None:
    shop = Receiver()
    flow = waiting_then(write(shop, mode="reconcile"))
    await go_on_after(world, flow, await lost_time(world, flow))
    (rows,) = await world.store.run_rows([("t", "r1")])
    assert rows is not None
    assert violations(rows, world.events(), mapping=world.store.mapping(), generation=2) == []
    assert "restored" in world.verbs()
