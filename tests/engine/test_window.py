"""Runs that never end: a window of history keeps the rows of a run flat, and loses nothing that it needs (S-32)."""

import random
from collections import Counter
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.run_rows import FLOOR, RESULT, RUN, STATE_CHUNK, TOKEN, Floor
from outlast.core.usage import SUMMED, Budget, CallUsage
from outlast.errors import DefinitionError
from outlast.flow import Context, Workflow, activity, this_call, workflow
from outlast.insight.run_history import RunHistory
from outlast.upkeep.fsck import Fsck
from tests.engine.world import HOUR, MINUTE, QUIET, SECOND, Acts, Go, Receiver, Slow, State, World, write

pytestmark = [pytest.mark.req("RUN-15")]
every_store = pytest.mark.every_store


def rows_of(world: World, run: str = "r1") -> Counter[str]:
    """Count the rows of a run by kind."""
    found: Counter[str] = Counter()
    for kind in KINDS:
        if kind.row._fields[1] == "run":
            found[kind.name] += len(world._rows(kind, run))
    return +found


def floor_of(world: World, run: str = "r1") -> Floor:
    row = world.core.rows.get(FLOOR, ("t", run))
    assert isinstance(row, Floor)
    return row


async def sound(world: World) -> None:
    report = await Fsck(world.store, chain=True).look()
    assert not report.findings


def looping(most: int, act: Any, *, name: str = "window", once: Any = None, **options: Any) -> Workflow[Any]:
    """A node that calls `act` in each visit, and ends after `most` of them."""
    flow = Workflow(name, state=State, **{"history": 20, **options})

    @flow.node(start=True)
    async def turn(ctx: Context[State]) -> Literal["turn"] | None:
        ctx.state.n += 1
        await ctx.do(act, str(ctx.state.n))
        if once is not None:
            await ctx.do(once, "it")
        return "turn" if ctx.state.n < most else None

    return flow.validate()


@every_store
async def test_a_long_loop_keeps_its_window(world: World) -> None:
    receiver = Receiver()
    flow = looping(300, write(receiver, name="window-call"))
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.status() == "completed" and len(receiver.did) == 300
    rows, floor = rows_of(world), floor_of(world)
    assert floor.visit >= 300 - 2 * 20 and world.run().visit == 300
    assert rows["event"] <= 45 and rows["effect"] <= 45
    assert sum(floor.purged.done.values()) + rows["effect"] == 300
    assert floor.purged.visits == {"turn": floor.visit - 1}
    assert [event.seq for event in world.events()][:2] == [1, floor.seq]
    await sound(world)


@every_store
async def test_a_holder_forgets_what_it_purges(world: World) -> None:
    receiver = Receiver(*[None] * 200, Slow())
    flow = looping(300, write(receiver, name="window-kept"), history=30)
    process = world.worker(flow)
    await world.start(flow)
    await world.pass_(SECOND)
    (executor,) = process.worker._executors._tasks.values()
    held = executor.session.held
    assert held.run.visit == 201 and len(held.effects) <= 40
    (rows,) = await world.store.run_rows([("t", "r1")])
    assert rows is not None and len(rows.effects) == len(held.effects)
    await sound(world)


@every_store
async def test_the_next_holder_goes_on_with_the_window(world: World) -> None:
    """Workers die again and again, and each successor finds rows behind the floor."""
    stops = [Slow() for _ in range(6)]
    receiver = Receiver(*[each for stop in stops for each in (*[None] * 24, stop)], dedupes=True)
    once = write(receiver, name="window-once", once_per="run")
    flow = looping(
        160,
        write(receiver, name="window-taken", mode="reconcile"),
        once=once,
        history=10,
    )
    await world.start(flow)
    for stop in stops:
        process = world.worker(flow)
        await world.pass_(QUIET)
        assert stop.begun.is_set()
        process.kill()
        await world.pass_(MINUTE)
    world.worker(flow)
    await world.pass_(QUIET)
    assert world.status() == "completed"
    assert Counter(receiver.did).most_common(1)[0][1] == 1 and len(receiver.did) == 161
    rows, floor = rows_of(world), floor_of(world)
    assert floor.visit >= 140 and rows["effect"] <= 25
    assert [effect.key for effect in world.effects() if not effect.visit] == ["window-once/it"]
    assert sum(floor.purged.done.values()) + rows["effect"] == 161
    await sound(world)


async def test_signals_are_read_once_and_unread_ones_stay(world: World) -> None:
    flow = Workflow("window-signals", state=State, history=5, dedupe_for="1h")

    @flow.node(start=True)
    async def hear(ctx: Context[State]) -> Literal["hear"] | None:
        found = await ctx.receive("go", Go)
        ctx.state.said.append(found.word)
        return None if found.word == "end" else "hear"

    flow.validate()
    world.worker(flow)
    await world.start(flow)
    await world.signal("other", word="kept")
    for n in range(60):
        assert await world.signal("go", signal_id=f"go-{n}", word=str(n))
        await world.pass_(MINUTE)
    assert not await world.signal("go", signal_id="go-59", word="59")
    rows = rows_of(world)
    assert rows["message"] <= 10 and rows["wait"] <= 10 and rows["token"] <= 60
    assert world.messages()[0].name == "other"
    await world.pass_(3 * HOUR)
    for n in range(60, 80):
        await world.signal("go", signal_id=f"go-{n}", word=str(n))
    assert rows_of(world)["token"] <= 25
    await world.signal("go", word="end")
    assert world.last_event()["outcome"]["said"] == [*map(str, range(80)), "end"]
    await sound(world)


async def test_a_window_of_time(world: World) -> None:
    flow = Workflow("window-time", state=State, history="10h")

    @flow.node(start=True)
    async def tick(ctx: Context[State]) -> Literal["tick"]:
        ctx.state.n += 1
        await ctx.sleep("1h")
        return "tick"

    flow.validate()
    world.worker(flow)
    await world.start(flow)
    await world.pass_(100 * HOUR)
    floor = floor_of(world)
    assert world.run().visit == 101
    assert 10 * HOUR <= world.time.wall() - floor.entered_at <= 13 * HOUR
    assert rows_of(world)["wait"] <= 14
    await world.cancel()
    assert world.status() == "cancelled"
    await sound(world)


@pytest.mark.parametrize("undo", ["keep", "window"])
async def test_undoable_calls_behind_the_window(world: World, undo: Any) -> None:
    receiver, other = Receiver(), Receiver()
    flow = Workflow(f"window-undo-{undo}", state=State, history=3, undo=undo)
    book = write(receiver, name=f"window-book-{undo}", undo=other)

    @flow.node(start=True)
    async def turn(ctx: Context[State]) -> Literal["turn"]:
        ctx.state.n += 1
        await ctx.do(book, str(ctx.state.n))
        if ctx.state.n == 20:
            await ctx.sleep("1000h")
        return "turn"

    flow.validate()
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert len(receiver.did) == 20
    await world.cancel()
    await world.pass_(MINUTE)
    assert world.status() == "cancelled"
    if undo == "keep":
        assert len(other.did) == 20 and world.last_event()["not_undone"] == []
    else:
        gone = 20 - len(other.did)
        assert 13 <= gone <= 17
        assert world.last_event()["not_undone"] == [
            f"window-book-window: {gone} calls before the window of its history"
        ]
    await sound(world)


def test_an_undo_needs_a_decision() -> None:
    book = write(Receiver(), name="window-undecided", undo=True)
    with pytest.raises(DefinitionError, match="may call window-undecided, which has an undo"):
        looping(3, book, name="window-undecided")


def test_an_undo_that_no_node_mentions_needs_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "beside", write(Receiver(), name="window-beside", undo=True))
    flow = looping(3, write(Receiver(), name="window-called"), name="window-alone")
    assert "window-beside" in flow.activities


@pytest.mark.parametrize("history", ["500y", "5", "x", "0s"])
def test_a_wrong_window_names_both_kinds(history: str) -> None:
    with pytest.raises(DefinitionError, match="a number of visits: history=1_000"):
        Workflow("window-wrong", state=State, history=history)


async def test_an_uncertain_call_holds_the_floor(world: World) -> None:
    """The run waits for a person, and what is in its window stays."""
    receiver = Receiver(*[None] * 30, Acts(ConnectionResetError("lost")))
    flow = looping(60, write(receiver, name="window-lost"), history=2)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(QUIET)
    assert world.reasons() == ["effect_uncertain"]
    assert floor_of(world).visit <= 31
    await sound(world)
    await world.resolve("window-lost/31", "happened", response=b'"x"')
    await world.pass_(MINUTE)
    assert world.status() == "completed" and sum(floor_of(world).purged.done.values()) >= 50
    await sound(world)


async def test_max_visits_counts_within_the_window(world: World) -> None:
    receiver = Receiver()
    flow = Workflow("window-visits", state=State, history=5)
    act = write(receiver, name="window-visited")

    @flow.node(start=True, max_visits=10)
    async def turn(ctx: Context[State]) -> Literal["turn"] | None:
        ctx.state.n += 1
        await ctx.do(act, str(ctx.state.n))
        return "turn" if ctx.state.n < 100 else None

    flow.validate()
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.status() == "completed" and world.run().visits["turn"] == 100


@pytest.mark.parametrize("kept", [True, False])
async def test_results_of_the_window(world: World, kept: bool) -> None:
    flow = Workflow(f"window-results-{kept}", state=State, history=5, results="keep" if kept else "purge")

    @flow.node(start=True)
    async def turn(ctx: Context[State]) -> Literal["turn"] | None:
        ctx.state.n += 1
        await ctx.emit({"n": ctx.state.n}, key=f"n/{ctx.state.n}")
        await ctx.sleep("1m")
        return "turn" if ctx.state.n < 100 else None

    flow.validate()
    world.worker(flow)
    await world.start(flow)
    await world.pass_(101 * MINUTE)
    assert world.status() == "completed"
    rows = world._rows(RESULT, "r1")
    assert max(row.ordinal for row in rows) == 100
    assert len(rows) == 100 if kept else len(rows) <= 40
    await sound(world)


async def test_a_visit_of_many_calls_keeps_pace(world: World) -> None:
    receiver = Receiver()
    flow = Workflow("window-wide", state=State, history=2)
    act = write(receiver, name="window-wide")

    @flow.node(start=True)
    async def turn(ctx: Context[State]) -> Literal["turn"] | None:
        ctx.state.n += 1
        await ctx.do_all([act.plan(f"{ctx.state.n}.{i}") for i in range(150)])
        return "turn" if ctx.state.n < 20 else None

    flow.validate()
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * MINUTE)
    assert world.status() == "completed" and len(receiver.did) == 3_000
    assert rows_of(world)["effect"] <= 150 * 7
    await sound(world)


@workflow
async def doubles_in_window(ctx: Context, n: int) -> int:
    return 2 * n


async def test_maps_of_earlier_visits_leave_no_row(world: World) -> None:
    flow = Workflow("window-maps", state=State, history=10)

    @flow.node(start=True)
    async def turn(ctx: Context[State]) -> Literal["turn"] | None:
        ctx.state.n += 1
        done = await ctx.map(doubles_in_window, {f"{n}": doubles_in_window.arguments(n) for n in range(3)})
        ctx.state.said = [str(value) for value in (await done.values()).values()]
        return "turn" if ctx.state.n < 60 else None

    world.worker(flow.validate(), doubles_in_window)
    await world.start(flow)
    await world.pass_(HOUR)
    assert world.status() == "completed" and world.outcome()["said"] == ["0", "2", "4"]
    rows = rows_of(world)
    assert rows["map_progress"] <= 40 and rows["map_outcome"] <= 120 and rows["message"] <= 60 and rows["memo"] <= 90


@every_store
async def test_children_go_with_the_window(world: World) -> None:
    flow = Workflow("window-children", state=State, history=10)

    @workflow(name="window-grandchild")
    async def grandchild(ctx: Context, n: int) -> int:
        return n

    @workflow(name="window-child")
    async def child(ctx: Context, n: int) -> int:
        await ctx.sleep("1s")
        return await ctx.run(grandchild, grandchild.arguments(n), key="g")

    @flow.node(start=True)
    async def turn(ctx: Context[State]) -> Literal["turn"] | None:
        ctx.state.n += 1
        assert await ctx.run(child, child.arguments(ctx.state.n), key="c") == ctx.state.n
        return "turn" if ctx.state.n < 40 else None

    world.worker(flow.validate(), child, grandchild)
    await world.start(flow)
    await world.pass_(HOUR)
    assert world.status() == "completed"
    runs = world.core.rows.under(RUN, ("t",))
    assert len(runs) <= 1 + 2 * 25 and sum(run.depth == 1 for run in runs) == sum(run.depth == 2 for run in runs)
    tokens = world.core.rows.under(TOKEN, ("t",))
    assert len(tokens) == len(runs) and {token.target for token in tokens} == {run.run for run in runs}
    await sound(world)


class Cargo(BaseModel):
    n: int = 0
    parts: list[str] = []


async def test_parts_of_large_states_go_once_no_kept_checkpoint_names_them(world: World) -> None:
    flow = Workflow("window-cargo", state=Cargo, history=4, outcome=lambda state: state.n)

    @flow.node(start=True)
    async def load(ctx: Context[Cargo]) -> Literal["load"] | None:
        ctx.state.n += 1
        part = random.Random(ctx.state.n % 40).randbytes(4_000).hex()  # a part of long ago comes again
        ctx.state.parts = [*ctx.state.parts[-2:], part]
        await ctx.sleep("1s")
        return "load" if ctx.state.n < 120 else None

    flow.validate()
    world.worker(flow)
    await world.start(flow)
    await world.pass_(5 * MINUTE)
    assert world.status() == "completed"
    assert 0 < len(world._rows(STATE_CHUNK, "r1")) <= 60
    await sound(world)


async def test_usage_behind_the_window_is_summed(world: World) -> None:
    flow = Workflow("window-usage", state=State, history=5, budget=Budget(tokens=10_000))

    @activity(key="ask/{n}", name="window-ask", no_undo="a test")
    async def ask(n: int) -> int:
        this_call().used(model=f"m-{n % 2}", tokens=10)
        return n

    @flow.node(start=True)
    async def turn(ctx: Context[State]) -> Literal["turn"] | None:
        ctx.state.n = await ctx.do(ask, ctx.state.n + 1)
        if ctx.state.n % 30 == 0:
            await ctx.sleep("1h")
        return "turn" if ctx.state.n < 200 else None

    flow.validate()
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * HOUR)
    assert world.status() == "completed"
    rows = [row for row in world._rows(CALL_USAGE, "r1") if isinstance(row, CallUsage)]
    assert sum(row.tokens for row in rows) == 2_000 and sum(row.calls for row in rows) == 200
    assert len(rows) <= 40 and {row.model for row in rows if row.epoch == SUMMED} == {"m-0", "m-1"}
    await sound(world)


async def test_a_budget_counts_the_usage_behind_the_window(world: World) -> None:
    flow = Workflow("window-spent", state=State, history=5, budget=Budget(tokens=995))

    @activity(key="spend/{n}", name="window-spend", no_undo="a test")
    async def spend(n: int) -> int:
        this_call().used(model="m", tokens=10)
        return n

    @flow.node(start=True)
    async def turn(ctx: Context[State]) -> Literal["turn"]:
        ctx.state.n = await ctx.do(spend, ctx.state.n + 1)
        return "turn"

    flow.validate()
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["budget_exhausted"] and world.run().visit == 101
    await sound(world)


async def test_the_visits_of_a_history_are_those_of_the_window(world: World) -> None:
    flow = Workflow("window-visits", state=State, history=10)

    @flow.node(start=True)
    async def turn(ctx: Context[State]) -> Literal["turn"] | None:
        ctx.state.n += 1
        await ctx.sleep("10s")
        return "turn" if ctx.state.n < 40 else None

    world.worker(flow.validate())
    await world.start(flow)
    await world.pass_(HOUR)
    history = RunHistory(world.run(), world.events())
    first = floor_of(world).visit
    assert [each.visit for each in history.visits] == list(range(first, 41))
    assert all(each.left - each.entered == 10 * SECOND for each in history.visits)
    assert history.entry(first + 1) == history.visits[1] and history.entry(40) == history.visits[-1]
    assert history.visit_at(history.visits[2].entered) == first + 2
