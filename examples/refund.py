"""A refund above a limit needs two people of finance. One process starts the runs, executes them and decides.

Run it with `python examples/refund.py`. The store is a file in a temporary folder and the worker runs in this process.
In production, start `outlast worker examples/refund.py`; people decide through the CLI, the HTTP API or a program.
"""

import asyncio
import tempfile

import outlast
from outlast import Cancel, Context, activity, role, this_call, workflow
from outlast.errors import RunCancelled
from outlast.models.approvals import ApprovalSummary
from outlast.runtime import Actor

LIMIT_CENTS = 10_000


@activity(key="refund/{order}", once_per="run", no_undo="the customer keeps the money")
async def issue_refund(order: str, cents: int) -> str:
    print(f"  the bank is called: {cents} cents, Idempotency-Key {this_call().idempotency_key}")
    return f"receipt-{order}"


@workflow(key="refund/{order}")
async def refund(ctx: Context, order: str, cents: int) -> str:
    """Call the bank. Above the limit, two different people must have approved exactly this call."""
    plan = issue_refund.plan(order, cents)
    if cents > LIMIT_CENTS:
        decision = await ctx.approval(
            plan, summary=f"Refund {cents} cents for {order}", by=role("finance"), within="96h", quorum=2
        )
        if not decision.approved:
            raise Cancel(f"{decision.by}: {decision.reason}")
        ctx.log("approved", f"approved by {' and '.join(decision.approvers)}")
    return await ctx.do(plan)


async def decide(store: str, person: str, approve: bool) -> None:
    """Answer the next approval that waits for this person of finance."""
    async with outlast.connect(store, actor=Actor(person, {"finance"})) as client:

        async def asked() -> ApprovalSummary | None:
            return next(iter((await client.approvals(status="pending", mine=True)).approvals), None)

        approval = await client.until(asked)
        assert approval is not None
        print(f"  {person} is asked: {approval.asks}")
        if approve:
            await client.approve(approval.approval, reason="in order")
        else:
            await client.reject(approval.approval, reason="no invoice")


async def order(client: outlast.Client, store: str, order: str, cents: int, **people: bool) -> None:
    """Start a refund, let people decide, and wait for its end."""
    print(f"{order}, {cents} cents")
    run = await client.start(refund, order, cents)
    again = await client.start(refund, order, cents)
    assert (again.id, again.created) == (run.id, False), "the same order is the same run"
    for person, approve in people.items():
        await decide(store, person, approve)
    try:
        print(f"  completed: {await run.result('1m')}")
    except RunCancelled as error:
        print(f"  cancelled: {error.reason}")


async def main() -> None:
    """Run three refunds: one below the limit, one approved by two people, one rejected by the second."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:{folder}/refunds.db"
        async with outlast.connect(store, actor="shop") as client, client.worker([refund]):
            await order(client, store, "A-1", 900)
            await order(client, store, "A-2", 42_000, ana=True, bob=True)
            await order(client, store, "A-3", 99_000, ana=True, bob=False)


if __name__ == "__main__":
    asyncio.run(main())
