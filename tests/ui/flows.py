"""Workflows for the tests of pages: an award with alternatives, two approvers and texts of strangers."""

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from outlast import Context, Workflow, activity, role


class Award(BaseModel):
    text: str
    said: str = ""


awards = Workflow("award", state=Award)


@activity(key="ui-award/{zero}", once_per="run", no_undo="it is signed")
async def sign(deep: list[dict[str, Any]], text: str, zero: int) -> str:
    return f"signed-{zero}"


@awards.node(start=True)
async def choose(ctx: Context[Award]) -> None:
    deep = [{"a": 1}, {"b": {"c": None, "d": [], "empty": ""}}]
    plans = [sign.plan(deep, ctx.state.text, n) for n in (0, 1)]
    decision = await ctx.approval(
        plans[0], summary=f"Award to {ctx.state.text[:150]}", by=role("finance"), within=timedelta(hours=96), quorum=2,
        alternatives=plans[1:], risk="high",
    )  # fmt: skip
    ctx.state.said = await ctx.do(decision.chosen) if decision.approved else "no"
