"""A run that ends without a result: completed if its calls went well, failed or a question if they did not (OUT-4)."""

import contextlib
from typing import Any

import pytest

from outlast.core.rows import RESULT
from outlast.flow import Context, NotSent, Refused, Retry, Workflow, activity, lookup
from tests.engine.world import QUIET, Go, World

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
    assert world.last_event()["reason"] == "it produced no result, and 4 of its 4 calls failed"


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
    assert world.last_event()["reason"] == "it produced no result, and 3 of its 3 calls failed"


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


async def test_a_workflow_that_cannot_emit_completes_with_a_refused_call(world: World) -> None:
    flow = Workflow("plain", state=Go)

    @activity(key="order", no_undo="nothing to undo")
    async def order() -> str:
        raise Refused("no")

    @flow.node(start=True)
    async def only(ctx: Context[Go]) -> None:
        await ctx.do_all({1: order.plan()}, refused="return")

    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed"


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

    assert (helped.when_empty, plain.when_empty) == ("fail", "complete")
    assert Workflow("said", state=Go, when_empty="ask_person").when_empty == "ask_person"


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
