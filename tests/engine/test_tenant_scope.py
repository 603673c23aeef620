"""Effects shared by a tenant: made once for all runs, waited for, used, and not undone while used (S-18)."""

from datetime import timedelta
from typing import Any

import pytest

from outlast.core import effect_verbs
from outlast.core.commit import Commit, Put
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT, UNDO_RESERVED, USAGE, USED, Effect
from outlast.core.rows.run_rows import RUN
from outlast.core.run_transition import fence
from outlast.engine import commands
from outlast.errors import Stale
from outlast.flow import Context, Refused, Retry, Workflow, activity, resend
from tests.engine.world import MINUTE, QUIET, SECOND, Acts, Go, Receiver, Slow, State, World, one_node, ordering, write

Ctx = Context[State]
pytestmark = pytest.mark.req("EFF-1")
DAY = 24 * 60 * MINUTE


def shared(receiver: Receiver, **options: Any) -> Any:
    """A write that all runs of a tenant share."""
    return write(receiver, once_per="tenant", **options)


def the_row(world: World, key: str = "order/a") -> Effect:
    row = world.core.rows.get(EFFECT, ("t", "", 0, key))
    assert isinstance(row, Effect)
    return row


def users(world: World) -> list[str]:
    return [str(row[1]) for row in world.core.rows.under(USAGE, ("t",))]


@pytest.mark.every_store
async def test_the_first_run_does_it_and_the_second_takes_its_answer(world: World) -> None:
    """One call, one row of the tenant, known to the receiver by a key without a run."""
    shop = Receiver()
    flow = ordering(shared(shop), "a", "a")
    world.worker(flow)
    for run in ("r1", "r2", "r3"):
        await world.start(flow, run)
    assert [world.outcome(run)["said"] for run in ("r1", "r2", "r3")] == [["did order/a"] * 2] * 3
    assert shop.attempts == shop.did == ["t::0:order/a"]
    row = the_row(world)
    assert (row.by_run, row.run, row.visit, row.shared, row.ordinal, row.keep_ms) == ("r1", "", 0, USED, 1, 0)
    assert (users(world), world.effects("r1"), world.effects("r2")) == (["r1", "r2", "r3"], [], [])


async def test_tenants_share_no_effects(world: World) -> None:
    shop = Receiver()
    flow = ordering(shared(shop), "a")
    world.worker(flow)
    await world.start(flow, "r1")
    await world.start(flow, "r1", tenant="u")
    assert sorted(shop.did) == ["t::0:order/a", "u::0:order/a"]


async def test_used_twice_by_one_run_is_one_use(world: World) -> None:
    """A later execution and a later visit answer from the recorded memo, and write nothing more."""
    shop = Receiver()
    act = shared(shop)
    first = ordering(act, "a", name="first")

    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.do(act, "a"))
        await ctx.receive("go", Go)
        ctx.state.said.append(await ctx.do(act, "a"))

    flow = one_node(body)
    world.worker(first, flow)
    await world.start(first, "r1")
    await world.start(flow, "r2")
    before = the_row(world)
    world.processes[0].kill()
    await world.pass_(MINUTE)
    world.worker(first, flow)
    await world.signal("go", "r2")
    await world.pass_(MINUTE)
    assert world.outcome("r2")["said"] == ["did order/a"] * 2
    assert (the_row(world), users(world), len(shop.attempts)) == (before, ["r1", "r2"], 1)


@pytest.mark.every_store
async def test_another_run_waits_for_a_shared_effect_and_continues_when_it_settles(world: World) -> None:
    """It names the effect and its owner, makes no call, and is notified at once, not a minute later."""
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(shared(shop), "a")
    world.worker(flow)
    await world.start(flow, "r1")
    await slow.begun.wait()
    for run in ("r2", "r3"):
        await world.start(flow, run)
        assert (world.waiting(run), world.status(run)) == ([("effect", "order order/a")], "waiting")
    assert world.run("r2").waiting_for[0].who == "run r1"
    slow.go.set()
    await world.settle()
    assert [world.status(run) for run in ("r1", "r2", "r3")] == ["completed"] * 3
    assert len(shop.attempts) == 1


async def test_a_run_that_missed_the_message_checks_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def deaf(*_: object) -> None: ...

    monkeypatch.setattr("outlast.engine.late_records.notify_waiting", deaf)
    slow = Slow()
    flow = ordering(shared(Receiver(slow)), "a")
    world.worker(flow)
    await world.start(flow, "r1")
    await world.start(flow, "r2")
    slow.go.set()
    await world.settle()
    assert world.status("r2") == "waiting"
    await world.pass_(MINUTE + SECOND)
    assert world.status("r2") == "completed"


async def test_only_the_owning_run_settles_an_uncertain_effect(world: World) -> None:
    """The owner's worker dies in the call. Other runs wait; the successor settles it after the settle time."""
    slow = Slow(acts_first=True)
    shop = Receiver(slow)
    act = shared(shop, mode="reconcile")
    flow, other = ordering(act, "a"), ordering(act, "a", name="other")
    first = world.worker(flow)
    world.worker(other)
    await world.start(flow, "r1")
    await slow.begun.wait()
    first.kill()
    await world.start(other, "r2")
    await world.pass_(10 * MINUTE)
    assert (world.status("r2"), shop.asked, the_row(world).status) == ("waiting", 0, EffectStatus.INTENDED)
    world.worker(flow)
    await world.pass_(QUIET)
    assert (world.status("r1"), world.status("r2"), shop.asked, len(shop.did)) == ("completed", "completed", 1, 1)
    assert the_row(world).settled_by == "reconcile"


async def test_a_person_settles_it_for_its_run_and_for_those_who_wait(world: World) -> None:
    """Only the owner has attention; the answer wakes all waiting runs."""
    shop = Receiver(Acts(TimeoutError("no answer")))
    flow = ordering(shared(shop), "a")
    world.worker(flow)
    await world.start(flow, "r1")
    await world.start(flow, "r2")
    assert (world.reasons("r1"), world.reasons("r2")) == (["effect_uncertain"], [])
    assert world.waiting("r2") == [("effect", "order order/a")]
    await world.resolve("order/a", "happened", "r1", response=b'"seen"')
    assert [world.outcome(run)["said"] for run in ("r1", "r2")] == [["seen"], ["seen"]]
    assert len(shop.attempts) == 1


async def test_the_first_run_that_asks_after_did_not_happen_makes_and_owns_it(world: World) -> None:
    """The owner died and its worker is gone: the run that asks next intends, under its own number and name."""
    shop = Receiver(TimeoutError("no answer"))
    act = shared(shop)
    mine, other = ordering(act, "a", name="mine"), ordering(act, "b", "a", name="other")
    world.worker(mine)
    await world.start(mine, "r1")
    await world.pass_(QUIET)
    world.processes[0].kill()
    world.worker(other)
    await world.start(other, "r2")
    assert world.waiting("r2") == [("effect", "order order/a")]
    await world.resolve("order/a", "did_not_happen", "r1")
    row = the_row(world)
    assert (world.status("r2"), row.by_run, row.ordinal, row.attempts) == ("completed", "r2", 2, 2)
    world.worker(mine)
    await world.pass_(MINUTE)
    assert (world.status("r1"), shop.did.count("t::0:order/a")) == ("completed", 1)
    assert the_row(world).shared == USED


async def test_a_refusal_is_shared_by_all_runs(world: World) -> None:
    shop = Receiver(Refused("sold_out", "none left"))
    act = shared(shop)

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.do(act, "a")
        except Refused as no:
            ctx.state.said.append(f"{no.code} {no.detail}")

    flow = one_node(body)
    world.worker(flow)
    for run in ("r1", "r2"):
        await world.start(flow, run)
        assert world.outcome(run)["said"] == ["sold_out none left"]
    assert len(shop.attempts) == 1


async def test_a_persons_retry_is_answered_by_a_run_that_did_not_try(world: World) -> None:
    """Attempts used up: the refusal is flagged for both; `retry` of the second makes it do the work."""
    shop = Receiver(ConnectionRefusedError())
    flow = ordering(shared(shop, retry=Retry(attempts=1)), "a")
    world.worker(flow)
    for run in ("r1", "r2"):
        await world.start(flow, run)
        assert world.reasons(run) == ["retries_exhausted"]
    await world.answer("retries_exhausted", "retry", "r2")
    assert (world.status("r2"), the_row(world).by_run, len(shop.did)) == ("completed", "r2", 1)
    await world.answer("retries_exhausted", "retry", "r1")
    assert (world.status("r1"), len(shop.did)) == ("completed", 1), "it is done by now: r1 takes the answer"


@pytest.mark.parametrize("state", ["done", "open"])
async def test_other_arguments_are_a_contradiction_in_every_run(world: World, state: str) -> None:
    slow = Slow()
    shop = Receiver(*([slow] if state == "open" else []))
    act = shared(shop)
    flow = ordering(act, "a")

    async def dearer(ctx: Ctx) -> None:
        await ctx.do(act, "a", 2)

    other = one_node(dearer, name="other")
    world.worker(flow, other)
    await world.start(flow, "r1")
    await world.start(other, "r2")
    assert (world.reasons("r2"), users(world)) == (["contradiction"], ["r1"])
    slow.go.set()
    await world.settle()
    assert (world.status("r1"), the_row(world).shared, len(shop.attempts)) == ("completed", 0, 1)


async def test_a_run_does_not_end_while_its_shared_effect_is_open(world: World) -> None:
    """A cancel waits for the call in flight, as for any effect (EFF-8)."""
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(shared(shop), "a")
    world.worker(flow)
    await world.start(flow, "r1")
    await slow.begun.wait()
    await world.cancel("r1")
    assert world.status("r1") == "running"
    slow.go.set()
    await world.settle()
    assert (world.status("r1"), the_row(world).status) == ("cancelled", EffectStatus.DONE)


async def test_a_successor_that_asks_no_more_is_diverged_and_its_cancel_asks_a_person(world: World) -> None:
    """An open shared effect of the run is found again after a takeover, asked for or not."""
    slow = Slow()
    shop = Receiver(slow)
    act = shared(shop)
    asks = True

    async def body(ctx: Ctx) -> None:
        if asks:
            await ctx.do(act, "a")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow, "r1")
    await slow.begun.wait()
    world.processes[0].kill()
    asks = False
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["node_diverged", "effect_uncertain"], "and no worker settles its open effect"
    await world.cancel()
    assert "effect_uncertain" in world.reasons()


async def test_the_same_key_of_scopes_run_and_tenant_in_one_run_is_a_contradiction(world: World) -> None:
    shop = Receiver()
    own, common = write(shop, name="own", key="k/{what}", once_per="run"), shared(shop, name="common", key="k/{what}")

    async def body(ctx: Ctx) -> None:
        await ctx.do(common, "a")
        await ctx.do(own, "a")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert (world.reasons(), len(shop.did)) == (["contradiction"], 1)


# --- undo -----------------------------------------------------------------------------------------------
async def waiting_owner(world: World, shop: Receiver) -> tuple[Workflow[State], Any]:
    """Start a run that has made the effect and is in another slow call, so its claim can be borrowed for an undo."""
    act = shared(shop)
    slow = Slow()
    hold = write(Receiver(slow), name="long")

    async def body(ctx: Ctx) -> None:
        await ctx.do(act, "a")
        await ctx.do(hold, "x")

    flow = one_node(body, name="owner")
    user = ordering(act, "a", name="user")
    world.worker(flow, user)
    await world.start(flow, "r1")
    await slow.begun.wait()
    return user, slow


@pytest.mark.req("EFF-6")
async def test_once_it_was_used_its_undo_cannot_begin(world: World) -> None:
    """The undo's intent names the row as its holder knew it, and is refused."""
    shop = Receiver()
    user, _ = await waiting_owner(world, shop)
    known = the_row(world)
    await world.start(user, "r2")
    with pytest.raises(Stale):
        await world.store.commit(Commit((effect_verbs.reserve_undo(known),), fence(world.run("r1"))))


@pytest.mark.req("EFF-6")
async def test_an_effect_is_not_used_while_it_is_undone_and_is_new_work_afterwards(world: World) -> None:
    """Another run waits for the undo, and then makes the effect under a key that the receiver does not know."""
    shop = Receiver(dedupes=True)
    user, _ = await waiting_owner(world, shop)
    await world.store.commit(Commit((effect_verbs.reserve_undo(the_row(world)),), fence(world.run("r1"))))
    await world.start(user, "r2")
    assert (world.waiting("r2"), the_row(world).shared) == ([("effect", "order order/a")], UNDO_RESERVED)
    row = the_row(world)
    undone = row._replace(version=row.version + 1, status=EffectStatus.UNDONE)
    await world.store.commit(Commit((Put(EFFECT, undone, row.version),), fence(world.run("r1"))))
    await world.pass_(MINUTE + SECOND)
    again = the_row(world)
    assert world.status("r2") == "completed"
    assert shop.did == ["t::0:order/a", "t::1:order/a"]
    assert (again.by_run, again.redone, again.shared, again.attempts) == ("r2", 1, 0, 1)
    assert again.first_at > row.first_at


async def test_an_undo_that_overtakes_a_use_makes_the_user_wait(world: World) -> None:
    """Between the user's reading and its commit the undo begins: Stale, and it waits instead."""
    shop = Receiver()
    user, _ = await waiting_owner(world, shop)
    core = world.core

    def undo_first() -> None:
        row = the_row(world)
        core.rows.put(EFFECT, row[:4], effect_verbs.reserve_undo(row).row)

    world.processes[0].wire.before("use", undo_first)
    await world.start(user, "r2")
    assert (world.waiting("r2"), the_row(world).shared) == ([("effect", "order order/a")], UNDO_RESERVED)


# --- retention ------------------------------------------------------------------------------------------
@pytest.mark.req("CKP-7")
async def test_a_refund_paid_on_day_1_is_not_paid_again_on_day_8(world: World) -> None:
    """The run is deleted after seven days; its shared effect is kept."""
    bank = Receiver()
    refund = ordering(shared(bank, name="refund"), "order-7")
    world.worker(refund)
    await world.start(refund, "r1")
    await world.off_duty()
    await world.pass_(8 * DAY)
    assert await world.store.purge(world.time.wall() - 7 * DAY, 100) == 1
    assert (world.core.rows.get(RUN, ("t", "r1")), users(world)) == (None, [])
    world.worker(refund)
    await world.start(refund, "r2")
    assert (world.outcome("r2")["said"], len(bank.attempts)) == (["did refund/order-7"], 1)


@pytest.mark.req("CKP-7")
async def test_an_effect_with_retention_is_deleted_after_it_and_after_its_runs(world: World) -> None:
    bank = Receiver()
    refund = ordering(shared(bank, name="refund", keep=timedelta(days=10)), "order-7")
    world.worker(refund)
    await world.start(refund, "r1")
    await world.off_duty()
    await world.pass_(11 * DAY)
    await world.store.purge(0, 100)
    assert the_row(world, "refund/order-7").keep_ms == 10 * DAY, "a run that used it is still known"
    await world.store.purge(world.time.wall() - 7 * DAY, 100)
    assert world.core.rows.get(EFFECT, ("t", "", 0, "refund/order-7")) is None
    world.worker(refund)
    await world.start(refund, "r2")
    assert len(bank.attempts) == 2


# --- races and deaths -------------------------------------------------------------------------------------
@pytest.mark.every_store
async def test_two_workers_that_ask_at_once_call_once(world: World) -> None:
    """Both have read that it is not made; one intent lands, the other run waits and uses the answer."""
    shop = Receiver()
    act = shared(shop)
    flow, other = ordering(act, "a"), ordering(act, "a", name="other")
    world.worker(flow)
    second = world.worker(other)
    slow = Slow()
    shop.script = [slow]

    def overtaken() -> None:
        world._now(commands.start(world.store, flow, {}, tenant="t", actor="me", run="r1"))

    second.wire.before("intend", overtaken)
    await world.start(other, "r2")
    await world.settle()
    slow.go.set()
    await world.pass_(MINUTE + SECOND)
    assert (world.status("r1"), world.status("r2"), len(shop.did)) == ("completed", "completed", 1)


async def test_the_user_dies_after_its_use_and_its_successor_gets_the_same(world: World) -> None:
    shop = Receiver()
    act = shared(shop)
    first, user = ordering(act, "a", name="first"), ordering(act, "a", name="user")
    world.worker(first)
    await world.start(first, "r1")
    dying = world.worker(user)
    dying.wire.after("use", dying.kill)
    await world.start(user, "r2")
    assert users(world) == ["r1", "r2"]
    world.worker(user)
    await world.pass_(MINUTE)
    assert (world.outcome("r2")["said"], len(shop.attempts), users(world)) == (["did order/a"], 1, ["r1", "r2"])


async def test_a_repeat_counts_its_window_from_the_first_intent_of_the_present_work(world: World) -> None:
    shop = Receiver(TimeoutError("lost"), dedupes=True)
    act = shared(shop, if_uncertain=resend(remembered_for=timedelta(hours=1)))
    flow = ordering(act, "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert (world.status(), the_row(world).attempts, shop.attempts) == ("completed", 2, ["t::0:order/a"] * 2)


@pytest.mark.req("EFF-8")
async def test_a_shared_effect_left_open_by_a_crash_settles_when_its_run_is_cancelled(world: World) -> None:
    """A `resend` whose run ends is called once more, under the same key of the tenant, and then undone."""
    slow = Slow(acts_first=True)
    shop = Receiver(slow, dedupes=True)
    back: list[str] = []

    @activity(
        key="order/{what}", name="order", once_per="tenant", if_uncertain=resend(remembered_for=timedelta(hours=1))
    )
    async def order(what: str) -> str:
        return await shop.call()

    @order.undo
    async def take_back(done: str, what: str) -> None:
        back.append(what)

    flow = ordering(order, "a")
    world.worker(flow)
    await world.start(flow, "r1")
    await slow.begun.wait()
    world.processes[0].kill()
    await world.cancel("r1")
    world.worker(flow)
    await world.pass_(10 * MINUTE)
    row = the_row(world)
    assert (world.status("r1"), row.status, row.by_run, row.shared) == (
        "cancelled",
        EffectStatus.UNDONE,
        "r1",
        UNDO_RESERVED,
    )
    assert (shop.did, back, len(users(world))) == (["t::0:order/a"], ["a"], 1)
    await world.start(flow, "r2")
    assert (shop.did, the_row(world).by_run) == (["t::0:order/a", "t::1:order/a"], "r2")


@pytest.mark.req("EFF-6")
async def test_a_person_is_asked_before_an_effect_used_by_another_run_is_undone(world: World) -> None:
    """Both runs go on as they are until the person has answered."""
    shop = Receiver()
    back: list[str] = []

    @activity(key="order/{what}", name="order", once_per="tenant")
    async def order(what: str) -> str:
        return await shop.call()

    @order.undo
    async def take_back(done: str, what: str) -> None:
        back.append(what)

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await ctx.receive("go", Go)

    flow = one_node(body, name="owner")
    user = ordering(order, "a", name="user")
    world.worker(flow, user)
    await world.start(flow, "r1")
    await world.start(user, "r2")
    await world.cancel("r1")
    assert (world.reasons("r1"), back, world.status("r2")) == (["undo_failed"], [], "completed")
    await world.answer("undo_failed", "retry", "r1", key="undo/order/a")
    assert (world.status("r1"), back, the_row(world).status) == ("cancelled", ["a"], EffectStatus.UNDONE)
