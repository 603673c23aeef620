"""A buyer asks three suppliers through child runs, takes the first good bid within 48 hours, and tells the losers.

Run it with `python examples/three_quotes.py`. Each supplier is asked by a separate run, which waits for the bid. The
buyer waits for whichever run ends first, or for a person's word. The suppliers are played by `answer`.
"""

import asyncio
import tempfile
from collections.abc import Coroutine
from typing import Any

from pydantic import BaseModel

from outlast import Context, activity, workflow
from outlast.runtime import InProcessRuntime, open_store

SUPPLIERS = ("ada", "bee", "cid")


class Bid(BaseModel):
    cents: int


class Word(BaseModel):
    """A person's choice, whatever the bids are."""

    supplier: str


@activity(key="ask/{supplier}", no_undo="a question is not taken back")
async def ask(supplier: str, item: str) -> None:
    """Send the question. Here nothing is sent: `answer` plays the suppliers."""


@activity(key="tell/{supplier}", no_undo="a message cannot be unsent")
async def tell(supplier: str, text: str) -> None:
    print(f"  to {supplier}: {text}")


@workflow
async def quote(ctx: Context, supplier: str, item: str) -> Bid | None:
    await ctx.do(ask, supplier, item)
    return await ctx.receive("bid", Bid, timeout="48h")


@workflow
async def purchase(ctx: Context, item: str, at_most: int) -> str:
    asked = {
        name: await ctx.start(quote, quote.arguments(name, item), key=name, no_undo="it only asks")
        for name in SUPPLIERS
    }
    chosen, left = "", dict(asked)
    while left and not chosen:
        waits: dict[str, Coroutine[Any, Any, Bid | Word | None]] = {name: left[name].result() for name in left}
        waits["word"] = ctx.receive("word", Word, round=len(asked) - len(left))
        name, answer = await ctx.first(waits)
        if isinstance(answer, Word):
            chosen = answer.supplier
        else:
            del left[name]
            chosen = name if answer is not None and answer.cents <= at_most else ""
    chosen = chosen or "no supplier"
    for name in asked:
        if name in left:
            await asked[name].cancel(reason=f"{chosen} was chosen")
        if name != chosen:
            await ctx.do(tell, name, f"we chose {chosen}")
    return chosen


async def answer(runtime: InProcessRuntime, run: str, bids: dict[str, int], word: str = "") -> None:
    """Answer as the suppliers and a person do, once each supplier was asked."""
    children: dict[str, str] = {}
    waiting = 0
    while waiting < len(SUPPLIERS):
        await asyncio.sleep(0.01)
        children = {effect.key: effect.external_id for effect in await runtime.operations.effects(run)}
        waiting = [(await runtime.get(child)).status for child in children.values()].count("waiting")
    print(f"  asked: {', '.join(sorted(children))}")
    for name, cents in bids.items():
        print(f"  from {name}: {cents} cents")
        await runtime.operations.signal(children[name], "bid", {"cents": cents})
        await runtime.finished(children[name])
    if word:
        print(f"  from a person: take {word}")
        await runtime.operations.signal(run, "word", {"supplier": word})


async def buy(runtime: InProcessRuntime, item: str, bids: dict[str, int], word: str = "") -> None:
    """Run one purchase to its end."""
    print(item)
    begun = await runtime.start(
        workflow_name="purchase", input={"item": item, "at_most": 1_000}, idempotency_key=item, correlation_id=item
    )
    await answer(runtime, begun.id, bids, word)
    state = await runtime.finished(begun.id)
    print(f"  {state.status}: {state.outcome}")


async def main() -> None:
    """Buy chairs from the first good bid, and a table on a person's word."""
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(f"sqlite:{folder}/purchases.db")
        async with InProcessRuntime(store, [purchase, quote]) as runtime:
            await buy(runtime, "chairs", {"bee": 1_500, "cid": 900})
            await buy(runtime, "a table", {"ada": 1_200}, word="bee")
        await store.close()


if __name__ == "__main__":
    asyncio.run(main())
