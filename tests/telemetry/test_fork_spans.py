"""Spans of a fork name its ancestor, and are those of another trace."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from outlast.engine import fork_start
from outlast.engine.fork_start import ForkRequest
from outlast.telemetry import Counters, Observer
from tests.engine.world import Receiver, World, ordering, write
from tests.telemetry.test_logs import traced

pytestmark = pytest.mark.req("OBS-1", "RUN-10")
FORKED = "outlast.forked_from"


def spans_of_a_fork() -> dict[str, list[ReadableSpan]]:
    """Return the spans of a run and of its fork."""
    memory, traces, _ = traced()
    watch = Observer(Counters(), traces, None)

    async def body(world: World) -> None:
        flow = ordering(write(Receiver()), "a")
        worker = world.worker(flow).worker
        worker._executors.services = worker._claims._services = worker._services._replace(watch=watch)
        worker._services.caller._traces = traces
        await world.start(flow)
        asked = ForkRequest("r1", "only", effects="live")
        await fork_start.fork(world.store, flow, asked, tenant="t", actor="ana", run="f1")
        await world.pass_(60_000)
        assert (world.status(), world.status("f1")) == ("completed", "completed")

    world = World()
    asyncio.run(world.live(lambda: body(world)))
    found: dict[str, list[ReadableSpan]] = {"r1": [], "f1": []}
    for span in memory.get_finished_spans():
        found[str((span.attributes or {})["outlast.run"])].append(span)
    return found


def test_each_span_of_a_fork_names_its_ancestor_and_no_other_span_does() -> None:
    spans = spans_of_a_fork()
    names = ["activity.order", "workflow.checkpoint", "workflow.end", "workflow.start"]
    assert sorted(span.name for span in spans["f1"]) == sorted(span.name for span in spans["r1"]) == names
    assert [(span.attributes or {}).get(FORKED) for span in spans["f1"]] == ["r1"] * len(names)
    assert [(span.attributes or {}).get(FORKED) for span in spans["r1"]] == [None] * len(names)


def test_a_fork_is_one_trace_that_is_not_the_one_of_its_ancestor() -> None:
    traces = {
        run: {trace.format_trace_id(s.context.trace_id) for s in spans} for run, spans in spans_of_a_fork().items()
    }
    assert [len(each) for each in traces.values()] == [1, 1]
    assert traces["r1"].isdisjoint(traces["f1"])
