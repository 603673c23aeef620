"""A workflow for LangGraph. `python -m tests.langgraph.flows STORE LOG` serves it, and stops in its first node."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel

from outlast import Context, Workflow, activity, role
from outlast.core.durations import Liveness
from outlast.langgraph import LangGraphRuntime
from outlast.runtime.stores import open_store

LIVE: Final = Liveness(heartbeat_window=3_000, heartbeat_every=300)
log = Path(os.devnull)
stops = False


class Order(BaseModel):
    """State of the order."""

    item: str = "chair"
    booked: str = ""
    paid: str = ""


class Go(BaseModel):
    """Payload of the signal."""


def _did(what: str) -> str:
    with log.open("a") as file:
        file.write(f"{what}\n")
    return what


@activity(key="book/{item}", no_undo="a test")
async def book(item: str) -> str:
    """Book an item."""
    return _did(f"book {item}")


@activity(key="pay/{item}", no_undo="a test")
async def pay(item: str) -> str:
    """Pay an item."""
    return _did(f"pay {item}")


@activity(key="ship/{item}", no_undo="a test")
async def ship(item: str) -> str:
    """Ship an item."""
    return _did(f"ship {item}")


order = Workflow("order", state=Order)


@order.node(start=True)
async def booking(ctx: Context[Order]) -> Literal["payment"]:
    ctx.state.booked = await ctx.do(book, ctx.state.item)
    if stops:
        await asyncio.get_running_loop().create_future()
    return "payment"


@order.node
async def payment(ctx: Context[Order]) -> Literal["shipping"]:
    plan = pay.plan(ctx.state.item)
    await ctx.approval(plan, summary="Pay the chair", by=role("lead"), within="4d")
    ctx.state.paid = await ctx.do(plan)
    return "shipping"


@order.node
async def shipping(ctx: Context[Order]) -> None:
    await ctx.receive("packed", Go)
    await ctx.do(ship, ctx.state.item)


async def serve(url: str) -> None:
    """Serve until killed."""
    async with LangGraphRuntime(await open_store(url), [order], live=LIVE):
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    log, stops = Path(sys.argv[2]), True
    asyncio.run(serve(sys.argv[1]))
