"""Crash tests of a recorded run: its receivers and people for `every_crash`, and the caller in killed processes.

The receivers are fake ones outside the killed processes. They execute a request once per key if the activity says that
its receiver does, so their record shows each call that happened twice. The answers come from the recording.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from typing_extensions import override

from outlast.core.effect_steps import DidNotHappen, Happened
from outlast.core.machine import Choice, Reason
from outlast.engine.attempts import CallAttempt
from outlast.engine.worker import WorkerProcess
from outlast.flow.calls import LateAnswer
from outlast.flow.undo import UndoTerms
from outlast.flow.workflow import Workflow
from outlast.store.port import Store
from outlast.testing.answers import Decide, PendingQuestion, ScriptedAnswer, approve, choose, reject, send
from outlast.testing.crash_values import RUN_ID
from outlast.testing.fake_receivers import FakeReceivers
from outlast.testing.recorded_caller import RecordedCaller, kind_of
from outlast.testing.recorded_calls import MadeCall, RecordedAnswers
from outlast.testing.recorded_policy import with_recorded_policy
from outlast.upkeep.recording import AnsweredCall, RecordedAct, Recording

ENV: Final = "OUTLAST_RECORDED_RECEIVERS"
MISSING: Final = 404
GENERATED: Final = re.compile(r"[a-z]+_[0-9a-z]{12}")
"""A generated id of a run. It occurs nowhere by chance, unlike an id that a caller has chosen."""
SERVE: Final = "outlast.testing.recorded_crashes:serve"
"""Function with which a process under test serves a recorded run."""
Answer = Callable[[WorkerProcess, Store, Any], None]


# --- in the process of the test ------------------------------------------------------------------------
def receivers_of(workflow: Workflow[Any, Any, Any]) -> FakeReceivers:
    """Return receivers for the activities of a workflow, each with the abilities that its activity declares."""
    found = FakeReceivers(env=ENV)
    for activity in workflow.activities.values():
        if activity.kind != "write":
            continue
        for path, mode in (
            (_path(activity), activity.mode),
            *(((_path(activity.undoing), activity.undoing.mode),) if activity.undoing is not None else ()),
        ):
            if mode == "ask_person":
                found.route(path, duplicates="act", askable=False)
            else:
                found.route(path, askable=mode == "reconcile")
    return found


def _path(callee: Any) -> str:
    name = quote(callee.name, safe="")
    return f"/undo/{name}" if isinstance(callee, UndoTerms) else f"/do/{name}"


def in_scenario(recording: Recording) -> Recording:
    """Return the recording with the id of the run under test, where it has a generated id of its run."""
    if not GENERATED.fullmatch(recording.run):
        return recording
    return Recording.load(recording.dump().replace(recording.run, RUN_ID), recording.run)


def response_of(recording: Recording) -> Callable[[dict[str, Any]], Any]:
    """Return the function from the row of an uncertain effect to its recorded response."""

    def response(effect: dict[str, Any]) -> Any:
        mine = [call for call in recording.calls if call.kind != "lookup" and call.key == effect["key"]]
        exact = [call for call in mine if call.scope == effect["visit"]]
        return (exact or mine)[0].answer if mine else None

    return response


def decide_of(recording: Recording) -> Decide:
    """Return the function that answers each question as the people and programs of the run did."""

    def decide(asked: PendingQuestion) -> ScriptedAnswer | None:
        match asked.kind:
            case "approval":
                return _decision(recording, asked)
            case "signal":
                waits = [wait for wait in recording.waits if (wait.name, wait.visit) == (asked.name, asked.visit)]
                payloads = [payload for wait in waits for payload in wait.payloads]
                return send(*payloads) if payloads else None
            case "attention":
                return _choice(recording.acts, asked.name)
        return None

    return decide


def _decision(recording: Recording, asked: PendingQuestion) -> ScriptedAnswer | None:
    kinds = ("approve", "reject", "again")
    mine = [a for a in recording.acts if a.kind in kinds and (a.name, a.visit) == (asked.name, asked.visit)]
    if not mine:
        return None
    answers = RecordedAnswers(recording, instants=False)
    same = [a for a in mine if answers.different(a.plans, list(asked.plans)[: len(a.plans or ())]) is None]
    act = (same or mine[-1:])[0]
    people = tuple(each.by for each in same or mine[-1:] if each.by)
    if act.kind == "approve":
        given = approve(act.reason, alternative=act.alternative)
    else:
        given = reject(act.reason, again=act.kind == "again")
    return ScriptedAnswer(given.verb, {**given.given, "people": people})


def _choice(acts: Sequence[RecordedAct], reason: str) -> ScriptedAnswer | None:
    for act in acts:
        if act.kind == "answer" and act.name == reason:
            return choose(act.choice, act.reason or "recorded")
        if act.kind == "go_on" and act.name in (reason, Choice.CONTINUE.value):
            return choose(Choice.CONTINUE.value, act.reason or "recorded")
        if act.kind == "raise_budget" and reason == Reason.BUDGET_EXHAUSTED:
            more = {name: act.payload.get(name, 0) for name in ("tokens", "calls", "children")}
            money, minutes = str(act.payload["money"] / 1_000_000), act.payload["ms"] / 60_000
            return choose(Choice.RAISE.value, act.reason, money=money, minutes=minutes, **more)
    return None


# --- in a process that may be killed -------------------------------------------------------------------
def serve(workflows: Sequence[Workflow[Any]], ask: dict[str, Any]) -> tuple[list[Workflow[Any]], Answer]:
    """Return the workflows with recorded verdicts, and a function that lets a worker call the fake receivers."""
    recording = _load(ask)
    answers = RecordedAnswers(recording, instants=False)

    def answer(worker: WorkerProcess, store: Store, clock: Any) -> None:
        executors = worker._executors
        executors.services = executors.services._replace(caller=_CrashedCaller(clock, store, answers, ask["env"][ENV]))

    return [with_recorded_policy(workflow, recording) for workflow in workflows], answer


def _load(ask: dict[str, Any]) -> Recording:
    path = Path(ask["recording"])
    return in_scenario(Recording.load(path.read_text(encoding="utf-8"), str(path)))


class _CrashedCaller(RecordedCaller):
    """The caller of a process that may be killed during a call."""

    def __init__(self, clock: Any, store: Store, answers: RecordedAnswers, url: str) -> None:
        super().__init__(clock, store, answers)
        self._url = url

    @override
    async def receive(self, attempt: CallAttempt, made: MadeCall, found: AnsweredCall) -> None:
        if made.kind == "lookup" or found.error is not None:
            return
        await self._request("POST", attempt, json.dumps({"key": attempt.key}).encode())

    @override
    async def as_call(self, attempt: CallAttempt, fn: Any, evidence: Sequence[LateAnswer] = ()) -> Any:
        """Ask the receiver whether it executed the call, in place of the author's reconcile function."""
        status = await self._request("GET", attempt)
        if status == MISSING:
            return DidNotHappen()
        found = self._answers.answer(await self._made(attempt, kind_of(attempt.callee)))
        assert isinstance(found, AnsweredCall), "a call that was executed is recorded"
        return Happened(attempt.callee.response_codec.load(found.response))

    async def _request(self, method: str, attempt: CallAttempt, body: bytes = b"") -> int:
        """Send a request, and return the status of the answer."""
        place = urlsplit(self._url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            head = (
                f"{method} {_path(attempt.callee)} HTTP/1.1",
                f"Host: {place.netloc}",
                f"Idempotency-Key: {attempt.idempotency_key}",
                f"Content-Length: {len(body)}",
                "Connection: close",
            )
            writer.write("\r\n".join((*head, "", "")).encode() + body)
            await writer.drain()
            line = await reader.readline()
            await reader.read()
        finally:
            writer.close()
        if not line:
            raise ConnectionResetError("the receiver closed the connection")
        return int(line.split(b" ", 2)[1])
