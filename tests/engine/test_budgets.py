"""Budgets: a run parks before a call that its budget does not cover, and a raise repeats no paid call."""

import pytest

from outlast.core.rows import CALL_USAGE
from outlast.core.usage import Budget, CallUsage
from outlast.flow import Context, Workflow, lookup, this_call
from tests.engine.world import SECOND, State, World, one_node

pytestmark = pytest.mark.req("RUN-10")


def usage(world: World, run: str = "r1", tenant: str = "t") -> list[CallUsage]:
    return list(world.core.rows.under(CALL_USAGE, (tenant, run)))


class Model:
    """Paid lookup: answers with the text of its question, and counts what was paid for."""

    def __init__(self, tokens: int = 100, **options: object) -> None:
        self.paid: list[str] = []

        @lookup(name="model", durable=True)
        async def ask(what: str) -> str:
            self.paid.append(what)
            this_call().used(input_tokens=tokens - 10, output_tokens=10, money="0.25", model="m-1")
            return what.upper()

        self.ask = ask


def asking(model: Model, *questions: str, budget: Budget | None = None) -> Workflow[State]:
    async def body(ctx: Context[State]) -> None:
        for each in questions:
            ctx.state.said.append(await ctx.do(model.ask, each))

    return one_node(body, budget=budget)


async def test_usage_is_a_row_in_the_commit_of_the_memo(world: World) -> None:
    model = Model()
    flow = asking(model, "a", "b")

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        await world.pass_(10 * SECOND)
        assert world.status() == "completed"
        first, second = usage(world)
        assert first.key.startswith("model/")
        assert (first.key, first.n, first.attempt, first.activity) == (first.key, 1, 1, "model")
        assert (first.tokens, first.input_tokens, first.output_tokens) == (100, 90, 10)
        assert (first.money, first.calls, first.model) == (250_000, 1, "m-1")
        assert (second.n, second.day) == (2, second.at // (24 * 3600 * SECOND))

    await world.live(story)
