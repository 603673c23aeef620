"""GenAI attributes of spans, as an OTLP collector receives them, and counters of tokens."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.trace_collector import Collector, Span
from outlast.agent import ModelAnswer, ToolCall
from outlast.core.usage import Used
from outlast.flow import Context, lookup, this_call
from outlast.runtime.metrics_text import exposition
from outlast.telemetry.metrics import MODEL_TOKENS
from outlast.telemetry.traces import model_attributes
from outlast.testing import ModelServer
from tests import forked
from tests.e2e.helpers import GIVE_UP_S, ROOT, when
from tests.engine.world import MINUTE, State, World, one_node
from tests.telemetry.test_metrics import samples, watched

ANSWERS = [
    ModelAnswer(
        calls=(ToolCall(id="call_7", tool="note", arguments={"text": "milk"}),), input_tokens=100, output_tokens=10
    ),
    ModelAnswer(text="done", input_tokens=120, output_tokens=5),
]


@pytest.fixture
def collector() -> Iterator[Collector]:
    opened = Collector()
    yield opened
    opened.close()


def attributes(span: Span) -> dict[str, Any]:
    return {name: value for name, value in span.about.items() if name.startswith("gen_ai.")}


@pytest.mark.req("OBS-1")
@pytest.mark.parametrize("opted_in", [False, True])
def test_spans_of_an_agent_have_the_attributes_of_the_conventions(
    opted_in: bool, tmp_path: Path, collector: Collector
) -> None:
    with ModelServer(ANSWERS) as server:
        env = {
            **os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OUTLAST_MODEL_URL": server.url,
            "OUTLAST_STORE": f"sqlite:{tmp_path / 'outlast.db'}", "PYTHONPATH": f"{ROOT}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental" if opted_in else "",
        }  # fmt: skip
        told = {"cwd": ROOT, "env": env, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started = forked.run(
            "outlast", "run", "tests.telemetry.agents:helper", "objective=note it", timeout=GIVE_UP_S, **told
        )
        assert started.returncode == 0, started.stdout
        worker = forked.Popen(["outlast", "worker", "tests.telemetry.agents"], **told)
        try:
            when(lambda: server.paid == 2)
            when(lambda: any(span.name == "workflow.end" for span in collector.spans))
        finally:
            worker.terminate()
            worker.communicate(timeout=GIVE_UP_S)
    spans = sorted(collector.spans, key=lambda span: span.began)
    chats = [attributes(span) for span in spans if span.about.get("gen_ai.operation.name") == "chat"]
    asked = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5",
        "gen_ai.response.model": "gpt-5",
    }  # fmt: skip
    assert chats == [
        {**asked, "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 10},
        {**asked, "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 5},
    ]
    (tool,) = [attributes(span) for span in spans if span.name == "activity.note"]
    assert tool == {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "note", "gen_ai.tool.call.id": "call_7",
    }  # fmt: skip
    (start,) = [attributes(span) for span in spans if span.name == "workflow.start"]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    assert start == (agent if opted_in else {})
    assert not any("gen_ai.workflow.name" in span.about for span in spans)


def used(model: str = "", input_tokens: int = 0, output_tokens: int = 0) -> Used:
    return Used(1, model, input_tokens + output_tokens, input_tokens, output_tokens, 0, 1)


@pytest.mark.parametrize(
    ("asked", "reports", "expected"),
    [
        ("", [], {}),
        ("gpt-5", [], {"request.model": "gpt-5"}),
        ("google-gla:gemini-3", [], {"request.model": "gemini-3", "provider.name": "gcp.gemini"}),
        ("ours:m:1", [used("m-2", 3)], {
            "request.model": "m:1", "provider.name": "ours", "response.model": "m-2", "usage.input_tokens": 3,
        }),
        ("", [used("m", 3, 4), used("", 1, 1)], {
            "response.model": "m", "usage.input_tokens": 4, "usage.output_tokens": 5,
        }),
    ],
)  # fmt: skip
def test_attributes_of_a_call_come_from_its_reports(asked: str, reports: list[Used], expected: dict[str, Any]) -> None:
    assert model_attributes(asked, reports) == {f"gen_ai.{name}": value for name, value in expected.items()}


@pytest.mark.req("OBS-1")
def test_tokens_are_counted_once_by_model_and_direction() -> None:
    @lookup(durable=True)
    async def model(n: int) -> str:
        this_call().used(model="m-1", input_tokens=100, output_tokens=10)
        this_call().used(model="m-2", tokens=7)
        return "x"

    async def body(ctx: Context[State]) -> None:
        await ctx.do(model, 1)
        await ctx.sleep("10s")

    async def test(world: World) -> None:
        flow = one_node(body)
        process = watched(world, flow, "wk-1")
        await world.start(flow)
        await world.pass_(MINUTE)
        assert world.status() == "completed", "the node was executed twice"
        found = samples(exposition([process.worker.counters], {}))
        counted = {labels: n for (name, labels), n in found.items() if name == f"outlast_{MODEL_TOKENS}"}
        assert counted == {
            (("direction", "input"), ("model", "m-1")): 100,
            (("direction", "output"), ("model", "m-1")): 10,
            (("direction", "unknown"), ("model", "m-2")): 7,
        }

    world = World()
    asyncio.run(world.live(lambda: test(world)))
