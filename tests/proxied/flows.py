"""Workflows of a round. Each effect is a line in a file, so that effects are counted outside the store."""

import os
from typing import Literal

from pydantic import BaseModel

from outlast import Budget, Context, Workflow, activity, role, workflow

RECORD = "PROXIED_RECORD"


class Word(BaseModel):
    text: str


@activity(key="proxied/{mark}", once_per="run", no_undo="a line stays")
async def act(mark: str) -> str:
    """Write a line."""
    file = os.open(os.environ[RECORD], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{mark}\n".encode())
    finally:
        os.close(file)
    return mark


@workflow
async def quick(ctx: Context, mark: str) -> str:
    """Act once and end."""
    return await ctx.do(act, mark)


class Job(BaseModel):
    mark: str


talk = Workflow("talk", state=Job, budget=Budget(calls=1))


@talk.node(start=True, max_visits=10)
async def listen(ctx: Context[Job]) -> Literal["listen"] | None:
    """Act for a word, and wait for the next."""
    word = await ctx.receive("word", Word)
    await ctx.do(act, word.text)
    return None if word.text == "end" else "listen"


@workflow
async def gate(ctx: Context, mark: str) -> str:
    """Act after an approval."""
    plan = act.plan(mark)
    decision = await ctx.approval(plan, summary=f"Act {mark}?", by=role("lead"), within="4d")
    return await ctx.do(plan) if decision.approved else decision.reason


ALL = (quick, talk, gate)
