"""A run that ends without a result: completed if its calls went well, failed or a question if they did not (OUT-4)."""

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast.core.failed_calls import WAYS_OUT
from outlast.core.rows.run_rows import RESULT
from outlast.errors import DefinitionError
from outlast.flow import Allow, Context, Failures, NotSent, Refused, Retry, Workflow, activity, lookup, workflow
from tests.engine.world import QUIET, Go, World
from tests.mutants import remove

pytestmark = pytest.mark.req("OUT-4", "OUT-7")


def sourced(failing: int, of: int, **options: Any) -> Workflow[Any]:
    """Asks `of` pages, of which the first `failing` say no, and emits what the others have."""
    flow = Workflow("sourced", state=Go, **options)

    @lookup(key="page/{n}", durable=False)
    async def page(n: int) -> list[int]:
        if n < failing:
            raise Refused("gone")
        return [n]

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        answers = await ctx.do_all({n: page.plan(n) for n in range(of)}, refused="return")
        for n, found in answers.items():
            if isinstance(found, list):
                await ctx.emit({"n": n}, key=f"page/{n}")

    return flow.validate()


@pytest.mark.parametrize("when_empty", [None, "complete", "ask_person", "fail"])
@pytest.mark.parametrize(("failing", "of"), [(0, 0), (3, 4)])
async def test_an_empty_source_and_a_partly_broken_one_complete(
    world: World, failing: int, of: int, when_empty: Any
) -> None:
    flow = sourced(failing, of, when_empty=when_empty)
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed" and len(world.core.rows.under(RESULT, ("t", "r1"))) == of - failing


async def test_by_default_a_run_that_emits_fails_if_calls_failed_and_nothing_was_produced(world: World) -> None:
    flow = sourced(4, 4)
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "failed" and world.verbs()[-1] == "failed"
    assert world.last_event()["reason"] == "it produced no result, and 4 of its 4 calls failed" + WAYS_OUT


async def test_a_failed_lookup_counts_even_if_the_node_caught_its_error(world: World) -> None:
    """The commonest broken source is one that is away: no answer is recorded, so the trace of the failure is."""
    flow = Workflow("away", state=Go)

    @lookup(key="page/{n}", retry=Retry(attempts=1))
    async def page(n: int) -> list[int]:
        raise ConnectionRefusedError("nobody listens")

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        for n in range(3):
            try:
                found = await ctx.do(page, n)
            except OSError:
                continue
            await ctx.emit({"n": found}, key=f"page/{n}")

    world.worker(flow)
    await world.start(flow)
    assert world.status() == "failed"
    assert world.last_event()["reason"] == "it produced no result, and 3 of its 3 calls failed" + WAYS_OUT


async def test_a_lookup_answered_in_a_later_execution_does_not_count_as_failed(world: World) -> None:
    flow = Workflow("back", state=Go)
    asked: list[int] = []

    @lookup(key="page", retry=Retry(attempts=1))
    async def page() -> list[int]:
        asked.append(1)
        if len(asked) < 3:
            raise ConnectionRefusedError("nobody listens")
        return []

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        for n in await ctx.do(page):
            await ctx.emit({"n": n}, key=f"{n}")

    world.worker(flow)
    await world.start(flow)
    for _ in range(2):
        assert world.reasons() == ["exception"]
        await world.go_on()
    assert world.status() == "completed" and len(asked) == 3


async def test_a_write_that_used_up_its_attempts_and_was_caught_counts(world: World) -> None:
    flow = Workflow("exhausted", state=Go)

    @activity(key="order", no_undo="nothing to undo", retry=Retry(attempts=1))
    async def order() -> str:
        raise NotSent("no line")

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        with contextlib.suppress(Refused):
            await ctx.emit(await ctx.do(order), key="order")

    world.worker(flow)
    await world.start(flow)
    assert world.status() == "failed"


@activity(key="order/{n}", no_undo="nothing to undo")
async def order_of(n: int, taken: bool) -> int:
    if not taken:
        raise Refused("no")
    return n


async def place(ctx: Context[Any], taken: int, of: int) -> list[int]:
    """Place `of` orders, of which the first `taken` are accepted, and return the accepted ones."""
    answers = await ctx.do_all([order_of.plan(n, n < taken) for n in range(of)], refused="return")
    return [n for n in answers if isinstance(n, int)]


class Sink:
    """Emits in a method, where the reading of the source does not look."""

    def __init__(self, ctx: Context[Any]) -> None:
        self.ctx = ctx

    async def put(self, n: int) -> None:
        await self.ctx.emit({"n": n}, key=f"{n}")


@workflow
async def by_sink(ctx: Context, taken: int, of: int) -> None:
    sink = Sink(ctx)
    for n in await place(ctx, taken, of):
        await sink.put(n)


@workflow
async def returns_rows(ctx: Context, taken: int, of: int) -> list[int]:
    return await place(ctx, taken, of)


@workflow
async def returns_text(ctx: Context, taken: int, of: int) -> str:
    return f"{len(await place(ctx, taken, of))} orders"


@workflow
async def returns_nothing(ctx: Context, taken: int, of: int) -> None:
    await place(ctx, taken, of)


@workflow(end="ORDERED")
async def with_one_end(ctx: Context, taken: int, of: int) -> str:
    await place(ctx, taken, of)
    return ""


@workflow
async def emits_and_returns(ctx: Context, taken: int, of: int) -> str:
    for n in await place(ctx, taken, of):
        await ctx.emit({"n": n}, key=f"{n}")
    return "asked everybody"


@workflow
async def emits_later(ctx: Context, taken: int, of: int) -> None:
    for n in (await place(ctx, taken, of))[5:]:
        await ctx.emit({"n": n}, key=f"{n}")


@pytest.mark.parametrize(
    ("flow", "taken", "of", "ends"),
    [
        (by_sink, 0, 3, "failed"), (by_sink, 1, 3, "completed"), (by_sink, 0, 0, "completed"),
        (returns_rows, 0, 3, "failed"), (returns_rows, 1, 3, "completed"), (returns_rows, 0, 0, "completed"),
        (returns_text, 0, 3, "completed"), (returns_text, 1, 3, "completed"),
        (returns_nothing, 0, 3, "failed"), (returns_nothing, 1, 3, "completed"), (returns_nothing, 0, 0, "completed"),
        (with_one_end, 0, 3, "failed"), (with_one_end, 1, 3, "completed"),
        (emits_and_returns, 0, 3, "completed"), (emits_and_returns, 1, 3, "completed"),
        (emits_later, 0, 3, "failed"), (emits_later, 1, 3, "failed"), (emits_later, 3, 3, "completed"),
    ],
)  # fmt: skip
async def test_the_end_of_a_function_is_judged_by_its_rows_and_its_answer(
    world: World, flow: Any, taken: int, of: int, ends: str
) -> None:
    """A function that only emits in a method, and one that returns its rows, completed with nothing."""
    world.worker(flow)
    await world.start(flow, taken=taken, of=of)
    assert world.status() == ends
    assert world.last_event().get("reason", "").endswith(WAYS_OUT) == (ends == "failed")


class Order(BaseModel):
    declined: bool = False
    receipt: str = ""


def ordering(
    declined: str | None, accepted: str | None, outcome: Callable[[Order], Any] | None, **options: Any
) -> Workflow[Any]:
    """A graph that asks once, is refused, and ends in one of two nodes."""
    flow: Workflow[Any] = Workflow("ordering", state=Order, outcome=outcome, **options)

    @flow.node(start=True)
    async def ask(ctx: Context[Order]) -> Literal["decline", "accept"]:
        answers = await ctx.do_all([order_of.plan(1, taken=False)], refused="return")
        return "accept" if answers == [1] or not ctx.state.declined else "decline"

    @flow.node(end=declined)
    async def decline(ctx: Context[Order]) -> None:
        pass

    @flow.node(end=accepted)
    async def accept(ctx: Context[Order]) -> None:
        pass

    return flow.validate()


@pytest.mark.parametrize(
    ("declined", "accepted", "outcome", "ends"),
    [
        (None, None, None, "failed"),  # the state has fields, and does not count
        ("DECLINED", None, None, "completed"),
        ("DECLINED", "ACCEPTED", None, "completed"),
        (None, "ACCEPTED", None, "failed"),
        ("DONE", "DONE", None, "failed"),  # the author has not told them apart
        ("COMPLETED", "ACCEPTED", None, "failed"),  # the name that every end has
        (None, None, lambda state: "declined", "completed"),
        (None, None, lambda state: state, "completed"),
        (None, None, lambda state: state.receipt, "failed"),
        (None, None, lambda state: None, "failed"),
        (None, None, lambda state: [], "failed"),
    ],
)
async def test_the_end_of_a_graph_is_judged_by_its_name_and_its_outcome(
    world: World, declined: str | None, accepted: str | None, outcome: Any, ends: str
) -> None:
    flow = ordering(declined, accepted, outcome)
    world.worker(flow)
    await world.start(flow, declined=True)
    assert world.status() == ends


async def test_a_failed_lookup_of_a_function_is_recorded_and_counts(world: World) -> None:
    """Such a workflow recorded no failed lookups, because its end did not depend on them."""

    @lookup(key="page/{n}", retry=Retry(attempts=1))
    async def page(n: int) -> list[int]:
        raise ConnectionRefusedError("nobody listens")

    @workflow
    async def reads(ctx: Context, pages: int) -> list[int]:
        rows: list[int] = []
        for n in range(pages):
            with contextlib.suppress(OSError):
                rows += await ctx.do(page, n)
        return rows

    world.worker(reads)
    await world.start(reads, pages=3)
    assert world.last_event()["reason"] == "it produced no result, and 3 of its 3 calls failed" + WAYS_OUT


async def emit_found(ctx: Context[Go]) -> None:
    await ctx.emit({"n": 1}, key="1")


def test_a_workflow_emits_if_a_node_or_its_helper_does() -> None:
    helped, plain = Workflow("helped", state=Go), Workflow("plain-2", state=Go)

    @helped.node(start=True)
    async def with_helper(ctx: Context[Go]) -> None:
        await emit_found(ctx)

    @plain.node(start=True)
    async def without(ctx: Context[Go]) -> None:
        pass

    assert (helped.emits, plain.emits) == (True, False)


async def test_a_broken_stage_fails_with_its_event(world: World) -> None:
    flow = sourced(4, 4, when_empty="fail")
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "failed" and world.verbs()[-1] == "failed"
    assert world.last_event()["reason"] == "it produced no result, and 4 of its 4 calls failed"


@pytest.mark.parametrize(("choice", "ends"), [("continue", "completed"), ("fail", "failed")])
async def test_a_person_is_asked_if_the_workflow_declares_it(world: World, choice: str, ends: str) -> None:
    flow = sourced(4, 4, when_empty="ask_person")
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "waiting" and world.reasons() == ["results_missing"]
    assert "4 of its 4 calls failed" in world.attention()[0].detail
    await world.answer("results_missing", choice)
    assert world.status() == ends and world.reasons() == []


async def test_continue_lets_it_complete(world: World) -> None:
    flow = sourced(1, 1, when_empty="ask_person")
    world.worker(flow)
    await world.start(flow)
    await world.go_on()
    assert world.status() == "completed"


async def test_a_persons_answer_counts_until_the_run_ends(world: World) -> None:
    """A pause parks the run between the answer and the end: no person is asked twice."""
    flow = sourced(1, 1, when_empty="ask_person")
    world.worker(flow)
    await world.start(flow)
    await world.hold("workflow/sourced")
    await world.answer("results_missing", "continue")
    assert world.status() == "waiting"
    await world.release("workflow/sourced")
    await world.pass_(QUIET)
    assert world.status() == "completed" and world.reasons() == []


async def test_a_refused_write_counts_too(world: World) -> None:
    flow = Workflow("writes", state=Go, when_empty="fail")

    @activity(key="order/{n}", no_undo="nothing to undo")
    async def order(n: str) -> str:
        raise Refused("no")

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        await ctx.do_all({"1": order.plan("1")}, refused="return")

    world.worker(flow)
    await world.start(flow)
    assert world.status() == "failed"


def fetching(failing: int, of: int, **options: Any) -> Workflow[Any]:
    """Fetches `of` pages, of which the first `failing` are away, emits one result each, and books what it did."""
    flow = Workflow("fetching", state=Go, **options)

    @lookup(key="page/{n}", retry=Retry(attempts=1), durable=False)
    async def fetch(n: int) -> int:
        if n < failing:
            raise ConnectionRefusedError("nobody listens")
        return n

    @activity(key="book", no_undo="kept")
    async def book() -> str:
        return "booked"

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        await ctx.do(book)
        for n in range(of):
            with contextlib.suppress(OSError):
                await ctx.emit({"n": await ctx.do(fetch, n)}, key=f"page/{n}")

    return flow.validate()


@pytest.mark.parametrize(
    ("failing", "limit", "reason"),
    [
        (6, Failures(0.5), "6 of its 11 calls failed (54.5 %), and it fails from 50 % on"),
        (5, Failures(0.5), ""),
        (5, Failures(0.5, of=["fetch"]), "5 of its 10 calls of fetch failed (50 %), and it fails from 50 % on"),
        (9, Failures(0.5, at_least=10), ""),
        (9, Failures(0.5, of=["book"]), ""),
        (0, Failures(0.01), ""),
    ],
)
async def test_a_run_with_results_fails_if_it_failed_broadly(
    world: World, failing: int, limit: Failures, reason: str
) -> None:
    flow = fetching(failing, 10, fails_if=limit)
    world.worker(flow)
    await world.start(flow)
    assert world.status() == ("failed" if reason else "completed")
    assert world.last_event().get("reason", "") == reason
    assert len(world.core.rows.under(RESULT, ("t", "r1"))) == 10 - failing, "results stay, also of a failed run"


async def test_failures_count_for_a_workflow_that_is_content_with_nothing(world: World) -> None:
    flow = fetching(3, 3, when_empty="complete", fails_if=Failures(0.5, at_least=3))
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "failed"


async def test_a_run_that_failed_broadly_undoes_its_effects(world: World) -> None:
    """It ends like one that raises Fail: the decision, the undo of its calls, the end with the reason."""
    flow, undone = Workflow("undoes", state=Go, fails_if=Failures(0.5)), list[str]()

    @activity(key="book/{n}")
    async def book(n: str) -> str:
        if n == "2":
            raise Refused("full")
        return n

    @book.undo
    async def unbook(booked: str, n: str) -> None:
        undone.append(n)

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        await ctx.do_all([book.plan("1"), book.plan("2")], refused="return")

    world.worker(flow.validate())
    await world.start(flow)
    assert (world.status(), undone) == ("failed", ["1"])
    assert world.last_event()["reason"] == "1 of its 2 calls failed (50 %), and it fails from 50 % on"


async def test_recorded_verdicts_of_the_policy_are_no_calls(world: World) -> None:
    """Each call with a policy counted twice, so half of the failures were needed to hide a broken source."""

    flow = Workflow("judged", state=Go, policy=lambda request: Allow("all"), when_empty="fail")

    @activity(key="order/{n}", no_undo="nothing to undo")
    async def order(n: str) -> str:
        raise Refused("no")

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        await ctx.do_all([order.plan("1"), order.plan("2")], refused="return")

    world.worker(flow.validate())
    await world.start(flow)
    assert world.last_event()["reason"] == "it produced no result, and 2 of its 2 calls failed"


async def test_a_refusal_that_another_run_received_counts(world: World) -> None:
    flow = Workflow("shares", state=Go, fails_if=Failures(0.5))

    @activity(key="seat", once_per="tenant", no_undo="nothing to undo")  # outlast: ignore[OL101] tests only
    async def seat() -> str:
        raise Refused("taken")

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        with contextlib.suppress(Refused):
            await ctx.do(seat)

    world.worker(flow.validate())
    for run in ("r1", "r2"):
        await world.start(flow, run)
        assert world.status(run) == "failed"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Failures(0), lambda: Failures(1.1), lambda: Failures(True), lambda: Failures("half"),  # type: ignore[arg-type]
        lambda: Failures(0.5, at_least=0), lambda: Failures(0.5, at_least=2.0),  # type: ignore[arg-type]
        lambda: Failures(0.5, of=[fetching]), lambda: Failures(0.5, of=3),  # type: ignore[arg-type, list-item]
        lambda: Failures(0.5, of=[""]), lambda: Failures(float("nan")),
        lambda: Workflow("wrong", state=Go, fails_if=0.5),  # type: ignore[call-overload]
    ],
)  # fmt: skip
def test_a_limit_that_means_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(DefinitionError):
        wrong()


@pytest.mark.req("OUT-4", "OUT-7")
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_count_of_calls_a_run_completes_whose_calls_all_failed(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("ends_judged_by_the_source", monkeypatch)
    world.worker(returns_rows)
    await world.start(returns_rows, taken=0, of=3)
    assert world.status() == ("failed" if guarded else "completed")
