"""Temporal as the engine that decides when and where slices of runs are executed."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.client import Client
from temporalio.envconfig import ClientConfigProfile
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from typing_extensions import override

from outlast.core.argument_checks import Arguments
from outlast.core.durations import SECOND, Liveness
from outlast.core.limits import CONCURRENCY_MAX
from outlast.core.rows.run_rows import Run
from outlast.engine.guest import Guest, GuestAway, SliceWorker
from outlast.errors import StoreError, Unavailable
from outlast.temporal.cluster import check, connect, reason_of, register_attributes, wake
from outlast.temporal.run_workflow import (
    SLICE,
    TEMPORAL,
    RunWorkflow,
    SliceInput,
    SliceReport,
    SliceTimes,
    task_queue,
    times_of,
    workflow_queue,
)

log = logging.getLogger("outlast.temporal")

# how long a workflow waits for the worker that has it in memory, which may have been killed; a history is short to read
STICKY: Final = timedelta(seconds=2)
AT_ONCE: Final = 50  # wake-ups in flight
# as a build id; without one Temporal hashes the sources of all modules
INTERPRETER: Final = "outlast"
# a worker of Temporal that does not stop in time is left behind, because the server is away; slices have ended before
STOPS_WITHIN_S: Final = 3.0


class TemporalGuest(Guest):
    """Workers of a Temporal cluster in this process, and the signals that wake its workflows."""

    name = TEMPORAL

    def __init__(
        self, *, client: Client | None = None, profile: ClientConfigProfile | None = None, concurrency: int = 100
    ) -> None:
        """Execute at most `concurrency` slices at once.

        `client` is a connection to the cluster. Without one, the guest connects as `profile` or Temporal's environment
        variables say.
        """
        Arguments("TemporalGuest").number("concurrency", concurrency, 1, CONCURRENCY_MAX)
        self._client = client
        self._profile = profile
        self._concurrency = concurrency
        self._connecting = asyncio.Lock()
        self._times = times_of(Liveness())  # until it serves

    @override
    async def wake(self, runs: Sequence[Run]) -> None:
        free = asyncio.Semaphore(AT_ONCE)

        async def one(client: Client, run: Run) -> None:
            async with free:
                await wake(client, run.tenant, run.run, run.lane, run.version, self._times)

        try:
            client = await self._connected()
            if not runs:
                await check(client)
            failed = await asyncio.gather(*(one(client, run) for run in runs), return_exceptions=True)
            for error in failed:
                if error is not None:
                    raise error
        except Unavailable as error:
            raise GuestAway(error.why) from error
        except RPCError as error:
            raise GuestAway(reason_of(error)) from error

    @override
    async def serve(self, worker: SliceWorker) -> None:
        self._times = times_of(worker.live, worker.claim_time.ms)
        try:
            client = await self._connected()
            slices = Slices(worker, self._times, await register_attributes(client))
        except Unavailable as error:
            raise GuestAway(error.why) from error
        except RPCError as error:
            raise GuestAway(reason_of(error)) from error
        queues: dict[str, asyncio.Task[None]] = {}
        stopping: list[asyncio.Task[None]] = []
        try:
            while True:
                wanted = self._queues(worker.lanes)
                for queue in queues.keys() - wanted.keys():
                    queues[queue].cancel()
                    stopping.append(queues.pop(queue))
                for queue in wanted.keys() - queues.keys():
                    queues[queue] = asyncio.create_task(self._poll(client, queue, wanted[queue], slices))
                timeout = worker.live.heartbeat_every / SECOND  # then look which lanes it serves
                done, _ = await asyncio.wait(queues.values(), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                stopping = [task for task in stopping if not task.done()]
                for task in done:
                    task.result()
                    raise GuestAway("a worker of a task queue has stopped")
        except (RPCError, RuntimeError) as error:  # RuntimeError: of Temporal's core, as when the namespace is missing
            raise GuestAway(reason_of(error)) from error
        finally:
            for task in queues.values():
                task.cancel()
            await asyncio.gather(*queues.values(), *stopping, return_exceptions=True)

    def _queues(self, lanes: Iterable[str]) -> dict[str, bool]:
        """Return the task queues to poll; True for those on which workflows are interpreted."""
        return {task_queue(lane): False for lane in lanes} | {workflow_queue(lane): True for lane in lanes}

    async def _poll(self, client: Client, queue: str, interprets: bool, slices: "Slices") -> None:
        """Poll a task queue until cancelled. Raises RuntimeError, RPCError."""
        worker = Worker(
            client,
            task_queue=queue,
            workflows=[RunWorkflow] if interprets else [],
            activities=[slices.execute],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=self._concurrency,
            build_id=INTERPRETER,
            sticky_queue_schedule_to_start_timeout=STICKY,
        )
        running = asyncio.create_task(worker.run())
        try:
            await asyncio.shield(running)
        finally:
            stopping = asyncio.create_task(worker.shutdown())
            await asyncio.wait([running, stopping], timeout=STOPS_WITHIN_S)
            running.cancel()
            stopping.cancel()

    async def _connected(self) -> Client:
        """Return the connection, made once the cluster answers. Raises Unavailable."""
        async with self._connecting:
            if self._client is None:
                self._client = await connect(self._profile)
            return self._client


class Slices:
    """The activity `outlast.slice`: executes a run of this process's store until it waits or ends."""

    def __init__(self, worker: SliceWorker, times: SliceTimes, searchable: bool) -> None:
        self._worker = worker
        self._times = times
        self._searchable = searchable

    @activity.defn(name=SLICE)
    async def execute(self, given: SliceInput) -> SliceReport:
        """Execute a slice, with heartbeats. Raises ApplicationError if the store is away, so that Temporal retries."""
        beats = asyncio.create_task(self._beat())
        try:
            # a repeated first slice follows one that was cut off
            seen = given.version if given.version or activity.info().attempt == 1 else None
            end = await self._worker.slice(given.tenant, given.run, seen=seen)
        except StoreError as error:
            raise ApplicationError(f"the store is away: {error.what}", type(error).__name__) from None
        finally:
            beats.cancel()
        return SliceReport(
            then=end.then,
            version=end.version,
            lane=end.lane,
            node=end.node,
            status=end.status,
            attention=end.attention,
            after_ms=end.after_ms,
            times=self._times,
            searchable=self._searchable,
        )

    async def _beat(self) -> None:
        """Send heartbeats. Without them Temporal gives the slice to another worker after the lease."""
        while True:
            activity.heartbeat()
            await asyncio.sleep(self._times.lease_ms / 3 / SECOND)
