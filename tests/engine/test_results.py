"""Results of a run: keyed, stored in chunks under the claim, never lost to a failed write, counted from the rows."""

import asyncio
import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast.core.limits import RESULT_BYTES_MAX, RESULTS_PER_VISIT_MAX
from outlast.core.rows.run_rows import RESULT, Result
from outlast.errors import InvalidInput, LimitExceeded, NotStorable
from outlast.flow import Context, Fail, Workflow
from tests.engine.world import QUIET, Go, Receiver, Slow, World, write

pytestmark = pytest.mark.req("CKP-4")


class Lead(BaseModel):
    n: int
    name: str = ""


def results(world: World, run: str = "r1") -> list[Result]:
    rows = [row for row in world.core.rows.under(RESULT, ("t", run)) if isinstance(row, Result)]
    return sorted(rows, key=lambda row: row.ordinal)


def counted(world: World) -> list[dict[str, int]]:
    """Return the result counts of the events, in order."""
    data = [json.loads(e.body)["data"] for e in world.events()]
    return [d["results"] for d in data if "results" in d]


def emitting(n: int, act: Any = None, **options: Any) -> Workflow[Any]:
    """A node that emits `n` leads, calls `act` after them, and one that follows."""
    flow = Workflow("emitting", state=Go, **options)

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> Literal["after"]:
        for i in range(n):
            await ctx.emit(Lead(n=i), key=f"lead/{i}")
        if act is not None:
            await ctx.do(act, "a1")
        return "after"

    @flow.node
    async def after(ctx: Context[Go]) -> None:
        pass

    return flow.validate()


def emits(world: World, process: int = 0) -> list[str]:
    return [label for label in world.processes[process].wire.labels if " emit " in label]


@pytest.mark.req("CKP-5")
@pytest.mark.every_store
async def test_results_are_stored_in_chunks_and_counted_by_the_event(world: World) -> None:
    flow = emitting(120)
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed"
    assert [(r.ordinal, r.key, r.kind, r.version) for r in results(world)] == [
        (i + 1, f"lead/{i}", "Lead", 1) for i in range(120)
    ]
    assert json.loads(results(world)[7].data) == {"n": 7, "name": ""}
    assert emits(world) == [f"r1 emit lead/{i}" for i in (0, 50, 100)]
    assert counted(world) == [{"count": 120, "emitted": 120}]


@pytest.mark.req("CKP-5")
async def test_a_reader_of_the_event_finds_its_rows(world: World) -> None:
    """At the moment at which the event lands, every row that it counts is there."""
    flow = emitting(120)
    process = world.worker(flow)
    seen: list[int] = []
    process.wire.before("advance produce", lambda: seen.append(len(results(world))))
    await world.start(flow)
    assert seen == [120]


async def test_a_run_that_emits_nothing_asks_nothing(world: World) -> None:
    flow = emitting(0)
    process = world.worker(flow)
    asked: list[Any] = []
    process.wire.load_many = lambda *args: asked.append(args)  # type: ignore[assignment,method-assign]
    process.wire.count = lambda *args: asked.append(args)  # type: ignore[attr-defined]
    await world.start(flow)
    assert world.status() == "completed" and asked == [] and counted(world) == []


async def test_a_second_emit_replaces_the_row(world: World) -> None:
    flow = Workflow("twice", state=Go)

    @flow.node(start=True)
    async def first(ctx: Context[Go]) -> Literal["second"]:
        await ctx.emit({"price": 1}, key="a", kind="quote")
        await ctx.emit({"price": 2}, key="a", kind="quote")
        await ctx.emit({"price": 3}, key="b", kind="quote")
        return "second"

    @flow.node
    async def second(ctx: Context[Go]) -> None:
        await ctx.emit({"price": 4}, key="a", kind="quote")
        await ctx.emit({"price": 3}, key="b", kind="quote")
        await ctx.emit("plain text", key="c")

    world.worker(flow)
    await world.start(flow)
    assert [(r.ordinal, r.version, r.kind, r.key, r.data) for r in results(world)] == [
        (1, 2, "quote", "a", b'{"price":4}'),
        (2, 1, "quote", "b", b'{"price":3}'),
        (3, 1, "", "c", b'"plain text"'),
    ]
    assert counted(world) == [{"count": 2, "emitted": 2}, {"count": 3, "emitted": 3}]


@pytest.mark.parametrize("part", ["emit lead/0", "emit lead/50", "emit lead/100", "advance produce"])
@pytest.mark.parametrize("how", ["away", "lost"])
async def test_a_write_that_fails_loses_nothing(world: World, part: str, how: str) -> None:
    """Refused, or landed with its answer lost: the next execution emits again under the same keys."""
    flow = emitting(120)
    process = world.worker(flow)
    getattr(process.wire, how).append(part)
    await world.start(flow)
    await world.pass_(QUIET)
    assert world.status() == "completed"
    assert [r.ordinal for r in results(world)] == list(range(1, 121))
    assert {r.version for r in results(world)} == {1}, "a stored result is not written again"
    assert counted(world) == [{"count": 120, "emitted": 120}]


async def test_a_failed_read_loses_nothing(world: World) -> None:
    flow = emitting(60, write(Receiver(Slow(), dedupes=True)))
    process = world.worker(flow)
    process.wire.before("emit", lambda: setattr(process.wire, "reads_fail", 1))
    await world.start(flow)
    await world.pass_(QUIET)
    assert len(results(world)) == 60


@pytest.mark.parametrize("part", ["emit lead/0", "emit lead/50", "advance produce"])
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_death_at_any_chunk_loses_nothing(world: World, part: str, side: str) -> None:
    flow = emitting(75)
    process = world.worker(flow)
    getattr(process.wire, side)(part, process.kill)
    await world.start(flow)
    world.worker(flow)
    await world.pass_(QUIET)
    assert world.status() == "completed"
    assert [(r.ordinal, r.key) for r in results(world)] == [(i + 1, f"lead/{i}") for i in range(75)]
    assert counted(world) == [{"count": 75, "emitted": 75}]


@pytest.mark.req("REC-3")
async def test_a_holder_that_was_replaced_adds_nothing(world: World) -> None:
    """The chunk is fenced: a replaced holder stores no results beside its successor's."""
    held = Slow()
    flow = Workflow("zombie", state=Go)
    names: list[str] = []

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        names.append("old" if not names else "new")
        mine = names[-1]
        if mine == "old":
            held.begun.set()
            await held.go.wait()
        await ctx.emit({"by": mine}, key="k")
        await ctx.emit({"by": mine}, key=f"only-{mine}")

    first = world.worker(flow)
    await world.start(flow)
    await held.begun.wait()
    first.freeze()
    world.worker(flow)
    await world.pass_(QUIET)
    assert world.status() == "completed"
    held.go.set()
    first.thaw()
    await world.pass_(QUIET)
    assert [(r.key, r.data) for r in results(world)] == [("k", b'{"by":"new"}'), ("only-new", b'{"by":"new"}')]


async def test_results_emitted_before_a_wait_can_be_read_during_it(world: World) -> None:
    flow = Workflow("waiting", state=Go)

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        await ctx.emit({"n": 1}, key="first")
        await ctx.receive("go", Go)
        await ctx.emit({"n": 2}, key="second")

    world.worker(flow)
    await world.start(flow)
    assert world.status() == "waiting" and [r.key for r in results(world)] == ["first"]
    assert counted(world) == [], "only the move that ends the visit counts them"
    await world.signal("go")
    assert [(r.key, r.version) for r in results(world)] == [("first", 1), ("second", 1)]
    assert counted(world) == [{"count": 2, "emitted": 2}]


async def test_results_of_a_run_that_fails_stay(world: World) -> None:
    flow = Workflow("failing", state=Go)

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        await ctx.emit({"n": 1}, key="first")
        raise Fail("the source broke after one page")

    world.worker(flow)
    await world.start(flow)
    assert world.status() == "failed" and [r.key for r in results(world)] == ["first"]


async def test_concurrent_emits_have_one_number_each(world: World) -> None:
    flow = Workflow("gathered", state=Go)

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        async def page(p: int) -> None:
            for i in range(60):
                await ctx.emit({"p": p}, key=f"{p}/{i}")

        await asyncio.gather(*(page(p) for p in range(5)))

    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed"
    assert [r.ordinal for r in results(world)] == list(range(1, 301))


@pytest.mark.parametrize(
    ("result", "options", "error"),
    [
        ({"n": 1}, {"key": ""}, InvalidInput),
        ({"n": 1}, {"key": "a\nb"}, InvalidInput),
        ({"n": 1}, {"key": "ü" * 251}, InvalidInput),
        ({"n": 1}, {"key": "k", "kind": "no such kind!"}, InvalidInput),
        ({"n": object()}, {"key": "k"}, NotStorable),
        ({"n": "x" * RESULT_BYTES_MAX}, {"key": "k"}, LimitExceeded),
    ],
)
async def test_a_result_that_cannot_be_stored_raises_in_the_authors_line(
    world: World, result: Any, options: Any, error: type[Exception]
) -> None:
    caught: list[BaseException] = []
    flow = Workflow("refused", state=Go)

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        try:
            await ctx.emit(result, **options)
        except Exception as refused:
            caught.append(refused)

    world.worker(flow)
    await world.start(flow)
    assert [type(e) for e in caught] == [error] and results(world) == []


async def test_large_results_make_smaller_chunks(world: World) -> None:
    flow = Workflow("large", state=Go)

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        for i in range(20):
            await ctx.emit({"cargo": "x" * 250_000}, key=f"k{i}")

    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed" and len(results(world)) == 20 and len(emits(world)) == 3


async def test_more_results_than_an_execution_can_repeat_are_refused(world: World) -> None:
    flow = Workflow("many", state=Go)

    @flow.node(start=True)
    async def produce(ctx: Context[Go]) -> None:
        for i in range(RESULTS_PER_VISIT_MAX + 1):
            await ctx.emit(i, key=str(i))

    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and len(results(world)) == RESULTS_PER_VISIT_MAX
