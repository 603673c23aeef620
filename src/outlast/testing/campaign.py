"""Crash test of a workflow: one run without a crash, then one case for each place where its process can die."""

import hashlib
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

from outlast.clocks import SystemClock
from outlast.core.keys import idempotency_key
from outlast.errors import NotFound
from outlast.flow.workflow import Workflow
from outlast.testing.answers import Decide, answer_of, no_answer
from outlast.testing.crash_runs import (
    CrashCase,
    CrashResult,
    Reference,
    Tally,
    differences,
    draw_one,
    run_case,
    run_pairs,
    run_reference,
    second_cases,
)
from outlast.testing.crash_values import T0, Action, CheckFailed, ScenarioState
from outlast.testing.driver import CrashScenario, Driver, answered, effect_asked
from outlast.testing.fake_receivers import FakeReceivers
from outlast.testing.fork_server import fork_server
from outlast.testing.loading import CodeUnderTest, code_of, served_with
from outlast.testing.record import Record
from outlast.testing.run_snapshot import RunSnapshot, read_run

Pairs = Literal["sampled", "all", 0]
ATTEMPT_TIMEOUT_MS: Final = 5_000
OUTPUT_LINES: Final = 25
CLOCK: Final = SystemClock()


@dataclass(frozen=True)
class RunEnd:
    """The end of a run: without a crash (`case` is empty), or after the crash of this case and the recovery.

    `status`, `outcome`, `reason` and `state` are those of the run.
    """

    case: str
    status: str
    outcome: Any
    reason: str
    state: Any
    nodes: tuple[str, ...]
    """The nodes in the order of their completion."""
    effects: Mapping[str, str]
    """Key → status of each effect. The last visit counts if several visits made the same call."""
    resolved: tuple[str, ...]
    """Keys of the effects that were uncertain, and were resolved from the receivers' record."""
    receivers: Record
    """The receivers' record of this scenario; empty without fake receivers."""
    children: Mapping[str, str] = field(default_factory=dict)
    """Status of each run below it, by the keys of the children down to it, as in "ada" or "ada/hotel"."""


Body = Callable[[RunEnd], None]


def _no_line(line: str) -> None: ...


@dataclass
class CrashOptions:
    """Options of a crash test. `every_crash` creates them."""

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
    cases: int = 0
    recording: str = ""
    """File of the recording that answers the calls; '' if the activities call receivers themselves."""
    serve: str = ""
    """MODULE:FUNCTION with which a process serves the recording."""
    response_of: Callable[[dict[str, Any]], Any] | None = None
    """Return the recorded response of an uncertain effect that a receiver executed."""
    began: int = T0
    comparable: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Return the part of an end that every play must have in common."""
    on_case: Callable[[str], None] = _no_line
    """Called with a line about each case as soon as it has ended: its number, how many there are, and its result."""

    def run(self, module: str, body: Body, only: str = "") -> "CrashReport":
        """Run every case, or the one named `only`, and return the report.

        Raises CheckFailed if the run without a crash fails. Failures of cases are in the report.
        """
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
    """Results of all crash cases."""

    tally: Tally = field(default_factory=Tally)
    results: list[CrashResult] = field(default_factory=list)
    seconds: float = 0.0

    def summary(self) -> str:
        """Return one line with the counts."""
        t = self.tally
        uncertain = sum(t.uncertain.values())
        rate = t.run / self.seconds if self.seconds else 0.0
        return (
            f"{t.listed} crash points, {t.run} cases, {t.killed} killed (-9), {t.equal} ended as without a crash, "
            f"{uncertain} uncertain and resolved, {t.twice} executed twice"
            f"{f', {t.missed} not reached again' if t.missed else ''}; {self.seconds:.1f} s, {rate:.1f}/s"
        )

    def lines(self) -> list[str]:
        """Return one line for each case."""
        return [_line(result) for result in self.results]

    def failed(self) -> list[CrashResult]:
        """Return the cases that failed."""
        return [result for result in self.results if result.error]

    def check(self, replay: Callable[[str], str]) -> None:
        """Raise CheckFailed if a case failed, or if none was run: then nothing is proven.

        The text names each case and the command that replays it.
        """
        if not self.results:
            raise CheckFailed(f"no crash case was run, of {self.tally.listed}: nothing is proven")
        failed = sorted(self.failed(), key=lambda result: not result.twice)
        if not failed:
            return
        lines = [f"{len(failed)} of {len(self.results)} crash cases failed:"]
        for result in failed[:10]:
            lines += [
                "",
                f"✗ {result.name}",
                *(f"    {line}" for line in result.error.splitlines()),
                f"    → {replay(result.name)}",
            ]
        if len(failed) > 10:
            lines += ["", f"… and {len(failed) - 10} more"]
        if output := [line for line in failed[0].output.splitlines() if line.strip()]:
            lines += ["", f"last output of the processes of the first case ({len(output)} lines in all):"]
            lines += [f"    {line}" for line in output[-OUTPUT_LINES:]]
        raise CheckFailed("\n".join(lines))


def _line(result: CrashResult) -> str:
    verdict = "FAILED" if result.error else "missed" if result.missed else "equal"
    return f"{verdict:9} {result.name}{_uncertain(result)}"


def _uncertain(result: CrashResult) -> str:
    return f"   uncertain: {', '.join(result.uncertain)}" if result.uncertain else ""


class _Campaign:
    """Runs all cases in threads, each with its own fork server and its own fake receivers."""

    def __init__(self, asked: CrashOptions, code: CodeUnderTest, body: Body, folder: Path) -> None:
        self.asked = asked
        self.code = code
        self.folder = folder
        self._body = body
        self._lock = threading.Lock()
        self._report = CrashReport()
        self._left: list[tuple[int, CrashCase]] = []
        self._done = self._chosen_count = 0
        self._stop = False
        self._errors: list[BaseException] = []

    def run(self, only: str) -> CrashReport:
        began = CLOCK.mono()
        with ExitStack() as stack:
            driver = self._driver(stack)
            reference = self._reference(driver)
            self._judge(reference.last, read_run(reference.last.db), "", reference.uncertain)
            _check_same(reference, run_reference(driver, self.folder / "again"))
            self._report.tally.listed = len(reference.cases)
            self._left = list(enumerate(self._chosen(driver, reference, only)))[::-1]
            self._chosen_count = len(self._left)
            further = min(self.asked.jobs, len(self._left)) - 1
            helpers = [threading.Thread(target=self._help, args=(reference, only)) for _ in range(further)]
            for helper in helpers:
                helper.start()
            try:
                self._work(driver, reference, only)
            finally:
                self._stop = True
                for helper in helpers:
                    helper.join()
        if self._errors:
            raise self._errors[0]
        self._report.seconds = (CLOCK.mono() - began) / 1000
        return self._report

    def _reference(self, driver: Driver) -> Reference:
        try:
            return run_reference(driver, self.folder / "told")
        except CheckFailed as broken:
            receivers = driver.scenario.monitor
            if not isinstance(receivers, FakeReceivers) or receivers.entries:
                raise
            raise CheckFailed(
                f"{broken}\nno request has reached the fake receivers at {receivers.url}. Processes under test find "
                f"the address in {receivers.env} from their first import on: create the client with it"
            ) from None

    def _chosen(self, driver: Driver, reference: Reference, only: str) -> list[CrashCase]:
        if not only:
            return self._drawn(reference.cases)
        first, _, second = only.partition(" then ")
        found = [case for case in reference.cases if case.name == first]
        if not found:
            near = [p.name for p in reference.cases if first.split(" ")[-1] in p.name][:5]
            raise NotFound(
                f"no crash case {first}", f"there are {len(reference.cases)}, e.g. {', '.join(near)}", "use a full name"
            )
        if not second:
            return found
        there = [case for case in second_cases(driver, found[0], self.folder / "only") if case.name == only]
        if not there:
            raise NotFound(f"no crash case {only}", "the recovery does not reach it")
        return there

    def _drawn(self, cases: list[CrashCase]) -> list[CrashCase]:
        """Return as many cases as the test wants, in their order. Half of them are about calls."""
        if not self.asked.cases or len(cases) <= self.asked.cases:
            return cases
        drawn = sorted(cases, key=lambda case: hashlib.sha256(f"{self.asked.seed} {case.name}".encode()).digest())
        calls = [case for case in drawn if case.point.name.startswith("call:")][: self.asked.cases // 2]
        rest = [case for case in drawn if case not in calls][: self.asked.cases - len(calls)]
        return [case for case in cases if case in (*calls, *rest)]

    def _help(self, reference: Reference, only: str) -> None:
        try:
            with ExitStack() as stack:
                self._work(self._driver(stack), reference, only)
        except BaseException as error:  # raised again in the test's thread
            self._errors.append(error)

    def _work(self, driver: Driver, reference: Reference, only: str) -> None:
        tally = Tally()
        while self._left and not self._stop:
            with self._lock:
                if not self._left:
                    break
                n, case = self._left.pop()
            folder = self.folder / f"case-{n}"

            def judge(state: ScenarioState, left: RunSnapshot, case: CrashCase = case) -> None:
                self._judge(state, left, case.name, driver.resolved)

            results = [run_case(driver, case, reference, folder, tally, judge)]
            if self.asked.pairs and not only:
                chosen = draw_one(self.asked.seed, case.name) if self.asked.pairs == "sampled" else list
                results += run_pairs(driver, case, reference, folder / "pairs", tally, chosen, judge)
            with self._lock:
                self._report.results += results
                self._done += 1
                for result in results:
                    self.asked.on_case(f"{self._done}/{self._chosen_count}\t{_line(result)}")
        with self._lock:
            self._report.tally.add(tally)

    def _judge(self, state: ScenarioState, left: RunSnapshot, point: str, resolved: list[str]) -> None:
        """Call the author's test function with this end, one call at a time."""
        end = left.end()
        record = Record(state.receivers)
        effects = {e["key"]: e["status"] for e in left.effects}
        with self._lock:
            self._body(
                RunEnd(
                    point,
                    end["run"]["status"],
                    end["outcome"],
                    end["reason"] or "",
                    left.state,
                    tuple(end["nodes"]),
                    effects,
                    tuple(resolved),
                    record,
                    {each.path: each.run["status"] for each in left.tree if each.path},
                )
            )

    # --- the scenario ----------------------------------------------------------------------------------
    def _driver(self, stack: ExitStack) -> Driver:
        asked = self.asked
        receivers = asked.receivers.clone() if asked.receivers is not None else None
        if receivers is not None:
            receivers.listen(self.folder / f"receivers-{id(receivers)}")
            stack.callback(receivers.stop)
        forking = stack.enter_context(fork_server(self.code, receivers.environment() if receivers is not None else {}))
        modes = {
            name: activity.mode for each in served_with(asked.workflow) for name, activity in each.activities.items()
        }
        of: dict[str, tuple[str, str]] = {}  # by effect key: its activity, and the reason of the uncertainty

        def answer(state: ScenarioState, effect: dict[str, Any]) -> Any:
            why = json.loads(effect["error"])["detail"] if effect["error"] else ""
            of[effect["key"]] = effect["activity"], why
            return _settle(driver, receivers, state, effect, asked.response_of)

        def was_undone(undo: dict[str, Any]) -> bool | None:
            key = idempotency_key(undo["tenant"], undo["run"], undo["visit"], undo["key"])
            return None if receivers is None else bool(receivers.record.executed(key))

        def may_be_uncertain(key: str) -> bool:
            mode = modes.get(of.get(key, ("", ""))[0], "ask_person")
            return mode == "ask_person" or (
                mode == "reconcile" and receivers is not None and _cannot_be_asked(receivers.record)
            )

        def why_known(key: str) -> str:
            name, why = of[key]
            if modes.get(name) != "reconcile":
                return "its receiver deduplicates by key"
            has = (
                " and the receivers' record contains the execution"
                if receivers is not None and receivers.record.executed(key)
                else ""
            )
            return f"its receiver can be asked{has}: correct {name}.reconcile ({why})"

        def wrong(state: ScenarioState, reference: Mapping[str, int]) -> list[str]:
            runs = list(read_run(state.db).tree)
            effects = [effect for run in runs for effect in run.effects]
            asks = {e["key"]: e["activity"] for e in effects if modes.get(e["activity"]) == "reconcile"}
            cancelled = [run.run["run"] for run in runs if run.overtaken]
            return Record(state.receivers).against(Counter(reference), asks, cancelled)

        scenario = CrashScenario(
            name=asked.workflow.name,
            input=asked.given,
            executed=lambda state: Record(state.receivers).counts(),
            wrong=wrong,
            answer=answer,
            may_be_uncertain=may_be_uncertain,
            was_undone=was_undone,
            why_known=why_known,
            decide=asked.decide,
            env=lambda state: {receivers.env: receivers.url} if receivers is not None else {},
            enter=lambda state: receivers.enter(state.receivers) if receivers is not None else None,
            monitor=receivers,
            slots=asked.slots,
            durations={"attempt_timeout": asked.attempt_timeout_ms},
            began=asked.began,
            comparable=asked.comparable,
        )
        more = {"recording": asked.recording, "serve": asked.serve} if asked.recording else {}
        driver = Driver(forking, scenario, one_commit_each=not asked.batched, more=more)
        return driver


def _check_same(reference: Reference, again: Reference) -> None:
    """Check that two runs without a crash end alike. Raises CheckFailed."""
    for difference in differences(again.end, reference.end):
        raise CheckFailed(
            f"two runs without a crash end differently: {difference}\n"
            "in a crash test, the result must not contain times or random values: build it from receivers' answers"
        )


def _cannot_be_asked(record: Record) -> bool:
    return any(e.status not in (200, 404) for e in record.of("asked"))


def _settle(
    driver: Driver,
    receivers: FakeReceivers | None,
    state: ScenarioState,
    effect: dict[str, Any],
    response_of: Callable[[dict[str, Any]], Any] | None = None,
) -> Any:
    """Return the response of an uncertain effect as `(response,)`, or None if it did not happen.

    `decide` is asked first, then the receivers' record.
    """
    seen = read_run(state.db).of(effect["run"])
    answer = answer_of(driver.scenario.decide, effect_asked(seen, effect))
    if answer is not None:
        return answered(answer)
    if receivers is None:
        raise CheckFailed(
            f"{effect['key']} is uncertain, and there is no record of the call: pass receivers= to every_crash, or let "
            'decide answer kind "effect" with happened(…) or did_not_happen()'
        )
    key = idempotency_key(effect["tenant"], effect["run"], effect["visit"], effect["key"])
    if not receivers.record.executed(key) and not any(e.key == "" for e in receivers.record.of("executed")):
        return None
    if response_of is not None:
        return (response_of(effect),)
    receivers.replay(True)
    try:
        call = {
            "workflow": seen.run["workflow"], "activity": effect["activity"], "arguments": effect["args"].decode(),
            "run": effect["run"], "key": effect["key"], "idempotency_key": key, "at": state.at,
        }  # fmt: skip
        found = driver.run_process(state, Action("replay", call)).answer
    finally:
        receivers.replay(False)
    return (json.loads(found["response"]),) if "response" in found else None
