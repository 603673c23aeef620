"""A letter for each policy on uncertain effects, sent on a signal; the workers of the restore test serve it."""

import os
from datetime import timedelta
from typing import Literal

import httpx2
from pydantic import BaseModel

from outlast import Context, DidNotHappen, Happened, Unknown, Workflow, activity, resend, this_call


class Mail(BaseModel):
    """The policy for uncertain effects, and the receiver's answer."""

    mode: Literal["ask", "reconcile", "repeat"]
    answer: str = ""


class Word(BaseModel):
    """Signal that starts the sending of a letter."""


letters = Workflow("restored", state=Mail)


async def _http(method: str) -> httpx2.Response:
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as http:
        key = {"Idempotency-Key": this_call().idempotency_key}
        return await http.request(method, os.environ["RECEIVER"], headers=key)


async def _post() -> str:
    answer = await _http("POST")
    answer.raise_for_status()
    return answer.text


@activity(key="ask", if_uncertain="ask_person", no_undo="a letter cannot be unsent")
async def by_asking() -> str:
    """Leave an uncertain effect to an operator."""
    return await _post()


@activity(key="reconcile", no_undo="a letter cannot be unsent")
async def by_looking() -> str:
    """Reconcile by asking the receiver."""
    return await _post()


@by_looking.reconcile
async def look() -> Happened[str] | DidNotHappen | Unknown:
    """Ask the receiver whether it has the letter."""
    answer = await _http("GET")
    return Happened(answer.text) if answer.status_code == 200 else DidNotHappen()


@activity(key="repeat", if_uncertain=resend(remembered_for=timedelta(days=1)), no_undo="a letter cannot be unsent")
async def by_resending() -> str:
    """Resend an uncertain effect: the receiver remembers the key for a day."""
    return await _post()


@letters.node(start=True)
async def send(ctx: Context[Mail]) -> None:
    """Send the letter after the signal."""
    await ctx.receive("word", Word)
    if ctx.state.mode == "ask":
        ctx.state.answer = await ctx.do(by_asking)
    elif ctx.state.mode == "reconcile":
        ctx.state.answer = await ctx.do(by_looking)
    else:
        ctx.state.answer = await ctx.do(by_resending)
