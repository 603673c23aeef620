"""The interface of a runtime for programs, over runs that a Temporal cluster schedules."""

import logging
from typing import Any, Final

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError
from typing_extensions import override

from outlast.core.durations import Liveness
from outlast.models.runs import RunDetail
from outlast.runtime.client import Client
from outlast.runtime.execution_runtime import ClientRuntime
from outlast.runtime.run_handle import RunHandle
from outlast.temporal.cluster import reason_of, wake
from outlast.temporal.run_workflow import TEMPORAL, times_of

log = logging.getLogger("outlast.temporal")

FIRST: Final = times_of(Liveness())
"""Durations of a run's first slice if no worker has started its workflow; workers send theirs with each answer."""


class TemporalRuntime(ClientRuntime):
    """The interface over a client. Runs are scheduled by Temporal; everything about them is in Outlast's store.

    A start, a signal and a cancel are durable when the method returns, whether Temporal answers or not. If it does, the
    run's workflow is woken at once; else by the bridge in a worker of `outlast worker --runtime temporal`.
    """

    def __init__(self, client: Client, temporal: TemporalClient | None = None) -> None:
        """Start runs with `client`, as `outlast.connect` opens it, and wake them through `temporal`, if given.

        The caller closes the client.
        """
        super().__init__(client)
        self.temporal = temporal
        self._tenant = ""

    @override
    async def start(
        self,
        *,
        workflow_name: str,
        input: dict[str, Any],
        idempotency_key: str,
        correlation_id: str,
        trace_id: str | None = None,
    ) -> RunHandle[Any]:
        handle = await self.client.start(
            workflow_name,
            input,
            key=idempotency_key,
            correlation_id=correlation_id,
            trace_id=trace_id or "",
            scheduler=TEMPORAL,
        )
        await self._wake(handle.id)
        return handle

    @override
    async def signal(self, workflow_id: str, name: str, payload: dict[str, Any], signal_id: str | None = None) -> None:
        await super().signal(workflow_id, name, payload, signal_id)
        await self._wake(workflow_id)

    @override
    async def cancel(self, workflow_id: str, reason: str) -> None:
        await super().cancel(workflow_id, reason)
        await self._wake(workflow_id)

    async def _wake(self, run: str) -> None:
        """Wake the workflow of a run. If that fails, the bridge does it, because the run is due in the store."""
        if self.temporal is None:
            return
        detail: RunDetail = await self.client.run(run)
        if not detail.lane.startswith(f"{TEMPORAL}:"):  # started by an earlier call, under another scheduler
            return
        self._tenant = self._tenant or (await self.client.whoami()).tenant
        try:
            await wake(self.temporal, self._tenant, run, detail.lane, detail.version, FIRST)
        except RPCError as error:
            log.info("run %s is woken by a worker, because Temporal does not answer: %s", run, reason_of(error))
