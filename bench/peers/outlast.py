"""Outlast itself: a worker in this process, over SQLite or PostgreSQL, with an effect or a lookup in each step."""

import os
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel

import outlast
from bench.peers import CONCURRENCY, FOLDER, URL, VARIANT, Job, state_of, step
from outlast import Context, Workflow, activity, lookup, resend

HOUR = timedelta(hours=1)


class State(BaseModel):
    """State of a run."""

    run: str
    steps: int
    size: int
    wait: int
    n: int = 0
    text: str = ""


class Go(BaseModel):
    """The awaited event."""


@activity(key="step/{n}", no_undo="a bench changes nothing", if_uncertain=resend(remembered_for=HOUR))
async def act(run: str, n: int) -> int:
    """Make an effect."""
    await step(run, n, "")
    return n


@lookup(key="look/{n}", durable=True)
async def look(run: str, n: int) -> int:
    """Make a lookup."""
    await step(run, n, "")
    return n


LOOKUPS, ONE_NODE = "lookups" in os.environ.get(VARIANT, ""), "one node" in os.environ.get(VARIANT, "")
flow = Workflow("flow", state=State, outcome=lambda state: state.n)


@flow.node(start=True, max_visits=10_000)
async def walk(ctx: Context[State]) -> Literal["walk", "gate"] | None:
    """Make one step, or all of them."""
    state = ctx.state
    state.text = state.text or state_of(state.size)
    for _ in range(state.steps if ONE_NODE else 1):
        await ctx.do(look if LOOKUPS else act, state.run, state.n)
        state.text = f"{state.n:08d}{state.text[8:]}"
        state.n += 1
    if state.n < state.steps:
        return "walk"
    return "gate" if state.wait else None


@flow.node
async def gate(ctx: Context[State]) -> None:
    """Wait for the event, then make one more step."""
    await ctx.receive("go", Go)
    await ctx.do(look if LOOKUPS else act, ctx.state.run, ctx.state.n)


class Outlast:
    """See the protocol."""

    async def open(self) -> None:
        self._open = AsyncExitStack()
        url = os.environ.get(URL) or f"sqlite:{os.environ[FOLDER]}/outlast.db"
        self._client: Any = await self._open.enter_async_context(outlast.connect(url))
        await self._open.enter_async_context(self._client.worker([flow], concurrency=CONCURRENCY))

    async def start(self, run: str, job: Job) -> None:
        await self._client.start(flow, State(run=run, **job), run_id=run, key=run)

    async def resume(self, run: str) -> None:
        await self._client.signal(run, "go", {})

    async def result(self, run: str) -> None:
        await self._client.get(flow, run).result()

    async def close(self) -> None:
        await self._open.aclose()


PEER = Outlast()
