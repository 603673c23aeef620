"""The workflow of a round: effects of every mode, an approval, signals, a sleep, and undo."""

import asyncio
import os
from datetime import timedelta
from functools import cache
from typing import Literal
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel

from outlast import (
    Context,
    DidNotHappen,
    Fail,
    Happened,
    Retry,
    Unknown,
    Workflow,
    activity,
    resend,
    role,
    this_call,
)
from outlast.http import AsyncClient

WORLD = "CHAOS_WORLD"
STAYS = "an e-mail cannot be unsent"
PATIENT = Retry(attempts=8, total_wait=timedelta(minutes=5))


class Job(BaseModel):
    """One job. Its number is part of every path that it calls."""

    n: int
    said: list[str] = []


class Word(BaseModel):
    """The payload of a signal."""

    text: str


@cache
def _world() -> AsyncClient:
    """Return the process's HTTP client. A new one costs 20 ms of CPU, more than all other work of a step."""
    return AsyncClient(base_url=os.environ[WORLD], trust_env=False, limits=httpx2.Limits(), timeout=None)


async def _post(path: str) -> str:
    return (await _world().post(path)).text


async def _find(path: str) -> Happened[str] | DidNotHappen | Unknown:
    answer = await _world().get(path)
    if answer.status_code == 200:
        return Happened(answer.text)
    return DidNotHappen() if answer.status_code == 404 else Unknown(f"it answered {answer.status_code}")


# --- the three modes, without undo -----------------------------------------------------------------
@activity(key="repeat/{n}", if_uncertain=resend(remembered_for=timedelta(hours=24)), no_undo=STAYS, retry=PATIENT)
async def repeated(n: int) -> str:
    """Call a receiver that remembers keys."""
    return await _post(f"/repeat/{n}")


@activity(key="reconcile/{n}", no_undo=STAYS, retry=PATIENT)
async def reconciled(n: int) -> str:
    """Call a receiver that executes every request and can be asked."""
    return await _post(f"/reconcile/{n}")


@reconciled.reconcile
async def was_reconciled(n: int) -> Happened[str] | DidNotHappen | Unknown:
    """Ask the receiver about the call."""
    return await _find(f"/reconcile/{n}")


@activity(key="ask/{n}", if_uncertain="ask_person", no_undo=STAYS, retry=PATIENT)
async def asked(n: int) -> str:
    """Call a receiver that executes every request and cannot be asked."""
    return await _post(f"/ask/{n}")


# --- with undo -----------------------------------------------------------------------------------------
@activity(key="room/{n}", once_per="run", retry=PATIENT)
async def book(n: int) -> str:
    """Book a room that may be released."""
    return await _post(f"/book/{n}")


@book.reconcile
async def was_booked(n: int) -> Happened[str] | DidNotHappen | Unknown:
    """Ask if the room is booked."""
    return await _find(f"/book/{n}")


async def was_released(done: str, n: int) -> Happened[None] | DidNotHappen | Unknown:
    """Ask if the room is released."""
    found = await _find(f"/release/{n}")
    return Happened(None) if isinstance(found, Happened) else found


@book.undo(reconcile=was_released, retry=PATIENT)
async def release(done: str, n: int) -> None:
    """Release the room of this job."""
    await _post(f"/release/{n}")


# --- workflows -------------------------------------------------------------------------------------------
errand = Workflow("errand", state=Job, version=1)
gate = Workflow("gate", state=Job, version=1)
saga = Workflow("saga", state=Job, version=1)
slow = Workflow("slow", state=Job, version=1)


@errand.node(start=True)
async def first(ctx: Context[Job]) -> Literal["second"]:
    """Make two calls in one visit."""
    ctx.state.said.append(await ctx.do(repeated, ctx.state.n))
    ctx.state.said.append(await ctx.do(reconciled, ctx.state.n))
    return "second"


@errand.node
async def second(ctx: Context[Job]) -> None:
    """Sleep, then make a call that a person may have to resolve."""
    await ctx.sleep(timedelta(seconds=1), name="breath")
    ctx.state.said.append(await ctx.do(asked, ctx.state.n))


@gate.node(start=True)
async def permit(ctx: Context[Job]) -> Literal["hear"]:
    """Make a call that needs an approval."""
    decision = await ctx.approval(
        reconciled.plan(ctx.state.n), summary=f"job {ctx.state.n}", by=role("lead"), within=timedelta(hours=4)
    )
    if decision.chosen is not None:
        ctx.state.said.append(await ctx.do(decision.chosen))
    return "hear"


@gate.node
async def hear(ctx: Context[Job]) -> None:
    """Wait for a signal, then make a call."""
    word = await ctx.receive("word", Word)
    ctx.state.said.append(word.text)
    ctx.state.said.append(await ctx.do(repeated, ctx.state.n))


@saga.node(start=True)
async def reserve(ctx: Context[Job]) -> Literal["settle"]:
    """Make a call that may have to be undone."""
    ctx.state.said.append(await ctx.do(book, ctx.state.n))
    return "settle"


@saga.node
async def settle(ctx: Context[Job]) -> None:
    """Fail every third job, so that its room is released."""
    ctx.state.said.append(await ctx.do(repeated, ctx.state.n))
    if ctx.state.n % 3 == 0:
        raise Fail("the conference was called off")


@activity(key="slow/{n}", if_uncertain=resend(remembered_for=timedelta(hours=24)), no_undo=STAYS, retry=PATIENT)
async def slowly(n: int) -> str:
    """Make a slow call over a raw connection.

    httpx2 scans its open connections for each request: a minute of CPU for five thousand.
    """
    url = urlsplit(os.environ[WORLD])
    head = f"POST /slow/{n} HTTP/1.1\r\nHost: world\r\nIdempotency-Key: {this_call().key}\r\nContent-Length: 0\r\n\r\n"
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write(head.encode())
        answer = await reader.read()
    finally:
        writer.close()
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise ConnectionResetError(answer[:100])
    return answer.rpartition(b"\r\n\r\n")[2].decode()


@slow.node(start=True)
async def linger(ctx: Context[Job]) -> None:
    """Make one slow call and end."""
    ctx.state.said.append(await ctx.do(slowly, ctx.state.n))
