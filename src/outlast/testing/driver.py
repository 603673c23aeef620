"""Driver of a scenario: starts one process after the other until the run and every run below it have ended.

The next action follows from the rows in the store, so the same policy drives the reference and every recovery. The
driver owns the time. It moves past a lease, a settle time or a timer when nothing else is left to do.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from outlast.clocks import SystemClock
from outlast.core.machine import ApprovalStatus, Choice, EffectStatus, Reason, WaitStatus
from outlast.core.rows.approval_columns import PLANS, VOTES
from outlast.testing.answers import (
    Decide,
    PendingQuestion,
    ScriptedAnswer,
    answer_of,
    asked_plans,
    choose,
    next_approver,
    no_answer,
)
from outlast.testing.crash_values import (
    T0,
    Action,
    CheckFailed,
    CrashPoint,
    PointNotReached,
    ProcessResult,
    ScenarioState,
)
from outlast.testing.fork_server import ForkServer
from outlast.testing.run_snapshot import RunSnapshot, ScenarioFile, ScenarioStore

PAST_LEASE_MS: Final = 20_000
PROCESSES_MAX: Final = 120  # a scenario that needs more makes no progress
Signal = tuple[str, dict[str, Any], str]
DID_NOT: Final = "did_not_happen"
CLOCK: Final = SystemClock()


class CallMonitor(Protocol):
    """Observer of the calls of a process. It can kill the process while a call is in flight, or lose the call."""

    def sees(self, point: CrashPoint) -> bool:
        """Return True if it acts at this point, and not the process itself."""

    def begin(self, point: CrashPoint | None, at: int) -> None:
        """Start to observe a process at this time, and act at `point` if given."""

    def process_started(self, pid: int) -> None:
        """Receive the id of the process."""

    def end(self) -> tuple[list[CrashPoint], tuple[str, str, int] | None]:
        """Stop to observe. Returns the points seen, and the place where the monitor acted."""


@dataclass
class CrashScenario:
    """A workflow under test, its input, and the behaviour of everything outside it."""

    name: str
    input: dict[str, Any]
    executed: Callable[[ScenarioState], Mapping[str, int]]
    answer: Callable[[ScenarioState, dict[str, Any]], Any]
    """Returns the receiver's answer to an uncertain effect as `(response,)`, or None if it never executed the call."""
    may_be_uncertain: Callable[[str], bool]
    """True if a crash can leave the outcome of this key unknown."""
    was_undone: Callable[[dict[str, Any]], bool | None] = lambda undo: None
    """Returns whether the receiver executed an uncertain undo, for which `decide` has no answer; None: not known."""
    why_known: Callable[[str], str] = lambda key: "its receiver deduplicates or can be asked"
    """Returns the reason why the outcome of this key must be known."""
    decide: Decide = no_answer
    signals: Callable[[RunSnapshot, ScenarioState], list[Signal]] | None = None
    """Returns the signals (name, payload, id) that have arrived by now. None: `decide` sends them."""
    env: Callable[[ScenarioState], dict[str, str]] = lambda state: {}
    enter: Callable[[ScenarioState], None] = lambda state: None
    """Called when the scenario continues in a folder."""
    wrong: Callable[[ScenarioState, Mapping[str, int]], list[str]] | None = None
    """Returns the errors in the receivers' record, given the counts of the reference. None: compare the counts."""
    acts: Callable[[RunSnapshot, ScenarioState], Action | None] = lambda seen, state: None
    """Returns what a person does now, before anything else, also while a dead process owns the run."""
    monitor: CallMonitor | None = None
    slots: int = 0
    durations: dict[str, int] = field(default_factory=dict)
    """Liveness durations of its workers, in ms."""
    began: int = T0
    """The time at which it starts."""
    comparable: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Return the part of an end that every play must have in common."""


@dataclass
class Driver:
    """Runs scenarios of one workflow with one fork server.

    `one_commit_each` puts each commit into its own transaction; otherwise commits are batched as in production.
    `resolved` collects the keys of uncertain effects that the driver resolved. `more` is passed to `prepare`.
    """

    forks: ForkServer
    scenario: CrashScenario
    threads: bool = True
    one_commit_each: bool = True
    resolved: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    store: ScenarioStore = field(default_factory=ScenarioFile)

    # --- one process ----------------------------------------------------------------------------
    def run_process(self, state: ScenarioState, action: Action, point: CrashPoint | None = None) -> ProcessResult:
        """Run one process until it ends, is killed at the crash point, or is stopped there."""
        monitor = self.scenario.monitor
        outside = point is not None and monitor is not None and monitor.sees(point)
        state.at = max(state.at, action.at)
        state.processes += 1
        began = CLOCK.mono()
        if monitor is not None:
            monitor.begin(point if outside else None, state.at)
        ask = self._ask(state, action, None if outside else point)
        answer = self.forks.run_child(ask, monitor.process_started if monitor is not None else lambda pid: None)
        seen = [CrashPoint(*one) for one in answer.get("seen", ())]
        at = answer.get("at")
        if monitor is not None:
            more, killed_at = monitor.end()
            seen += more
            at = at or killed_at
        state.at += CLOCK.mono() - began + 1
        result = ProcessResult(action, answer["died"], answer["stopped"], seen, answer.get("answer", ""))
        _as_asked(result, point, at, answer.get("error", ""))
        return result

    def resume(self) -> ProcessResult:
        """Let the stopped process run to its end."""
        answer = self.forks.resume()
        if answer["died"]:
            raise CheckFailed(f"the resumed process died of {answer['died']}: {answer.get('error', '')}")
        return ProcessResult(Action("resume"), 0, False, [], answer.get("answer", ""))

    def jump(self, state: ScenarioState, ms: int) -> None:
        """Move the clocks of all processes forward, a stopped one included."""
        jumps = state.folder / "jumps"
        jumps.write_text(str(int(jumps.read_text() or "0") + ms if jumps.exists() else ms))
        state.at += ms

    def _ask(self, state: ScenarioState, action: Action, point: CrashPoint | None) -> dict[str, Any]:
        return {
            "op": "run",
            **self.store.request(state),
            "output": str(state.output),
            "at": state.at,
            "jumps": str(state.folder / "jumps"),
            "n": state.processes,
            "do": action.do,
            "args": dict(action.args),
            "point": point._asdict() if point else None,
            "threads": self.threads,
            "one_commit_each": self.one_commit_each,
            "live": self.scenario.durations,
            "env": {**self.scenario.env(state), **self.env},
            **self.more,
        }

    # --- the next action -----------------------------------------------------------------------
    def next(self, state: ScenarioState) -> Action | None:
        """Return the next action, or None if each run has ended. Raises CheckFailed if no event can move a run."""
        seen = self.store.read(state)
        if self.scenario.slots and not seen.slots:
            return Action("slots", {"n": self.scenario.slots})
        if not seen.run:
            return Action("start", {"workflow": self.scenario.name, "input": self.scenario.input})
        living = [run for run in seen.tree if not run.over]
        if not living:
            return None
        act = self.scenario.acts(seen, state)
        if act is not None:
            return act
        if any(run.run["owner"] for run in living):
            return Action("work", at=state.at + PAST_LEASE_MS)  # its holder died, and its lease expires first
        due = min((run.run["due_at"] for run in living if run.run["due_at"] is not None), default=None)
        if due is not None and due <= state.at:
            return Action("work")
        for run in living:
            answer = (self._resolve(run, state) if run.attention else None) or self._answer(run, state)
            if answer is not None:
                return answer._replace(args={**answer.args, "run": run.run["run"]})
        if due is None:
            raise CheckFailed(_stuck(living))
        return Action("work", at=due + 1)

    def _answer(self, seen: RunSnapshot, state: ScenarioState) -> Action | None:
        for approval in seen.approvals:
            if approval["status"] == ApprovalStatus.PENDING:
                answer = answer_of(self.scenario.decide, _approval(seen, approval))
                if answer is not None:
                    voters = [vote.by for vote in VOTES.decode(approval["votes"])]
                    person = _person(answer, approval["who"], voters)
                    return Action(answer.verb, {"approval": approval["id"], "actor": person, **answer.given})
        signals = [s for s in (self.scenario.signals or self._decided)(seen, state) if s[2] not in seen.signals]
        return Action("post", {"signals": signals}) if signals else None

    def _decided(self, seen: RunSnapshot, state: ScenarioState) -> list[Signal]:
        """Return the signals that `decide` sends, each once however often it is asked."""
        found: list[Signal] = []
        open_ = [w for w in seen.waits if w["status"] == WaitStatus.OPEN and w["kind"] in ("receive", "collect")]
        for wait in open_:
            answer = answer_of(self.scenario.decide, _asked(seen, "signal", wait["name"]))
            for n, payload in enumerate(answer.given["payloads"] if answer else ()):
                found.append((wait["name"], payload, f"{wait['name']}/{wait['visit']}/{n}"))
        return found

    def _resolve(self, seen: RunSnapshot, state: ScenarioState) -> Action | None:
        uncertain = [e for e in seen.effects if e["status"] == EffectStatus.UNCERTAIN]
        entry = seen.attention[0]
        if uncertain and entry["reason"] != Reason.UNDO_FAILED:  # an uncertain undo is answered through its attention
            return self._settle(uncertain[0], state)
        detail = str(entry.get("detail", ""))
        answer = answer_of(self.scenario.decide, _asked(seen, "attention", entry["reason"], summary=detail))
        undo = next((e for e in uncertain if e["undoes"]), None)
        if answer is None and undo is not None:
            answer = self._from_record(undo)
        if answer is not None:
            self.resolved += [e["key"] for e in uncertain[:1]]
            given = {"attention": entry["reason"], "key": entry.get("key", ""), **answer.given}
            return Action("answer", given, at=uncertain[0]["settle_after"] + 1 if uncertain else 0)
        return None

    def _from_record(self, undo: dict[str, Any]) -> ScriptedAnswer | None:
        """Answer an uncertain undo as the receivers' record says."""
        executed = self.scenario.was_undone(undo)
        return None if executed is None else choose(Choice.DONE_BY_HAND if executed else Choice.RETRY, "asked them")

    def _settle(self, effect: dict[str, Any], state: ScenarioState) -> Action:
        answer = self.scenario.answer(state, effect)
        self.resolved.append(effect["key"])
        if answer is not None:
            return Action("resolve", {"key": effect["key"], "verb": "happened", "response": answer[0]})
        given = {"key": effect["key"], "verb": DID_NOT, "response": None}
        return Action("resolve", given, at=effect["settle_after"] + 1)

    def finish(self, state: ScenarioState, each: Callable[[ProcessResult], None] = lambda result: None) -> RunSnapshot:
        """Run processes until each run has ended, and return their rows."""
        for _ in range(PROCESSES_MAX):
            action = self.next(state)
            if action is None:
                return self.store.read(state)
            each(self.run_process(state, action))
        left = [run.run for run in self.store.read(state).tree if not run.over]
        raise CheckFailed(f"not ended after {PROCESSES_MAX} processes: {left}")


def _person(answer: ScriptedAnswer, who: str, voters: list[str]) -> str:
    """Return a person who has not voted: one that the answer names, else one whom the rule allows."""
    named = (name for name in answer.given.get("people", ()) if name not in voters)
    return next(named, None) or next_approver("ann", who, voters)


def _as_asked(result: ProcessResult, point: CrashPoint | None, at: Any, error: str) -> None:
    """Check that the process died of SIGKILL at its crash point and nowhere else, or survived the loss of a request.

    Without this check a crash test proves nothing.
    """
    do = result.action.do
    if point is None:
        if result.died:
            raise CheckFailed(f"{do} died of {result.died}: {error}")
        return
    there = at is not None and tuple(at) == point.where
    if point.act == "kill" and (result.died != -9 or not there):
        kind = PointNotReached if result.died == 0 else CheckFailed
        raise kind(f"{point.label} {point.name} did not fire: the process ended with {result.died} {error}")
    if point.act == "lose" and not there:
        raise PointNotReached(f"{point.label} {point.name} was not reached")
    if point.act == "lose" and result.died:
        raise CheckFailed(f"{point} ended it with {result.died}: {error}")
    if point.act == "stop" and not (result.stopped and there):
        raise CheckFailed(f"{point} did not stop it: died {result.died} {error}")


def _stuck(living: list[RunSnapshot]) -> str:
    """Return why no event moves the tree: of its runs, the lowest that needs a person, or else the lowest."""
    for seen in reversed(living):
        for entry in seen.attention:
            return f"{_name(seen)} requires attention ({entry['reason']}): {entry.get('detail', '')}; {_position(seen)}"
    return f"no event will move {_name(living[-1])}: {_position(living[-1])}"


def _name(seen: RunSnapshot) -> str:
    return f"child {seen.path}" if seen.path else "the run"


def _position(seen: RunSnapshot) -> str:
    waits = ", ".join(f"{w['kind']} {w['what']}" for w in seen.waiting) or "nothing"
    return f"it is at node {seen.run['node']} and waits for {waits}; let decide answer that"


def _asked(seen: RunSnapshot, kind: Any, name: str, **more: Any) -> PendingQuestion:
    return PendingQuestion(kind, name, seen.run["node"], seen.run["visit"], seen.state, **more, child=seen.path)


def _approval(seen: RunSnapshot, approval: dict[str, Any]) -> PendingQuestion:
    plans = asked_plans(PLANS.decode(approval["plans"]))
    return _asked(seen, "approval", approval["wait"], summary=approval["summary"], plans=plans)


def effect_asked(seen: RunSnapshot, effect: dict[str, Any]) -> PendingQuestion:
    """Return the question that `decide` gets about an uncertain effect."""
    call = {"activity": effect["activity"], "key": effect["key"], "arguments": json.loads(effect["args"])}
    return _asked(seen, "effect", effect["key"], plans=(call,))


def answered(answer: ScriptedAnswer) -> tuple[Any] | None:
    """Return the response of an uncertain effect as `(response,)`, or None if it did not happen."""
    if answer.verb == DID_NOT:
        return None
    if answer.verb == "happened":
        return (answer.given["response"],)
    raise TypeError(f"an uncertain effect is answered by happened(…) or did_not_happen(), not {answer.verb}")
