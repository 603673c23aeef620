"""Ended runs leave no objects in the memory of a worker and a service."""

import asyncio
import gc
import logging
import sys
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import httpx2
import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity
from outlast.clocks import SystemClock
from outlast.core import events
from outlast.core.codec import compact
from outlast.runtime.local_worker import Serving, observability, worker_of
from outlast.runtime.stores import open_store
from outlast.service.identity import Anonymous
from outlast.store.sqlite import row_cache
from outlast.telemetry import Counters
from outlast.ui.app import asgi

ROUND = 100
ROUNDS = 5
SETTLED_S = 60


class Order(BaseModel):
    number: int
    receipt: str = ""


orders = Workflow("counted", state=Order)


@activity(key="counted/{number}", once_per="run", no_undo="a test")
async def place_order(number: int) -> str:
    return "receipt"  # pydantic keeps the last 16,384 short texts that it has read


@orders.node(start=True)
async def place(ctx: Context[Order]) -> Literal["confirm"]:
    ctx.state.receipt = await ctx.do(place_order, ctx.state.number)
    return "confirm"


@orders.node
async def confirm(ctx: Context[Order]) -> None: ...


def objects() -> tuple[Counter[str], int]:
    """Return objects by type and memory blocks. Only the second includes tuples of plain values."""
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects()), sys.getallocatedblocks()


async def play(http: httpx2.AsyncClient, serving: Serving, first: int) -> None:
    """Start ROUND runs over HTTP concurrently, and read each after it has ended."""
    starts = [
        http.post("/v1/workflows/counted/runs", json={"input": {"number": number}})
        for number in range(first, first + ROUND)
    ]
    async with asyncio.timeout(SETTLED_S):
        for started in await asyncio.gather(*starts):
            assert started.status_code == 201, started.text
            while not (await http.get(started.headers["location"])).json()["ended_at"]:  # noqa: ASYNC110 - over HTTP
                await asyncio.sleep(0.02)
        while serving.worker.held:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.005)


def test_ended_runs_leave_no_objects_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    logging.disable(logging.CRITICAL)  # pytest keeps each record, if another test has set a level
    request.addfinalizer(lambda: logging.disable(logging.NOTSET))
    monkeypatch.setattr(row_cache, "RUNS_MAX", 10)  # full from the first round on
    monkeypatch.setattr(row_cache, "ROWS_MAX", 10)
    monkeypatch.setattr(events, "_text", lru_cache(10)(compact))

    async def story() -> list[tuple[Counter[str], int]]:
        store = await open_store(f"sqlite:{tmp_path}/outlast.db")
        counters = Counters()
        serving = Serving(store, lambda: worker_of(store, [orders], watch=observability(counters)), SystemClock())
        app = asgi(store, [orders], authenticator=Anonymous("local:me"))
        await serving.open()
        task = asyncio.create_task(serving.run())
        found = []
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as http:
            for n in range(ROUNDS):
                await play(http, serving, n * ROUND)
                found.append(objects())  # after ROUND runs, twice as many, …
        serving.drain()
        await task
        await store.close()
        return found

    found = asyncio.run(story())
    grown = [(later[0] - before[0], later[1] - before[1]) for before, later in pairwise(found)]
    # Some rounds grow by what happens once; a leak is in each of them.
    leaked = {name for types, _ in grown for name in types if min(each[name] for each, _ in grown) > ROUND // 2}
    assert not leaked
    # One block a run is a short text that pydantic's parser keeps, up to 16,384 of them.
    assert min(blocks for _, blocks in grown) < 2 * ROUND
