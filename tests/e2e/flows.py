"""A workflow that sends three letters over HTTP, each with its key; the workers of these tests serve it."""

import os
import time
from pathlib import Path
from typing import Literal

import httpx2
from pydantic import BaseModel

from outlast import Context, DidNotHappen, Happened, Unknown, Workflow, activity, this_call
from outlast.clocks import SystemClock

LETTERS = 3
WALL = "WALL_CLOCK_OFF"  # names a file that says by how many seconds the wall clock of a worker process is off
if WALL in os.environ:
    SystemClock.wall = lambda self: time.time_ns() // 1_000_000 + off_ms()  # type: ignore[method-assign]


def off_ms() -> int:
    """Return the error of this process's wall clock."""
    try:
        return int(Path(os.environ[WALL]).read_text()) * 1_000
    except FileNotFoundError:
        return 0


class Mail(BaseModel):
    """The letters that were sent."""

    sent: list[str] = []


letters = Workflow("letters", state=Mail, version=1)


@activity(key="letter/{n}", no_undo="a letter cannot be unsent")
async def send(n: int) -> str:
    """Post one letter to the receiver."""
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
        key = {"Idempotency-Key": this_call().idempotency_key}
        answer = await http.post(os.environ["RECEIVER"], headers=key)
    answer.raise_for_status()
    return answer.text


@send.reconcile
async def find(n: int) -> Happened[str] | DidNotHappen | Unknown:
    """Ask the receiver whether it has the letter."""
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=5) as http:
        answer = await http.get(os.environ["RECEIVER"], headers={"Idempotency-Key": this_call().idempotency_key})
    return Happened(answer.text) if answer.status_code == 200 else DidNotHappen()


@letters.node(start=True, max_visits=LETTERS)
async def write(ctx: Context[Mail]) -> Literal["write", "close"]:
    """Write one letter per visit."""
    n = len(ctx.state.sent) + 1
    ctx.state.sent.append(await ctx.do(send, n))
    return "write" if n < LETTERS else "close"


@letters.node
async def close(ctx: Context[Mail]) -> None:
    """End once all letters are sent."""


ROUNDS, NEW, AGAIN = 60, 60, 10
"""Visits of a harvest, and the rows that each one adds and replaces."""


class Field(BaseModel):
    """The rounds that were made."""

    round: int = 0


harvest = Workflow("harvest", state=Field)


@harvest.node(start=True, max_visits=ROUNDS)
async def gather(ctx: Context[Field]) -> Literal["gather"] | None:
    """Emit more rows than fit into one chunk, and replace rows of the round before."""
    n = ctx.state.round
    for i in range(n * NEW - (AGAIN if n else 0), (n + 1) * NEW):
        await ctx.emit({"round": n}, key=f"row/{i}")
    ctx.state.round += 1
    return "gather" if ctx.state.round < ROUNDS else None
