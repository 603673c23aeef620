"""A workflow whose model streams its words, and asks a receiver before it ends."""

import os

import httpx2
from pydantic import BaseModel

from outlast import Context, Workflow, lookup, this_call


class Story(BaseModel):
    parts: list[str] = []


stories = Workflow("story", state=Story)


@lookup(key="model/{part}", durable=True, timeout="10s")
async def model(part: int) -> str:
    """Stream three words, and one more after the receiver has answered."""
    for word in range(3):
        this_call().stream(f"{part}.{word} ")
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
        answer = await http.post(os.environ[f"RECEIVER_{part}"], headers={"Idempotency-Key": f"{part}"})
    answer.raise_for_status()
    this_call().stream(f"{part}.end ")
    return answer.text


@stories.node(start=True)
async def write(ctx: Context[Story]) -> None:
    """Write two parts."""
    for part in (1, 2):
        ctx.stream(f"part-{part} ")
        ctx.state.parts.append(await ctx.do(model, part))
