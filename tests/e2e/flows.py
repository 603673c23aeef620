"""A run of three letters, each sent over HTTP under its key: what the workers of these tests serve."""

import os
from typing import Literal

import httpx
from pydantic import BaseModel

from outlast import CannotTell, Context, Found, NotFound, NoUndo, Workflow, activity, this_call

LETTERS = 3


class Mail(BaseModel):
    """Which letters are out."""

    sent: list[str] = []


letters = Workflow("letters", state=Mail, version=1)


@activity(key="letter/{n}", undo=NoUndo("a letter cannot be unsent"))
async def send(n: int) -> str:
    """Post one letter."""
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
        key = {"Idempotency-Key": this_call().idempotency_key}
        answer = await http.post(os.environ["RECEIVER"], headers=key)
    answer.raise_for_status()
    return answer.text


@send.reconcile
async def find(n: int) -> Found[str] | NotFound | CannotTell:
    """Whether the receiver has it."""
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=5) as http:
        answer = await http.get(os.environ["RECEIVER"], headers={"Idempotency-Key": this_call().idempotency_key})
    return Found(answer.text) if answer.status_code == 200 else NotFound()


@letters.node(start=True, max_visits=LETTERS)
async def write(ctx: Context[Mail]) -> Literal["write", "close"]:
    """One letter a visit."""
    n = len(ctx.state.sent) + 1
    ctx.state.sent.append(await ctx.do(send, n))
    return "write" if n < LETTERS else "close"


@letters.node
async def close(ctx: Context[Mail]) -> None:
    """All are out."""
