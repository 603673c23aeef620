"""Crash a scenario at every point, once or twice in a row, and compare each recovery with the run without a crash."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from outlast.testing.crash_values import Action, CheckFailed, CrashPoint, PointNotReached, ProcessResult, ScenarioState
from outlast.testing.driver import Driver
from outlast.testing.run_snapshot import RunSnapshot

TRIES: Final = 4
SECOND_PROCESSES: Final = 3  # processes of a recovery in which a second crash is tried


class CrashCase(NamedTuple):
    """A crash point, the state of the scenario before it, and the action during which it is reached.

    `n` numbers cases with equal labels within one scenario.
    """

    before: ScenarioState
    action: Action
    point: CrashPoint
    n: int
    after: str = ""  # name of the case whose recovery this one crashes

    @property
    def name(self) -> str:
        """Return the name of the case: label, point, and a number if several are equal."""
        label = self.point.label or self.action.do
        own = f"{label} {self.point.name}" + (f" #{self.n}" if self.n > 1 else "")
        return f"{self.after} then {own}" if self.after else own


@dataclass
class Reference:
    """The run without a crash: its crash cases, its end, and the effects that it left uncertain."""

    cases: list[CrashCase]
    end: dict[str, Any]
    receivers: dict[str, int]
    uncertain: list[str]
    last: ScenarioState
    several: bool
    """True if it is a tree of runs, which one process executes at the same time."""


@dataclass
class CrashResult:
    """Result of one crash case."""

    name: str
    point: str
    reached: bool = False
    killed: bool = False
    equal: bool = False
    twice: bool = False
    missed: bool = False  # the process did not come to the point again
    uncertain: list[str] = field(default_factory=list)
    error: str = ""
    output: str = ""


@dataclass
class Tally:
    """Counts over crash cases."""

    listed: int = 0
    run: int = 0
    killed: int = 0
    equal: int = 0
    twice: int = 0
    missed: int = 0  # cases of a tree whose point was not reached again
    left: int = 0  # cases that were not run because the time was up
    uncertain: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def count(self, result: CrashResult) -> None:
        """Add the result of one case."""
        self.run += 1
        self.killed += result.killed
        self.equal += result.equal
        self.twice += result.twice
        self.missed += result.missed
        self.reached[result.point] += result.reached
        self.uncertain.update(result.uncertain)
        if result.error:
            self.failures.append(f"{result.name}: {result.error}")

    def add(self, other: "Tally") -> None:
        """Add the counts of another process that ran cases of the same scenario."""
        self.listed = max(self.listed, other.listed)
        self.run += other.run
        self.killed += other.killed
        self.equal += other.equal
        self.twice += other.twice
        self.missed += other.missed
        self.left += other.left
        self.uncertain += Counter(other.uncertain)
        self.reached += Counter(other.reached)
        self.failures += other.failures


Judge = Callable[[ScenarioState, RunSnapshot], None]
"""Called with each end that equals the reference. Raises AssertionError if the caller's own checks fail."""


def _no_further_check(state: ScenarioState, seen: RunSnapshot) -> None: ...


def run_reference(driver: Driver, folder: Path) -> Reference:
    """Run the scenario without a crash, with a copy of its state before each process.

    Raises CheckFailed if the end is wrong.
    """
    state = ScenarioState(folder / "now", driver.scenario.began)
    state.folder.mkdir(parents=True)
    driver.resolved = []
    driver.scenario.enter(state)
    cases = list(_cases_of(driver, state, folder))
    left = driver.store.read(state)
    if wrong := left.wrong() + _receivers_disagree(driver, state, None):
        raise CheckFailed(f"the run without a crash: {'; '.join(wrong)}")
    return Reference(
        cases,
        driver.scenario.comparable(left.end()),
        dict(driver.scenario.executed(state)),
        list(driver.resolved),
        state,
        bool(left.children),
    )


def _cases_of(
    driver: Driver, state: ScenarioState, folder: Path, processes: int = 10**6, after: str = ""
) -> Iterator[CrashCase]:
    """Yield the crash cases of the next processes of a scenario, with a copy of the state before each."""
    names: Counter[tuple[str, str]] = Counter()
    for _ in range(processes):
        action = driver.next(state)
        if action is None:
            return
        before = driver.store.copy(state, folder / f"before-{state.processes}")
        for point in driver.run_process(state, action).seen:
            names[point[:2]] += 1
            yield CrashCase(before, action, point, names[point[:2]], after)


def _receivers_disagree(driver: Driver, state: ScenarioState, reference: dict[str, int] | None) -> list[str]:
    """Return the differences between the receivers' record and this end."""
    scenario = driver.scenario
    done = scenario.executed(state)
    if scenario.wrong is not None:
        return scenario.wrong(state, done if reference is None else reference)
    found = [f"{key} was executed {n} times" for key, n in done.items() if n > 1]
    if reference is not None and dict(done) != reference:
        found.append(f"the receivers executed {dict(done)}")
    return found


def crash_at(driver: Driver, case: CrashCase, folder: Path) -> ScenarioState:
    """Return the state of the scenario after a process was killed in this case."""
    state = driver.store.copy(case.before, folder)
    driver.scenario.enter(state)
    driver.run_process(state, case.action, case.point)
    return state


def recover(
    driver: Driver,
    state: ScenarioState,
    reference: Reference,
    each: Callable[[ProcessResult], None] = lambda result: None,
    judge: Judge = _no_further_check,
) -> None:
    """Continue to the end and compare it with the reference. Raises CheckFailed with every difference."""
    if driver.next(state) is None:
        driver.run_process(state, Action("work"))  # opening the store must not change a run that has ended
    left = driver.finish(state, each)
    end = driver.scenario.comparable(left.end())
    wrong = left.wrong() + _receivers_disagree(driver, state, reference.receivers)
    wrong += differences(end, reference.end)
    if wrong:
        raise CheckFailed("\n".join(wrong))
    judge(state, left)


def differences(end: Mapping[str, Any], reference: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each part of an end that is not as in the run without a crash."""
    parts = {**reference, **end}
    return [
        f"{part}: {end.get(part)} instead of {reference.get(part)}"
        for part in parts
        if end.get(part) != reference.get(part)
    ]


def _run_once(
    driver: Driver, case: CrashCase, reference: Reference, folder: Path, judge: Judge = _no_further_check
) -> CrashResult:
    """Kill the process of a case, recover, and compare. Raises PointNotReached if the process missed the point."""
    found = CrashResult(case.name, case.point.name)
    driver.resolved = []
    try:
        state = crash_at(driver, case, folder)
        found.reached, found.killed = True, case.point.act == "kill"
        recover(driver, state, reference, judge=judge)
        _check_uncertain(driver, reference)
        found.equal = True
        found.uncertain = list(driver.resolved)
    except PointNotReached:
        raise
    except AssertionError as broken:
        found.twice = "was executed" in str(broken) or " acted " in str(broken)
        found.error = str(broken) or type(broken).__name__
        output = folder / "output.txt"
        found.output = output.read_text(errors="replace") if output.exists() else ""
    finally:
        driver.store.discard(folder)
    return found


def run_case(
    driver: Driver, case: CrashCase, reference: Reference, folder: Path, tally: Tally, judge: Judge = _no_further_check
) -> CrashResult:
    """Run a case and count its result.

    Calls that run at the same time pass their points in any order, so a point that was missed is tried again. Runs of a
    tree meet in the row of their parent. Whether one of them repeats a commit depends on their speed, so a repeated
    commit that was not reached is counted, and is no failure.
    """
    for n in range(TRIES):
        try:
            found = _run_once(driver, case, reference, folder / str(n), judge)
            break
        except PointNotReached as unreached:
            by_chance = reference.several and case.point.nth > 1
            found = CrashResult(case.name, case.point.name, missed=by_chance, error="" if by_chance else str(unreached))
    driver.store.discard(folder)
    tally.count(found)
    return found


def second_cases(driver: Driver, case: CrashCase, folder: Path, processes: int = SECOND_PROCESSES) -> list[CrashCase]:
    """Return the crash cases of a recovery, within its first processes. Some of them do not exist in the reference."""
    state = crash_at(driver, case, folder / "died")
    return list(_cases_of(driver, state, folder, processes, case.name))


def run_pairs(
    driver: Driver,
    case: CrashCase,
    reference: Reference,
    folder: Path,
    tally: Tally,
    chosen: Callable[[list[CrashCase]], list[CrashCase]],
    judge: Judge = _no_further_check,
    processes: int = SECOND_PROCESSES,
) -> list[CrashResult]:
    """Crash in this case, crash again during the recovery, then recover. `chosen` selects the second cases."""
    driver.resolved = []
    found: list[CrashResult] = []
    try:
        for n, second in enumerate(chosen(second_cases(driver, case, folder, processes))):
            found.append(run_case(driver, second, reference, folder / f"second-{n}", tally, judge))
    except CheckFailed as broken:
        failed = CrashResult(case.name, case.point.name, error=str(broken))
        tally.count(failed)
        found.append(failed)
    driver.store.discard(folder)
    return found


def draw_one(*seed: object) -> Callable[[list[CrashCase]], list[CrashCase]]:
    """Return a function that selects one case. The same seed selects the same case."""

    def choose(cases: list[CrashCase]) -> list[CrashCase]:
        if not cases:
            return []
        number = int.from_bytes(hashlib.sha256("/".join(map(str, seed)).encode()).digest()[:8])
        return [cases[number % len(cases)]]

    return choose


def _check_uncertain(driver: Driver, reference: Reference) -> None:
    allowed = reference.uncertain
    if wrong := [key for key in driver.resolved if key not in allowed and not driver.scenario.may_be_uncertain(key)]:
        raise CheckFailed("\n".join(f"{key} is uncertain, although {driver.scenario.why_known(key)}" for key in wrong))
