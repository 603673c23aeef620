"""A purchase served by a worker process that writes its spans to a file. `die` makes the process kill itself."""

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Literal

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup, resend, role

HERE = Path(os.environ["SPANS"])


class ToFile(SpanExporter):
    """Exporter that writes one JSON document per line before the call returns, so spans survive a kill."""

    def export(self, spans: "list[ReadableSpan]") -> SpanExportResult:  # type: ignore[override]
        with (HERE / "spans.jsonl").open("a") as file:
            for span in spans:
                file.write(span.to_json(indent=None) + "\n")
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)


class Purchase(BaseModel):
    item: str
    quote: int = 0
    order: str = ""


purchases = Workflow("purchase", state=Purchase)


@lookup(key="quote/{item}", durable=True)
async def ask_model(item: str) -> int:
    return 42


@activity(key="reserve/{item}", if_uncertain=resend(remembered_for=timedelta(hours=24)), no_undo="it lapses")
async def reserve(item: str) -> str:
    flag = HERE / "die"
    if flag.exists():
        flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"reserved {item}"


@activity(key="order/{item}", if_uncertain="ask_person", no_undo="orders are final")
async def place_order(item: str) -> str:
    return f"ordered {item}"


@purchases.node(start=True)
async def prepare(ctx: Context[Purchase]) -> Literal["award"]:
    ctx.state.quote = await ctx.do(ask_model, ctx.state.item)
    await ctx.do(reserve, ctx.state.item)
    return "award"


@purchases.node
async def award(ctx: Context[Purchase]) -> None:
    plan = place_order.plan(ctx.state.item)
    decision = await ctx.approval(plan, summary="Order it", by=role("boss"), within=timedelta(hours=96))
    if decision.chosen is not None:
        ctx.state.order = await ctx.do(decision.chosen)
