"""Workflow that leaks its secrets everywhere, for the canaries."""

import os
from datetime import timedelta

import httpx2
from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup, role

SUPPLIER = os.environ["LEAKY_SUPPLIER"]
MODEL_KEY = os.environ["LEAKY_MODEL_KEY"]
HEADER = os.environ["LEAKY_HEADER"]
DSN = os.environ["LEAKY_DSN"]


class Login(BaseModel):
    user: str
    password: str
    note: str = ""


leaky = Workflow("leaky", state=Login)


@lookup
async def ask_model(prompt: str) -> str:
    return f"the key {MODEL_KEY} says hello to {prompt}"


@activity(key="leaky-login/{user}", no_undo="nothing is kept")
async def login(user: str, password: str, options: dict[str, str]) -> str:
    """Call a supplier that returns the request in its refusal."""
    async with httpx2.AsyncClient() as client:
        answer = await client.post(SUPPLIER, json={"user": user, **options}, headers={"Authorization": HEADER})
        answer.raise_for_status()
    return "in"


@leaky.node(start=True)
async def review(ctx: Context[Login]) -> None:
    s = ctx.state
    s.note = await ctx.do(ask_model, s.user)
    plan = login.plan(s.user, s.password, {"api_key": MODEL_KEY})
    ctx.log("login", f"logging in with {HEADER}")
    decision = await ctx.approval(plan, summary=f"Log in {s.user}", by=role("finance"), within=timedelta(hours=1))
    assert decision.approved
    try:
        await ctx.do(decision.chosen)
    except Exception as refused:  # it falls over the refusal, with all that it knows in its message
        raise RuntimeError(
            f"cannot reach {DSN} as {s.password!r}: password={s.password} {HEADER}: {refused}"
        ) from refused
