"""Absurd: tasks in PostgreSQL. Its worker has one connection, so several work here, as in several processes."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from absurd_sdk import AsyncAbsurd

from bench.peers import LEASE_S, URL, Job, state_of, step

WORKERS, EACH, POLL_S = 8, 64, 0.02


async def flow(given: Any, ctx: Any) -> str:
    run, state = given["run"], state_of(given["size"])
    for n in range(given["steps"]):
        state = await ctx.step(f"step{n}", lambda n=n, state=state: step(run, n, state))
    if given["wait"]:
        await ctx.await_event(f"go-{run}")
        state = await ctx.step("last", lambda: step(run, given["steps"], state))
    return state[:8]


def create() -> None:
    """Create schema and queue. The second process finds both."""
    for command in (["init"], ["create-queue", "bench"]):
        control = Path(sys.executable).with_name("absurdctl")
        subprocess.run([control, *command, "--database", os.environ[URL]], capture_output=True, check=False)


class Absurd:
    """See the protocol."""

    async def open(self) -> None:
        await asyncio.to_thread(create)
        self._client, self._tasks = AsyncAbsurd(os.environ[URL], queue_name="bench"), {}
        self._workers = [AsyncAbsurd(os.environ[URL], queue_name="bench") for _ in range(WORKERS)]
        self._serving = []
        for number, worker in enumerate(self._workers):
            worker.register_task("flow")(flow)
            serve = worker.start_worker(
                f"w{number}", claim_timeout=int(LEASE_S), concurrency=EACH, poll_interval=POLL_S
            )
            self._serving.append(asyncio.create_task(serve))

    async def start(self, run: str, job: Job) -> None:
        spawned = await self._client.spawn("flow", {"run": run, **job}, queue="bench", idempotency_key=run)
        self._tasks[run] = spawned["task_id"]

    async def resume(self, run: str) -> None:
        await self._client.emit_event(f"go-{run}", {})

    async def result(self, run: str) -> None:
        found = await self._client.await_task_result(self._tasks[run])
        assert found.state == "completed", found

    async def close(self) -> None:
        for worker in self._workers:
            worker.stop_worker()
        await asyncio.gather(*self._serving)


PEER = Absurd()
