"""The code of one workflow as text, edits of it, and modules made of it: two versions in one process."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from outlast.flow.registry import ACTIVITIES

BASE = """
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, Field

from outlast import Cancel, Context, RetryLater, Workflow, activity, role, this_call
from outlast.flow import Perhaps

WORLD: list[str] = []


class Order(BaseModel):
    order_id: str
    cents: int = 4200
    notes: list[str] = []
    receipt: str = ""


class Go(BaseModel):
    word: str = ""


orders = Workflow("order", state=Order, version=1)


@activity(key="reserve/{order_id}")
async def reserve(order_id: str, cents: int) -> str:
    if order_id.startswith("busy"):
        raise RetryLater(after=timedelta(seconds=50))
    if order_id.startswith("lost"):
        raise Perhaps("the line went dead")
    WORLD.append(this_call().idempotency_key)
    return f"R-{order_id}"


@reserve.undo
async def free(done: str, order_id: str, cents: int) -> None:
    WORLD.append(f"free {order_id}")


@activity(key="pay/{order_id}", no_undo="money is gone")
async def pay(order_id: str, cents: int) -> str:
    WORLD.append(this_call().idempotency_key)
    return f"P-{order_id}"


@orders.node(start=True)
async def draft(ctx: Context[Order]) -> Literal["plan"]:
    ctx.state.notes.append("drafted")
    return "plan"


@orders.node
async def plan(ctx: Context[Order]) -> Literal["review"]:
    await ctx.do(reserve, ctx.state.order_id, ctx.state.cents)
    await ctx.receive("go", Go)
    return "review"


@orders.node
async def review(ctx: Context[Order]) -> Literal["settle"]:
    decision = await ctx.approval(
        pay.plan(ctx.state.order_id, ctx.state.cents), summary="pay", by=role("boss"), within=timedelta(hours=96)
    )
    if not decision.approved:
        raise Cancel("no")
    return "settle"


@orders.node
async def settle(ctx: Context[Order]) -> None:
    ctx.state.receipt = await ctx.do(pay, ctx.state.order_id, ctx.state.cents)
    await ctx.sleep(timedelta(hours=1), name="cool")
"""


class Edit(NamedTuple):
    """One edit of the code, and the runs (by position) that would not continue after it."""

    name: str
    change: Callable[[str], str]
    breaks: frozenset[str] = frozenset()
    kind: str = ""


def swap(*pairs: tuple[str, str]) -> Callable[[str], str]:
    """Return an edit that replaces these texts, which must be present."""

    def change(text: str) -> str:
        for old, new in pairs:
            assert old in text, old
            text = text.replace(old, new)
        return text

    return change


def load(folder: Path, name: str, text: str) -> ModuleType:
    """Load this text as a module of a process that has loaded nothing else."""
    ACTIVITIES._by_name.clear()
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
