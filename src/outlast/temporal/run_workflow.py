"""The workflow `outlast.run`, which Temporal executes for each run, and the values of its histories.

It interprets the answers of slices. Nothing of a user's graph is in it, so a new version of a graph never changes the
commands that a history expects. A change of this file may: tests/temporal/test_interpreter.py replays stored histories.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ActivityError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from outlast.core.durations import Liveness, longest_claim

TEMPORAL: Final = "temporal"  # name of the scheduler
WORKFLOW: Final = "outlast.run"
SLICE: Final = "outlast.slice"
DUE: Final = "due"
OVER: Final = ("ended", "elsewhere", "gone")  # the workflow has nothing to do for a run any more
SLICES_MAX: Final = 200  # then the workflow continues as a new one; a slice is 8 to 12 events, and 50,000 are the limit
RETRY: Final = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
AGAIN_MS: Final = 5_000  # after an answer that names no time and is not "waits"

LANE: Final = SearchAttributeKey.for_keyword("OutlastLane")
STATUS: Final = SearchAttributeKey.for_keyword("OutlastStatus")
NODE: Final = SearchAttributeKey.for_keyword("OutlastNode")
ATTENTION: Final = SearchAttributeKey.for_keyword_list("OutlastAttention")


@dataclass(frozen=True)
class SliceTimes:
    """Durations of the worker that executed the last slice, in ms; those of the next slice."""

    slice_ms: int  # longest duration of a slice
    lease_ms: int
    unserved_ms: int  # how long a slice waits for a worker of its version, before any worker may answer it


@dataclass(frozen=True)
class InterpreterInput:
    """Input of the workflow: references to a run, never its data."""

    tenant: str
    run: str
    lane: str
    times: SliceTimes
    version: int = 0  # of the run row, as the last slice left it
    shown: tuple[str, ...] = ()  # search attributes as they were written last


@dataclass(frozen=True)
class SliceInput:
    """Input of a slice. `version` is that of the run row as this history knows it, `first` if it knows none."""

    tenant: str
    run: str
    version: int
    first: bool


@dataclass(frozen=True)
class SliceReport:
    """Answer of a slice: the fields of `SliceEnd` that the workflow needs, and no data of the run."""

    then: str
    version: int
    lane: str
    node: str
    status: str
    attention: tuple[str, ...]
    after_ms: int | None
    times: SliceTimes
    searchable: bool  # the namespace has the search attributes


def times_of(live: Liveness, claim_ms: int | None = None) -> SliceTimes:
    """Return the durations of a worker. A slice takes at most twice its execution budget."""
    longest = longest_claim(live).ms if claim_ms is None else claim_ms
    return SliceTimes(2 * longest, live.heartbeat_window, 2 * live.heartbeat_window)


def task_queue(lane: str) -> str:
    """Return the task queue of a lane. Its workers serve this version."""
    return f"outlast/{lane.partition(':')[2] or lane}"


def workflow_queue(lane: str) -> str:
    """Return the task queue that all workers of the lane's workflow poll, whichever versions they serve."""
    return task_queue(lane).rpartition("@")[0]


def workflow_id(tenant: str, run: str) -> str:
    """Return the workflow id of a run."""
    return f"{tenant}/{run}"


@workflow.defn(name=WORKFLOW, sandboxed=False)
class RunWorkflow:
    """Execute slices of one run until it has ended; wait between them as they say."""

    def __init__(self) -> None:
        self._woken = -1  # highest version of the run row with which the run was due

    @workflow.signal(name=DUE)
    def due(self, version: int) -> None:
        """Note that the run is due with this version of its row."""
        self._woken = max(self._woken, version)

    @workflow.run
    async def run(self, known: InterpreterInput) -> str:
        """Return why the workflow has nothing to do any more: `ended`, `elsewhere`, `gone`."""
        slices = 0
        while True:
            self._woken = -1  # the next slice finds whatever was due
            end = await self._slice(known)
            known = InterpreterInput(
                known.tenant, known.run, end.lane or known.lane, end.times, end.version, _show(known, end)
            )
            if end.then in OVER:
                return end.then
            await self._wait(end)
            slices += 1
            if slices >= SLICES_MAX or workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(known)

    async def _slice(self, known: InterpreterInput) -> SliceReport:
        """Execute a slice on a worker of the run's version, or on any of its workflow if there is none for a while."""
        try:
            return await _execute(known, task_queue(known.lane), known.times.unserved_ms)
        except ActivityError as error:
            late = isinstance(error.cause, ActivityTimeout) and error.cause.type is TimeoutType.SCHEDULE_TO_START
            if not late:
                raise
        return await _execute(known, workflow_queue(known.lane), None)

    async def _wait(self, end: SliceReport) -> None:
        """Wait until the run is due: by its time, or because the bridge says so."""
        after_ms = end.after_ms
        if end.then == "due" and not after_ms:
            return
        if after_ms is None and end.then != "waits":
            after_ms = AGAIN_MS
        timeout = None if after_ms is None else timedelta(milliseconds=max(1, after_ms))
        with suppress(TimeoutError):
            await workflow.wait_condition(lambda: self._woken >= end.version, timeout=timeout)


async def _execute(known: InterpreterInput, queue: str, start_within_ms: int | None) -> SliceReport:
    times = known.times
    end: SliceReport = await workflow.execute_activity(
        SLICE,
        SliceInput(known.tenant, known.run, known.version, known.version == 0),
        result_type=SliceReport,
        task_queue=queue,
        schedule_to_start_timeout=None if start_within_ms is None else timedelta(milliseconds=start_within_ms),
        start_to_close_timeout=timedelta(milliseconds=times.slice_ms),
        heartbeat_timeout=timedelta(milliseconds=times.lease_ms),
        retry_policy=RETRY,
    )
    return end


def _show(known: InterpreterInput, end: SliceReport) -> tuple[str, ...]:
    """Write the search attributes if they have changed; return what is written."""
    shown = (end.lane, end.status, end.node, *end.attention)
    person = f"; needs a person: {', '.join(end.attention)}" if end.attention else ""
    workflow.set_current_details(f"{end.status} at {end.node or '–'}{person} → `outlast explain {known.run}`")
    if not end.searchable or end.then in ("elsewhere", "gone") or shown == known.shown:
        return known.shown
    workflow.upsert_search_attributes(
        [
            LANE.value_set(end.lane),
            STATUS.value_set(end.status),
            NODE.value_set(end.node),
            ATTENTION.value_set(end.attention),
        ]
    )
    return shown
