"""Money of an agent: from the price of its model, or no run starts (RUN-10)."""

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from outlast import Budget, Context, workflow
from outlast.agent import (
    ChatCompletions,
    Message,
    ModelAnswer,
    ModelRequest,
    Price,
    RecordingModel,
    ScriptedModel,
    agent_workflow,
    ask,
    propose,
)
from outlast.agent.prices import list_price
from outlast.engine.known_budgets import blind_budget
from outlast.errors import DefinitionError, InvalidInput
from outlast.testing import App, FakeReceivers, ModelServer
from tests.agent.agents import TOOLS, asks, running
from tests.agent.test_models import by_pydantic_ai

pytestmark = pytest.mark.req("RUN-10")
MONEY = Budget(money="0.000001")
SILENT = {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}
STEP = asks(("read_log", {"lines": 1}))


def spent(app: App, run: Any) -> tuple[str, int]:
    used = run.now.used
    return used.money, used.unpriced


@pytest.mark.parametrize("priced", ["list", "declared", "environment"])
def test_a_money_budget_parks_an_agent(priced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the list of pydantic-ai, by the price of the model, or by OUTLAST_MODEL_PRICE."""
    with ModelServer([STEP, "done"]) as server:
        model: Any = "openai:gpt-4o"
        if priced == "declared":
            model = ChatCompletions("local:m", url=server.url, price=Price("1.25", "10"))
        if priced == "environment":
            model = "local:m"
            monkeypatch.setenv("OUTLAST_MODEL_PRICE", "1.25 / 10")
        with running(agent_workflow("agent", model=model, tools=TOOLS, budget=MONEY)) as (app, run):
            assert run.attention == ["budget_exhausted"] and server.paid == 1
            money, unpriced = spent(app, run)
            assert Decimal(money) > 0 and unpriced == 0


def test_an_answer_through_pydantic_ai_has_its_list_price() -> None:
    priced = ModelAnswer(text="ok", model="gpt-4o", input_tokens=1_000, output_tokens=100)
    with ModelServer([priced]) as server:
        model = by_pydantic_ai(server.url)  # named openai:gpt-test: the answer says which model it was
        with running(agent_workflow("agent", model=model)) as (app, run):
            assert run.outcome == "ok" and spent(app, run) == ("0.0035", 0)


def test_the_price_is_that_of_the_answer_not_of_a_later_table() -> None:
    """It is stored with the usage and with the answer, so another price changes no sum of the past."""
    with ModelServer([ModelAnswer(text="ok", input_tokens=1_000, output_tokens=100)]) as server:
        model = ChatCompletions("local:m", url=server.url, price=Price(1, 10))
        with running(agent_workflow("agent", model=model)) as (app, run):
            model.__dict__["price"] = Price(100, 1_000)
            assert run.outcome == "ok" and spent(app, run) == ("0.002", 0)


def test_a_request_without_usage_has_no_price() -> None:
    """A provider that reports nothing costs something. It is not counted as free, and the history says so."""
    with FakeReceivers().route("/chat/completions", reply=lambda request: SILENT) as provider:
        model = ChatCompletions("local:m", url=provider.url, price=Price(1, 10))
        with running(agent_workflow("agent", model=model, budget=MONEY)) as (app, run):
            assert run.outcome == "ok" and spent(app, run) == ("0", 1)
            assert any("reported no usage" in str(event.data().get("text")) for event in app.events(run.id))
        free = ChatCompletions("local:m", url=provider.url, price=Price(0, 0))
        with running(agent_workflow("agent", model=free, budget=MONEY)) as (app, run):
            assert spent(app, run) == ("0", 0)


def test_without_a_price_no_run_with_a_money_budget_starts() -> None:
    """Neither its number nor its limit would say anything. The error names the model and the ways out."""
    with ModelServer(["done"]) as server:
        model = ChatCompletions("local:m", url=server.url)
        flow = agent_workflow("agent", model=model, budget=MONEY)
        with pytest.raises(DefinitionError, match=r"budget of money and asks local:m") as raised, running(flow):
            pass
        assert "price=" in raised.value.fix and "OUTLAST_MODEL_PRICE" in raised.value.fix and server.paid == 0
        with running(agent_workflow("agent", model=model, budget=Budget(tokens=10**6))) as (app, run):
            assert run.outcome == "done" and spent(app, run) == ("0", 1)
            assert "1 request without a price" in app.do(app.runtime.operations.explain(run.id)).facts["used"]


local = ChatCompletions("local:m", url="http://127.0.0.1:9")
cheap = ChatCompletions("local:m", url="http://127.0.0.1:9", price=Price(1, 1))


async def helper(ctx: Context, model: Any) -> str:
    return (await ask(ctx, model, ModelRequest(messages=(Message(role="user", text="x"),)))).text


@workflow(budget=Budget(money="5"))
async def blind(ctx: Context) -> str:
    return await helper(ctx, local)


@workflow(budget=Budget(money="5"))
async def seeing(ctx: Context) -> str:
    return await helper(ctx, cheap)


@workflow(budget=Budget(tokens=5))
async def counting(ctx: Context) -> str:
    return await helper(ctx, local)


def test_the_rule_holds_for_a_model_that_a_node_names() -> None:
    """It is read from the code of the node, as activities are: another model in the module does not matter."""
    error = blind_budget(blind)
    assert error is not None and "local:m" in error.what
    assert blind_budget(seeing) is None and blind_budget(counting) is None


class Own:
    """A model of the author: the methods of the port, without a price."""

    name = "own:m"

    async def request(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(text="ok", input_tokens=9)

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        yield await self.request(request)


class Settings:
    model = local
    cheap = cheap


own = Own()
by_name = {"small": local}
NAME = "local:m"
KNOWN = "openai:gpt-4o"


async def asks_own(ctx: Context) -> None:
    await propose(ctx, own, [])


async def asks_member(ctx: Context) -> None:
    await propose(ctx, by_name["small"], [])


async def asks_attribute(ctx: Context) -> None:
    await propose(ctx, Settings.model, [])


async def asks_text(ctx: Context) -> None:
    await propose(ctx, "local:m", [])


async def asks_name(ctx: Context) -> None:
    await propose(ctx, model=NAME, messages=[])


async def asks_cheap(ctx: Context) -> None:
    await propose(ctx, Settings.cheap, [])
    await propose(ctx, KNOWN, [])
    await propose(ctx, model="openai:gpt-4o", messages=[])


@pytest.mark.parametrize(
    "body", [asks_own, asks_member, asks_attribute, asks_text, asks_name], ids=lambda f: f.__name__
)
def test_a_model_without_a_price_is_found_however_a_node_names_it(body: Any) -> None:
    flow = workflow(name="flow", budget=MONEY)(body)
    error = blind_budget(flow)
    assert error is not None and (own.name if body is asks_own else "local:m") in error.what
    with pytest.raises(DefinitionError, match="budget of money"), running(flow, {}):
        pass
    assert blind_budget(workflow(name="other", budget=MONEY)(asks_cheap)) is None


def test_the_price_of_a_model_is_two_amounts() -> None:
    assert Price("1.25", 10).of(1_000_000, 100_000) == Decimal("2.25")
    assert Price(0.1, 0).of(1, 0) == Decimal("1E-7")
    for wrong in ("x", -1, None):
        with pytest.raises(InvalidInput, match="money is"):
            Price(wrong, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["1", "1/2/3", "a/b"])
def test_a_wrong_price_in_the_environment_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_MODEL_PRICE", text)
    with pytest.raises(InvalidInput):
        agent_workflow("agent", model="local:m", budget=MONEY).models_without_price()


def test_the_list_knows_models_by_provider_and_name() -> None:
    assert list_price("openai:gpt-4o", 1_000, 100) == Decimal("0.0035") == list_price("gpt-4o", 1_000, 100)
    assert list_price("local:gpt-4o", 1, 1) is None and list_price("test", 1, 1) is None


def test_models_for_tests_cost_nothing_and_recorded_ones_what_they_reported(tmp_path: Any) -> None:
    scripted = ModelAnswer(text="ok", input_tokens=9, money=0.25)
    recorder = RecordingModel(ScriptedModel([scripted]), tmp_path / "answers")
    with running(agent_workflow("agent", model=recorder, budget=Budget(money=9))) as (app, run):
        assert run.outcome == "ok" and spent(app, run) == ("0.25", 0)
    with running(agent_workflow("agent", model=ScriptedModel(["ok"]), budget=MONEY)) as (app, run):
        assert run.outcome == "ok" and spent(app, run)[1] == 0
