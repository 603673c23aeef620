"""Version 2: the waiting node has another name, the state another field, and a migration leads there."""

import os
from typing import Any, Literal

import httpx2
from pydantic import BaseModel

from outlast import Context, Workflow, activity, this_call


class Mail(BaseModel):
    """State: the letters that were sent, and the team."""

    sent: list[str] = []
    team: str


class Go(BaseModel):
    """Payload of the signal `go`."""


letters = Workflow("letters", state=Mail, version=2)


@letters.migrate(from_=1, renamed={"write": "post"})
def with_team(old: dict[str, Any]) -> dict[str, Any]:
    """Assign runs of version 1 to the blue team."""
    return {**old, "team": "blue"}


@activity(key="letter/{n}", name="send", no_undo="a letter cannot be unsent")
async def send_letter(n: int) -> str:
    """Post one letter to the receiver."""
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
        key = {"Idempotency-Key": this_call().idempotency_key}
        answer = await http.post(os.environ["RECEIVER"], headers=key)
    answer.raise_for_status()
    return answer.text


@letters.node(start=True)
async def post(ctx: Context[Mail]) -> Literal["close"]:
    """Send one letter, then wait for the signal."""
    ctx.state.sent.append(await ctx.do(send_letter, 1))
    await ctx.receive("go", Go)
    return "close"


@letters.node
async def close(ctx: Context[Mail]) -> None:
    """End the run; every letter is sent."""
