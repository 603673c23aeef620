"""Outlast in a process of LangGraph: a run is a thread, its waits are interrupts, and decisions go to the store."""

import asyncio
import os
import sys
from typing import Any, Literal

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import BaseModel

from outlast import Context, Workflow, activity, role
from outlast.langgraph import LangGraphRuntime
from outlast.runtime import open_store

STORE = os.environ.get("OUTLAST_STORE", "sqlite:refunds.db")


class Refund(BaseModel):
    order: str
    cents: int
    receipt: str = ""


refunds = Workflow("refunds", state=Refund, outcome=lambda state: state.receipt)


@activity(key="pay/{order}", once_per="run", no_undo="the customer keeps the money")
async def pay_back(order: str, cents: int) -> str:
    return f"receipt-{order}"  # call your bank here


@refunds.node(start=True)
async def review(ctx: Context[Refund]) -> Literal["pay"] | None:
    return "pay" if ctx.state.cents < 100_000 else None  # call your model here


@refunds.node
async def pay(ctx: Context[Refund]) -> None:
    plan = pay_back.plan(ctx.state.order, ctx.state.cents)
    decision = await ctx.approval(plan, summary=f"Refund {ctx.state.order}?", by=role("finance"), within="96h")
    if decision.approved:
        ctx.state.receipt = await ctx.do(plan)


async def main(order: str, cents: int) -> None:
    store = await open_store(STORE)
    async with AsyncSqliteSaver.from_conn_string("threads.db") as threads:  # your checkpointer
        async with LangGraphRuntime(store, [refunds], checkpointer=threads) as runtime:
            graph = runtime.graph(refunds)
            print(graph.get_graph().draw_mermaid())
            run = await runtime.start(
                workflow_name=refunds.name,
                input={"order": order, "cents": cents},
                idempotency_key=order,
                correlation_id=order,
            )

            async def interrupts() -> Any:
                return (await graph.aget_state(runtime.config(run.id))).interrupts or None

            for interrupt in await runtime.client.until(interrupts) or ():
                print(interrupt.value["why"])
                for gate in interrupt.value["waits_for"]:
                    await runtime.client.approve(gate["id"], reason="in order")  # the person, from any process
            print((await runtime.finished(run.id)).outcome)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
