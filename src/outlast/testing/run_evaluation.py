"""Evaluations of recorded runs: a case is a fork of a recorded run, executed by the present code.

Theory of operation. Each case has a separate store in memory. It gets the rows of the recorded run, and a fork of it
begins at the first checkpoint with `effects="recorded"`. Four things keep the world untouched:

1. *A write that was recorded* is answered by the fork rule (S-28). It reaches no receiver.
2. *Any other write* waits for a person. No person decides in an evaluation, so the write ends the case as a fact.
3. *A write that waits for no one*, by a mistake, meets `_ReadingCaller`, which refuses all that is no lookup.
4. *The end of a case* cancels the fork. The fork has made no effect, so there is nothing to undo.

Lookups and requests to models are answered as recorded. With other arguments they are made, because an evaluation
tries another prompt or model.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from outlast.clocks import SystemClock
from outlast.core.approvals import Actor
from outlast.core.argument_checks import Arguments
from outlast.core.commit import Commit, in_portions
from outlast.core.keys import ADMISSION
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_rows import EVENT, RUN, is_over
from outlast.core.verbs import end_of
from outlast.engine.attempts import ActivityCaller, CallAttempt, PendingCall
from outlast.engine.fork_start import ForkRequest, fork
from outlast.engine.thread_pool import DaemonPool
from outlast.errors import Conflict, InvalidInput
from outlast.flow.outcomes import Refused
from outlast.flow.workflow import Workflow
from outlast.insight.run_history import RunHistory
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.store.port import RunRows, Store
from outlast.testing.recorded_ancestor import rows_of_ancestor
from outlast.testing.recorded_caller import arguments_of
from outlast.testing.recorded_runs import given_of
from outlast.testing.virtual_runtime import skip
from outlast.upkeep.recording import RecordedAct, Recording, nodes_of

TENANT: Final = "evaluation"
ANCESTOR: Final = "recorded"
"""Id of the recorded run in the store of a case. The fork has the id that the run had."""
NO_APPROVER: Final = "no-approver"
"""Role of approvers that no person has."""
FIRST: Final = "1"
STOPPED: Final = "stopped"
SHOWN_CHARS: Final = 300
"""Characters of arguments in a sentence; the call has them whole."""
TURN_S: Final = 0.005
CASE_MS: Final = 300_000
END_S: Final = 30.0


class UnmadeCall(BaseModel):
    """A write that the recorded run did not make, and that an evaluation does not make either."""

    model_config = ConfigDict(frozen=True)
    activity: str
    key: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        text = json.dumps(self.arguments, ensure_ascii=False, sort_keys=True)
        return f"{self.activity} with {text if len(text) <= SHOWN_CHARS else f'{text[:SHOWN_CHARS]}…'}"


class EvaluationInputs(BaseModel):
    """Inputs of a case: the recorded run, and the state with which its fork begins."""

    run: str
    recording: str
    """File of the recording, relative to the data set."""
    state: dict[str, Any]


class EvaluatedRun(BaseModel):
    """The way and the end of a run, as recorded or as evaluated."""

    status: str
    """Status of the end; `stopped` if the fork needed a decision, which no person makes here."""
    outcome: Any = None
    reason: str = ""
    """Reason of the end, or the decision that the fork needed."""
    nodes: list[str] = []
    would_have_called: list[UnmadeCall] = []
    """Writes that are not recorded."""
    made_lookups: list[str] = []
    """Lookups and requests to models that are not recorded, so that they were made, each as «activity key»."""


def evaluation(
    workflow: Workflow[Any, Any, Any], file: str | Path, *, lookups: Literal["recorded", "live"] = "recorded"
) -> "RunEvaluation":
    """Return the evaluation of the data set in `file` with the present code of its `workflow`.

    `outlast runs test RUN… --evals FILE` writes the file. `lookups="live"` makes each lookup and each request to a
    model again. Raises InvalidInput for another value.
    """
    Arguments("evaluation", of_call=True).one_of("lookups", lookups, ("recorded", "live"))
    return RunEvaluation(workflow, Path(file), lookups)


class RunEvaluation:
    """Cases of recorded runs. Made by `evaluation`."""

    def __init__(
        self, workflow: Workflow[Any, Any, Any], file: Path, lookups: Literal["recorded", "live"] = "recorded"
    ) -> None:
        self.workflow: Final = workflow
        self.file: Final = file
        self._lookups: Final = lookups

    async def run(self, inputs: EvaluationInputs) -> EvaluatedRun:
        """Execute the fork of one recorded run with the `inputs` of its case, and return its end. No write is made.

        Raises InvalidInput if the recording cannot be read or is of another workflow, and Conflict if its state does
        not fit the present code.
        """
        recording = await asyncio.to_thread(self._recording, inputs)
        clock = _RecordedTime(recording.began)
        store = await open_store("memory:", clock=clock)
        try:
            await _begin(store, self.workflow, recording, inputs.state, self._lookups)
            return await _Case(store, self.workflow, recording, clock).played()
        finally:
            await store.close()

    def _recording(self, inputs: EvaluationInputs) -> Recording:
        path = self.file.parent / inputs.recording
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            fix = f"write it again: outlast runs test {inputs.run} --evals {self.file}"
            raise InvalidInput(f"{path} cannot be read", str(error), fix) from error
        recording = Recording.load(text, str(path))
        if recording.workflow != self.workflow.name:
            raise InvalidInput(
                f"{path} is a run of {recording.workflow}",
                f"the evaluation executes {self.workflow.name}",
                "name the workflow of the run",
            )
        return recording


async def _begin(
    store: Store,
    workflow: Workflow[Any, Any, Any],
    recording: Recording,
    state: dict[str, Any],
    lookups: Literal["recorded", "live"],
) -> None:
    """Write the recorded run and start its fork. No worker serves the store yet, so the run itself is not executed."""
    operations = Operations(store, tenant=TENANT, actor=Actor(TENANT), workflows={workflow.name: workflow})
    await operations.start_run(workflow.name, given_of(workflow, recording), run_id=ANCESTOR, key=ANCESTOR)
    started = await store.load(RUN, (TENANT, ANCESTOR))
    assert started is not None
    for portion in in_portions(rows_of_ancestor(recording, workflow, started)):
        await store.commit(Commit(portion, label="recorded run"))
    asked = ForkRequest(ANCESTOR, FIRST, state, "recorded", lookups, NO_APPROVER, accept_undone=True)
    await fork(store, workflow, asked, tenant=TENANT, actor=TENANT, run=recording.run)


class _RecordedTime(SystemClock):
    """Real time that began when a recorded run did."""

    def __init__(self, began: int) -> None:
        self._ahead = began - super().wall()

    @override
    def wall(self) -> int:
        return super().wall() + self._ahead

    @override
    def boot_id(self) -> str:
        return ""  # the store's time follows `wall`


class _ReadingCaller(ActivityCaller):
    """A caller that makes lookups only."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(clock, DaemonPool(1))
        self.made: Final[list[str]] = []
        self.refused: Final[list[UnmadeCall]] = []

    @override
    async def _look_up(self, attempt: CallAttempt, call: PendingCall) -> Any:
        if attempt.callee.name != ADMISSION:  # the engine's own record of a decision
            self.made.append(f"{attempt.callee.name} {attempt.key}")
        return await super()._look_up(attempt, call)

    @override
    async def _run(self, attempt: CallAttempt) -> Any:
        self.refused.append(
            UnmadeCall(activity=attempt.callee.name, key=attempt.key, arguments=arguments_of(attempt) or {})
        )
        raise Refused("evaluation", "no write is made in an evaluation")


class Stop(NamedTuple):
    """The fork needs a decision, which no person makes in an evaluation."""

    why: str
    unmade: tuple[UnmadeCall, ...] = ()


class Go(NamedTuple):
    """The fork goes on once this much business time has passed, and this signal was sent."""

    ms: int
    signal: RecordedAct | None = None


def next_move(rows: RunRows, recording: Recording, signals: Sequence[RecordedAct]) -> Stop | Go | None:
    """Return the next move of a fork that no worker executes; None if it goes on by itself.

    `signals`: those of the recorded run that were not sent yet. Each is sent at its recorded time.
    """
    run, now = rows.run, rows.now
    if run.attention:
        first = run.attention[0]
        return Stop(f"requires a person: {first.reason}: {(first.detail.splitlines() or [''])[0]}")
    pending = [approval for approval in rows.approvals if approval.status is ApprovalStatus.PENDING]
    if pending:
        return _asked(pending[0], recording)
    if any(timer.real for timer in run.timers) or (run.due_at is not None and run.due_at <= now.real):
        return None
    due = signals[0].at if signals else None
    if due is not None and all(due <= timer.at for timer in run.timers):
        return Go(max(0, due - now.business), signals[0])
    if run.timers:
        return Go(max(1, min(timer.at for timer in run.timers) - now.business))
    waits = ", ".join(f"{wait.kind} {wait.what}" for wait in run.waiting_for)
    return Stop(f"waits for {waits or 'nothing that comes by itself'}")


def _asked(approval: Approval, recording: Recording) -> Stop:
    """Return the stop at an approval of a call that is not recorded, or of one that was approved then."""
    offered = [UnmadeCall(activity=p.activity, key=p.key, arguments=p.arguments()) for p in approval.plans]
    made = [UnmadeCall(activity=c.activity, key=c.key, arguments=c.arguments or {}) for c in recording.calls]
    for call in offered:
        if call in made:
            return Stop(f"asks {approval.who} to approve {call}, as the recorded run did")
    return Stop(f"would have called {offered[0]}", (offered[0],))


class _Case:
    """One fork, until it ends or needs a decision."""

    def __init__(
        self, store: Store, workflow: Workflow[Any, Any, Any], recording: Recording, clock: SystemClock
    ) -> None:
        self._store = store
        self._clock = clock
        self._recording = recording
        self._key = (TENANT, recording.run)
        self._signals = [act for act in recording.acts if act.kind == "signal"]
        self._caller = _ReadingCaller(clock)
        self._runtime = InProcessRuntime(store, (workflow,), tenant=TENANT, actor=Actor(TENANT), clock=clock)
        executors = self._runtime._worker._executors
        executors.services = executors.services._replace(caller=self._caller)

    async def played(self) -> EvaluatedRun:
        """Execute the fork. Return how it ended; a fork that was stopped is cancelled."""
        async with self._runtime:
            stop = await self._until_it_stops()
            if stop is not None:
                await self._cancel(stop)
            rows = await self._rows()
        events = await self._store.rows(EVENT, self._key)
        nodes = nodes_of(RunHistory(rows.run, events))
        facts: dict[str, Any] = {"nodes": nodes, "made_lookups": list(dict.fromkeys(self._caller.made))}
        facts["would_have_called"] = [*(stop.unmade if stop is not None else ()), *self._caller.refused]
        if stop is not None:
            return EvaluatedRun(status=STOPPED, reason=stop.why, **facts)
        end = end_of(events[-1])
        assert end is not None, "the fork has ended"
        return EvaluatedRun(status=rows.run.status.value, outcome=end.outcome, reason=end.reason, **facts)

    async def _until_it_stops(self) -> Stop | None:
        """Let the fork go on until it ends (None) or needs a decision."""
        give_up = self._clock.mono() + CASE_MS
        while self._clock.mono() < give_up:
            rows = await self._rows()
            if is_over(rows.run):
                return None
            move = None if rows.run.owner else next_move(rows, self._recording, self._signals)
            if isinstance(move, Stop):
                return move
            if move is None:
                await asyncio.sleep(TURN_S)
                continue
            if move.ms:
                await skip(self._store, milliseconds=move.ms)
            if move.signal is not None:
                await self._send(self._signals.pop(0))
        return Stop(f"did not end within {CASE_MS // 1000} s")

    async def _send(self, act: RecordedAct) -> None:
        with suppress(Conflict):  # the fork has ended
            await self._runtime.operations.signal(self._key[1], act.name, act.payload, signal_id=act.signal_id)

    async def _cancel(self, stop: Stop) -> None:
        operations = self._runtime.operations
        with suppress(Conflict):  # it has ended
            await operations.cancel(self._key[1], reason=f"evaluation: {stop.why}")
        await operations.until_row(self._key[1], is_over, within_s=END_S)

    async def _rows(self) -> RunRows:
        (rows,) = await self._store.run_rows([self._key])
        assert rows is not None
        return rows
