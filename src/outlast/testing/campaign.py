"""Every crash of a user's workflow: told once without one, then once for each place where its process can die."""

import json
import logging
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from outlast.core.keys import idempotency_key
from outlast.errors import NotFound
from outlast.flow.workflow import Workflow
from outlast.runtime.clocks import SystemClock
from outlast.testing.answers import Decide, answer_of, no_answer
from outlast.testing.crash_points import Action, CheckFailed, ScenarioState
from outlast.testing.crash_runs import (
    CrashCase,
    CrashResult,
    Reference,
    Tally,
    draw_one,
    run_case,
    run_pairs,
    run_reference,
    second_cases,
)
from outlast.testing.driver import CrashScenario, Driver, answered, effect_asked
from outlast.testing.fake_receivers import FakeReceivers
from outlast.testing.fork_server import fork_server
from outlast.testing.loading import CodeUnderTest, code_of
from outlast.testing.record import Record
from outlast.testing.run_snapshot import RunSnapshot, read_run

Pairs = Literal["sampled", "all", 0]
ATTEMPT_TIMEOUT_MS: Final = 5_000
SAID_LINES: Final = 25
CLOCK: Final = SystemClock()


@dataclass(frozen=True)
class RunEnd:
    """How a run ended, once nobody killed it (`cell` is ""), or after the death at `cell` and its recovery."""

    cell: str
    status: str
    outcome: Any
    reason: str
    state: Any
    nodes: tuple[str, ...]
    """The nodes it completed, in order."""
    effects: Mapping[str, str]
    """Key → status of each effect; of the last visit where several visits did the same."""
    resolved: tuple[str, ...]
    """Keys of the effects that were uncertain, and answered from the receiver's record."""
    receivers: Record
    """What the receivers saw in this story; empty where no receivers was given."""


Body = Callable[[RunEnd], None]


@dataclass
class CrashOptions:
    """What to kill: a workflow, what it is given, and who answers it. `every_crash` makes one."""

    workflow: Workflow[Any]
    given: dict[str, Any]
    decide: Decide = no_answer
    receivers: FakeReceivers | None = None
    pairs: Pairs = 0
    seed: int = 0
    jobs: int = 2
    batched: bool = False
    slots: int = 0
    attempt_timeout_ms: int = ATTEMPT_TIMEOUT_MS

    def run(self, module: str, body: Body, only: str = "") -> "CrashReport":
        """Tell it, kill it everywhere (`only`: at the cell of this name), and report. Raises what the uncrashed run
        breaks; what a cell breaks is in the report."""
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        folder = Path(tempfile.mkdtemp(prefix="outlast-crash-", dir=base))
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            return _Campaign(self, code_of(self.workflow, module), body, folder).run(only)
        finally:
            logging.disable(before)
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class CrashReport:
    """What came of all cells."""

    tally: Tally = field(default_factory=Tally)
    cuts: list[CrashResult] = field(default_factory=list)
    second_cases: float = 0.0

    def summary(self) -> str:
        """One line."""
        t = self.tally
        doubts = sum(t.uncertain.values())
        rate = t.run / self.seconds if self.seconds else 0.0
        return (
            f"{t.listed} places, {t.run} cells, {t.killed} killed (-9), {t.equal} ended as if nobody had been, "
            f"{doubts} uncertain and resolved, {t.twice} done twice; {self.seconds:.1f} s, {rate:.1f}/s"
        )

    def lines(self) -> list[str]:
        """One line for each cell."""
        return [f"{_word(cut):9} {cut.name}{_doubts(cut)}" for cut in self.cuts]

    def failed(self) -> list[CrashResult]:
        """The cells that are not as they must be."""
        return [cut for cut in self.cuts if cut.error]

    def check(self, replay: Callable[[str], str]) -> None:
        """Raises Broken naming each failed cell and the command that replays it alone."""
        failed = sorted(self.failed(), key=lambda cut: not cut.twice)
        if not failed:
            return
        told = [f"{len(failed)} of {len(self.cuts)} cells are not as they must be:"]
        for cut in failed[:10]:
            told += [
                "",
                f"✗ {cut.name}",
                *(f"    {line}" for line in cut.error.splitlines()),
                f"    → {replay(cut.name)}",
            ]
        if len(failed) > 10:
            told += ["", f"… and {len(failed) - 10} more"]
        if said := [line for line in failed[0].said.splitlines() if line.strip()]:
            told += ["", f"what the processes of the first one said, at last (of {len(said)} lines):"]
            told += [f"    {line}" for line in said[-SAID_LINES:]]
        raise CheckFailed("\n".join(told))


def _word(cut: CrashResult) -> str:
    return "FAILED" if cut.error else "equal"


def _doubts(cut: CrashResult) -> str:
    return f"   uncertain: {', '.join(cut.doubts)}" if cut.doubts else ""


class _Campaign:
    """One run of all cells: a reference, then threads, each with a forker and a receivers of its own."""

    def __init__(self, asked: CrashOptions, code: CodeUnderTest, body: Body, folder: Path) -> None:
        self.asked = asked
        self.code = code
        self.folder = folder
        self._body = body
        self._lock = threading.Lock()
        self._report = CrashReport()
        self._left: list[tuple[int, CrashCase]] = []
        self._stop = False
        self._errors: list[BaseException] = []

    def run(self, only: str) -> CrashReport:
        began = CLOCK.mono()
        with ExitStack() as stack:
            teller = self._teller(stack)
            told = self._told(teller)
            self._judge(told.last, read_run(told.last.db), "", told.doubts)
            _same_again(told, run_reference(teller, self.folder / "again"))
            self._report.tally.listed = len(told.places)
            self._left = list(enumerate(self._chosen(teller, told, only)))[::-1]
            further = min(self.asked.jobs, len(self._left)) - 1
            helpers = [threading.Thread(target=self._help, args=(told, only)) for _ in range(further)]
            for helper in helpers:
                helper.start()
            try:
                self._work(teller, told, only)
            finally:
                self._stop = True
                for helper in helpers:
                    helper.join()
        if self._errors:
            raise self._errors[0]
        self._report.seconds = (CLOCK.mono() - began) / 1000
        return self._report

    def _told(self, teller: Driver) -> Reference:
        try:
            return run_reference(teller, self.folder / "told")
        except CheckFailed as broken:
            receivers = teller.story.watch
            if not isinstance(receivers, FakeReceivers) or receivers.entries:
                raise
            raise CheckFailed(
                f"{broken}\nno request has reached the receivers, which listens at {receivers.url}; {receivers.env} says so in the "
                "processes under test, from their first import on: make the client of that address"
            ) from None

    def _chosen(self, teller: Driver, told: Reference, only: str) -> list[CrashCase]:
        if not only:
            return told.places
        first, _, second = only.partition(" then ")
        found = [place for place in told.places if place.name == first]
        if not found:
            near = [p.name for p in told.places if first.split(" ")[-1] in p.name][:5]
            raise NotFound(
                f"no cell {first}", f"there are {len(told.places)}, e.g. {', '.join(near)}", "name one whole"
            )
        if not second:
            return found
        there = [place for place in second_cases(teller, found[0], self.folder / "only") if place.name == only]
        if not there:
            raise NotFound(f"no cell {only}", "the recovery did not come by there")
        return there

    def _help(self, told: Reference, only: str) -> None:
        try:
            with ExitStack() as stack:
                self._work(self._teller(stack), told, only)
        except BaseException as error:  # told in the test's own thread
            self._errors.append(error)

    def _work(self, teller: Driver, told: Reference, only: str) -> None:
        tally = Tally()
        while self._left and not self._stop:
            with self._lock:
                if not self._left:
                    break
                n, place = self._left.pop()
            folder = self.folder / f"cell-{n}"

            def judge(state: ScenarioState, left: RunSnapshot, place: CrashCase = place) -> None:
                self._judge(state, left, place.name, teller.resolved)

            cuts = [run_case(teller, place, told, folder, tally, judge)]
            if self.asked.pairs and not only:
                chosen = draw_one(self.asked.seed, place.name) if self.asked.pairs == "sampled" else list
                cuts += run_pairs(teller, place, told, folder / "pairs", tally, chosen, judge)
            with self._lock:
                self._report.cuts += cuts
        with self._lock:
            self._report.tally.add(tally)

    def _judge(self, state: ScenarioState, left: RunSnapshot, cell: str, resolved: list[str]) -> None:
        """The author's own assertions on this end; one at a time."""
        end = left.end()
        record = Record(state.receivers)
        effects = {e["key"]: e["status"] for e in left.effects}
        with self._lock:
            self._body(
                RunEnd(
                    cell, end["run"]["status"], end["outcome"], end["reason"] or "", left.state,
                    tuple(end["nodes"]), effects, tuple(resolved), record,
                )
            )  # fmt: skip

    # --- the story ----------------------------------------------------------------------------------
    def _teller(self, stack: ExitStack) -> Driver:
        asked = self.asked
        receivers = asked.receivers.twin() if asked.receivers is not None else None
        if receivers is not None:
            receivers.listen(self.folder / f"receivers-{id(receivers)}")
            stack.callback(receivers.stop)
        forking = stack.enter_context(fork_server(self.code, receivers.told() if receivers is not None else {}))
        modes = {name: activity.mode for name, activity in asked.workflow.activities.items()}
        of: dict[str, tuple[str, str]] = {}  # the activity of each uncertain effect, and why it is uncertain

        def answer(state: ScenarioState, effect: dict[str, Any]) -> Any:
            why = json.loads(effect["error"])["detail"] if effect["error"] else ""
            of[effect["key"]] = effect["activity"], why
            return _settle(teller, receivers, state, effect)

        def may_doubt(key: str) -> bool:
            mode = modes.get(of.get(key, ("", ""))[0], "ask_person")
            return mode == "ask_person" or (
                mode == "reconcile" and receivers is not None and _cannot_be_asked(receivers.record)
            )

        def blame(key: str) -> str:
            name, why = of[key]
            if modes.get(name) != "reconcile":
                return "its receiver dedupes by key"
            has = (
                " and the receivers' record has the act"
                if receivers is not None and receivers.record.executed(key)
                else ""
            )
            return f"its receiver can be asked{has}: correct {name}.reconcile ({why})"

        def wrong(state: ScenarioState, told: Mapping[str, int]) -> list[str]:
            asks = {
                e["key"]: e["activity"] for e in read_run(state.db).effects if modes.get(e["activity"]) == "reconcile"
            }
            return Record(state.receivers).against(Counter(told), asks)

        story = CrashScenario(
            name=asked.workflow.name,
            input=asked.given,
            executed=lambda state: Record(state.receivers).counts(),
            wrong=wrong,
            answer=answer,
            may_doubt=may_doubt,
            blame=blame,
            decide=asked.decide,
            env=lambda state: {receivers.env: receivers.url} if receivers is not None else {},
            enter=lambda state: receivers.enter(state.receivers) if receivers is not None else None,
            watch=receivers,
            slots=asked.slots,
            live={"attempt_timeout": asked.attempt_timeout_ms},
        )
        teller = Driver(forking, story, alone=not asked.batched)
        return teller


def _same_again(told: Reference, again: Reference) -> None:
    """Two runs that nobody killed have to end alike, or no crash could be told from chance. Raises Broken."""
    for part, was in told.end.items():
        if again.end[part] != was:
            raise CheckFailed(
                f"two runs that nobody killed end differently: {part} {again.end[part]} and {was}\n"
                "what a run returns here must not hold time or chance: make it of what receivers answered"
            )


def _cannot_be_asked(record: Record) -> bool:
    return any(e.status not in (200, 404) for e in record.of("asked"))


def _settle(teller: Driver, receivers: FakeReceivers | None, state: ScenarioState, effect: dict[str, Any]) -> Any:
    """What is true of an uncertain effect: (its response,), or None when it did not happen. The script is asked first,
    then the receivers' record."""
    said = answer_of(teller.story.decide, effect_asked(read_run(state.db), effect))
    if said is not None:
        return answered(said)
    if receivers is None:
        raise CheckFailed(
            f"{effect['key']} is uncertain, and nobody knows whether it happened: give every_crash a receivers, or let "
            'decide answer kind "effect" with happened(…) or did_not_happen()'
        )
    key = idempotency_key(effect["tenant"], effect["run"], effect["visit"], effect["key"])
    if not receivers.record.executed(key) and not any(e.key == "" for e in receivers.record.of("executed")):
        return None
    receivers.recall(True)
    try:
        call = {
            "activity": effect["activity"], "arguments": effect["args"].decode(), "key": effect["key"],
            "idempotency_key": key, "at": state.at,
        }  # fmt: skip
        found = teller.live(state, Action("recall", call)).answer
    finally:
        receivers.recall(False)
    return (json.loads(found["response"]),) if "response" in found else None
