"""A run from its start to its end as a sequence of lives, each one a process; who acts next follows from the rows.

The same policy drives the uncrashed run and every recovery: look at the store, do the next thing. Time is the
parent's: it moves past a lease, a settle time or a timer when nothing else is left to do.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from outlast.core.machine import ApprovalStatus, EffectStatus, Reason, WaitStatus
from outlast.runtime.clocks import SystemClock
from outlast.testing.answers import Decide, PendingQuestion, ScriptedAnswer, answer_of, no_answer
from outlast.testing.crash_points import Action, CheckFailed, CrashPoint, PointNotReached, ProcessResult, ScenarioState
from outlast.testing.fork_server import ForkServer
from outlast.testing.run_snapshot import RunSnapshot, read_run

PAST_LEASE_MS: Final = 20_000
LIVES_MAX: Final = 120  # a story that needs more goes round in circles
OUTSIDE: Final = frozenset({"call:flight", "call:inside", "call:asked"})
"""The places that a watch outside the process sees: the request is here; it was acted upon; somebody asks for it."""

Signal = tuple[str, dict[str, Any], str]
DID_NOT: Final = "did_not_happen"
CLOCK: Final = SystemClock()


class CallMonitor(Protocol):
    """Whoever sees the calls of a life from outside it, and can end the process while one is in the air."""

    def begin(self, cell: CrashPoint | None, at: int) -> None:
        """A life begins at this instant; it is to be killed at this cell, if that is one of ours."""

    def born(self, pid: int) -> None:
        """This is its process."""

    def end(self) -> tuple[list[CrashPoint], tuple[str, str, int] | None]:
        """The life is over: what was seen, and where it was killed from here."""


@dataclass
class CrashScenario:
    """A workflow under test: how its story goes on, and what the receivers did."""

    name: str
    input: dict[str, Any]
    executed: Callable[[ScenarioState], Mapping[str, int]]
    answer: Callable[[ScenarioState, dict[str, Any]], Any]
    """What the receiver answered for an uncertain effect, as (response,); None: it never acted."""
    may_doubt: Callable[[str], bool]
    """May the outcome of an effect of this key be unknowable after a death?"""
    blame: Callable[[str], str] = lambda key: "its receiver dedupes or can be asked"
    """Why the outcome of an effect of this key ought to be known."""
    decide: Decide = no_answer
    signals: Callable[[RunSnapshot, ScenarioState], list[Signal]] | None = None
    """Signals by name, payload and id that have come by now; None: what `decide_approval` says."""
    env: Callable[[ScenarioState], dict[str, str]] = lambda state: {}
    enter: Callable[[ScenarioState], None] = lambda state: None
    """Called when a story is taken up in a folder."""
    wrong: Callable[[ScenarioState, Mapping[str, int]], list[str]] | None = None
    """What the receivers' record says against this end, given what it did in the uncrashed run; None: counts compared."""
    watch: CallMonitor | None = None
    slots: int = 0
    live: dict[str, int] = field(default_factory=dict)
    """Liveness durations of its workers, in ms."""


@dataclass
class Driver:
    """Tells stories of one workflow with one forker."""

    forker: ForkServer
    story: CrashScenario
    threads: bool = True
    alone: bool = True  # each logical commit in a transaction of its own; False: batched, as in production
    resolved: list[str] = field(default_factory=list)  # effects that were uncertain and that the teller answered
    env: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)  # for whoever prepares the process

    # --- one life ----------------------------------------------------------------------------
    def live(self, state: ScenarioState, action: Action, cell: CrashPoint | None = None) -> ProcessResult:
        """One process does this from its birth to its end, its death at the cell, or its stop there."""
        watch = self.story.watch
        outside = cell is not None and watch is not None and cell.point in OUTSIDE
        state.at = max(state.at, action.at)
        state.lives += 1
        began = CLOCK.mono()
        if watch is not None:
            watch.begin(cell if outside else None, state.at)
        ask = self._ask(state, action, None if outside else cell)
        answer = self.forker.run_child(ask, watch.born if watch is not None else lambda pid: None)
        seen = [CrashPoint(*one) for one in answer.get("seen", ())]
        at = answer.get("at")
        if watch is not None:
            more, killed_at = watch.end()
            seen += more
            at = at or killed_at
        state.at += CLOCK.mono() - began + 1
        life = ProcessResult(action, answer["died"], answer["stopped"], seen, answer.get("answer", ""))
        _as_asked(life, cell, at, answer.get("error", ""))
        return life

    def go_on(self) -> ProcessResult:
        """The stopped life goes on to its end."""
        answer = self.forker.go_on()
        if answer["died"]:
            raise CheckFailed(f"the life that went on died of {answer['died']}: {answer.get('error', '')}")
        return ProcessResult(Action("go on"), 0, False, [], answer.get("answer", ""))

    def jump(self, state: ScenarioState, ms: int) -> None:
        """Time passes for everybody, a stopped process included."""
        jumps = state.folder / "jumps"
        jumps.write_text(str(int(jumps.read_text() or "0") + ms if jumps.exists() else ms))
        state.at += ms

    def _ask(self, state: ScenarioState, action: Action, cell: CrashPoint | None) -> dict[str, Any]:
        return {
            "op": "life",
            "db": str(state.db),
            "said": str(state.said),
            "at": state.at,
            "jumps": str(state.folder / "jumps"),
            "n": state.lives,
            "do": action.do,
            "args": dict(action.args),
            "cell": cell._asdict() if cell else None,
            "threads": self.threads,
            "alone": self.alone,
            "live": self.story.live,
            "env": {**self.story.env(state), **self.env},
            **self.more,
        }

    # --- what comes next -----------------------------------------------------------------------
    def next(self, state: ScenarioState) -> Action | None:
        """What to do next; None when the run has ended. Raises Broken when nothing will ever happen."""
        seen = read_run(state.db)
        if self.story.slots and not seen.slots:
            return Action("slots", {"n": self.story.slots})
        if not seen.run:
            return Action("start", {"workflow": self.story.name, "input": self.story.input})
        if seen.over:
            return None
        if seen.run["owner"]:
            return Action("work", at=state.at + PAST_LEASE_MS)  # its holder died: the lease runs out
        if seen.run["due_at"] is not None and seen.run["due_at"] <= state.at:
            return Action("work")
        answer = (self._resolve(seen, state) if seen.attention else None) or self._answer(seen, state)
        if answer is not None:
            return answer
        if seen.run["due_at"] is None:
            raise CheckFailed(_stuck(seen))
        return Action("work", at=seen.run["due_at"] + 1)

    def _answer(self, seen: RunSnapshot, state: ScenarioState) -> Action | None:
        for approval in seen.approvals:
            if approval["status"] == ApprovalStatus.PENDING:
                said = answer_of(self.story.decide, _approval(seen, approval))
                if said is not None:
                    return Action(said.verb, {"approval": approval["id"], **said.given})
        signals = [s for s in (self.story.signals or self._decided)(seen, state) if s[2] not in seen.signals]
        return Action("post", {"signals": signals}) if signals else None

    def _decided(self, seen: RunSnapshot, state: ScenarioState) -> list[Signal]:
        """What `decide_approval` sends to the signals waited for: once each, however often it is asked."""
        found: list[Signal] = []
        open_ = [w for w in seen.waits if w["status"] == WaitStatus.OPEN and w["kind"] in ("receive", "collect")]
        for wait in open_:
            said = answer_of(self.story.decide, _asked(seen, "signal", wait["name"]))
            for n, payload in enumerate(said.given["payloads"] if said else ()):
                found.append((wait["name"], payload, f"{wait['name']}/{wait['visit']}/{n}"))
        return found

    def _resolve(self, seen: RunSnapshot, state: ScenarioState) -> Action | None:
        uncertain = [e for e in seen.effects if e["status"] == EffectStatus.UNCERTAIN]
        entry = seen.attention[0]
        if uncertain and entry["reason"] != Reason.UNDO_FAILED:  # an undo in doubt is answered by its attention
            return self._settle(uncertain[0], state)
        detail = str(entry.get("detail", ""))
        said = answer_of(self.story.decide, _asked(seen, "attention", entry["reason"], summary=detail))
        if said is not None:
            self.resolved += [e["key"] for e in uncertain[:1]]
            given = {"attention": entry["reason"], "key": entry.get("key", ""), **said.given}
            return Action("answer", given, at=uncertain[0]["settle_after"] + 1 if uncertain else 0)
        return None

    def _settle(self, effect: dict[str, Any], state: ScenarioState) -> Action:
        answer = self.story.answer(state, effect)
        self.resolved.append(effect["key"])
        if answer is not None:
            return Action("resolve", {"key": effect["key"], "verb": "happened", "response": answer[0]})
        given = {"key": effect["key"], "verb": DID_NOT, "response": None}
        return Action("resolve", given, at=effect["settle_after"] + 1)

    def finish(self, state: ScenarioState, each: Callable[[ProcessResult], None] = lambda life: None) -> RunSnapshot:
        """Go on until the run has ended; answers the rows it leaves."""
        for _ in range(LIVES_MAX):
            action = self.next(state)
            if action is None:
                return read_run(state.db)
            each(self.live(state, action))
        raise CheckFailed(f"{LIVES_MAX} lives and no end: {read_run(state.db).run}")


def _as_asked(life: ProcessResult, cell: CrashPoint | None, at: Any, error: str) -> None:
    """The vacuity proof: a life that was to be killed died of −9, at that very place; one that was not, did not die."""
    do = life.action.do
    if cell is None:
        if life.died:
            raise CheckFailed(f"{do} died of {life.died}: {error}")
        return
    there = at is not None and tuple(at) == cell.where
    if cell.act == "kill" and (life.died != -9 or not there):
        kind = PointNotReached if life.died == 0 else CheckFailed
        raise kind(f"{cell.label} {cell.point} did not fire: the process ended with {life.died} {error}")
    if cell.act == "stop" and not (life.stopped and there):
        raise CheckFailed(f"{cell} did not stop it: died {life.died} {error}")


def _stuck(seen: RunSnapshot) -> str:
    for entry in seen.attention:
        return f"it needs a person for {entry['reason']}: {entry.get('detail', '')}; {_stands(seen)}"
    return f"nothing will ever move it: {_stands(seen)}"


def _stands(seen: RunSnapshot) -> str:
    waits = ", ".join(f"{w['kind']} {w['what']}" for w in seen.waiting) or "nothing"
    return f"it stands at node {seen.run['node']} and waits for {waits}; let decide answer that"


def _asked(seen: RunSnapshot, kind: Any, name: str, **more: Any) -> PendingQuestion:
    return PendingQuestion(kind, name, seen.run["node"], seen.run["visit"], seen.state, **more)


def _approval(seen: RunSnapshot, approval: dict[str, Any]) -> PendingQuestion:
    plans = tuple(
        {"activity": p["activity"], "key": p["key"], "arguments": json.loads(p["arguments"])}
        for p in json.loads(approval["plans"])
    )
    return _asked(seen, "approval", approval["wait"], summary=approval["summary"], plans=plans)


def effect_asked(seen: RunSnapshot, effect: dict[str, Any]) -> PendingQuestion:
    """An uncertain effect, as `decide_approval` is asked about it."""
    call = {"activity": effect["activity"], "key": effect["key"], "arguments": json.loads(effect["args"])}
    return _asked(seen, "effect", effect["key"], plans=(call,))


def answered(said: ScriptedAnswer) -> tuple[Any] | None:
    """What an answer to an uncertain effect says: (its response,), or None: it did not happen."""
    if said.verb == DID_NOT:
        return None
    if said.verb == "happened":
        return (said.given["response"],)
    raise TypeError(f"an uncertain effect is answered by happened(…) or did_not_happen(), not {said.verb}")
