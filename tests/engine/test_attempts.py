"""Attempts: how many, how far apart, and the checks between an uncertain call and the next one (S-17)."""

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

from outlast.flow import Context, DidNotHappen, Happened, NotSent, Perhaps, Retry, RetryLater, Unknown, Workflow, resend
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


@pytest.mark.req("EFF-4")
async def test_three_attempts_then_a_person_may_order_another(world: World) -> None:
    """An effect that did not happen is refused as retries_exhausted; `continue` reopens exactly that one."""
    shop = Receiver(*[NotSent("down")] * 3)
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert shop.numbers == [1, 2, 3]
    assert world.reasons() == ["retries_exhausted"]
    assert world.attention()[0].key == "order/a"
    await world.go_on()
    assert world.status() == "completed"
    assert shop.numbers == [1, 2, 3, 4]
    assert world.attention() == ()


@pytest.mark.req("EFF-4")
async def test_the_waits_between_attempts_are_at_most_sixty_seconds_in_all(world: World) -> None:
    """A receiver that asks for a longer pause than the rest of the 60 s has refused for now: no attempt after them."""
    shop = Receiver(*[RetryLater("busy", after=timedelta(seconds=25))] * 9)
    flow = ordering(write(shop, retry=Retry(attempts=9)), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * MINUTE)
    assert shop.numbers == [1, 2, 3]
    assert world.effect("order/a").waited_ms == 50 * SECOND
    assert world.reasons() == ["retries_exhausted"]


@pytest.mark.req("EFF-4")
async def test_an_exhausted_call_the_author_caught_is_not_the_one_that_continue_re_opens(world: World) -> None:
    """Two used up their attempts, one was caught: attention names the other, and only that is called again."""
    shop = Receiver(*[NotSent("down")] * 6)
    order = write(shop)

    async def body(ctx: Context[State]) -> None:
        try:
            await ctx.do(order, "a")
        except Exception:  # the author's fallback
            ctx.state.said.append("without a")
        ctx.state.said.append(await ctx.do(order, "b"))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert [(a.reason.value, a.key) for a in world.attention()] == [("retries_exhausted", "order/b")]
    await world.go_on()
    assert world.outcome()["said"] == ["without a", "did order/b"]


@pytest.mark.req("EFF-4")
async def test_exhausted_calls_inside_a_task_group_can_be_continued(world: World) -> None:
    """A TaskGroup wraps what it raises; the reason, the keys and the remedy are the same."""
    shop = Receiver(*[NotSent("down")] * 6)
    order = write(shop)

    async def body(ctx: Context[State]) -> None:
        async with asyncio.TaskGroup() as group:
            for each in "ab":
                group.create_task(ctx.do(order, each))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert set(world.reasons()) == {"retries_exhausted"}
    for _ in range(3):
        if world.status() != "completed":
            await world.go_on()
            await world.pass_(MINUTE)
    assert world.status() == "completed"


@pytest.mark.req("EFF-4", "REC-1")
async def test_a_long_wait_parks_the_run_and_another_worker_goes_on_with_the_next_attempt(world: World) -> None:
    """A wait of more than 5 s parks the run; attempts and waits are on the effect and survive a crash."""
    shop = Receiver(RetryLater("busy", after=timedelta(seconds=20)))
    flow = ordering(write(shop), "a")
    first = world.worker(flow)
    await world.start(flow)
    assert (world.status(), world.run().owner) == ("waiting", "")
    assert world.waiting()[0][0] == "retry"
    first.kill()
    world.worker(flow)
    await world.pass_(19 * SECOND)
    assert shop.numbers == [1]
    await world.pass_(SECOND)
    assert shop.numbers == [1, 2]
    assert world.status() == "completed"


@pytest.mark.req("EFF-4")
async def test_a_message_does_not_shorten_the_wait_before_the_next_attempt(world: World) -> None:
    """A run that waits out a Retry-After and is woken by a signal keeps waiting; a sender cannot burn its attempts."""
    shop = Receiver(RetryLater("busy", after=timedelta(seconds=20)))
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(5 * SECOND)
    await world.signal("hello")
    assert shop.numbers == [1]
    await world.pass_(14 * SECOND)
    assert shop.numbers == [1]
    await world.pass_(SECOND)
    assert shop.numbers == [1, 2]


@pytest.mark.req("EFF-4")
async def test_one_durable_retry_among_twenty_lets_the_others_finish_and_parks_once(world: World) -> None:
    """Nineteen are done before the run parks, once, for the one that waits; refusals come as values."""
    shop = Receiver(RetryLater("busy", after=timedelta(seconds=30)))
    order = write(shop)

    async def body(ctx: Context[State]) -> None:
        answers = await ctx.do_all({i: order.plan(f"x{i}") for i in range(20)}, refused="return")
        ctx.state.n = len(answers)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert len(shop.did) == 19
    assert world.verbs().count("parked") == 1
    await world.pass_(30 * SECOND)
    assert world.outcome()["n"] == 20
    assert len(shop.attempts) == 21
    assert world.verbs().count("parked") == 1


# --- repeat(window) ------------------------------------------------------------------------------
@pytest.mark.req("EFF-2")
async def test_the_window_of_repeat_counts_from_the_first_intent(world: World) -> None:
    """A repeat must land while the receiver remembers the first: 30 s start + 120 s timeout + 30 s margin before the
    window's end. Attempts never restart it, so a later doubt asks a person."""
    shop = Receiver(*[Acts(Perhaps("lost"))] * 9, dedupes=True)
    window = resend(remembered_for=timedelta(seconds=200))
    flow = ordering(write(shop, if_uncertain=window, retry=Retry(attempts=9, first=timedelta(seconds=12))), "a")
    world.worker(flow)
    await world.start(flow)  # waits: 9 s, 18 s, …: the second repeat would be at 27 s
    await world.pass_(5 * MINUTE)
    assert shop.numbers == [1, 2]
    assert world.reasons() == ["effect_uncertain"]


@pytest.mark.req("EFF-2")
async def test_a_repeat_that_waited_is_judged_again_when_it_is_about_to_be_sent(world: World) -> None:
    """The window was open when the attempt failed and has closed during the wait before the next: a person is asked."""
    shop = Receiver(*[Acts(Perhaps("lost"))] * 9, dedupes=True)
    window = resend(remembered_for=timedelta(seconds=182))
    retry = Retry(attempts=9, first=timedelta(seconds=4), factor=1)
    flow = ordering(write(shop, if_uncertain=window, retry=retry), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(5 * MINUTE)
    assert shop.numbers == [1]
    assert world.reasons() == ["effect_uncertain"]


# --- reconcile -----------------------------------------------------------------------------------
@pytest.mark.req("EFF-2", "EFF-3")
async def test_did_not_happen_is_proof_only_after_the_settle_time(world: World) -> None:
    """Before it a call in flight could still land: the run waits it out as recovering, asks again, then calls."""
    shop = Receiver(Perhaps("lost"))
    flow = ordering(write(shop, mode="reconcile"), "a")
    world.worker(flow)
    await world.start(flow)
    assert (world.status(), world.run().owner) == ("recovering", "")
    assert (len(shop.attempts), shop.asked) == (1, 1)
    await world.pass_(179 * SECOND)
    assert len(shop.attempts) == 1
    await world.pass_(2 * SECOND)
    assert (len(shop.attempts), shop.asked) == (2, 2)
    assert world.status() == "completed"


@pytest.mark.req("EFF-3")
async def test_did_not_happen_counts_from_the_time_of_the_question(world: World) -> None:
    """Asked within the settle time and answered after it: not proof. A slow receiver is asked once more."""
    shop = Receiver(Perhaps("lost"))
    slow = asyncio.Event()
    order = write(shop)

    @order.reconcile
    async def find(what: str, amount: int = 1) -> DidNotHappen | Unknown:
        shop.asked += 1
        if shop.asked == 2:
            await slow.wait()
        return DidNotHappen()

    flow = ordering(order, "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(100 * SECOND)
    await world.signal("wake")  # a second look, still within the settle time
    await world.pass_(90 * SECOND)
    assert shop.asked == 2
    slow.set()
    await world.settle()
    assert shop.asked == 3, "the answer to the question asked too early was taken as proof"
    assert len(shop.attempts) == 2


@pytest.mark.req("EFF-2")
async def test_happened_settles_at_any_time(world: World) -> None:
    """The receiver has it: no settle time is owed to a proof that it happened."""
    shop = Receiver(Acts(Perhaps("lost")))
    flow = ordering(write(shop, mode="reconcile"), "a")
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed"
    assert len(shop.did) == 1


@pytest.mark.req("EFF-2")
@pytest.mark.parametrize("answer", [Unknown("no index"), RuntimeError("down"), "nonsense"], ids=str)
async def test_unknown_falls_back_to_if_uncertain(world: World, answer: object) -> None:
    """Also where asking fails three times: ask calls a person, after the settle time."""
    shop = Receiver(Acts(Perhaps("lost")))
    shop.tells = [answer] * 9
    flow = ordering(write(shop, mode="reconcile"), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(QUIET + 10 * SECOND)
    assert world.reasons() == ["effect_uncertain"]
    assert "unknown_outcome" in world.effect("order/a").error_text
    assert len(shop.attempts) == 1


@pytest.mark.req("EFF-2")
async def test_unknown_resends_if_if_uncertain_is_resend(world: World) -> None:
    """The second line of a reconcile is its if_uncertain."""
    shop = Receiver(Acts(Perhaps("lost")), dedupes=True)
    shop.tells = [Unknown("no index")] * 9
    flow = ordering(write(shop, mode="reconcile", if_uncertain=resend(remembered_for=timedelta(hours=1))), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(QUIET + 10 * SECOND)
    assert world.status() == "completed"
    assert (len(shop.attempts), len(shop.did)) == (2, 1)


@pytest.mark.req("EFF-2")
async def test_a_reconcile_answer_of_another_type_calls_a_person(world: World) -> None:
    """It happened, the response is unusable: the effect is done without one, and the node gets the error."""
    shop = Receiver(Acts(Perhaps("lost")))
    shop.tells = [Happened("x" * 300_000)]
    flow = ordering(write(shop, mode="reconcile"), "a")
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and "is not stored" in world.attention()[0].detail
    assert world.effect("order/a").status.value == "done"
    assert len(shop.attempts) == 1


# --- a predecessor's open effect -------------------------------------------------------------------
@pytest.mark.req("EFF-2", "REC-1", "FAIL-3", "FAIL-4")
@pytest.mark.parametrize(
    ("mode", "acted", "attempts", "end"),
    [
        ({"mode": "ask"}, True, 1, "effect_uncertain"),
        ({"mode": "ask"}, False, 1, "effect_uncertain"),
        ({"mode": "reconcile"}, True, 1, "completed"),
        ({"mode": "reconcile"}, False, 2, "completed"),
        ({"if_uncertain": resend(remembered_for=timedelta(hours=1))}, True, 2, "completed"),
        ({"if_uncertain": resend(remembered_for=timedelta(hours=1))}, False, 2, "completed"),
    ],
)
async def test_an_effect_left_open_by_a_dead_worker_settles_by_its_mode(
    world: World, mode: dict[str, object], acted: bool, attempts: int, end: str
) -> None:
    """Asked of a person, looked up, or repeated under the same key; the receiver did it once."""
    slow = Slow(acts_first=acted)
    shop = Receiver(slow, dedupes=True)
    flow = ordering(write(shop, **mode), "a")
    first = world.worker(flow)
    await world.start(flow)
    assert slow.begun.is_set()
    first.kill()
    world.worker(flow)
    await world.pass_(QUIET + 30 * SECOND)
    assert len(shop.attempts) == attempts
    assert len(shop.did) == (1 if acted or end == "completed" else 0)
    assert (world.reasons() or [world.status()]) == [end]


@pytest.mark.req("FAIL-4", "FAIL-8", "CKP-2", "REC-1")
async def test_a_crash_after_the_record_and_before_the_advance_calls_nothing_again(world: World) -> None:
    """The successor finds the answer in the ledger and goes on."""
    shop = Receiver()
    flow = ordering(write(shop), "a", "b")
    first = world.worker(flow)
    first.wire.before("r1 intend order/b", first.kill)
    await world.start(flow)
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.status() == "completed"
    assert shop.did == ["t:r1:1:order/a", "t:r1:1:order/b"]


@pytest.mark.req("EFF-1")
async def test_once_per_run_is_one_effect_over_all_visits(world: World) -> None:
    """Scope visit: a new visit is new work. Scope run: the same effect, whatever the visit."""
    shop = Receiver()
    once, each = write(shop, name="once", once_per="run"), write(shop, name="each")
    flow = Workflow("rounds", state=State)

    @flow.node(start=True, max_visits=3)
    async def round_(ctx: Context[State]) -> Literal["round_"] | None:
        ctx.state.n += 1
        await ctx.do(once, "a")
        await ctx.do(each, "a")
        return "round_" if ctx.state.n < 3 else None

    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed"
    assert [k.split(":", 2)[2] for k in shop.did] == ["0:once/a", "1:each/a", "2:each/a", "3:each/a"]


@pytest.mark.req("REC-1", "EFF-1")
async def test_a_run_without_time_for_an_attempt_is_released(world: World) -> None:
    """not_after + timeout must end within the slice; else the run is given back, due at once, with a new budget."""
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Context[State]) -> None:
        if not ctx.state.said and not shop.did:
            await world.time.sleep(500 * SECOND)  # the body itself takes most of the 600 s
        await ctx.do(order, "a")
        await ctx.receive("go", Go)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(500 * SECOND)
    assert "handed_back" in world.verbs()
    assert world.run().epoch > 2
    await world.pass_(HOUR)


@pytest.mark.req("EFF-4", "FAIL-3")
async def test_a_death_uses_up_no_attempt(world: World) -> None:
    """Three processes die between the intent and the call: the call still has its three attempts (S-17)."""
    shop = Receiver(NotSent("down"), NotSent("down"))
    flow = ordering(write(shop, mode="reconcile"), "a")
    for n in range(3):
        dying = world.worker(flow)
        dying.wire.after("r1 intend order/a", dying.kill)
        if n == 0:
            await world.start(flow)
        await world.pass_(QUIET + 30 * SECOND)
    world.worker(flow)
    await world.pass_(QUIET + MINUTE)
    assert world.status() == "completed"
    assert shop.did == ["t:r1:1:order/a"]
    (effect,) = world.effects()
    assert (effect.attempts, effect.interrupted) == (6, 3)
