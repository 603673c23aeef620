"""Budgets: a run parks before a call that its budget does not cover, and a raise repeats no paid call."""

import asyncio
from typing import Any

import pytest

from outlast.core.rows.limit_rows import CALL_USAGE, TENANT_BUDGET
from outlast.core.usage import Amounts, Budget, CallUsage, Limits, micros
from outlast.engine import commands
from outlast.errors import Conflict, InvalidInput
from outlast.flow import Context, Plan, Refused, Retry, Workflow, activity, lookup, this_call
from tests.engine.world import HOUR, MINUTE, SECOND, Acts, Receiver, Slow, State, World, one_node
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-10")
DAY = 24 * HOUR


def usage(world: World, run: str = "r1", tenant: str = "t") -> list[CallUsage]:
    return list(world.core.rows.under(CALL_USAGE, (tenant, run)))


class Model:
    """Model that is paid for each question, and may fail or take its time."""

    def __init__(self, *script: Any, tokens: int = 100, **options: Any) -> None:
        self.script = list(script)
        self.paid: list[str] = []
        settings: dict[str, Any] = {"name": "model", "durable": True, **options}

        @lookup(**settings)
        async def ask(what: str) -> str:
            self.paid.append(what)
            this_call().used(input_tokens=tokens - 10, output_tokens=10, money="0.25", model="m-1")
            act = self.script.pop(0) if self.script else None
            if isinstance(act, Slow):
                act.begun.set()
                await act.go.wait()
            elif act is not None:
                raise act
            return what.upper()

        self.ask = ask


def asking(model: Model, *questions: str, budget: Budget | None = None, **options: Any) -> Workflow[State]:
    async def body(ctx: Context[State]) -> None:
        for each in questions:
            ctx.state.said.append(await ctx.do(model.ask, each))

    return one_node(body, budget=budget, **options)


async def raise_(world: World, run: str = "r1", *, settle: bool = True, **amounts: int) -> None:
    await commands.raise_budget(
        world.store, tenant="t", run=run, amounts=Amounts(**amounts), actor="op", reason="worth it"
    )
    if settle:
        await world.settle()


async def set_day(world: World, tokens: int | None = None, **limits: int) -> None:
    await commands.set_daily_budget(world.store, "t", Limits(tokens, **limits), actor="op", reason="plan")


# --- rows ----------------------------------------------------------------------------------------
async def test_usage_is_a_row_of_the_attempt(world: World) -> None:
    model = Model()
    flow = asking(model, "a", "b")

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        assert world.status() == "completed"
        first, second = usage(world)
        assert first.key.startswith("model/")
        assert (first.n, first.visit, first.attempt, first.activity) == (1, 1, 1, "model")
        assert (first.tokens, first.input_tokens, first.output_tokens) == (100, 90, 10)
        assert (first.money, first.calls, first.model) == (250_000, 1, "m-1")
        assert (second.n, second.day) == (2, second.at // DAY)

    await world.live(story)


async def test_a_failed_attempt_is_paid_too(world: World) -> None:
    model = Model(ConnectionError("cut off"), Refused("no", "too long"), retry=Retry(attempts=3))

    async def body(ctx: Context[State]) -> None:
        try:
            await ctx.do(model.ask, "a")
        except Refused as refused:
            ctx.state.said.append(refused.code)

    flow = one_node(body)

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        await world.pass_(10 * SECOND)
        assert world.status() == "completed"
        assert [row.attempt for row in usage(world)] == [1, 2]

    await world.live(story)


@pytest.mark.parametrize("mode", ["done", "refused", "uncertain", "retried"])
async def test_usage_of_an_activity_is_written_with_its_record(world: World, mode: str) -> None:
    script = {
        "done": [], "refused": [Refused("no", "")], "uncertain": [Acts(TimeoutError())], "retried": [Acts(OSError())],
    }[mode]  # fmt: skip
    receiver = Receiver(*script, dedupes=True)
    options: dict[str, Any] = {"if_uncertain": "reconcile"} if mode == "retried" else {}

    @activity(key="pay/{what}", no_undo="a test", **options)
    async def pay(what: str) -> str:
        this_call().used(tokens=7)
        this_call().used(tokens=3, calls=0)
        return await receiver.call()

    if mode == "retried":

        @pay.reconcile
        async def find(what: str) -> Any:
            return await receiver.find()

    async def body(ctx: Context[State]) -> None:
        try:
            await ctx.do(pay, "a")
        except Refused:
            pass

    flow = one_node(body)

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        await world.pass_(5 * MINUTE)
        (row,) = usage(world)
        assert (row.key, row.attempt, row.tokens, row.calls, row.activity) == ("pay/a", 1, 10, 1, "pay")
        assert world.effect("pay/a").status == ("done" if mode == "retried" else mode)

    await world.live(story)


async def test_a_call_that_reports_nothing_writes_no_row(world: World) -> None:
    @lookup(name="free")
    async def free(what: str) -> str:
        return what

    async def body(ctx: Context[State]) -> None:
        await ctx.do(free, "a")

    flow = one_node(body, budget=Budget(tokens=1))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        assert world.status() == "completed" and usage(world) == []

    await world.live(story)


# --- the budget of a run -------------------------------------------------------------------------
async def test_a_raise_repeats_no_paid_call(world: World) -> None:
    model = Model()
    flow = asking(model, "a", "b", "c", "d", budget=Budget(tokens=150))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        assert world.reasons() == ["budget_exhausted"] and model.paid == ["a", "b"]
        (entry,) = world.attention()
        assert entry.detail == "the run has used 200 of 150 tokens" and entry.trigger == "tokens"
        assert entry.choices() == ("raise", "cancel")
        await raise_(world, calls=9)  # not what it lacks
        assert world.reasons() == ["budget_exhausted"] and model.paid == ["a", "b"]
        await raise_(world, tokens=100)
        assert world.reasons() == ["budget_exhausted"] and model.paid == ["a", "b", "c"]
        await world.pass_(MINUTE)
        assert world.reasons() == ["budget_exhausted"]
        await raise_(world, tokens=1_000)
        assert world.status() == "completed" and model.paid == ["a", "b", "c", "d"]
        assert "answered" in world.verbs()
        assert sum(row.tokens for row in usage(world)) == 400

    await world.live(story)


@pytest.mark.parametrize(
    ("budget", "more", "paid"),
    [
        (Budget(calls=2), {"calls": 9}, 2),
        (Budget(money="0.5"), {"money": micros(9)}, 2),
        (Budget(money=0.3, tokens=1_000), {"money": micros("0.21")}, 2),
        (Budget(tokens=0), {"tokens": 1_000}, 0),
    ],
)
async def test_each_limit_parks(world: World, budget: Budget, more: dict[str, int], paid: int) -> None:
    model = Model()
    flow = asking(model, "a", "b", "c", budget=budget)

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        assert world.reasons() == ["budget_exhausted"] and len(model.paid) == paid
        await raise_(world, **more)
        assert world.status() == "completed" and model.paid == ["a", "b", "c"]

    await world.live(story)


async def test_minutes_are_business_time_and_waits_count(world: World) -> None:
    model = Model()

    async def body(ctx: Context[State]) -> None:
        await ctx.do(model.ask, "a")
        await ctx.sleep("2h")
        await ctx.do(model.ask, "b")

    flow = one_node(body, budget=Budget(minutes=90))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        await world.pass_(2 * HOUR + MINUTE)
        (entry,) = world.attention()
        assert entry.detail.startswith("the run has used 120.") and entry.detail.endswith(" of 90.0 minutes")
        await raise_(world, ms=60 * MINUTE)
        assert world.status() == "completed" and model.paid == ["a", "b"]

    await world.live(story)


async def test_calls_in_flight_finish_and_their_answers_are_kept(world: World) -> None:
    slow = Slow()
    model = Model(slow)

    async def body(ctx: Context[State]) -> None:
        async def later() -> str:
            await slow.begun.wait()
            return await ctx.do(model.ask, "b") + await ctx.do(model.ask, "c")

        ctx.state.said += await asyncio.gather(ctx.do(model.ask, "a"), later())

    flow = one_node(body, budget=Budget(tokens=100))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        assert model.paid == ["a", "b"] and world.status() == "running"  # c is refused while a is under way
        slow.go.set()
        await world.pass_(2 * SECOND)
        assert world.reasons() == ["budget_exhausted"] and len(usage(world)) == 2
        await raise_(world, tokens=500)
        assert world.status() == "completed" and model.paid == ["a", "b", "c"]

    await world.live(story)


async def test_two_concurrent_calls_ask_a_person_once(world: World) -> None:
    receiver = Receiver()

    @activity(key="pay/{what}", no_undo="a test")
    async def pay(what: str) -> str:
        this_call().used(tokens=60)
        return await receiver.call()

    async def body(ctx: Context[State]) -> None:
        first = await ctx.do(pay, "first")
        plans: list[Plan[str]] = [pay.plan(what) for what in ("a", "b")]
        ctx.state.said += [first, *await ctx.do_all(plans)]

    flow = one_node(body, budget=Budget(tokens=50))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        assert world.reasons() == ["budget_exhausted"] and len(receiver.did) == 1
        await raise_(world, tokens=20)
        assert world.status() == "completed" and len(receiver.did) == 3  # both began within what was left

    await world.live(story)


async def test_an_open_effect_is_settled_and_an_undo_is_made_beyond_the_budget(world: World) -> None:
    receiver = Receiver()

    @activity(key="book/{what}")
    async def book(what: str) -> str:
        this_call().used(tokens=100)
        return await receiver.call()

    @book.undo
    async def unbook(done: str, what: str) -> str:
        this_call().used(tokens=5)
        return await receiver.call()

    async def body(ctx: Context[State]) -> None:
        await ctx.do(book, "a")
        await ctx.do(book, "b")

    flow = one_node(body, budget=Budget(tokens=100))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        assert world.reasons() == ["budget_exhausted"]
        await world.answer("budget_exhausted", "cancel")
        assert world.status() == "cancelled" and len(receiver.did) == 2
        assert [row.tokens for row in usage(world)] == [100, 5]

    await world.live(story)


async def test_usage_outlives_its_worker(world: World) -> None:
    """The next holder counts the rows of the former one, and does not count its rows twice."""
    model = Model()

    async def body(ctx: Context[State]) -> None:
        for each in "abc":
            await ctx.do(model.ask, each)
            await ctx.sleep("1h", name=each)

    flow = one_node(body, budget=Budget(tokens=200))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        await world.off_duty()
        world.worker(flow)
        await world.pass_(3 * HOUR)
        assert world.reasons() == ["budget_exhausted"] and model.paid == ["a", "b"]
        assert [(row.n, row.tokens) for row in usage(world)] == [(1, 100), (1, 100)]
        await raise_(world, tokens=1)
        await world.pass_(2 * HOUR)
        assert world.status() == "completed" and model.paid == ["a", "b", "c"]

    await world.live(story)


async def test_a_raise_ahead_of_time_counts(world: World) -> None:
    model, slow = Model(), Slow()
    model.script = [slow]
    flow = asking(model, "a", "b", budget=Budget(tokens=100))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        await raise_(world, tokens=1)
        slow.go.set()
        await world.pass_(SECOND)
        assert world.status() == "completed" and "flagged" not in world.verbs()

    await world.live(story)


async def test_a_raise_needs_an_amount_and_a_reason(world: World) -> None:
    model = Model()
    flow = asking(model, "a", budget=Budget(tokens=0))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        with pytest.raises(InvalidInput, match="without an amount"):
            await raise_(world)
        with pytest.raises(Conflict, match="needs amounts") as refused:
            await world.answer("budget_exhausted", "raise")
        assert refused.value.fix == "outlast runs raise r1 --tokens … --reason …"
        with pytest.raises(Conflict, match="does not answer") as refused:
            await world.go_on()
        assert refused.value.fix == "outlast runs raise r1 --tokens … --reason …"
        await world.cancel()
        with pytest.raises(Conflict, match="has ended"):
            await raise_(world, tokens=1)

    await world.live(story)


# --- the budget of a tenant ------------------------------------------------------------------------
async def test_a_daily_budget_continues_the_next_day(world: World) -> None:
    model = Model()
    flow = asking(model, "a", "b", "c")

    async def story() -> None:
        await set_day(world, tokens=150)
        world.worker(flow)
        await world.pass_(6 * SECOND)
        await world.start(flow, "r1")
        (entry,) = world.attention()
        assert "tenant t has used 200 of 150 tokens of " in entry.detail
        assert entry.until == (world.time.wall() // DAY + 1) * DAY
        assert model.paid == ["a", "b"]
        await world.start(flow, "r2")
        assert world.reasons("r2") == ["budget_exhausted"] and model.paid == ["a", "b"]
        await world.nights(flow, until=entry.until)
        await world.pass_(6 * SECOND)
        assert world.status("r1") == "completed" and "c" in model.paid

    await world.live(story)


async def test_a_raise_lets_one_run_pass_the_daily_budget(world: World) -> None:
    model = Model()
    flow = asking(model, "a", "b")

    async def story() -> None:
        await set_day(world, tokens=100)
        world.worker(flow)
        await world.pass_(6 * SECOND)
        await world.start(flow, "r1")
        await world.start(flow, "r2")
        assert world.reasons("r1") == world.reasons("r2") == ["budget_exhausted"]
        await raise_(world, "r1", tokens=50)
        assert world.status("r1") == "completed" and world.reasons("r2") == ["budget_exhausted"]

    await world.live(story)


async def test_a_new_daily_budget_lets_all_runs_look_again(world: World) -> None:
    model = Model()
    flow = asking(model, "a", "b")

    async def story() -> None:
        await set_day(world, tokens=100)
        world.worker(flow)
        await world.pass_(6 * SECOND)
        await world.start(flow, "r1")
        await set_day(world, tokens=100, calls=9)
        await world.settle()
        assert world.reasons() == ["budget_exhausted"]
        await set_day(world)
        await world.settle()
        assert world.status() == "completed"
        row = world.core.rows.get(TENANT_BUDGET, ("t", "day"))
        assert row is not None and (row.version, row.by, row.limits) == (3, "op", Limits())

    await world.live(story)


async def test_a_budget_that_was_set_while_calls_finish_is_not_missed(world: World) -> None:
    """The run decided to park by the old budget, and parks only if that is still the budget."""
    slow = Slow()
    model = Model(slow)

    async def body(ctx: Context[State]) -> None:
        async def later() -> str:
            await slow.begun.wait()
            return await ctx.do(model.ask, "b") + await ctx.do(model.ask, "c")

        ctx.state.said += await asyncio.gather(ctx.do(model.ask, "a"), later())

    flow = one_node(body)

    async def story() -> None:
        await set_day(world, tokens=100)
        world.worker(flow)
        await world.pass_(6 * SECOND)
        await world.start(flow)
        assert model.paid == ["a", "b"]
        await set_day(world, tokens=1_000)
        slow.go.set()
        await world.pass_(SECOND)
        assert world.status() == "completed" and "flagged" not in world.verbs()

    await world.live(story)


async def test_a_daily_budget_stops_only_activities_that_report(world: World) -> None:
    model, receiver = Model(), Receiver()

    @activity(key="pay/{what}", no_undo="a test")
    async def pay(what: str) -> str:
        return await receiver.call()

    async def body(ctx: Context[State]) -> None:
        await ctx.do(pay, "b")

    costs, free = asking(model, "a", "b", name="costs"), one_node(body, name="free")

    async def story() -> None:
        await set_day(world, tokens=100)
        world.worker(costs, free)
        await world.pass_(6 * SECOND)
        await world.start(costs, "r1")
        await world.start(free, "r2")
        assert world.reasons("r1") == ["budget_exhausted"] and world.status("r2") == "completed"

    await world.live(story)


# --- each safeguard removed --------------------------------------------------------------------------
@pytest.mark.parametrize("removed", ["", "no_budget_check"])
async def test_without_the_check_a_run_spends_on(world: World, monkeypatch: pytest.MonkeyPatch, removed: str) -> None:
    if removed:
        remove("no_budget_check", monkeypatch)
    model = Model()
    flow = asking(model, "a", "b", "c", budget=Budget(tokens=150))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        assert len(model.paid) == (3 if removed else 2)

    await world.live(story)


@pytest.mark.parametrize("removed", ["", "usage_of_this_claim_only"])
async def test_without_the_rows_of_earlier_holders_a_run_spends_on(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove("usage_of_this_claim_only", monkeypatch)
    model = Model()

    async def body(ctx: Context[State]) -> None:
        for each in "ab":
            await ctx.do(model.ask, each)
            await ctx.sleep("1m", name=each)

    flow = one_node(body, budget=Budget(tokens=100))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        await world.pass_(3 * MINUTE)
        assert len(model.paid) == (2 if removed else 1)

    await world.live(story)


@pytest.mark.parametrize("removed", ["", "failed_attempts_are_free"])
async def test_without_failed_attempts_a_run_spends_on(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove("failed_attempts_are_free", monkeypatch)
    model = Model(ConnectionError("cut off"), retry=Retry(attempts=3))
    flow = asking(model, "a", budget=Budget(tokens=100))

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        await world.pass_(10 * SECOND)
        assert len(model.paid) == (2 if removed else 1)

    await world.live(story)


@pytest.mark.parametrize("removed", ["", "usage_apart"])
async def test_without_one_commit_a_crash_loses_what_a_stored_answer_has_used(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """The worker dies before it writes its usage: the next worker has the answer, and goes on for free."""
    if removed:
        remove("usage_apart", monkeypatch)
    model = Model()
    flow = asking(model, "a", "b", budget=Budget(tokens=100))

    async def story() -> None:
        first = world.worker(flow)
        first.wire.before(" used ", first.kill)
        await world.start(flow)
        first.kill()
        world.worker(flow)
        await world.pass_(2 * MINUTE)
        assert model.paid == (["a", "b"] if removed else ["a"])

    await world.live(story)


async def test_without_the_condition_a_run_parks_by_the_old_budget(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove("parks_by_the_old_budget", monkeypatch)
    with pytest.raises(AssertionError):
        await test_a_budget_that_was_set_while_calls_finish_is_not_missed(world)
