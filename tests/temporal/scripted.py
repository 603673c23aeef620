"""Slices that answer as a script says, and the interpreter over them on a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from outlast.core.durations import Liveness, longest_claim
from outlast.engine.guest import SliceEnd
from outlast.temporal import TemporalGuest
from outlast.temporal.cluster import wake
from outlast.temporal.run_workflow import times_of, workflow_id

LIVE = Liveness(heartbeat_window=1_000, heartbeat_every=300, drain_grace=100)
TENANT = "default"
LANE, NEXT = "temporal:scripted@1", "temporal:scripted@2"


def answer(then: Any, version: int = 1, **changes: Any) -> SliceEnd:
    """Return an answer of a slice."""
    end = SliceEnd(then, version, "desk", LANE, "waiting", (), None, "")
    return end._replace(**changes)


class Script:
    """A worker for one run. Each slice returns the next answer, and the last answer again after that."""

    id = "w-script"
    live = LIVE
    claim_time = longest_claim(LIVE)

    def __init__(self, *answers: SliceEnd, lanes: tuple[str, ...] = (LANE,)) -> None:
        self.run = f"run-{uuid4().hex[:8]}"
        self.answers = answers
        self.lanes = lanes
        self.count = 0
        self._called = asyncio.Condition()

    async def slice(self, tenant: str, run: str, *, nodes: int | None = None, seen: int | None = None) -> SliceEnd:
        async with self._called:
            self.count += 1
            self._called.notify_all()
            return self.answers[min(self.count, len(self.answers)) - 1]

    async def until(self, count: int) -> None:
        """Wait until the script was asked for so many slices."""
        async with self._called:
            await self._called.wait_for(lambda: self.count >= count)


@asynccontextmanager
async def serving(client: Client, script: Script) -> AsyncIterator[None]:
    """Serve the script's slices during the block."""
    task = asyncio.create_task(TemporalGuest(client=client).serve(script))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def start(client: Client, script: Script, version: int = 1) -> WorkflowHandle[Any, Any]:
    """Wake the script's run with this version of its row; return the handle of its workflow."""
    await wake(client, TENANT, script.run, LANE, version, times_of(LIVE))
    return client.get_workflow_handle(workflow_id(TENANT, script.run))
