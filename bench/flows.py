"""The measured workflows: ten small nodes of one effect or one lookup each, one node in a loop, and waits."""

import asyncio
import os
import random
import signal
import time
from collections import defaultdict
from datetime import timedelta
from functools import cache
from typing import Literal

import httpx2
from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup, resend, role, this_call
from outlast.http import AsyncClient, Client

RECEIVER = "OUTLAST_BENCH_RECEIVER"  # receiver of the measurement `sending`
NOTES = "OUTLAST_BENCH_NOTES"  # file in which a worker process records each landed intent
STEPS = 10
WITHIN = timedelta(hours=96)
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=None)


class Count(BaseModel):
    """State of a measured run."""

    loops: int  # visits of a looping node; in other nodes not 0 = print the line
    n: int = 0


class Cargo(BaseModel):
    """A large state, of which each step changes a few bytes."""

    loops: int
    size: int
    n: int = 0
    parts: dict[str, str] = {}


PARTS = 8


def cargo_of(size: int) -> dict[str, str]:
    """Return fields of this total size: random hexadecimal digits, the same each time, that compress to half."""
    dice = random.Random(1)
    return {f"part{n}": dice.randbytes(size // PARTS // 2).hex() for n in range(PARTS)}


@activity(key="write/{n}", no_undo="a bench changes nothing")
async def write(n: int) -> int:
    """Make an effect whose receiver is this process, so that only the cost of recording is measured."""
    return n


@lookup(key="look/{n}")
async def look(n: int) -> int:
    """Make a lookup whose source is this process."""
    return n


effectful = Workflow("bench-effectful", state=Count)
readonly = Workflow("bench-readonly", state=Count)
long_effectful = Workflow("bench-long-effectful", state=Count)
long_readonly = Workflow("bench-long-readonly", state=Count)
silent = Workflow("bench-silent", state=Count)
logging = Workflow("bench-logging", state=Count)
asking = Workflow("bench-asking", state=Count)
waiting = Workflow("bench-waiting", state=Count)
napping = Workflow("bench-napping", state=Count)
holding = Workflow("bench-holding", state=Count)
short = Workflow("bench-short", state=Count)
calling = Workflow("bench-calling", state=Count)
sending = Workflow("bench-sending", state=Count)
cargo = Workflow("bench-cargo", state=Cargo, outcome=lambda state: state.n)
WARMED = (effectful, readonly, long_effectful, long_readonly, silent, logging)
"""Workflows that a worker may run in memory before it is measured: their runs end by themselves."""


@effectful.node(start=True)
async def write1(ctx: Context[Count]) -> Literal["write2"]:
    ctx.state.n = await ctx.do(write, 1)
    return "write2"


@effectful.node
async def write2(ctx: Context[Count]) -> Literal["write3"]:
    ctx.state.n = await ctx.do(write, 2)
    return "write3"


@effectful.node
async def write3(ctx: Context[Count]) -> Literal["write4"]:
    ctx.state.n = await ctx.do(write, 3)
    return "write4"


@effectful.node
async def write4(ctx: Context[Count]) -> Literal["write5"]:
    ctx.state.n = await ctx.do(write, 4)
    return "write5"


@effectful.node
async def write5(ctx: Context[Count]) -> Literal["write6"]:
    ctx.state.n = await ctx.do(write, 5)
    return "write6"


@effectful.node
async def write6(ctx: Context[Count]) -> Literal["write7"]:
    ctx.state.n = await ctx.do(write, 6)
    return "write7"


@effectful.node
async def write7(ctx: Context[Count]) -> Literal["write8"]:
    ctx.state.n = await ctx.do(write, 7)
    return "write8"


@effectful.node
async def write8(ctx: Context[Count]) -> Literal["write9"]:
    ctx.state.n = await ctx.do(write, 8)
    return "write9"


@effectful.node
async def write9(ctx: Context[Count]) -> Literal["write10"]:
    ctx.state.n = await ctx.do(write, 9)
    return "write10"


@effectful.node
async def write10(ctx: Context[Count]) -> None:
    ctx.state.n = await ctx.do(write, 10)


@readonly.node(start=True)
async def look1(ctx: Context[Count]) -> Literal["look2"]:
    ctx.state.n = await ctx.do(look, 1)
    return "look2"


@readonly.node
async def look2(ctx: Context[Count]) -> Literal["look3"]:
    ctx.state.n = await ctx.do(look, 2)
    return "look3"


@readonly.node
async def look3(ctx: Context[Count]) -> Literal["look4"]:
    ctx.state.n = await ctx.do(look, 3)
    return "look4"


@readonly.node
async def look4(ctx: Context[Count]) -> Literal["look5"]:
    ctx.state.n = await ctx.do(look, 4)
    return "look5"


@readonly.node
async def look5(ctx: Context[Count]) -> Literal["look6"]:
    ctx.state.n = await ctx.do(look, 5)
    return "look6"


@readonly.node
async def look6(ctx: Context[Count]) -> Literal["look7"]:
    ctx.state.n = await ctx.do(look, 6)
    return "look7"


@readonly.node
async def look7(ctx: Context[Count]) -> Literal["look8"]:
    ctx.state.n = await ctx.do(look, 7)
    return "look8"


@readonly.node
async def look8(ctx: Context[Count]) -> Literal["look9"]:
    ctx.state.n = await ctx.do(look, 8)
    return "look9"


@readonly.node
async def look9(ctx: Context[Count]) -> Literal["look10"]:
    ctx.state.n = await ctx.do(look, 9)
    return "look10"


@readonly.node
async def look10(ctx: Context[Count]) -> None:
    ctx.state.n = await ctx.do(look, 10)


@long_effectful.node(start=True, max_visits=10_000)
async def write_on(ctx: Context[Count]) -> Literal["write_on"] | None:
    """Make one effect per visit until the state has enough."""
    ctx.state.n += await ctx.do(write, 1)
    return "write_on" if ctx.state.n < ctx.state.loops else None


@silent.node(start=True, max_visits=STEPS)
async def act_silently(ctx: Context[Count]) -> Literal["act_silently"] | None:
    """Make one effect per visit, in ten visits."""
    ctx.state.n += await ctx.do(write, 1)
    return "act_silently" if ctx.state.n < STEPS else None


@logging.node(start=True, max_visits=STEPS)
async def act_and_log(ctx: Context[Count]) -> Literal["act_and_log"] | None:
    """Write a log entry before the same effect."""
    ctx.log("writes", "a line of a log that says what follows", n=ctx.state.n)
    ctx.state.n += await ctx.do(write, 1)
    return "act_and_log" if ctx.state.n < STEPS else None


@long_readonly.node(start=True, max_visits=10_000)
async def look_on(ctx: Context[Count]) -> Literal["look_on"] | None:
    """Make one lookup per visit until the state has enough."""
    ctx.state.n += await ctx.do(look, 1)
    return "look_on" if ctx.state.n < ctx.state.loops else None


def stamp(run: str) -> None:
    """Print that a run's line is reached, with the time of the clock that all processes share."""
    os.write(1, f"line {run} {os.getpid()} {time.monotonic_ns()}\n".encode())


reached: defaultdict[str, "asyncio.Future[int]"] = defaultdict(lambda: asyncio.get_running_loop().create_future())
"""For a decider in the same process: the time at which each run's next node began."""


async def reached_at(run: str) -> int:
    """Wait until the run's next node has begun, and return its monotonic time in ns."""
    return await reached[run]


@asking.node(start=True)
async def ask(ctx: Context[Count]) -> Literal["go_on"]:
    """Request an approval. The run is parked while it waits."""
    await ctx.approval(write.plan(1), summary="go on?", by=role("bench"), within=WITHIN)
    return "go_on"


@asking.node
async def go_on(ctx: Context[Count]) -> None:
    """Reach the first line of the next node, to which decisions are timed."""
    reached[ctx.run_id].set_result(time.monotonic_ns())
    if ctx.state.loops:
        stamp(ctx.run_id)


@waiting.node(start=True)
async def listen(ctx: Context[Count]) -> None:
    """Wait for a signal that never arrives."""
    await ctx.receive("never", Count)


NAP = timedelta(seconds=1)
slept: dict[str, int] = {}
"""Monotonic time in ns at which each nap began."""


@napping.node(start=True)
async def nap(ctx: Context[Count]) -> Literal["wake_up"]:
    """Wait for a time. The run is parked."""
    slept.setdefault(ctx.run_id, time.monotonic_ns())
    await ctx.sleep(NAP)
    return "wake_up"


@napping.node
async def wake_up(ctx: Context[Count]) -> None:
    """Reach the first line after the nap."""
    reached[ctx.run_id].set_result(time.monotonic_ns())


@activity(key="slow/{n}", no_undo="a bench changes nothing", timeout=timedelta(minutes=4))
async def slow(n: int) -> int:
    """Call a receiver that does not answer during the measurement."""
    await asyncio.sleep(180)
    return n


@holding.node(start=True)
async def hold(ctx: Context[Count]) -> None:
    """Print a line and stay until the process is killed: in a slow call, or with `loops` in code of the node.

    A worker that takes over runs the node again and prints the line again.
    """
    stamp(ctx.run_id)
    if ctx.state.loops:
        await asyncio.sleep(3600)  # outlast: ignore[OL303] a node that occupies its worker
    await ctx.do(slow, 1)


@activity(key="call/{ms}", no_undo="a bench changes nothing")
async def call(ms: int) -> int:
    """Call a receiver that takes this long to answer."""
    await asyncio.sleep(ms / 1_000)
    return ms


@short.node(start=True)
async def call_once(ctx: Context[Count]) -> Literal["come_to_end"]:
    """Make one call of `loops` ms."""
    ctx.state.n = await ctx.do(call, ctx.state.loops)
    return "come_to_end"


@short.node
async def come_to_end(ctx: Context[Count]) -> None:
    """End the run, as the last node."""


@activity(key="call/{run}", no_undo="a bench changes nothing", if_uncertain=resend(remembered_for=timedelta(hours=1)))
async def call_or_kill(run: str, ms: int) -> int:
    """Call a receiver that takes this long to answer. A negative time kills this process."""
    stamp(run)
    if ms < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(ms / 1_000)
    return ms


@calling.node(start=True)
async def call_and_say(ctx: Context[Count]) -> Literal["say_end"]:
    """Make one call and print when it is made."""
    ctx.state.n = await ctx.do(call_or_kill, ctx.run_id, ctx.state.loops)
    return "say_end"


@calling.node
async def say_end(ctx: Context[Count]) -> None:
    """Print that the last node is reached."""
    stamp(f"{ctx.run_id}/end")


@cache
def _async_client() -> AsyncClient:
    return AsyncClient(base_url=os.environ[RECEIVER], trust_env=False, timeout=None, limits=LIMITS)


@cache
def _client() -> Client:
    return Client(base_url=os.environ[RECEIVER], trust_env=False, timeout=None, limits=LIMITS)


def open_clients() -> None:
    """Create the HTTP clients, because that takes longer than a call."""
    _async_client(), _client()


@activity(key="post/{n}", no_undo="a bench changes nothing")
async def post(n: int) -> int:
    """Make a call over HTTP."""
    await _async_client().post(f"/{this_call().run_id}")
    return n


@activity(key="post-in-thread/{n}", no_undo="a bench changes nothing")
def post_in_thread(n: int) -> int:
    """Make a call over HTTP from a plain function."""
    _client().post(f"/{this_call().run_id}")
    return n


@sending.node(start=True)
async def send(ctx: Context[Count]) -> None:
    """Make one call; with `loops` from a plain function."""
    ctx.state.n = await ctx.do(post_in_thread if ctx.state.loops else post, 1)


@cargo.node(start=True, max_visits=10_000)
async def carry(ctx: Context[Cargo]) -> Literal["carry"] | None:
    """Make one effect per visit. Only the number in the large state changes."""
    if not ctx.state.parts:
        ctx.state.parts = cargo_of(ctx.state.size)
    ctx.state.n += await ctx.do(write, 1)
    return "carry" if ctx.state.n < ctx.state.loops else None
