"""Forks of forks: nothing is repeated, and the lineage is shown, also when a run in the middle has been purged."""

from collections.abc import Callable
from typing import Any, Final, Literal

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup
from outlast.core.forks import ledger_of
from outlast.engine import fork_start
from outlast.engine.fork_start import ForkRequest
from outlast.errors import Conflict, NotFound
from outlast.store.port import maintenance
from outlast.testing.virtual_runtime import App, AppRun
from outlast.upkeep.fsck import Fsck

pytestmark = pytest.mark.req("RUN-10")
WRITES: list[str] = []
READS: list[str] = []


class Trip(BaseModel):
    """State of a trip."""

    place: str
    holds: bool = False
    notes: list[str] = []


class Word(BaseModel):
    """A signal."""


@lookup(key="weather/{place}", durable=True)
async def weather(place: str) -> int:
    """Read the weather."""
    READS.append(place)
    return len(READS)


@activity(key="book/{what}", no_undo="it is booked")
async def book(what: str) -> str:
    """Book something, in each visit."""
    WRITES.append(f"book {what}")
    return f"{what} no. {len(WRITES)}"


@activity(key="tell/{what}", once_per="run", no_undo="it was heard")
async def tell(what: str) -> str:
    """Tell something, once per run."""
    WRITES.append(f"tell {what}")
    return f"{what} no. {len(WRITES)}"


trips = Workflow("generations", state=Trip)


@trips.node(start=True)
async def plan(ctx: Context[Trip]) -> Literal["fly"]:
    """Look, and tell."""
    ctx.state.notes += [str(await ctx.do(weather, ctx.state.place)), await ctx.do(tell, "plan")]
    return "fly"


@trips.node
async def fly(ctx: Context[Trip]) -> Literal["stay"]:
    """Book a flight, and tell again."""
    ctx.state.notes += [await ctx.do(book, "flight"), await ctx.do(tell, "plan"), await ctx.do(tell, "flight")]
    return "stay"


@trips.node
async def stay(ctx: Context[Trip]) -> Literal["rest"]:
    """Look, book a room, and tell."""
    ctx.state.notes += [str(await ctx.do(weather, ctx.state.place)), await ctx.do(book, "room")]
    ctx.state.notes += [await ctx.do(tell, "flight"), await ctx.do(tell, "room")]
    return "rest"


@trips.node
async def rest(ctx: Context[Trip]) -> None:
    """Wait for a word, if the trip is held."""
    if ctx.state.holds:
        await ctx.receive("word", Word)


@pytest.fixture(autouse=True)
def _nothing_is_recorded() -> None:
    WRITES.clear()
    READS.clear()


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, outlast_app: Callable[..., App]) -> App:
    """Return an app that serves the trips."""
    return outlast_app(trips, store=request.param)


WHY: Final = "both are needed"
POINTS: Final = {"child": "fly", "grandchild": "fly", "great": "stay"}
"""The runs that descend from the oldest one, each a fork of the one before, and where it begins."""
Purge = Literal["ledgers", "runs"]


def fork(app: App, of: str, name: str, effects: Any = "recorded", **state: Any) -> AppRun[Trip]:
    """Fork a run and let the fork go as far as it can."""
    given = state or None
    asked = ForkRequest(of, POINTS[name], given, effects, approvers="" if effects == "live" else "lead", both_go_on=WHY)
    tenant = app.runtime.operations.tenant
    app.do(fork_start.fork(app.store, trips, asked, tenant=tenant, actor="ana", run=name))
    app.settle()
    return AppRun(app, trips, name)


def oldest(app: App) -> AppRun[Trip]:
    """Return the oldest run, which waits in its last node, so no purge takes it."""
    run = app.start(trips, {"place": "Rome", "holds": True})
    assert run.status == "waiting"
    return run


def unheld(run: AppRun[Trip]) -> dict[str, Any]:
    """Return the state of the oldest run before its flight, for a fork that waits for no word."""
    return {"place": "Rome", "notes": run.state.notes[:2]}


def purge_child(app: App, kind: Purge) -> None:
    """Purge what ended more than an hour ago: the child alone."""
    upkeep, before = maintenance(app.store), app.do(app.store.now()).business - 3_600_000
    while app.do(upkeep.purge_ledgers(before, 10) if kind == "ledgers" else upkeep.purge(before, 10)):
        pass


def check_purged(app: App, run: str, kind: Purge) -> None:
    """Check that a run cannot be forked any more, and say why."""
    if kind == "ledgers":
        with pytest.raises(Conflict) as refused:
            app.do(fork_start.offers_of(app.store, app.runtime.operations.tenant, run))
        assert refused.value.refusal == "purged"
    else:
        with pytest.raises(NotFound):
            app.do(app.runtime.operations.run(run))


@pytest.mark.parametrize("kind", ["ledgers", "runs"])
def test_three_generations_repeat_nothing_although_the_middle_one_is_purged(app: App, kind: Purge) -> None:
    run = oldest(app)
    child = fork(app, run.id, "child", **unheld(run))
    assert child.status == "completed" and child.state.notes == run.state.notes
    before, reads = [*WRITES], [*READS]
    app.clock.skip("2h")
    grandchild = fork(app, "child", "grandchild")
    assert grandchild.status == "completed"
    purge_child(app, kind)
    check_purged(app, "child", kind)
    great = fork(app, "grandchild", "great")
    assert great.status == "completed"
    assert WRITES == before == ["tell plan", "book flight", "tell flight", "book room", "tell room"]
    assert reads == READS
    assert run.state.notes == grandchild.state.notes == great.state.notes
    run.signal("word", {})
    assert run.status == "completed" and before == WRITES
    assert app.do(Fsck(app.store, chain=True).look()).findings == ()


@pytest.mark.parametrize("kind", ["ledgers", "runs"])
def test_the_lineage_is_shown_although_the_middle_one_is_purged(app: App, kind: Purge) -> None:
    run = oldest(app)
    fork(app, run.id, "child", **unheld(run))
    app.clock.skip("2h")
    fork(app, "child", "grandchild")
    purge_child(app, kind)
    fork(app, "grandchild", "great")
    operations = app.runtime.operations
    for of, name in ((run.id, "child"), ("child", "grandchild"), ("grandchild", "great")):
        if name == "child" and kind == "runs":
            continue
        assert app.do(operations.run(name)).forked_from == of
        assert app.do(operations.explain(name)).facts["fork of"].startswith(f"{of} at checkpoint ")
        assert [each.run for each in app.do(operations.runs(forked_from=of)).runs] == [name]
        ledger = ledger_of({(memo.visit, memo.key): memo for memo in app.rows(name).memos})
        assert (ledger is None) == (name == "child")
        assert ledger is None or ledger.terms.root == run.id


def test_a_live_generation_makes_its_calls_and_none_once_per_run(app: App) -> None:
    run = oldest(app)
    fork(app, run.id, "child", "live", **unheld(run))
    app.clock.skip("2h")
    before = [*WRITES]
    assert before[-2:] == ["book flight", "book room"]
    fork(app, "child", "grandchild", "live")
    purge_child(app, "ledgers")
    great = fork(app, "grandchild", "great", "live")
    assert great.status == "completed"
    assert WRITES[len(before) :] == ["book flight", "book room", "book room"]
