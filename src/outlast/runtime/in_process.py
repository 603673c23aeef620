"""Default runtime: a store and its worker in this process, without a server (RT-2)."""

import asyncio
import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from outlast.core.approvals import Actor
from outlast.core.clock_port import Clock
from outlast.core.durations import Liveness
from outlast.core.rows.run_rows import Run, is_over
from outlast.engine.guest import Guest
from outlast.engine.snapshots import state_of_rows
from outlast.errors import NotFound
from outlast.flow.workflow import Workflow, workflows_by_name
from outlast.models.runs import RunDetail
from outlast.runtime.execution_runtime import ClientRuntime
from outlast.runtime.local_worker import worker_of
from outlast.runtime.operations import Operations
from outlast.store.port import Store


class InProcessRuntime(ClientRuntime):
    """The interface over a store, with its worker. `async with` serves while the block runs, then drains."""

    def __init__(
        self,
        store: Store,
        workflows: Sequence[Workflow[Any]],
        *,
        tenant: str = "default",
        actor: Actor | None = None,
        clock: Clock | None = None,
        live: Liveness | None = None,
        concurrency: int = 100,
        threads: bool = True,
        guest: Guest | None = None,
    ) -> None:
        """Serve `workflows` over a `store`, which the caller closes.

        `actor` acts in the `tenant`. `concurrency` is the maximum of concurrent runs, `live` the durations after which
        the worker counts as dead. `clock` and `threads` are for tests. Runs are scheduled by `guest`, if one is given.
        Raises DefinitionError for a mistake in a workflow.
        """
        self.store = store
        self._worker = worker_of(
            store, workflows, live=live, concurrency=concurrency, clock=clock, threads=threads, guest=guest
        )
        self.operations = Operations(
            store, tenant=tenant, actor=actor or Actor("local"), workflows=workflows_by_name(list(workflows))
        )
        if guest is not None:
            self.operations.scheduler = guest.name
        super().__init__(self.operations)
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._worker.open()
        self._serving = asyncio.create_task(self._worker.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.drain()
        if self._serving is not None:
            await self._serving
        if self._worker.store_replaced is not None and error is None:
            raise self._worker.store_replaced

    async def finished(self, workflow_id: str) -> RunDetail:
        """Wait until the run `workflow_id` has ended or needs a person. Raises NotFound, StoreReplaced."""

        def rests(run: Run) -> bool:
            if self._worker.store_replaced is not None:
                raise self._worker.store_replaced
            return is_over(run) or bool(run.attention)

        await self.operations.until_row(workflow_id, rests, within_s=None)
        return await self.get(workflow_id)


async def state_of(operations: Operations, run_id: str) -> dict[str, Any]:
    """Return the state of a run at its last checkpoint. Raises NotFound."""
    run = await operations.rows.run(run_id)
    (rows,) = await operations.store.run_rows([(run.tenant, run.run)])
    if rows is None:
        raise NotFound(f"no run {run_id}")
    state: dict[str, Any] = json.loads(await state_of_rows(operations.store, rows))
    return state
