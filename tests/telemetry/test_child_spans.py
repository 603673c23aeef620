"""Spans of a tree of runs are one trace, also if another worker goes on and a person decides in a child."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from outlast import Context, workflow
from outlast.telemetry import Counters, Observer
from tests.engine.world import MINUTE, Go, Receiver, World, write
from tests.telemetry.test_logs import traced

pytestmark = pytest.mark.req("OBS-1", "RUN-13")


def spans_of_a_tree() -> dict[str, list[ReadableSpan]]:
    """Return the spans of each run of a tree of depth 2, whose first worker dies while all runs wait."""
    memory, traces, _ = traced()
    watch = Observer(Counters(), traces, None)
    order = write(Receiver())

    @workflow(name="traced-leaf")
    async def leaf(ctx: Context) -> str:
        found: str = await ctx.do(order, "leaf")
        await ctx.receive("go", Go)
        return found

    @workflow(name="traced-middle")
    async def middle(ctx: Context) -> str:
        return await ctx.run(leaf, leaf.arguments(), key="leaf", no_undo="a test undoes nothing")

    @workflow(name="traced-root")
    async def root(ctx: Context) -> str:
        return await ctx.run(middle, middle.arguments(), key="middle", no_undo="a test undoes nothing")

    async def body(world: World) -> None:
        def serve() -> None:
            worker = world.worker(root, middle, leaf).worker
            worker._executors.services = worker._claims._services = worker._services._replace(watch=watch)
            worker._services.caller._traces = traces

        serve()
        await world.start(root)
        await world.pass_(MINUTE)
        world.processes[0].kill()
        serve()
        (child,) = (effect.external_id for effect in world.effects())
        (grandchild,) = (effect.external_id for effect in world.effects(child))
        await world.signal("go", grandchild)
        await world.pass_(2 * MINUTE)
        assert world.status() == "completed"

    world = World()
    asyncio.run(world.live(lambda: body(world)))
    found: dict[str, list[ReadableSpan]] = {}
    for span in memory.get_finished_spans():
        found.setdefault(str((span.attributes or {})["outlast.run"]), []).append(span)
    return found


def test_all_runs_of_a_tree_are_one_trace() -> None:
    spans = spans_of_a_tree()
    assert len(spans) == 3
    assert "activity.order" in {span.name for each in spans.values() for span in each}
    assert all("workflow.end" in {span.name for span in each} for each in spans.values())
    traces = {trace.format_trace_id(span.context.trace_id) for each in spans.values() for span in each}
    assert len(traces) == 1
    every = [span for each in spans.values() for span in each]
    ids = {span.context.span_id for span in every}
    (first,) = (span for span in every if span.parent is None)
    assert (first.name, (first.attributes or {})["outlast.run"]) == ("workflow.start", "r1")
    assert all(span.parent.span_id in ids for span in every if span.parent is not None)
