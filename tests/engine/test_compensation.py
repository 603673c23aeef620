"""Undo before a run ends early: in reverse order, each effect once, despite any crash (S-19)."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from outlast.core.machine import RunStatus
from outlast.core.rows.run_rows import RUN
from outlast.errors import Conflict
from outlast.flow import Cancel, Context, Fail, Perhaps, Refused, RetryLater, Workflow, activity, resend, role
from outlast.flow.registry import ACTIVITIES
from outlast.telemetry import WORKFLOW_COMPENSATIONS
from outlast.upkeep.fsck import Fsck
from tests.engine.world import (
    MINUTE,
    QUIET,
    SECOND,
    Acts,
    Go,
    Receiver,
    Slow,
    State,
    World,
    after,
    one_node,
    write,
)
from tests.mutants import remove


def trip(*acts: Any, end: BaseException | None = None, waits: bool = False) -> Workflow[State]:
    """Workflow of one node that makes each of `acts` in turn, and then ends or waits for a signal."""

    async def body(ctx: Context[State]) -> None:
        for n, act in enumerate(acts):
            ctx.state.said.append(await ctx.do(act, "abcdef"[n]))
        if waits:
            await ctx.receive("go", Go)
        if end is not None:
            raise end

    return one_node(body)


def keys(receiver: Receiver) -> list[str]:
    """Return the executed keys of the receiver, without tenant, run and visit."""
    return [key.split(":", 3)[3] for key in receiver.did]


@pytest.mark.req("EFF-6", "OBS-3")
@pytest.mark.parametrize(("error", "status"), [(Fail("enough"), "failed"), (Cancel("enough"), "cancelled")])
@pytest.mark.every_store
async def test_effects_are_undone_in_reverse_order(world: World, error: Exception, status: str) -> None:
    shop = Receiver()
    mail = write(shop, name="mail")
    flow = trip(
        write(shop, name="hotel", undo=True),
        mail,
        write(shop, name="card", undo=True),
        write(shop, name="flight", undo=True),
        end=error,
    )
    process = world.worker(flow)
    await world.start(flow)
    assert keys(shop) == [
        "hotel/a", "mail/b", "card/c", "flight/d", "undo/flight/d", "undo/card/c", "undo/hotel/a",
    ]  # fmt: skip
    assert (world.status(), world.run().owner, world.run().due_at) == (status, "ended", None)
    assert {e.key: e.status.value for e in world.effects()} == {
        "hotel/a": "undone", "mail/b": "done", "card/c": "undone", "flight/d": "undone",
        "undo/flight/d": "done", "undo/card/c": "done", "undo/hotel/a": "done",
    }  # fmt: skip
    assert shop.given == ["did flight/d", "did card/c", "did hotel/a"]
    assert world.verbs()[-3:] == ["compensating", "compensated", status]
    told = json.loads(world.events()[-2].body)
    assert told["type"] == "dev.outlast.workflow.compensated"
    assert told["data"]["undone"] == ["flight flight/d", "card card/c", "hotel hotel/a"]
    assert told["data"]["not_undone"] == ["mail mail/b: a test undoes nothing"] == world.last_event()["not_undone"]
    assert (told["data"]["undone_manually"], world.last_event()["reason"]) == ([], "enough")
    assert process.worker.counters[WORKFLOW_COMPENSATIONS] == 3
    assert [e.ordinal for e in world.effects()] == [1, 2, 3, 4, 5, 6, 7]
    assert all(e.undoes == f"1:{e.key.removeprefix('undo/')}" for e in world.effects()[4:])


# --- a death at each point ---------------------------------------------------------------------------
PLACES = [
    "compensate only#1",
    *(f"{verb} undo/{key}" for key in ("card/b", "hotel/a") for verb in ("intend", "record")),
    "cancel only#1",
]
DEATHS = [[(when, place)] for place in PLACES for when in ("before", "after")]
TWICE = [[("before", place), ("before", place)] for place in PLACES]


def saga(shop: Receiver, **terms: Any) -> Workflow[State]:
    """Two writes with undo, of a receiver that dedupes; then it waits."""
    terms = terms or {"if_uncertain": resend(remembered_for=after(hours=10))}
    acts = [write(shop, name=name, undo=True, undo_terms=terms) for name in ("hotel", "card")]
    return trip(*acts, waits=True)


def check_undone(world: World, shop: Receiver) -> None:
    """All undone, in reverse, each once as far as the receiver can tell; nothing forward after the first undo."""
    assert world.status() == "cancelled"
    assert keys(shop) == ["hotel/a", "card/b", "undo/card/b", "undo/hotel/a"]
    assert {e.status.value for e in world.effects() if not e.undoes} == {"undone"}
    assert world.verbs().count("compensated") == world.verbs().count("compensating") == 1
    first = next(i for i, key in enumerate(shop.attempts) if "undo/" in key)
    assert all("undo/" in key for key in shop.attempts[first:]), "nothing forward begins once it is decided"


@pytest.mark.req("EFF-6", "EFF-8")
@pytest.mark.parametrize("mode", ["repeat", "reconcile"])
@pytest.mark.parametrize("deaths", DEATHS + TWICE)
async def test_a_death_at_each_point_of_the_undo(world: World, deaths: list[tuple[str, str]], mode: str) -> None:
    """The next holder goes on where the last one was: no undo is made twice, none is left out."""
    shop = Receiver(dedupes=mode == "repeat")
    flow = saga(shop, **({"asks": True} if mode == "reconcile" else {}))
    world.worker(flow)
    await world.start(flow)
    world.processes[0].kill()
    await world.cancel()
    for when, place in deaths:
        process = world.worker(flow)
        getattr(process.wire, when)(place, process.kill)
        await world.pass_(2 * QUIET)
        second = "record" in place and mode == "reconcile" and process is not world.processes[1]
        assert process.wire.dead or second, "the crash happened; the second question finds the record"
        process.kill()
    world.worker(flow)
    await world.pass_(4 * QUIET)
    check_undone(world, shop)


@pytest.mark.req("EFF-6")
async def test_a_decided_failure_survives_the_crash_of_its_holder(world: World) -> None:
    """The node would end otherwise in its next execution, so it is not executed again."""
    shop, walks = Receiver(), []
    order = write(shop, undo=True, undo_terms={"if_uncertain": resend(remembered_for=after(hours=1))})

    async def body(ctx: Context[State]) -> None:
        walks.append(1)
        await ctx.do(order, "a")
        if len(walks) == 1:
            raise Fail("on the first walk only")

    flow = one_node(body)
    process = world.worker(flow)
    process.wire.before("intend undo/order/a", process.kill)
    await world.start(flow)
    assert world.status() == "compensating"
    world.worker(flow)
    await world.pass_(QUIET)
    assert (world.status(), len(walks), keys(shop)) == ("failed", 1, ["order/a", "undo/order/a"])
    assert world.last_event()["reason"] == "on the first walk only"


@pytest.mark.req("EFF-6", "FAIL-12", "FAIL-6")
@pytest.mark.parametrize("guarded", [True, False])
async def test_a_replaced_holder_intends_no_undo(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Another takes the run in the very moment before the intent: it does not land, and nothing is called."""
    if not guarded:
        remove("unfenced_undo", monkeypatch)
    shop = Receiver(dedupes=True)
    flow = saga(shop)
    first = world.worker(flow)
    await world.start(flow)

    def another_takes_it() -> None:
        run = world.run()
        taken = run._replace(epoch=run.epoch + 1, version=run.version + 1, owner="wk-2")
        world.core.rows.put(RUN, ("t", "r1"), taken)

    first.wire.before("intend undo/card/b", another_takes_it)
    await world.cancel()
    undone = [] if guarded else ["undo/card/b"]
    assert [e.key for e in world.effects() if e.undoes] == undone
    assert keys(shop)[2:] == undone, "the lease of the first still runs: but for the fence nothing stops it"


# --- an undo that fails --------------------------------------------------------------------------------
async def stuck(world: World, *undo: Any, **terms: Any) -> Receiver:
    """A run that did `hotel` and `card`, is cancelled, and whose undo meets a receiver with this script."""
    other = Receiver(*undo)
    acts = [write(Receiver(), name=name, undo=other, undo_terms=terms) for name in ("hotel", "card")]
    flow = trip(*acts, waits=True)
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    await world.pass_(10 * SECOND)
    return other


@pytest.mark.req("EFF-6")
async def test_an_undo_that_is_refused_calls_a_person_and_stops_those_before_it(world: World) -> None:
    other = await stuck(world, Refused("http_404", "no such payment"))
    assert (world.status(), world.reasons(), world.run().owner) == ("compensating", ["undo_failed"], "")
    (entry,) = world.attention()
    assert (entry.key, entry.visit) == ("undo/card/b", 1)
    assert "it was not done: http_404: no such payment" in entry.detail
    assert entry.detail.endswith("undone: nothing; to undo: card card/b, hotel hotel/a")
    await world.pass_(60 * MINUTE)
    assert other.did == []
    await world.answer("undo_failed", "retry")
    assert (world.status(), keys(other)) == ("cancelled", ["undo/card/b", "undo/hotel/a"])


@pytest.mark.req("EFF-6")
async def test_an_undo_done_by_hand_is_not_called(world: World) -> None:
    """The ledger names the person and the reason; the other effects are undone."""
    other = await stuck(world, Refused("http_422"))
    await world.answer("undo_failed", "done_by_hand")
    assert (world.status(), keys(other)) == ("cancelled", ["undo/hotel/a"])
    undo = world.effect("undo/card/b")
    assert (undo.status.value, undo.settled_by, undo.error and undo.error.detail) == ("done", "op", "looked into it")
    told = json.loads(world.events()[-2].body)["data"]
    assert (told["undone_manually"], told["undone"]) == (["card card/b"], ["card card/b", "hotel hotel/a"])
    assert world.effect("card/b").status.value == "undone"


@pytest.mark.req("EFF-6", "EFF-3")
async def test_an_uncertain_undo_is_called_again_only_after_its_settle_time(world: World) -> None:
    other = await stuck(world, Acts(Perhaps("no answer")))
    assert "it is not known whether it happened" in world.attention()[0].detail
    with pytest.raises(Conflict, match="too early"):
        await world.answer("undo_failed", "retry")
    with pytest.raises(Conflict, match="is the undo of another effect"):
        await world.resolve("undo/card/b", "happened")
    assert world.reasons() == ["undo_failed"]
    await world.pass_(QUIET)
    await world.answer("undo_failed", "retry")
    assert world.status() == "cancelled"
    assert keys(other) == ["undo/card/b", "undo/card/b", "undo/hotel/a"], "a person said: do it again"


@pytest.mark.req("EFF-6")
async def test_an_uncertain_undo_may_be_done_by_hand_at_once_and_once(world: World) -> None:
    await stuck(world, Acts(Perhaps("no answer")))
    world.processes[0].kill()
    await world.answer("undo_failed", "done_by_hand")
    with pytest.raises(Conflict, match="was answered before"):
        await world.answer("undo_failed", "done_by_hand")
    assert world.effect("card/b").status.value == "undone"


@pytest.mark.req("EFF-6", "EFF-2")
async def test_an_undo_interrupted_by_a_crash_is_uncertain(world: World) -> None:
    """`ask`, the default: it may have happened, and nothing is called again blindly."""
    slow = Slow(acts_first=True)
    other = Receiver(slow)
    flow = trip(write(Receiver(), undo=other), waits=True)
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    await slow.begun.wait()
    world.processes[0].kill()
    world.worker(flow)
    await world.pass_(MINUTE)
    assert (world.status(), world.reasons(), len(other.attempts)) == ("compensating", ["undo_failed"], 1)


@pytest.mark.req("EFF-6", "EFF-4")
async def test_an_undo_is_retried_and_then_a_person_is_called(world: World) -> None:
    other = await stuck(world, *[RetryLater("busy")] * 3)
    assert world.reasons() == ["undo_failed"] and "retries_exhausted" in world.attention()[0].detail
    assert len(other.attempts) == 3


@pytest.mark.req("EFF-6")
async def test_an_undo_whose_code_is_gone_calls_a_person(world: World) -> None:
    shop = Receiver()
    flow = trip(write(shop, undo=True), waits=True)
    world.worker(flow)
    await world.start(flow)
    world.processes[0].kill()

    async def body(ctx: Context[State]) -> None:
        await ctx.receive("go", Go)

    ACTIVITIES._by_name.clear()
    await world.cancel()
    bare = one_node(body)
    world.worker(bare)
    await world.pass_(MINUTE)
    assert (world.status(), world.reasons()) == ("compensating", ["undo_failed"])
    assert "activity_gone" in world.attention()[0].detail
    await world.answer("undo_failed", "retry")
    assert world.reasons() == ["undo_failed"], "it is gone still"
    await world.answer("undo_failed", "done_by_hand")
    assert (world.status(), keys(shop)) == ("cancelled", ["order/a"])


class Other(BaseModel):
    """An answer that no text fits any more."""

    n: int


WITHHELD = ("used_by_others", "undo_gone", "activity_gone", "not_loadable")


@pytest.mark.req("EFF-6", "TEST-4")
@pytest.mark.parametrize("why", WITHHELD)
async def test_fsck_accepts_a_store_in_which_an_undo_was_withheld(world: World, why: str) -> None:
    """It named no one who settled the row, so `fsck`, `backup` and `verify` called an honest store broken."""
    shop = Receiver()
    order = write(shop, undo=True, once_per="tenant" if why == "used_by_others" else "visit")
    flow = trip(order, waits=True)
    world.worker(flow)
    await world.start(flow)
    if why == "used_by_others":
        await world.start(flow, "r2")
    else:
        world.processes[0].kill()
        ACTIVITIES._by_name.clear()
        if why == "undo_gone":
            order = write(shop)
        elif why == "not_loadable":

            async def changed(letter: str) -> Other:
                raise AssertionError("it is not called")

            order = activity(key="order/{letter}", name="order")(changed)

            @order.undo
            async def no(done: Other, letter: str) -> None:
                raise AssertionError("it is not called")

        flow = trip(*([] if why == "activity_gone" else [order]), waits=True)
        world.worker(flow)
    await world.cancel()
    await world.pass_(MINUTE)
    assert (world.status(), world.reasons()) == ("compensating", ["undo_failed"])
    (undo,) = [e for e in world.effects() if e.undoes]
    assert (undo.code, undo.status, undo.settled_by) == (why, "refused", "withheld")
    assert (await Fsck(world.store, chain=True).look()).findings == ()
    await world.answer("undo_failed", "done_by_hand")
    assert (world.status(), keys(shop)) == ("cancelled", ["order/a"])
    assert (await Fsck(world.store, chain=True).look()).findings == ()


# --- what is open comes first ----------------------------------------------------------------------------
@pytest.mark.req("EFF-8", "EFF-2")
async def test_an_uncertain_effect_is_resolved_before_anything_is_undone(world: World) -> None:
    shop = Receiver("did hotel/a", Acts(Perhaps("lost")))
    flow = trip(write(shop, name="hotel", undo=True), write(shop, name="card", undo=True))
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    assert (world.status(), world.reasons()) == ("compensating", ["effect_uncertain"])
    assert keys(shop) == ["hotel/a", "card/b"]
    await world.resolve("card/b", "happened", response=b'"seen"')
    assert keys(shop)[2:] == ["undo/card/b", "undo/hotel/a"]
    assert (world.status(), shop.given) == ("cancelled", ["seen", "did hotel/a"])


@pytest.mark.req("EFF-8", "FAIL-7")
@pytest.mark.parametrize("acts", [True, False])
async def test_a_resend_left_open_by_a_crash_is_resent_to_be_undone(world: World, acts: bool) -> None:
    """Within its limits, under the same key: so its outcome is known, and it is undone (S-19)."""
    slow = Slow(acts_first=acts)
    shop = Receiver(slow, dedupes=True)
    order = write(shop, undo=True, undo_terms={"asks": True}, if_uncertain=resend(remembered_for=after(hours=1)))
    flow = trip(order, waits=True)
    world.worker(flow)
    await world.start(flow)
    world.processes[0].kill()
    await world.cancel()
    world.worker(flow)
    await world.pass_(QUIET)
    assert (world.status(), keys(shop)) == ("cancelled", ["order/a", "undo/order/a"])
    assert len(shop.attempts) == 3


@pytest.mark.req("EFF-8")
async def test_a_resend_beyond_its_window_calls_a_person(world: World) -> None:
    slow = Slow(acts_first=True)
    shop = Receiver(slow, dedupes=True)
    flow = trip(write(shop, undo=True, if_uncertain=resend(remembered_for=after(minutes=5))), waits=True)
    world.worker(flow)
    await world.start(flow)
    world.processes[0].kill()
    await world.cancel()
    await world.pass_(10 * MINUTE)
    world.worker(flow)
    await world.pass_(MINUTE)
    assert (world.reasons(), len(shop.attempts)) == (["effect_uncertain"], 1)


# --- answers and pauses during the undo -----------------------------------------------------------
@pytest.mark.req("EFF-8")
async def test_a_second_cancel_adds_nothing(world: World) -> None:
    other = await stuck(world, Refused("http_404"))
    await world.cancel()
    assert (world.status(), world.reasons()) == ("compensating", ["undo_failed"])
    await world.answer("undo_failed", "retry")
    assert (world.status(), keys(other)) == ("cancelled", ["undo/card/b", "undo/hotel/a"])
    assert world.verbs().count("compensating") == 1


@pytest.mark.req("EFF-6")
async def test_a_pause_stops_the_undo_too(world: World) -> None:
    shop = Receiver()
    flow = trip(write(shop, undo=True), waits=True)
    world.worker(flow)
    await world.start(flow)
    await world.hold("activity/order")
    await world.cancel()
    await world.pass_(MINUTE)
    assert (world.status(), keys(shop)) == ("compensating", ["order/a"])
    assert world.waiting()[0][0] == "pause"
    await world.release("activity/order")
    assert (world.status(), keys(shop)) == ("cancelled", ["order/a", "undo/order/a"])


@pytest.mark.req("EFF-6", "GATE-8")
async def test_the_decision_to_end_withdraws_pending_approvals(world: World) -> None:
    shop = Receiver()
    order = write(shop, undo=True)

    async def body(ctx: Context[State]) -> None:
        await ctx.do(order, "a")
        await ctx.approval(order.plan("b"), summary="b", by=role("boss"), within=after(hours=1))

    flow = one_node(body)
    process = world.worker(flow)
    await world.start(flow)
    process.wire.before("intend undo/order/a", process.kill)
    await world.cancel()
    assert (world.status(), world.approvals()[0].status.value) == ("compensating", "withdrawn")


@pytest.mark.req("EFF-6")
async def test_a_run_with_nothing_to_undo_ends_in_one_commit(world: World) -> None:
    flow = trip(write(Receiver()), end=Fail("enough"))
    world.worker(flow)
    await world.start(flow)
    assert world.verbs()[-2:] == ["claimed", "failed"]
    assert world.run().ending is None


# --- each safeguard, removed ---------------------------------------------------------------------------
@pytest.mark.req("EFF-6")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_order_a_hotel_goes_before_its_card(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("undo_forwards", monkeypatch)
    shop = Receiver()
    flow = saga(shop)
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    undone = ["undo/card/b", "undo/hotel/a"]
    assert keys(shop)[2:] == (undone if guarded else undone[::-1])


@pytest.mark.req("EFF-6")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_a_durable_decision_the_next_execution_continues_instead(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Half undone, and an execution that makes other calls takes the forward work for done."""
    if not guarded:
        remove("no_undo_decision", monkeypatch)
    shop, walks = Receiver(), []
    order = write(shop, undo=True, undo_terms={"if_uncertain": resend(remembered_for=after(hours=1))})

    async def body(ctx: Context[State]) -> None:
        walks.append(1)
        await ctx.do(order, "a")
        await ctx.do(order, "b")
        if len(walks) == 1:
            raise Fail("on the first walk only")

    flow = one_node(body)
    process = world.worker(flow)
    process.wire.after("record undo/order/b", process.kill)
    await world.start(flow)
    world.worker(flow)
    await world.pass_(QUIET)
    if guarded:
        assert (world.status(), len(walks)) == (RunStatus.FAILED, 1)
        assert keys(shop)[2:] == ["undo/order/b", "undo/order/a"]
    else:
        assert world.status() != RunStatus.FAILED or len(walks) > 1
