"""Forks of runs that have started children: an ended one answers, and a fork starts its own for one that goes on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import ChildFailed, Context, Fail, Workflow, activity, workflow
from outlast.core.machine import RunStatus
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.run_rows import RUN, Run
from outlast.engine import fork_start
from outlast.engine.fork_start import ForkRequest
from outlast.errors import Conflict
from outlast.testing.virtual_runtime import App, AppRun
from outlast.upkeep.fsck import Fsck
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-10", "RUN-13")

WHY = "both are needed"


class Word(BaseModel):
    """A signal."""

    text: str = "go"


class Trip(BaseModel):
    """State of a trip."""

    where: str = "rome"
    said: list[str] = []
    fails: bool = False


@dataclass
class Outside:
    """Requests that the receivers got."""

    writes: list[str] = field(default_factory=list)


OUTSIDE = Outside()


@pytest.fixture(autouse=True)
def outside() -> Outside:
    """Return an empty record."""
    OUTSIDE.writes = []
    return OUTSIDE


@activity(name="fork_book", key="book/{where}")
async def book(where: str) -> str:
    """Book a room."""
    OUTSIDE.writes.append(f"book {where}")
    return f"room in {where}"


@book.undo
async def unbook(response: str, where: str) -> None:
    """Cancel a room."""
    OUTSIDE.writes.append(f"unbook {response}")


@activity(name="fork_free", key="free/{where}", no_undo="it is an undo")
async def free(where: str) -> None:
    """Cancel all rooms of a place."""
    OUTSIDE.writes.append(f"free {where}")


@workflow
async def books(ctx: Context, where: str, waits: bool = False) -> str:
    """Book a room, perhaps after a word."""
    if waits:
        await ctx.receive("word", Word)
    if where == "nowhere":
        raise Fail("no such place")
    return await ctx.do(book, where)


trips = Workflow("fork_trips", state=Trip)


@trips.node(start=True)
async def begin(ctx: Context[Trip]) -> Literal["travel"]:
    """Start a child that waits."""
    await ctx.start(books, books.arguments(ctx.state.where, waits=True), key="early", undo=free.plan(ctx.state.where))
    return "travel"


@trips.node
async def travel(ctx: Context[Trip]) -> Literal["home"]:
    """Take the first of two children that are started here."""
    where = ctx.state.where
    ways = {
        key: ctx.run(books, books.arguments(f"{where} {key}", waits=key == "car"), key=key, undo=free.plan(key))
        for key in ("bus", "car")
    }
    won, room = await ctx.first(ways)
    ctx.state.said.append(f"{won}: {room}")
    return "home"


@trips.node
async def home(ctx: Context[Trip]) -> None:
    """Wait for the early child."""
    early = ctx.child("early")
    await early.signal("word", Word(), id="now")
    ctx.state.said.append(await early.result())
    await ctx.receive("end", Word)
    if ctx.state.fails:
        raise Fail("it was not to be")


lost = Workflow("fork_lost", state=Trip, when_empty="complete")


@lost.node(start=True)
async def loses(ctx: Context[Trip]) -> None:
    """Catch the failure of a child."""
    try:
        await ctx.run(books, books.arguments("nowhere"), key="no", no_undo="it fails")
    except ChildFailed as failed:
        ctx.state.said.append(f"{failed.code}: {failed.detail}")


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, outlast_app: Callable[..., App]) -> App:
    """Return an app that serves parents and children."""
    return outlast_app(trips, lost, books, store=request.param)


def fork(app: App, of: str, point: str, flow: Workflow[Trip, Any, Any] = trips, **given: Any) -> AppRun[Trip]:
    """Fork a run and let both go as far as they can."""
    asked = ForkRequest(of, point, **{"approvers": "lead", **given})
    tenant, run = app.runtime.operations.tenant, f"fork-{point}-{asked.effects}"
    app.do(fork_start.fork(app.store, flow, asked, tenant=tenant, actor="ana", run=run))
    app.settle()
    return AppRun(app, flow, run)


def rows(app: App, run: str) -> dict[str, Effect]:
    """Return the rows of the children that a run has started itself, by key."""
    return {row.key: row for row in app.rows(run).effects if row.child_text}


def run_of(app: App, run: str) -> Run:
    """Return the row of a run."""
    found = app.do(app.store.load(RUN, (app.runtime.operations.tenant, run)))
    assert isinstance(found, Run)
    return found


def history(app: App, run: str) -> str:
    """Return the texts of the history of a run."""
    return "\n".join(str(event.data()) for event in app.events(run))


def whole(app: App) -> None:
    """Check all rows."""
    assert app.do(Fsck(app.store, chain=True).look()).findings == ()


def ended(app: App, **given: Any) -> AppRun[Trip]:
    """Return a trip that has ended."""
    run = app.start(trips, given)
    run.signal("end", {})
    assert run.status == ("failed" if given.get("fails") else "completed"), run.now
    return run


def test_children_that_have_ended_answer_a_recorded_fork(app: App, outside: Outside) -> None:
    of = ended(app)
    before = [*outside.writes]
    again = fork(app, of.id, "travel", effects="recorded", signals=("all",))
    assert (again.status, outside.writes) == ("completed", before)
    assert again.outcome["said"] == of.outcome["said"] == ["bus: room in rome bus", "room in rome"]
    assert rows(app, again.id) == {}, "a fork has no row of a child of its ancestor"
    assert f"bus: answered from {of.id}" in history(app, again.id)
    assert f"early: answered from {of.id}" in history(app, again.id)
    whole(app)


def test_the_loser_of_a_recorded_set_loses_again(app: App, outside: Outside) -> None:
    of = ended(app)
    assert {key: row.status.value for key, row in rows(app, of.id).items()} == {
        "early": "done",
        "bus": "done",
        "car": "refused",
    }
    again = fork(app, of.id, "begin", effects="recorded", signals=("all",))
    assert again.status == "completed" and again.outcome["said"] == of.outcome["said"]
    assert rows(app, again.id) == {}


def test_a_live_fork_starts_its_own_children(app: App, outside: Outside) -> None:
    of = ended(app)
    before = len(outside.writes)
    again = fork(app, of.id, "travel", effects="live", signals=("all",))
    mine, theirs = rows(app, again.id), rows(app, of.id)
    assert mine.keys() == {"bus", "car"} and outside.writes[before:] == ["book rome bus"]
    assert not {row.external_id for row in mine.values()} & {row.external_id for row in theirs.values()}
    assert {run_of(app, row.external_id).parent for row in mine.values()} == {again.id}
    assert again.outcome["said"][1] == of.outcome["said"][1], "the child of before the point answers"
    whole(app)


def test_a_child_below_a_fork_that_asks_waits_for_a_person(app: App, outside: Outside) -> None:
    of = ended(app)
    before = [*outside.writes]
    again = fork(app, of.id, "travel", effects="ask", signals=("all",))
    bus, car = (AppRun(app, books, rows(app, again.id)[key].external_id) for key in ("bus", "car"))  # type: ignore[var-annotated]
    assert outside.writes == before and [bus.waiting_for[0].split()[0], again.status] == ["approval", "waiting"]
    (asked,) = app.rows(bus.id).approvals
    assert asked.summary.startswith(f"below a fork of {of.id}: ") and asked.who == "lead"
    bus.approve()
    assert outside.writes == [*before, "book rome bus"] and car.status == "cancelled"
    whole(app)


def test_a_fork_before_the_children_starts_them_itself(app: App, outside: Outside) -> None:
    of = app.start(trips, {})
    assert of.status == "waiting"
    again = fork(app, of.id, "begin", effects="live", both_go_on=WHY)
    assert rows(app, again.id).keys() == {"early", "bus", "car"}
    ends(of, again)
    assert (of.status, again.status) == ("completed", "completed")
    assert len(outside.writes) == 4
    whole(app)


slow = Workflow("fork_slow", state=Trip)


@slow.node(start=True)
async def starts(ctx: Context[Trip]) -> Literal["hears"]:
    """Start a child that waits for a word."""
    await ctx.start(books, books.arguments(ctx.state.where, waits=True), key="early", undo=free.plan(ctx.state.where))
    return "hears"


@slow.node
async def hears(ctx: Context[Trip]) -> None:
    """Wait for the child."""
    ctx.state.said.append(await ctx.child("early").result())
    await ctx.receive("end", Word)
    if ctx.state.fails:
        raise Fail("it was not to be")


def ends(*runs: AppRun[Trip]) -> None:
    """Let runs end."""
    for run in runs:
        run.signal("end", {})


@pytest.mark.parametrize("effects", ["live", "recorded"])
def test_a_child_that_has_not_ended_is_not_inherited(
    outlast_app: Callable[..., App], outside: Outside, effects: str
) -> None:
    app = outlast_app(slow, books)
    of = app.start(slow, {})
    theirs = rows(app, of.id)["early"].external_id
    again = fork(app, of.id, "hears", slow, effects=effects, both_go_on=WHY)
    own = rows(app, again.id)["early"].external_id
    assert own != theirs and run_of(app, own).parent == again.id and run_of(app, theirs).parent == of.id
    AppRun(app, books, theirs).signal("word", Word())
    ends(of)
    assert (of.status, again.status, outside.writes) == ("completed", "waiting", ["book rome"])
    AppRun(app, books, own).signal("word", Word())
    ends(again)
    if effects == "live":
        assert (again.status, outside.writes) == ("completed", ["book rome"] * 2)
    else:
        assert AppRun(app, books, own).waiting_for[0].startswith("approval")
    whole(app)


def test_a_run_does_not_undo_a_child_on_which_its_fork_relies(
    outlast_app: Callable[..., App], outside: Outside
) -> None:
    app = outlast_app(slow, books)
    of = app.start(slow, {"fails": True})
    AppRun(app, books, rows(app, of.id)["early"].external_id).signal("word", Word())
    again = fork(app, of.id, "hears", slow, effects="live", both_go_on=WHY)
    assert rows(app, again.id) == {} and again.state.said == []
    ends(of)
    assert (of.status, of.attention, outside.writes) == ("compensating", ["undo_failed"], ["book rome"])
    app.do(app.runtime.cancel(again.id, "not needed"))
    app.settle()
    assert (again.status, outside.writes) == ("cancelled", ["book rome"]), "a fork undoes its own children only"
    whole(app)


def test_an_undone_child_of_the_past_needs_to_be_accepted(outlast_app: Callable[..., App], outside: Outside) -> None:
    app = outlast_app(slow, books)
    of = app.start(slow, {"fails": True})
    AppRun(app, books, rows(app, of.id)["early"].external_id).signal("word", Word())
    ends(of)
    assert (of.status, outside.writes) == ("failed", ["book rome", "free rome"])
    with pytest.raises(Conflict, match="books early: undone"):
        fork(app, of.id, "hears", slow)
    assert fork(app, of.id, "hears", slow, accept_undone=True).status == "waiting"
    whole(app)


def test_a_failed_child_fails_again_in_a_recorded_fork(app: App) -> None:
    of = app.start(lost, {})
    again = fork(app, of.id, "loses", lost, effects="recorded")
    assert (of.status, again.status) == ("completed", "completed"), of.now
    assert again.outcome["said"] == of.outcome["said"] == ["failed: no such place"]
    assert rows(app, again.id) == {}


def test_a_fork_of_a_fork_has_the_children_of_both(app: App, outside: Outside) -> None:
    of = ended(app)
    again = fork(app, of.id, "travel", effects="live", signals=("all",))
    before = [*outside.writes]
    third = fork(app, again.id, "home", effects="recorded", signals=("all",))
    assert third.status == "completed" and third.outcome["said"] == again.outcome["said"]
    assert outside.writes == before and rows(app, third.id) == {}
    whole(app)


def test_the_preview_says_which_children_are_started(app: App) -> None:
    of = ended(app)
    outcomes = {}
    for effects in ("recorded", "live"):
        preview = app.do(app.runtime.operations.fork_preview(of.id, "travel", approvers="lead", effects=effects))
        outcomes[effects] = {call.key: (call.kind, call.outcome) for call in preview.calls}
    assert outcomes["recorded"] == dict.fromkeys(("bus", "car"), ("child", "answered"))
    assert outcomes["live"] == dict.fromkeys(("bus", "car"), ("child", "started"))


def test_a_fork_of_a_child_has_no_parent(app: App) -> None:
    of = ended(app)
    child = rows(app, of.id)["bus"].external_id
    asked = ForkRequest(child, "books", effects="recorded", approvers="lead")
    app.do(fork_start.fork(app.store, books, asked, tenant=app.runtime.operations.tenant, actor="ana", run="f"))
    app.settle()
    assert (run_of(app, "f").parent, run_of(app, "f").status) == ("", RunStatus.COMPLETED)
    assert rows(app, of.id)["bus"].external_id == child


REMOVED: dict[str, Callable[[Any, Any], None]] = {
    "living_children_adopted": lambda app, outside: test_a_child_that_has_not_ended_is_not_inherited(
        app, outside, "live"
    ),
    "asks_not_handed_down": lambda app, outside: test_a_child_below_a_fork_that_asks_waits_for_a_person(
        app(trips, lost, books), outside
    ),
}
"""The test that fails without each safeguard."""


@pytest.mark.parametrize("removed", REMOVED)
def test_without_a_safeguard_its_test_fails(
    outlast_app: Callable[..., App], outside: Outside, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    remove(removed, monkeypatch)
    with pytest.raises((AssertionError, KeyError, pytest.fail.Exception)):
        REMOVED[removed](outlast_app, outside)
