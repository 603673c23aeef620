"""Workflow that sends a letter and waits for a signal: version 1."""

import os
from typing import Literal

import httpx2
from pydantic import BaseModel

from outlast import Context, Workflow, activity, this_call


class Mail(BaseModel):
    """State: the letters that were sent."""

    sent: list[str] = []


class Go(BaseModel):
    """Payload of the signal `go`."""


letters = Workflow("letters", state=Mail, version=1)


@activity(key="letter/{n}", no_undo="a letter cannot be unsent")
async def send(n: int) -> str:
    """Post one letter to the receiver."""
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
        key = {"Idempotency-Key": this_call().idempotency_key}
        answer = await http.post(os.environ["RECEIVER"], headers=key)
    answer.raise_for_status()
    return answer.text


@letters.node(start=True)
async def write(ctx: Context[Mail]) -> Literal["close"]:
    """Send one letter, then wait for the signal."""
    ctx.state.sent.append(await ctx.do(send, 1))
    await ctx.receive("go", Go)
    return "close"


@letters.node
async def close(ctx: Context[Mail]) -> None:
    """End the run; every letter is sent."""
