"""Default runtime: a store and its worker in this process, without a server (RT-2)."""

import asyncio
import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from outlast.core.clock import Clock
from outlast.core.durations import Liveness
from outlast.core.rows import EVENT, Event, Run, is_over
from outlast.core.run_columns import attention_for_people, waiting_of
from outlast.engine.snapshots import state_of_rows
from outlast.errors import NotFound
from outlast.flow.workflow import Workflow
from outlast.runtime.labels import shown_status
from outlast.runtime.operations import Operations
from outlast.runtime.port import Actor, WorkflowHandle, WorkflowState
from outlast.runtime.serve import worker_of
from outlast.runtime.stores import until
from outlast.runtime.versions import workflows_by_name
from outlast.runtime.views import ENDINGS
from outlast.store.port import Store


class InProcessRuntime:
    """An ExecutionRuntime over a store. `async with` serves while the block runs, then drains."""

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
    ) -> None:
        """The caller closes the store. Raises DefinitionError for a mistake in a workflow."""
        self.store = store
        self._worker = worker_of(store, workflows, live=live, concurrency=concurrency, clock=clock, threads=threads)
        self.operations = Operations(
            store, tenant=tenant, actor=actor or Actor("local"), workflows=workflows_by_name(list(workflows))
        )
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

    async def start(
        self,
        *,
        workflow_name: str,
        input: dict[str, Any],  # noqa: A002 - the name in the interface
        idempotency_key: str,
        correlation_id: str,
        trace_id: str | None = None,
    ) -> WorkflowHandle:
        started = await self.operations.start(
            workflow_name,
            input,
            idempotency_key=idempotency_key,
            correlation_id=correlation_id,
            trace_id=trace_id or "",
        )
        return WorkflowHandle(started.run, workflow_name, started.created)

    async def signal(self, workflow_id: str, name: str, payload: dict[str, Any], signal_id: str | None = None) -> None:
        await self.operations.signal(workflow_id, name, payload, signal_id=signal_id or "")

    async def cancel(self, workflow_id: str, reason: str) -> None:
        await self.operations.cancel(workflow_id, reason=reason)

    async def get(self, workflow_id: str) -> WorkflowState:
        return await state_of(self.operations, workflow_id)

    async def finished(self, workflow_id: str) -> WorkflowState:
        """Wait until the run has ended or needs a person. Raises NotFound, StoreReplaced."""

        async def ended() -> bool | None:
            if self._worker.store_replaced is not None:
                raise self._worker.store_replaced
            run = await self.operations.run(workflow_id)
            return True if is_over(run) or run.attention else None

        await until(self.store, ended)
        return await self.get(workflow_id)


async def state_of(operations: Operations, run_id: str) -> WorkflowState:
    """Return the state of a run from its row and its newest snapshot. Raises NotFound."""
    run = await operations.run(run_id)
    (rows,) = await operations.store.run_rows([(run.tenant, run.run)])
    if rows is None:
        raise NotFound(f"no run {run_id}")
    outcome, reason = await _end_of(operations.store, rows.run)
    return WorkflowState(
        workflow_id=run_id,
        workflow_name=rows.run.workflow,
        status=rows.run.status.value,
        shown=shown_status(rows.run),
        node=rows.run.node,
        visit=rows.run.visit,
        version=rows.run.version,
        waiting_for=tuple(w._asdict() for w in waiting_of(rows.run)),
        attention=tuple(attention_for_people(rows.run)),
        state=json.loads(await state_of_rows(operations.store, rows)),
        outcome=outcome,
        reason=reason,
        results=(await operations.counts_of_results([rows.run]))[run_id],
    )


async def _end_of(store: Store, run: Run) -> tuple[Any, str]:
    if not is_over(run):
        return None, ""
    last = await store.load(EVENT, (run.tenant, run.run, run.seq))
    assert isinstance(last, Event) and last.type in ENDINGS
    data = json.loads(last.body)["data"]
    return data["outcome"], data["reason"]
