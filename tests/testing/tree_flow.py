"""A buyer whose children each ask a supplier: one is refused, one asks a person, and one loses and is cancelled."""

import httpx2

from outlast import ChildFailed, Context, DidNotHappen, Happened, Unknown, activity, role, this_call, workflow
from outlast.testing import FakeReceivers

shop = FakeReceivers(env="TREE_SHOP_URL")


async def post(path: str) -> str:
    async with httpx2.AsyncClient(base_url=shop.url, timeout=5) as http:
        answer = await http.post(path, json={}, headers={"Idempotency-Key": this_call().idempotency_key})
        return str(answer.raise_for_status().json()["id"])


async def find(path: str) -> Happened[str] | DidNotHappen | Unknown:
    async with httpx2.AsyncClient(base_url=shop.url, timeout=5) as http:
        answer = await http.get(path, headers={"Idempotency-Key": this_call().idempotency_key})
        return Happened(answer.json()["id"]) if answer.status_code == 200 else DidNotHappen()


@activity(key="hold/{supplier}")
async def hold(supplier: str) -> str:
    """Put a chair aside."""
    return await post("/holds")


@hold.reconcile
async def find_hold(supplier: str) -> Happened[str] | DidNotHappen | Unknown:
    return await find("/holds")


async def find_freed(done: str, supplier: str) -> Happened[str] | DidNotHappen | Unknown:
    return await find("/frees")


@hold.undo(reconcile=find_freed)
async def free(done: str, supplier: str) -> str:
    return await post("/frees")


@activity(key="buy/{supplier}", no_undo="bought is bought")
async def buy(supplier: str) -> str:
    return await post("/buys")


@buy.reconcile
async def find_bought(supplier: str) -> Happened[str] | DidNotHappen | Unknown:
    return await find("/buys")


@workflow(name="tree-quote")
async def quote(ctx: Context, supplier: str) -> str:
    held = await ctx.do(hold, supplier)
    if supplier == "cid":
        await ctx.sleep("30d")
    decision = await ctx.approval(buy.plan(supplier), summary=f"Buy from {supplier}", by=role("lead"), within="1d")
    return await ctx.do(buy, supplier) if decision.approved else held


@workflow(name="tree-refused")
async def refused(ctx: Context, supplier: str) -> None:
    await ctx.do(hold, supplier)
    raise RuntimeError(f"{supplier} has closed")


@workflow(name="tree-purchase", when_empty="complete")
async def purchase(ctx: Context) -> dict[str, str]:
    slow = await ctx.start(quote, quote.arguments("cid"), key="cid", no_undo="it undoes its own")
    kinds = {"ada": quote, "bee": refused}
    said: dict[str, str] = {}
    for name, kind in kinds.items():
        try:
            await ctx.run(kind, kind.arguments(name), key=name, no_undo="it undoes its own")
            said[name] = "bought"
        except ChildFailed as failed:
            said[name] = failed.code
    await slow.cancel(reason="two are enough")
    return said
