"""Every cell of a story, killed one at a time or two in a row, and what must hold after each recovery."""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from outlast.testing.crash_points import Action, CheckFailed, CrashPoint, PointNotReached, ProcessResult, ScenarioState
from outlast.testing.driver import Driver
from outlast.testing.run_snapshot import RunSnapshot, read_run

TRIES: Final = 4
SECOND_LIVES: Final = 3  # a second death is looked for in so many lives of the recovery


class CrashCase(NamedTuple):
    """A cell, the state it is reached from, and what is done there. `n` numbers equal labels of the whole story."""

    before: ScenarioState
    action: Action
    cell: CrashPoint
    n: int
    after: str = ""  # the place of an earlier death, of which this one cuts the recovery

    @property
    def name(self) -> str:
        """What people call it: run, verb, key, side; and which of several."""
        label = self.cell.label or self.action.do
        own = f"{label} {self.cell.point}" + (f" #{self.n}" if self.n > 1 else "")
        return f"{self.after} then {own}" if self.after else own


@dataclass
class Reference:
    """The uncrashed run: its cells, its end, and which effects it left uncertain."""

    places: list[CrashCase]
    end: dict[str, Any]
    receivers: dict[str, int]
    doubts: list[str]
    last: ScenarioState


@dataclass
class CrashResult:
    """What came of one cell."""

    name: str
    point: str
    killed: bool = False
    equal: bool = False
    twice: bool = False
    doubts: list[str] = field(default_factory=list)
    error: str = ""
    said: str = ""  # what its processes printed and logged


@dataclass
class Tally:
    """What came of the cells."""

    listed: int = 0
    run: int = 0
    killed: int = 0
    equal: int = 0
    twice: int = 0
    left: int = 0  # places that nobody went to: the time was up
    uncertain: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)  # the points where a process was killed
    failures: list[str] = field(default_factory=list)

    def count(self, _run_once: CrashResult) -> None:
        """One more cell."""
        self.run += 1
        self.killed += _run_once.killed
        self.equal += _run_once.equal
        self.twice += _run_once.twice
        self.reached[_run_once.point] += _run_once.killed
        self.uncertain.update(_run_once.doubts)
        if _run_once.error:
            self.failures.append(f"{_run_once.name}: {_run_once.error}")

    def add(self, other: "Tally") -> None:
        """Another process's share of the same story."""
        self.listed = max(self.listed, other.listed)
        self.run += other.run
        self.killed += other.killed
        self.equal += other.equal
        self.twice += other.twice
        self.left += other.left
        self.uncertain += Counter(other.uncertain)
        self.reached += Counter(other.reached)
        self.failures += other.failures


Judge = Callable[[ScenarioState, RunSnapshot], None]
"""Told each end that is as it must be; raises AssertionError for what else is wrong with it."""


def _content(state: ScenarioState, seen: RunSnapshot) -> None:
    """The judge who finds nothing more."""


def run_reference(teller: Driver, folder: Path) -> Reference:
    """Tell the story once without a crash, keeping a copy of it before each life. Raises Broken if it is not sound."""
    state = ScenarioState(folder / "now")
    state.folder.mkdir(parents=True)
    teller.resolved = []
    teller.story.enter(state)
    places = list(_walked(teller, state, folder))
    left = read_run(state.db)
    if wrong := left.wrong() + _against(teller, state, None):
        raise CheckFailed(f"the uncrashed run: {'; '.join(wrong)}")
    return Reference(places, left.end(), dict(teller.story.executed(state)), list(teller.resolved), state)


def _walked(
    teller: Driver, state: ScenarioState, folder: Path, lives: int = 10**6, after: str = ""
) -> Iterator[CrashCase]:
    """The places of the next lives of a story, with copies of it before each."""
    names: Counter[tuple[str, str]] = Counter()
    for _ in range(lives):
        action = teller.next(state)
        if action is None:
            return
        before = state.copy(folder / f"before-{state.lives}")
        for cell in teller.live(state, action).seen:
            names[cell[:2]] += 1
            yield CrashCase(before, action, cell, names[cell[:2]], after)


def _against(teller: Driver, state: ScenarioState, told: dict[str, int] | None) -> list[str]:
    """What the receivers' record says against this end."""
    story = teller.story
    done = story.executed(state)
    if story.wrong is not None:
        return story.wrong(state, done if told is None else told)
    found = [f"{key} was executed {n} times" for key, n in done.items() if n > 1]
    if told is not None and dict(done) != told:
        found.append(f"the receivers did {dict(done)}")
    return found


def crash_at(teller: Driver, place: CrashCase, folder: Path) -> ScenarioState:
    """The state after a death at this place."""
    state = place.before.copy(folder)
    teller.story.enter(state)
    teller.live(state, place.action, place.cell)
    return state


def recover(
    teller: Driver,
    state: ScenarioState,
    told: Reference,
    each: Callable[[ProcessResult], None] = lambda life: None,
    judge: Judge = _content,
) -> None:
    """Go on to the end and compare. Raises Broken with everything that is not as it must be."""
    if teller.next(state) is None:
        teller.live(state, Action("work"))  # the file opens, and nobody moves a run that has ended
    left = teller.finish(state, each)
    end = left.end()
    wrong = left.wrong() + _against(teller, state, told.receivers)
    wrong += [f"{part}: {end[part]} instead of {told.end[part]}" for part in end if end[part] != told.end[part]]
    if wrong:
        raise CheckFailed("\n".join(wrong))
    judge(state, left)


def _run_once(teller: Driver, place: CrashCase, told: Reference, folder: Path, judge: Judge = _content) -> CrashResult:
    """One cell: die there, recover, compare. Raises Unreached where the process did not come by this place."""
    found = CrashResult(place.name, place.cell.point)
    teller.resolved = []
    try:
        state = crash_at(teller, place, folder)
        found.killed = True
        recover(teller, state, told, judge=judge)
        _only_where_it_may(teller, told)
        found.equal = True
        found.doubts = list(teller.resolved)
    except PointNotReached:
        raise
    except AssertionError as broken:
        found.twice = "was executed" in str(broken) or " acted " in str(broken)
        found.error = str(broken) or type(broken).__name__
        said = folder / "said.txt"
        found.said = said.read_text(errors="replace") if said.exists() else ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def run_case(
    teller: Driver, place: CrashCase, told: Reference, folder: Path, tally: Tally, judge: Judge = _content
) -> CrashResult:
    """One cell, into the tally. A place that several calls at once pass in any order may need a second try."""
    for n in range(TRIES):
        try:
            found = _run_once(teller, place, told, folder / str(n), judge)
            break
        except PointNotReached as unreached:
            found = CrashResult(place.name, place.cell.point, error=str(unreached))
    shutil.rmtree(folder, ignore_errors=True)
    tally.count(found)
    return found


def second_cases(teller: Driver, place: CrashCase, folder: Path, lives: int = SECOND_LIVES) -> list[CrashCase]:
    """The places of the recovery from a death at this place, in so many lives: it has some that the story has not."""
    state = crash_at(teller, place, folder / "died")
    return list(_walked(teller, state, folder, lives, place.name))


def run_pairs(
    teller: Driver,
    place: CrashCase,
    told: Reference,
    folder: Path,
    tally: Tally,
    chosen: Callable[[list[CrashCase]], list[CrashCase]],
    judge: Judge = _content,
    lives: int = SECOND_LIVES,
) -> list[CrashResult]:
    """Die at this place, then again somewhere in the recovery, then recover: once for each second place `chosen`."""
    teller.resolved = []
    found: list[CrashResult] = []
    try:
        for n, second in enumerate(chosen(second_cases(teller, place, folder, lives))):
            found.append(run_case(teller, second, told, folder / f"second-{n}", tally, judge))
    except CheckFailed as broken:
        failed = CrashResult(place.name, place.cell.point, error=str(broken))
        tally.count(failed)
        found.append(failed)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def draw_one(*seed: object) -> Callable[[list[CrashCase]], list[CrashCase]]:
    """Chooses one place, the same for the same seed."""

    def choose(places: list[CrashCase]) -> list[CrashCase]:
        if not places:
            return []
        number = int.from_bytes(hashlib.sha256("/".join(map(str, seed)).encode()).digest()[:8])
        return [places[number % len(places)]]

    return choose


def _only_where_it_may(teller: Driver, told: Reference) -> None:
    allowed = told.doubts
    if wrong := [key for key in teller.resolved if key not in allowed and not teller.story.may_doubt(key)]:
        raise CheckFailed("\n".join(f"{key} is uncertain, although {teller.story.blame(key)}" for key in wrong))
