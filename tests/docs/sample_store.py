"""Store that the operators' pages use: a run for each reason for attention, created by a real worker."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from outlast import Context, Fail, Refused, Retry, RetryLater, Workflow, activity, role
from outlast.core.rows.run_rows import Run
from outlast.core.run_transition import rearmed
from outlast.flow import Perhaps
from outlast.runtime import InProcessRuntime, open_store
from outlast.runtime.stores import until
from outlast.store.port import Store

DAYS_LATER = timedelta(hours=97)
"""After the deadline of an approval and before the ceiling of a run."""


class Refund(BaseModel):
    order_id: str
    cents: int = 4_200
    how: str


class Bid(BaseModel):
    supplier: str
    cents: int


refunds = Workflow("refund", state=Refund, version=2)
purchases = Workflow("purchase", state=Refund, ceiling=timedelta(hours=1))


@activity(key="refund/{order_id}", once_per="run", retry=Retry(attempts=1), provider="erp")
async def issue_refund(order_id: str, cents: int) -> str:
    if order_id.startswith("doubt"):
        raise Perhaps("the bank hung up")
    if order_id.startswith("busy"):
        raise RetryLater("the bank is down")
    return f"R-{order_id}"


@issue_refund.undo
async def reverse(done: str, order_id: str, cents: int) -> None:
    raise Refused("closed", "the account is closed")


@refunds.node(start=True)
async def check(ctx: Context[Refund]) -> Literal["pay"]:
    s = ctx.state
    if s.how == "raises":
        raise ValueError("the bank's answer has no number")
    if s.how == "waits":
        await ctx.receive("bid", Bid)
    if s.how == "asks":
        plan, lead = issue_refund.plan(s.order_id, s.cents), role("finance")
        await ctx.approval(
            plan, summary="Refund it?", by=lead, within=timedelta(hours=96), again=True, editable=("cents",)
        )
    return "pay"


@refunds.node
async def pay(ctx: Context[Refund]) -> None:
    await ctx.do(issue_refund, ctx.state.order_id, ctx.state.cents)
    if ctx.state.how == "undoes":
        raise Fail("it was called off")


@purchases.node(start=True)
async def buy(ctx: Context[Refund]) -> None:
    if ctx.state.how == "waits":
        await ctx.receive("bid", Bid)


FIRST = {"late-1": "asks", "late-2": "asks"}
THEN = {
    **dict.fromkeys(("raises-1", "raises-2", "raises-3"), "raises"),
    **dict.fromkeys(("asks-1", "asks-2", "asks-3"), "asks"),
    **dict.fromkeys(("undo-1", "undo-2"), "undoes"),
    **dict.fromkeys(("waits-1", "waits-2"), "waits"),
    **dict.fromkeys(("doubt-1", "busy-1", "busy-2"), ""),
}


async def _make(folder: Path) -> dict[str, str]:
    store = await open_store(f"sqlite:{folder / 'outlast.db'}")
    try:
        async with InProcessRuntime(store, [refunds, purchases]) as runtime:
            ops = runtime.operations

            async def begin(workflow: str, runs: dict[str, str]) -> None:
                for run, how in runs.items():
                    await ops.start_run(workflow, {"order_id": run, "how": how}, run_id=run)
                for run in runs:

                    async def settled(run: str = run) -> Run | None:
                        row = await ops.rows.run(run)
                        return row if row.attention or row.ended_at or (not row.owner and row.waiting_for) else None

                    await until(store, settled)

            await begin("refund", FIRST)
            await begin("purchase", {"long-1": "waits", "long-2": "waits"})
            await _skip(store, DAYS_LATER)
            for run in ("late-1", "late-2", "long-1", "long-2"):

                async def flagged(run: str = run) -> Run | None:
                    row = await ops.rows.run(run)
                    return row if row.attention else None

                await until(store, flagged)
            await begin("refund", THEN)
            await begin("purchase", {"order-7": ""})
            await ops.pause("provider", "erp", reason="they move house")
            return {approval.run: approval.id for approval in (await ops.rows.approvals())[0]}
    finally:
        await store.close()


async def _skip(store: Store, by: timedelta) -> None:
    now, mapping = await store.now(), store.mapping()
    ahead = now.business + int(by.total_seconds() * 1_000)
    await store.set_mapping(mapping._replace(base_real=now.real, base_business=ahead), rearmed)


def make(folder: Path) -> dict[str, str]:
    """Create the store as `outlast.db` in this folder; return the approval of each run."""
    return asyncio.run(_make(folder))
