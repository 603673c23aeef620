"""A recorded run as a test: it is played again in virtual time, and compared with its recording.

`outlast runs test RUN --to FILE` writes the recording and the test. The play uses the real engine. Its caller answers
each call as recorded, at the recorded business instant. Between the calls, people and programs act as they did.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel
from typing_extensions import override

from outlast.core.approvals import Actor
from outlast.core.codec import canonical
from outlast.core.commit import Commit, Put
from outlast.core.durations import SECOND
from outlast.core.events import iso
from outlast.core.machine import ApprovalStatus, Choice, Reason
from outlast.core.rows.effect_rows import MEMO, Memo
from outlast.core.rows.run_rows import RESULT, RUN, is_over
from outlast.core.verbs import end_of
from outlast.engine.attempts import CallAttempt
from outlast.errors import Conflict, InvalidInput, NotFound
from outlast.flow.workflow import Workflow
from outlast.insight.run_history import RunHistory
from outlast.runtime.operations import Operations
from outlast.store.port import RunRows
from outlast.testing.campaign import CrashOptions, Pairs, RunEnd
from outlast.testing.crash_values import CheckFailed
from outlast.testing.decorator import decorated
from outlast.testing.recorded_caller import RecordedCaller
from outlast.testing.recorded_calls import SAME_INSTANT_S, Difference, MadeCall, RecordedAnswers, without_instants
from outlast.testing.recorded_crashes import SERVE, decide_of, in_scenario, receivers_of, response_of
from outlast.testing.recorded_policy import with_recorded_policy
from outlast.testing.virtual_runtime import App, AppRun, skip
from outlast.upkeep.recorded_test import why_not_crashed
from outlast.upkeep.recording import AnsweredCall, RecordedAct, Recording, nodes_of

S = TypeVar("S", bound=BaseModel)
ROUNDS_MAX: Final = 100_000
DIFFERS: Final = "recording_differs"


def recorded(workflow: Workflow[S, Any, Any], file: str | Path) -> "RecordedRun[S]":
    """Return the recorded run in `file`, to be played with the present code of its `workflow`.

    For the file of a test (`recorded(orders, __file__)`), the recording is the file beside it that ends in .json.
    Raises InvalidInput if there is no recording, or if it is of another workflow.
    """
    path = Path(file).with_suffix(".json")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(f"{path} cannot be read", why, f"write it: outlast runs test RUN --to {file}") from error
    found = Recording.load(text, str(path))
    if found.workflow != workflow.name:
        raise InvalidInput(
            f"{path} is a run of {found.workflow}", f"the test plays {workflow.name}", "name the workflow of the run"
        )
    return RecordedRun(workflow, found, path)


class RunDiffers(AssertionError):
    """A run differs from its `recording`. `difference` has the first place, and what differs there."""

    def __init__(self, recording: Recording, difference: Difference) -> None:
        self.difference: Final = difference
        super().__init__(f"the run differs from {recording.run} as recorded\n  {difference.where}\n  {difference.what}")


class RecordedRun(Generic[S]):
    """A recorded run of a workflow. Made by `recorded`."""

    def __init__(self, workflow: Workflow[S, Any, Any], recording: Recording, path: Path) -> None:
        self.workflow: Final = workflow
        self._path = path
        self.recording: Final = recording

    def play(self) -> None:
        """Play the run without a crash, and compare each call and the end with the recording.

        Raises RunDiffers with the node, the visit, the call and the path of the first value that differs.
        """
        with RecordedPlay(self.workflow, self.recording) as play:
            difference = play.run()
        if difference is not None:
            raise RunDiffers(self.recording, difference)

    def every_crash(
        self, *, cases: int = 0, pairs: Pairs = 0, seed: int = 0, workers: int = 2
    ) -> Callable[[Callable[..., Any]], Callable[..., None]]:
        """Test the run against a crash at every place where one matters, as `every_crash` does.

        The recording answers the calls and decides. Fake receivers outside the killed processes count each call. The
        decorated function is called with each `RunEnd`; `check` compares it with the recording. `cases`, `pairs`,
        `seed` and `workers` are those of `every_crash`.
        """
        return decorated(self._crash_options(pairs, seed, workers, cases))

    def _crash_options(self, pairs: Pairs = 0, seed: int = 0, workers: int = 2, cases: int = 0) -> CrashOptions:
        if why := why_not_crashed(self.recording):
            raise InvalidInput(f"{self.recording.run} cannot be played with crashes", why, "use play() alone")
        played = in_scenario(self.recording)
        return CrashOptions(
            self.workflow,
            given_of(self.workflow, played),
            decide_of(played),
            receivers_of(self.workflow),
            pairs,
            seed,
            workers,
            cases=cases,
            recording=str(self._path.resolve()),
            serve=SERVE,
            response_of=response_of(played),
            began=self.recording.began,
            comparable=_comparable,
        )

    def check(self, end: RunEnd) -> None:
        """Compare the `end` of a crash case with the recorded one: status, reason, nodes, effects and outcome.

        Instants are not compared, because time passes in another way. Raises RunDiffers.
        """
        played = in_scenario(self.recording)
        was = played.end
        effects = {call.key: call.status for call in played.calls if call.kind != "lookup"}
        recorded_end = _end(was.status, was.reason, was.nodes, was.outcome, effects)
        actual = _end(end.status, end.reason, list(end.nodes), end.outcome, dict(end.effects))
        different = RecordedAnswers(played, instants=False).different(recorded_end, actual)
        if different is not None:
            where = f"the end after {end.case}" if end.case else "the end"
            raise RunDiffers(self.recording, Difference(where, different))


def _comparable(end: dict[str, Any]) -> dict[str, Any]:
    """Return an end without instants, and without digests of calls whose arguments may have some."""
    approvals = [(wait, status, bool(chosen), consumed) for wait, status, chosen, consumed in end["approvals"]]
    return dict(without_instants({**end, "approvals": approvals}))


def _end(status: str, reason: str, nodes: list[str], outcome: Any, effects: dict[str, str]) -> dict[str, Any]:
    return {"status": status, "reason": reason, "nodes": nodes, "outcome": outcome, "effects": effects}


def given_of(workflow: Workflow[Any, Any, Any], recording: Recording) -> dict[str, Any]:
    """Return the input with which the recorded run was started."""
    if workflow.input is None:
        return dict(recording.state)
    named = {name: each.alias or name for name, each in workflow.input.model_fields.items()}
    return {alias: recording.state[name] for name, alias in named.items() if name in recording.state}


class RecordedPlay:
    """One play of a recording. Close it, or use it as a context manager."""

    def __init__(self, workflow: Workflow[Any, Any, Any], recording: Recording) -> None:
        self.answers: Final = RecordedAnswers(recording)
        self.arguments: Final[dict[int, dict[str, Any]]] = {}
        """Arguments of the calls of the play, by the index of the recorded call."""
        self._recording = recording
        self._workflow = with_recorded_policy(workflow, recording)
        self._acts = list(recording.acts)
        self._difference: Difference | None = None
        self._passing = asyncio.Lock()
        self._run = recording.run
        self._app = App((self._workflow,), began=recording.began)
        self._store = self._app.store
        self._app.answer_with(_CalmCaller(self))

    def __enter__(self) -> "RecordedPlay":
        return self

    def __exit__(self, *error: object) -> None:
        self._app.close()

    def run(self) -> Difference | None:
        """Play the run to its end. Return the first difference from the recording, or None."""
        run = self._start()
        for _ in range(ROUNDS_MAX):
            if self._difference is not None:
                return self._difference
            rows = self._app.rows(run.id)
            if is_over(rows.run):
                return self._at_end(rows)
            if not self._app.do(self._go_on(rows)):
                return self._stuck()
            self._app.settle()
        raise CheckFailed(f"the run of {self._recording.run} still goes on after {ROUNDS_MAX:,} steps")

    def _start(self) -> AppRun[Any]:
        given = given_of(self._workflow, self._recording)
        tenant, began = self._app.runtime.operations.tenant, self._recording.began
        for each in self._recording.sets:
            row = Memo(tenant, self._run, each["visit"], each["key"], "", "", canonical(each["row"]), "", began)
            self._app.do(self._store.commit(Commit((Put(MEMO, row, 0),), label=f"{self._run} recorded {row.key}")))
        self._app.do(
            self._app.runtime.operations.start_run(self._workflow.name, given, run_id=self._run, key=self._run)
        )
        self._app.settle()
        return AppRun(self._app, self._workflow, self._run)

    # --- time and acts -------------------------------------------------------------------------------
    async def _go_on(self, rows: RunRows) -> bool:
        """Let time pass to the next act or timer. Return False if neither is left within the recorded time."""
        now = await self._store.now()
        if any(timer.real for timer in rows.run.timers) and rows.run.due_at is not None and not self._due(now.business):
            await self._app.time.advance(max(1, rows.run.due_at - now.real))
            return True
        timers = [timer.at for timer in rows.run.timers if not timer.real]
        times = [*timers, *(act.at for act in self._acts[:1])]
        last = self._recording.ended + SAME_INSTANT_S * SECOND
        if not times or (min(times) > last and not self._due(now.business)):
            return False
        await self.pass_to(max(self._claimed(min(times)), now.business))
        return True

    def _claimed(self, due: int) -> int:
        """Return when a worker claimed the run that became due at an instant; that instant if none is recorded."""
        at = next((claim for claim in self._recording.claims if claim >= due), due)
        return min([at, *(act.at for act in self._acts[:1] if act.at >= due)])

    def _due(self, business: int) -> bool:
        return bool(self._acts) and self._acts[0].at <= business

    async def pass_to(self, at: int) -> None:
        """Let business time pass to an instant; each act up to it happens at its own."""
        async with self._passing:
            while self._acts and self._acts[0].at <= at and self._difference is None:
                act = self._acts.pop(0)
                await self._skip_to(act.at)
                await self._perform(act)
            await self._skip_to(at)

    async def _skip_to(self, at: int) -> None:
        now = (await self._store.now()).business
        if at > now:
            await skip(self._store, milliseconds=at - now)

    async def _perform(self, act: RecordedAct) -> None:
        """Act as a person or a program did. An act that the run does not allow is a difference."""
        try:
            await self._act(self._person(act.by), act)
        except (Conflict, NotFound) as refused:
            name = f" {act.name}" if act.name else ""
            where = f"{act.kind}{name} of {act.by or 'a program'} at {iso(act.at)}"
            (rows,) = await self._store.run_rows([(self._app.runtime.operations.tenant, self._run)])
            assert rows is not None
            self.note(Difference(where, f"{refused.what}: {_place_of(rows)}"))

    async def _act(self, person: Operations, act: RecordedAct) -> None:
        run = self._run
        match act.kind:
            case "signal":
                await person.signal(run, act.name, act.payload, signal_id=act.signal_id)
            case "cancel":
                await person.cancel(run, reason=act.reason)
            case "raise_budget":
                amounts = act.payload
                await person.raise_budget(
                    run,
                    tokens=amounts["tokens"],
                    money=amounts["money"] / 1_000_000,
                    calls=amounts["calls"],
                    minutes=amounts["ms"] / 60_000,
                    children=amounts.get("children", 0),
                    reason=act.reason,
                )
            case "go_on" | "answer":
                await self._answer_attention(person, act)
            case _:
                await self._decide(person, act)

    async def _answer_attention(self, person: Operations, act: RecordedAct) -> None:
        """Answer attention. One that this play does not need, such as after an interrupted call, is left out."""
        row = await self._store.load(RUN, (person.tenant, self._run))
        assert row is not None
        asked = {each.reason for each in row.attention}
        if act.kind == "go_on":
            if asked:
                await person.continue_run(self._run, reason=act.reason)
            return
        if Reason(act.name) in asked:
            longer = f"{act.by_ms} ms" if act.by_ms else None
            more: dict[str, Any] = {"by": longer} if longer else {}
            await person.answer(
                self._run, Choice(act.choice), reason=Reason(act.name), key=act.key, text=act.reason, **more
            )

    async def _decide(self, person: Operations, act: RecordedAct) -> None:
        (rows,) = await self._store.run_rows([(person.tenant, self._run)])
        assert rows is not None
        pending = [a for a in rows.approvals if a.status is ApprovalStatus.PENDING and a.wait == act.name]
        if not pending:
            raise NotFound("this approval is not pending")
        mine = pending[0]
        offered = [{"activity": p.activity, "key": p.key, "arguments": p.arguments()} for p in mine.plans]
        if (different := self.answers.different(act.plans, offered[: len(act.plans or ())], "plans")) is not None:
            self.note(Difference(f"node {rows.run.node}, visit {rows.run.visit}, approval {act.name}", different))
            return
        if act.kind == "approve":
            await person.approve(mine.id, reason=act.reason, alternative=act.alternative, changes=act.changes or None)
        else:
            await person.reject(mine.id, reason=act.reason, again=act.kind == "again")

    def _person(self, name: str) -> Operations:
        own = self._app.runtime.operations
        actor = Actor(name) if name else own.actor
        return Operations(own.store, tenant=own.tenant, actor=actor, workflows=own._workflows)

    # --- differences ---------------------------------------------------------------------------------
    def note(self, difference: Difference) -> None:
        """Keep a difference, unless the play had one before."""
        if self._difference is None:
            self._difference = difference

    def _stuck(self) -> Difference:
        rows = self._app.rows(self._run)
        end = f"the recorded run was {self._recording.end.status} at {iso(self._recording.ended)}"
        return Difference(f"node {rows.run.node}, visit {rows.run.visit}", f"{_place_of(rows)}, and {end}")

    def _at_end(self, rows: RunRows) -> Difference | None:
        if (missing := self.answers.missing()) is not None:
            return missing
        events = self._app.events(rows.run.run)
        end = end_of(events[-1])
        assert end is not None
        results = self._app.do(self._store.rows(RESULT, (rows.run.tenant, rows.run.run)))
        actual = {
            "nodes": nodes_of(RunHistory(rows.run, events)),
            "status": rows.run.status.value,
            "reason": end.reason,
            "outcome": end.outcome,
            "results": [{"key": row.key, "kind": row.kind, "data": row.value()} for row in results],
            "state": self._app.state(rows),
        }
        recorded_end = vars(self._recording.end)
        different = self.answers.different({name: recorded_end[name] for name in actual}, actual)
        return None if different is None else Difference(f"the end, at node {rows.run.node}", different)


def _place_of(rows: RunRows) -> str:
    """Return the place of a run, and what it waits for."""
    run = rows.run
    asked = "; ".join(f"{each.reason}: {(each.detail.splitlines() or [''])[0]}" for each in run.attention)
    waits = ", ".join(f"{each.kind} {each.what}" for each in run.waiting_for)
    state = f"requires a person ({asked})" if asked else f"waits for {waits}" if waits else f"is {run.status}"
    return f"the run at node {run.node}, visit {run.visit}, {state}"


class _CalmCaller(RecordedCaller):
    """The caller of a play without crashes: an answer comes at its recorded instant."""

    def __init__(self, play: RecordedPlay) -> None:
        super().__init__(play._app.time, play._store, play.answers)
        self._play = play

    @override
    async def differs(self, difference: Difference) -> None:
        self._play.note(difference)

    @override
    async def receive(self, attempt: CallAttempt, made: MadeCall, found: AnsweredCall) -> None:
        if made.arguments is not None:
            n = next(n for n, each in enumerate(self._answers.recording.calls) if each is found)
            self._play.arguments.setdefault(n, made.arguments)
        await self._play.pass_to(found.at)
