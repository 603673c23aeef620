"""Effects: answered from the ledger, intended before the call, recorded after it."""

import asyncio
import json
from datetime import timedelta

import httpx2
import pytest

from outlast.core import crash_points
from outlast.flow import Context, NotSent, Perhaps, Refused, Retry, RetryLater, resend
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
    one_node,
    ordering,
    reading,
    write,
)

HOUR_WINDOW = resend(remembered_for=timedelta(hours=1))


@pytest.mark.req("EFF-1", "RUN-2", "EFF-5")
@pytest.mark.every_store
async def test_a_run_does_its_effects_once_and_ends(world: World) -> None:
    """Two calls succeed, each with its own idempotency key."""
    shop = Receiver()
    flow = ordering(write(shop), "a", "b")
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed"
    assert world.outcome() == {"said": ["did order/a", "did order/b"], "n": 0}
    assert shop.did == ["t:r1:1:order/a", "t:r1:1:order/b"]
    assert [e.ordinal for e in world.effects()] == [1, 2]


@pytest.mark.req("EFF-1", "CKP-2")
@pytest.mark.every_store
async def test_a_hit_answers_what_was_recorded_and_calls_nothing(world: World) -> None:
    """The next execution of the visit gets the recorded answer; the receiver gets no call."""
    shop = Receiver("first answer", "never this one")
    order = write(shop)

    async def body(ctx: Context[State]) -> None:
        answer = await ctx.do(order, "a")
        await ctx.receive("go", Go)
        ctx.state.said = [answer, await ctx.do(order, "a")]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go")
    assert world.outcome()["said"] == ["first answer", "first answer"]
    assert len(shop.attempts) == 1


@pytest.mark.req("EFF-1")
async def test_a_refusal_is_the_answer_in_every_execution(world: World) -> None:
    """`refused` is recorded; every later execution gets the same exception, and nothing is called again."""
    shop = Receiver(Refused("no_stock", "none left"))
    order = write(shop)
    seen: list[tuple[str, str]] = []

    async def body(ctx: Context[State]) -> None:
        try:
            await ctx.do(order, "a")
        except Refused as failed:
            seen.append((failed.code, failed.detail))
        await ctx.receive("go", Go)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go")
    assert world.status() == "completed"
    assert seen == [("no_stock", "none left")] * 2
    assert len(shop.attempts) == 1


@pytest.mark.req("EFF-1")
@pytest.mark.parametrize("together", [False, True])
async def test_one_key_with_other_arguments_is_a_contradiction(world: World, together: bool) -> None:
    """The same key with another digest never gets the old answer, one after the other or at the same moment."""
    shop = Receiver()
    order = write(shop)
    got: list[object] = []

    async def body(ctx: Context[State]) -> None:
        if together:
            got.extend(await asyncio.gather(ctx.do(order, "a", 1), ctx.do(order, "a", 2)))
        else:
            await ctx.do(order, "a", 1)
            got.append(await ctx.do(order, "a", 2))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["contradiction"]
    assert got == []
    assert len(shop.did) <= 1


@pytest.mark.req("EFF-1")
async def test_two_activities_under_one_key_at_the_same_moment_are_a_contradiction(world: World) -> None:
    """A key belongs to one activity: another one never gets its answer."""
    shop = Receiver()
    pay, ship = write(shop, name="pay", key="do/{what}"), write(shop, name="ship", key="do/{what}")

    async def body(ctx: Context[State]) -> None:
        await asyncio.gather(ctx.do(pay, "a"), ctx.do(ship, "a"))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["contradiction"]


@pytest.mark.req("EFF-1", "FAIL-3")
async def test_the_intent_is_durable_when_the_call_begins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the point before the call the store has the intended effect with its arguments."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    found: list[str] = []
    hook = lambda name, labels: found.append(world.effect("order/a").status.value) if name == "call:before" else None  # noqa: E731
    monkeypatch.setattr(crash_points, "hook", hook)
    world.worker(flow)
    await world.start(flow)
    assert found == ["intended"]
    assert json.loads(world.effect("order/a").args) == {"what": "a", "amount": 1}


@pytest.mark.req("EFF-1", "CKP-1")
async def test_the_record_is_not_awaited_but_lands_before_the_advance(world: World) -> None:
    """`ctx.do` answers before its record has landed; the node's end waits for it."""
    shop = Receiver()
    answered = asyncio.Event()
    order = write(shop)

    async def body(ctx: Context[State]) -> None:
        await ctx.do(order, "a")
        answered.set()

    flow = one_node(body)
    process = world.worker(flow)
    gate = process.wire.hold("record order/a")
    await world.start(flow)
    assert answered.is_set()
    gate.set()
    await world.settle()
    labels = process.wire.labels
    assert labels.index("r1 record order/a") < labels.index("r1 complete only#1")
    assert world.status() == "completed"


@pytest.mark.req("CKP-1", "CKP-2")
async def test_nothing_is_committed_over_a_record_that_failed(world: World) -> None:
    """A record the store did not take is submitted again; the node does not end without it, nothing is called twice."""
    shop = Receiver()
    flow = ordering(write(shop), "a", "b")
    process = world.worker(flow)
    process.wire.away += ["record order/a"]
    await world.start(flow)
    await world.pass_(10 * SECOND)
    assert world.status() == "completed"
    assert len(shop.attempts) == 2
    assert [e.status.value for e in world.effects()] == ["done", "done"]


# --- the outcomes of a call, in each mode (S-17) -------------------------------------------------
REQUEST = httpx2.Request("POST", "http://shop.test/orders")


def status(code: int) -> httpx2.HTTPStatusError:
    """Return the exception of raise_for_status."""
    return httpx2.HTTPStatusError(f"{code}", request=REQUEST, response=httpx2.Response(code, request=REQUEST))


NOT_SENT = [httpx2.ConnectError("refused"), httpx2.ConnectTimeout("slow"), ConnectionRefusedError(), NotSent("dns")]
NOT_NOW = [status(425), status(429), RetryLater("busy")]
DEFINITE = [status(400), status(401), status(403), status(404), status(422), Refused("no")]
PERHAPS = [
    status(408),
    status(409),
    status(500),
    status(503),
    httpx2.ReadTimeout("late"),
    httpx2.ReadError("reset"),
    httpx2.RemoteProtocolError("cut"),
    TimeoutError(),
    ConnectionResetError(),
    Perhaps("lost"),
    KeyError("a bug of the activity"),
]
MODES = {"ask": {"mode": "ask"}, "reconcile": {"mode": "reconcile"}, "repeat": {"if_uncertain": HOUR_WINDOW}}


def named(error: BaseException) -> str:
    """Return the test id of a case."""
    return f"{type(error).__name__}-{error}"


@pytest.mark.req("EFF-2", "EFF-4", "FAIL-2")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("error", NOT_SENT + NOT_NOW, ids=named)
async def test_an_unsent_call_is_tried_again_in_every_mode(world: World, mode: str, error: Exception) -> None:
    """Nothing happened, so another attempt is safe: one second later, and it is done once."""
    shop = Receiver(error)
    flow = ordering(write(shop, **MODES[mode]), "a")
    world.worker(flow)
    await world.start(flow)
    assert len(shop.attempts) == 1
    await world.pass_(SECOND)
    assert world.status() == "completed"
    assert (len(shop.attempts), shop.asked, len(shop.did)) == (2, 0, 1)


@pytest.mark.req("EFF-4")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("error", DEFINITE, ids=named)
async def test_a_definite_no_is_never_tried_again(world: World, mode: str, error: Exception) -> None:
    """400, 401, 403, 404, 422 and a declared refusal are recorded as refused, in every mode."""
    shop = Receiver(error)
    flow = ordering(write(shop, **MODES[mode]), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.effect("order/a").status.value == "refused"
    assert (len(shop.attempts), shop.asked) == (1, 0)
    assert world.reasons() == ["exception"]


@pytest.mark.req("EFF-2", "FAIL-2")
@pytest.mark.parametrize("error", PERHAPS, ids=named)
async def test_an_uncertain_call_is_not_resent_if_a_person_is_to_be_asked(world: World, error: Exception) -> None:
    """Mode ask: uncertain at once, one attempt, a person is called."""
    shop = Receiver(Acts(error))
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(QUIET)
    assert world.effect("order/a").status.value == "uncertain"
    assert world.reasons() == ["effect_uncertain"]
    assert len(shop.attempts) == 1


@pytest.mark.req("EFF-2", "FAIL-2")
@pytest.mark.parametrize("error", PERHAPS, ids=named)
async def test_an_uncertain_call_is_reconciled_if_it_can_be(world: World, error: Exception) -> None:
    """Mode reconcile: the receiver has it, so it is done, and never called again."""
    shop = Receiver(Acts(error))
    flow = ordering(write(shop, mode="reconcile"), "a")
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed"
    assert world.outcome()["said"] == ["did order/a"]
    effect = world.effect("order/a")
    assert (effect.settled_by, effect.external_id) == ("reconcile", "ext-1")
    assert len(shop.did) == 1


@pytest.mark.req("EFF-2", "FAIL-2", "EFF-5")
@pytest.mark.parametrize("error", PERHAPS, ids=named)
async def test_an_uncertain_call_is_resent_under_the_same_key(world: World, error: Exception) -> None:
    """Mode repeat: the receiver dedupes by the key, which is the same for every attempt."""
    shop = Receiver(Acts(error), dedupes=True)
    flow = ordering(write(shop, if_uncertain=HOUR_WINDOW), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(SECOND)
    assert world.status() == "completed"
    assert shop.attempts == ["t:r1:1:order/a"] * 2
    assert len(shop.did) == 1


@pytest.mark.req("EFF-2", "EFF-3")
async def test_a_refusal_after_an_uncertain_call_counts_after_its_settle_time(world: World) -> None:
    """The first request may still arrive. So the call is repeated once more, without using up an attempt or a wait."""
    shop = Receiver(Perhaps("lost"), Refused("sold_out", "none left"), Refused("sold_out", "none at all"))
    flow = ordering(write(shop, if_uncertain=HOUR_WINDOW, retry=Retry(attempts=2)), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * SECOND)
    effect = world.effect("order/a")
    assert (len(shop.attempts), effect.status.value, effect.code) == (2, "intended", "sold_out")
    assert effect.error is not None and effect.error.detail == "none left; an earlier request may still arrive"
    assert world.waiting() == [("retry", "attempt 2 of 2 of order")]
    await world.pass_(QUIET)
    effect = world.effect("order/a")
    assert (len(shop.attempts), effect.status.value, effect.code) == (3, "refused", "sold_out")
    assert effect.error is not None and effect.error.detail == "none at all"
    assert effect.waited_ms <= 2 * SECOND


@pytest.mark.req("EFF-2", "EFF-3")
async def test_a_refusal_is_put_to_a_person_if_the_receiver_forgets_before_the_settle_time(world: World) -> None:
    shop = Receiver(Perhaps("lost"), Refused("sold_out", "none left"))
    flow = ordering(write(shop, if_uncertain=resend(remembered_for=timedelta(minutes=5))), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * SECOND)
    effect = world.effect("order/a")
    assert (len(shop.attempts), effect.status.value, effect.code) == (2, "uncertain", "sold_out")
    assert world.reasons() == ["effect_uncertain"]


@pytest.mark.req("EFF-2", "FAIL-2")
async def test_a_call_that_outlives_its_timeout_is_uncertain(world: World) -> None:
    """The activity's timeout ends the attempt; its outcome is not known."""
    shop = Receiver(Slow(acts_first=True))
    flow = ordering(write(shop, timeout=timedelta(seconds=10)), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(9 * SECOND)
    assert world.effect("order/a").status.value == "intended"
    await world.pass_(SECOND)
    assert world.effect("order/a").status.value == "uncertain"


@pytest.mark.req("EFF-1")
@pytest.mark.parametrize(
    "text", ["x" * 2_000_000, "half a pair \ud800", "a NUL \0 in it"], ids=["huge", "surrogate", "nul"]
)
async def test_any_text_of_a_refusal_is_recorded(world: World, text: str) -> None:
    """A detail of any length and any characters cannot keep the answer from being kept (F8)."""
    shop = Receiver(Refused("no", text))
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    assert world.effect("order/a").status.value == "refused"
    assert world.reasons() == ["exception"]


# --- lookups -------------------------------------------------------------------------------------
@pytest.mark.req("EFF-1", "CKP-2")
@pytest.mark.parametrize("durable", [False, True])
async def test_a_lookup_is_made_once_for_its_visit_or_run(world: World, durable: bool) -> None:
    """The answer of a lookup is the same in every execution of the visit."""
    answers = iter(["1", "2"])
    price = reading(lambda: next(answers), durable=durable)

    async def body(ctx: Context[State]) -> None:
        first = await ctx.do(price, "a")
        await ctx.receive("go", Go)
        ctx.state.said = [first, await ctx.do(price, "a")]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go")
    assert world.outcome()["said"] == ["1", "1"]


async def test_a_lookup_is_asked_again_after_a_transient_error_only(world: World) -> None:
    """A time-out is worth another try; a bug is not, and goes to a person."""
    script: list[object] = [TimeoutError(), "7", ValueError("a bug")]

    def answer() -> object:
        act = script.pop(0)
        if isinstance(act, Exception):
            raise act
        return act

    price = reading(answer)

    async def body(ctx: Context[State]) -> None:
        ctx.state.said = [await ctx.do(price, "a"), await ctx.do(price, "b")]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(SECOND)
    assert world.reasons() == ["exception"]
    assert "a bug" in world.attention()[0].detail
    assert script == []
