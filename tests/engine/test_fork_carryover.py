"""A fork takes along no approval, no budget and no start key. Recorded answers come in their order."""

from collections.abc import Callable
from typing import Any, Final, Literal

import pytest
from pydantic import BaseModel

from outlast import Budget, Context, Workflow, activity, lookup, role, this_call
from outlast.core import forks
from outlast.core.forks import CopiedCall, Effects
from outlast.core.rows.run_rows import TOKEN
from outlast.engine import fork_start
from outlast.engine.fork_start import ForkRequest
from outlast.store.usage_sums import RunUsage
from outlast.testing.virtual_runtime import App, AppRun

pytestmark = pytest.mark.req("RUN-10")
WRITES: Final[list[str]] = []
READS: Final[list[str]] = []


class Deal(BaseModel):
    """State of a deal."""

    item: str
    words: list[str] = []


@activity(key="wire/{item}", no_undo="it is paid")
async def wire(item: str) -> str:
    """Wire money."""
    WRITES.append(item)
    return f"{item} no. {len(WRITES)}"


@lookup(key="think/{about}", durable=True)
async def think(about: str) -> str:
    """Think, for 60 tokens."""
    this_call().used(tokens=60)
    READS.append(about)
    return f"{about} no. {len(READS)}"


deals = Workflow("carried_deals", state=Deal, budget=Budget(tokens=130))


@deals.node(start=True)
async def consider(ctx: Context[Deal]) -> Literal["decide"]:
    """Think twice."""
    ctx.state.words += [await ctx.do(think, "one"), await ctx.do(think, "two")]
    return "decide"


@deals.node
async def decide(ctx: Context[Deal]) -> Literal["rest"]:
    """Ask a person, and wire."""
    plan = wire.plan(ctx.state.item)
    decision = await ctx.approval(plan, summary="Wire it", by=role("lead"), within="1h")
    if decision.approved:
        ctx.state.words.append(await ctx.do(plan))
    return "rest"


@deals.node
async def rest(ctx: Context[Deal]) -> None:
    """Think once more."""
    ctx.state.words.append(await ctx.do(think, "three"))


@activity(key="tell/{item}", once_per="run", no_undo="it was heard")
async def tell(item: str) -> str:
    """Tell something, once per run."""
    WRITES.append(f"tell {item}")
    return "heard"


once = Workflow("carried_words", state=Deal)


@once.node(start=True)
async def speak(ctx: Context[Deal]) -> None:
    """Tell."""
    ctx.state.words.append(await ctx.do(tell, ctx.state.item))


rounds = Workflow("carried_rounds", state=Deal)


@rounds.node(start=True, max_visits=3)
async def again(ctx: Context[Deal]) -> Literal["again"] | None:
    """Wire the same in each visit."""
    ctx.state.words.append(await ctx.do(wire, ctx.state.item))
    return "again" if len(ctx.state.words) < 3 else None


@pytest.fixture(autouse=True)
def _nothing_is_recorded() -> None:
    WRITES.clear()
    READS.clear()


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, outlast_app: Callable[..., App]) -> App:
    """Return an app that serves the deals."""
    return outlast_app(deals, rounds, once, store=request.param)


def deal(app: App) -> AppRun[Deal]:
    """Return a deal that a person approved, and that has ended."""
    run = app.start(deals, {"item": "pen"}, key="deal-7")
    run.approve()
    assert (run.status, WRITES, READS) == ("completed", ["pen"], ["one", "two", "three"])
    return run


def fork(app: App, of: str, point: str, effects: Effects) -> AppRun[Deal]:
    """Fork a run, make its lookups again, and let the fork go as far as it can."""
    asked = ForkRequest(of, point, effects=effects, lookups="live", approvers="lead")
    workflow = deals if point != "1" else rounds
    tenant = app.runtime.operations.tenant
    app.do(fork_start.fork(app.store, workflow, asked, tenant=tenant, actor="ana", run="the-fork"))
    app.settle()
    return AppRun(app, workflow, "the-fork")


@pytest.mark.parametrize("effects", ["ask", "recorded", "live"])
def test_a_decision_of_the_ancestor_permits_nothing(app: App, effects: Effects) -> None:
    """The question is asked again, and the fork makes no call before a person has answered it."""
    child = fork(app, deal(app).id, "decide", effects)
    assert [each.kind for each in child.now.waiting_for] == ["approval"] and WRITES == ["pen"]
    child.reject()
    assert (child.status, WRITES) == ("completed", ["pen"])
    assert child.state.words == ["one no. 1", "two no. 2", "three no. 4"]


def test_a_decision_in_the_fork_is_used_once(app: App) -> None:
    child = fork(app, deal(app).id, "decide", "ask")
    child.approve()
    assert (child.status, WRITES) == ("completed", ["pen", "pen"])
    (approval,) = app.rows(child.id).approvals
    assert approval.consumed_by == "2:wire/pen"


def test_the_budget_of_a_fork_counts_its_own_calls(app: App) -> None:
    """The ancestor has used more than the budget. With its calls, the fork would stop before its own one."""
    run = deal(app)
    child = fork(app, run.id, "decide", "live")
    child.approve()
    assert (child.status, child.attention) == ("completed", [])
    tenant = app.runtime.operations.tenant
    used = [app.do(app.store.query(RunUsage(tenant, each.id))).tokens for each in (run, child)]
    assert used == [180, 60]
    detail = child.now
    assert detail.progress.effects_done == 1, "the copied calls are no effects of the fork"


def test_the_start_key_stays_with_the_ancestor(app: App) -> None:
    run = deal(app)
    child = fork(app, run.id, "rest", "live")
    assert app.start(deals, {"item": "pen"}, key="deal-7").id == run.id != child.id
    tokens = app.do(app.store.rows(TOKEN, (app.runtime.operations.tenant, "")))
    assert {each.target for each in tokens if each.key.startswith("fork/")} == {child.id}
    assert {each.target for each in tokens if not each.key.startswith("fork/")} == {run.id}


def test_a_run_without_forks_reads_nothing_of_a_lineage(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    load = app.store.load

    async def noted(kind: Any, key: Any) -> Any:
        read.append("/".join(map(str, key)))
        return await load(kind, key)

    monkeypatch.setattr(app.store, "load", noted)
    run = app.start(once, {"item": "pen"})
    assert run.status == "completed" and not any("lineage?" in key for key in read)
    tenant = app.runtime.operations.tenant
    asked = ForkRequest(run.id, "speak", {"item": "ink"}, effects="live")
    app.do(fork_start.fork(app.store, once, asked, tenant=tenant, actor="ana", run="the-fork"))
    app.settle()
    assert any(f"lineage?{run.id}/tell/ink" in key for key in read), "a fork looks at the row that the lineage shares"
    assert WRITES == ["tell pen", "tell ink"]


def order_kept(app: App) -> None:
    """Fork a run that made one call three times, and compare the answers that the fork gets."""
    run = app.start(rounds, {"item": "pen"})
    assert run.state.words == ["pen no. 1", "pen no. 2", "pen no. 3"]
    child = fork(app, run.id, "1", "recorded")
    assert (child.status, len(WRITES)) == ("completed", 3)
    assert child.state.words == run.state.words


def test_recorded_answers_come_in_the_order_of_the_visits(app: App) -> None:
    order_kept(app)


def test_in_another_order_its_test_fails(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = forks.copies_of

    def reversed_copies(*given: object) -> list[CopiedCall]:
        calls = copies(*given)  # type: ignore[arg-type]
        return [call._replace(n=n) for n, call in enumerate(reversed(calls), 1)]

    monkeypatch.setattr(fork_start, "copies_of", reversed_copies)
    with pytest.raises(AssertionError):
        order_kept(app)
