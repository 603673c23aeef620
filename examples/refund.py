"""A refund above a limit needs an approval. One process starts the runs, executes them and decides.

Run it with `python examples/refund.py`. The store is a file in a temporary folder and the worker runs in this process.
In production, start `outlast worker examples/refund.py` and decide through the CLI, the web page or the HTTP API.
"""

import asyncio
import tempfile
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel

from outlast import Cancel, Context, Workflow, activity, role, this_call
from outlast.runtime import InProcessRuntime, Operations, open_store

LIMIT_CENTS = 10_000


class Refund(BaseModel):
    order_id: str
    cents: int
    receipt: str = ""


refunds = Workflow("refund", state=Refund, outcome=lambda state: state.receipt)


@activity(key="refund/{order_id}", once_per="run", no_undo="the customer keeps the money")
async def issue_refund(order_id: str, cents: int) -> str:
    print(f"  the bank is called: {cents} cents, Idempotency-Key {this_call().idempotency_key}")
    return f"receipt-{order_id}"


@refunds.node(start=True)
async def review(ctx: Context[Refund]) -> Literal["pay"]:
    s = ctx.state
    if s.cents > LIMIT_CENTS:
        decision = await ctx.approval(
            issue_refund.plan(s.order_id, s.cents),
            summary=f"Refund {s.cents} cents for {s.order_id}",
            by=role("finance"),
            within=timedelta(hours=96),
        )
        if not decision.approved:
            raise Cancel(f"{decision.by}: {decision.reason}")
    return "pay"


@refunds.node
async def pay(ctx: Context[Refund]) -> None:
    ctx.state.receipt = await ctx.do(issue_refund, ctx.state.order_id, ctx.state.cents)


async def asked(operations: Operations) -> str:
    """Wait for a pending approval and return its id."""
    while True:
        rows, _ = await operations.rows.approvals(status="pending")
        if rows:
            print(f"  a person is asked: {rows[0].summary}")
            return rows[0].id
        await asyncio.sleep(0.01)


async def refund(runtime: InProcessRuntime, order_id: str, cents: int, answer: str = "") -> None:
    """Start a refund and wait for its end. `answer` is the approver's decision, "yes" or "no", if one is needed."""
    print(f"{order_id}, {cents} cents")
    given = {"order_id": order_id, "cents": cents}
    run = await runtime.start(workflow_name="refund", input=given, idempotency_key=order_id, correlation_id=order_id)
    again = await runtime.start(workflow_name="refund", input=given, idempotency_key=order_id, correlation_id=order_id)
    assert (again.workflow_id, again.created) == (run.workflow_id, False), "the same key is the same run"
    if answer:
        decide = runtime.operations.approve if answer == "yes" else runtime.operations.reject
        await decide(await asked(runtime.operations), reason=f"finance says {answer}")
    done = await runtime.finished(run.workflow_id)
    print(f"  {done.status}: {done.outcome or done.reason}")


async def main() -> None:
    """Run three refunds: one below the limit, one approved, one rejected."""
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(f"sqlite:{folder}/refunds.db")
        async with InProcessRuntime(store, [refunds]) as runtime:
            await refund(runtime, "A-1", 900)
            await refund(runtime, "A-2", 42_000, "yes")
            await refund(runtime, "A-3", 99_000, "no")
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())
