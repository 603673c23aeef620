"""Spans of pydantic-ai: work that a re-run takes from the ledger is not exported again."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from outlast import Context
from outlast.pydantic_ai import OutlastDurability
from outlast.testing import AppFactory
from tests.pydantic_ai.scripted import Case, Script, call, flow_of
from tests.pydantic_ai.test_runs import LEAD


def test_a_rerun_exports_only_what_is_new(outlast_app: AppFactory) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tools = FunctionToolset[None](id="bank")

    @tools.tool_plain
    async def read(what: str) -> str:
        return what

    @tools.tool_plain(requires_approval=True)
    async def refund(cents: int) -> str:
        return f"refunded {cents}"

    agent = Agent(
        FunctionModel(Script([call("read", "c1", what="x")], [call("refund", "c2", cents=5)])),
        name="traced",
        toolsets=[tools],
        capabilities=[OutlastDurability(), LEAD, Instrumentation(InstrumentationSettings(tracer_provider=provider))],
    )

    async def body(ctx: Context[Case]) -> None:
        ctx.state.answer = (await agent.run(ctx.state.question)).output
        await ctx.sleep("1h")

    flow = flow_of("agent-traced", body, [agent])
    app = outlast_app(flow)
    run = app.start(flow, {})
    before = sorted(span.name for span in exporter.get_finished_spans())
    assert [name for name in before if name.startswith("chat")] == ["chat function:Script:"] * 2
    exporter.clear()
    run.approve()
    names = sorted(span.name for span in exporter.get_finished_spans())
    assert names == ["chat function:Script:", "execute_tool refund", "invoke_agent traced"]
    exporter.clear()
    app.clock.skip("1h")
    assert run.status == "completed"
    assert [span.name for span in exporter.get_finished_spans()] == [], "all of it came from the ledger"
