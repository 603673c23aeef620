"""Temporal: a workflow whose steps are activities, on the development server."""

import asyncio
import os
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from bench.peers import CONCURRENCY, LEASE_S, PORTS, Job, state_of, step

QUEUE = "bench"


@activity.defn
async def one(run: str, n: int, state: str) -> str:
    return await step(run, n, state)


@activity.defn
async def first(size: int) -> str:
    return state_of(size)


@workflow.defn
class Flow:
    def __init__(self) -> None:
        self.may_go = False

    @workflow.run
    async def run(self, run: str, job: dict[str, int]) -> str:
        limit = timedelta(seconds=LEASE_S)
        state = ""
        if job["size"]:
            state = await workflow.execute_activity(first, job["size"], start_to_close_timeout=limit)
        for n in range(job["steps"]):
            state = await workflow.execute_activity(one, args=[run, n, state], start_to_close_timeout=limit)
        if job["wait"]:
            await workflow.wait_condition(lambda: self.may_go)
            await workflow.execute_activity(one, args=[run, job["steps"], state], start_to_close_timeout=limit)
        return state[:8]

    @workflow.signal
    def go(self) -> None:
        self.may_go = True


class Temporal:
    """See the protocol."""

    async def open(self) -> None:
        for _ in range(100):
            try:
                self._client: Any = await Client.connect(f"127.0.0.1:{os.environ[PORTS].split()[0]}")
                break
            except RuntimeError:  # the server is starting
                await asyncio.sleep(0.2)
        self._worker = Worker(
            self._client, task_queue=QUEUE, workflows=[Flow], activities=[one, first],
            max_concurrent_activities=CONCURRENCY, workflow_runner=UnsandboxedWorkflowRunner(),
        )  # fmt: skip
        self._serving = asyncio.create_task(self._worker.run())

    async def start(self, run: str, job: Job) -> None:
        await self._client.start_workflow(
            Flow.run, args=[run, job], id=run, task_queue=QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )  # fmt: skip

    async def resume(self, run: str) -> None:
        await self._client.get_workflow_handle(run).signal(Flow.go)

    async def result(self, run: str) -> None:
        await self._client.get_workflow_handle(run).result()

    async def close(self) -> None:
        await self._worker.shutdown()
        await self._serving


PEER = Temporal()
