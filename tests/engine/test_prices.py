"""Usage without a price: counted as such in rows and sums, and no surprise for a run in flight (RUN-10)."""

import logging
from typing import Any

import pytest

from outlast import Budget, Context, activity, lookup
from outlast.agent import ModelAnswer, ScriptedModel, agent_workflow
from outlast.core.budget import budget_text
from outlast.core.usage import Amounts, Limits
from outlast.flow import this_call
from tests.engine.test_budgets import usage
from tests.engine.world import State, World, one_node

pytestmark = pytest.mark.req("RUN-10")


@pytest.mark.parametrize(
    ("reported", "unpriced"),
    [({"tokens": 9}, 1), ({"tokens": 9, "calls": 2}, 2), ({"tokens": 9, "money": 0}, 0), ({"calls": 1}, 0)],
    ids=["no_price", "of_two", "free", "no_tokens"],
)
async def test_tokens_without_money_are_requests_without_a_price(
    world: World, reported: dict[str, Any], unpriced: int
) -> None:
    """Their money is not 0: it is not known, and each sum says of how many requests."""

    @lookup(name="model", durable=True)
    async def ask(what: str) -> str:
        this_call().used(**reported)
        return what

    async def body(ctx: Context[State]) -> None:
        await ctx.do(ask, "a")

    flow = one_node(body)

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        (row,) = usage(world)
        assert (row.money, row.unpriced, row.amounts.unpriced) == (0, unpriced, unpriced)

    await world.live(story)


IMPOSSIBLE: list[dict[str, Any]] = [
    {"tokens": -5},
    {"input_tokens": "12"},
    {"output_tokens": None},
    {"tokens": 10**30},
    {"money": float("nan"), "tokens": 9},
    {"money": "free"},
    {"money": -1},
    {"calls": -1},
]


@pytest.mark.parametrize("reported", IMPOSSIBLE, ids=str)
@pytest.mark.parametrize("writes", [False, True], ids=["lookup", "write"])
async def test_impossible_usage_of_a_call_that_happened_is_noted(
    world: World, reported: dict[str, Any], writes: bool
) -> None:
    """The answer was paid, so it counts. The report is one request without a price, and the history says why."""

    async def call(what: str) -> str:
        this_call().used(**reported)
        this_call().used(tokens=3, money=0)
        return what

    ask = activity(key="pay/{what}", no_undo="x")(call) if writes else lookup(name="model", durable=True)(call)
    got: list[str] = []

    async def body(ctx: Context[State]) -> None:
        got.append(await ctx.do(ask, "a"))

    flow = one_node(body)

    async def story() -> None:
        world.worker(flow)
        await world.start(flow)
        (row,) = usage(world)
        assert (got, world.status()) == (["a"], "completed")
        assert (row.tokens, row.money, row.calls, row.unpriced) == (3, 0, 2, 1)
        assert any(b"reported impossible usage, which is not counted" in each.details for each in world.events())

    await world.live(story)


@pytest.mark.parametrize(
    ("used", "allowed", "shown"),
    [
        (Amounts(10, 0, 1, unpriced=1), Limits(), "10 tokens, 1 reported calls, 1 request without a price"),
        (Amounts(10, 5, 3, unpriced=2), Limits(money=9), "2 requests without a price"),
        (Amounts(), Limits(calls=9), "0 of 9 reported calls"),
    ],
)
def test_a_sum_says_what_it_does_not_know(used: Amounts, allowed: Limits, shown: str) -> None:
    assert budget_text(used, allowed).endswith(shown)


async def test_a_run_in_flight_goes_on_and_its_worker_warns(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The price was removed while the run waits. Its money is not counted any more, and the sum says so."""
    flow = agent_workflow("agent", model=ScriptedModel(["done"]), budget=Budget(money="5"))
    await world.start(flow, objective="x")
    model = ScriptedModel([ModelAnswer(text="done", input_tokens=9, model="local:m")])
    model.__dict__["price"] = None
    after = agent_workflow("agent", model=model, budget=Budget(money="5"))
    with caplog.at_level(logging.WARNING):
        world.worker(after)
        await world.settle()
    assert world.status() == "completed"
    assert [each for each in caplog.messages if "has a budget of money and asks scripted" in each]
    assert [row.unpriced for row in usage(world)] == [1]
