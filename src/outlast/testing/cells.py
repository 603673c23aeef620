"""Every cell of a story, killed one at a time or two in a row, and what must hold after each recovery."""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from outlast.testing.look import Look, look
from outlast.testing.places import Action, Broken, Cell, Life, State, Unreached
from outlast.testing.story import Teller

TRIES: Final = 4
SECOND_LIVES: Final = 3  # a second death is looked for in so many lives of the recovery


class Place(NamedTuple):
    """A cell, the state it is reached from, and what is done there. `n` numbers equal labels of the whole story."""

    before: State
    action: Action
    cell: Cell
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

    places: list[Place]
    end: dict[str, Any]
    world: dict[str, int]
    doubts: list[str]
    last: State


@dataclass
class Cut:
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

    def count(self, cut: Cut) -> None:
        """One more cell."""
        self.run += 1
        self.killed += cut.killed
        self.equal += cut.equal
        self.twice += cut.twice
        self.reached[cut.point] += cut.killed
        self.uncertain.update(cut.doubts)
        if cut.error:
            self.failures.append(f"{cut.name}: {cut.error}")

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


Judge = Callable[[State, Look], None]
"""Told each end that is as it must be; raises AssertionError for what else is wrong with it."""


def _content(state: State, seen: Look) -> None:
    """The judge who finds nothing more."""


def reference(teller: Teller, folder: Path) -> Reference:
    """Tell the story once without a crash, keeping a copy of it before each life. Raises Broken if it is not sound."""
    state = State(folder / "now")
    state.folder.mkdir(parents=True)
    teller.resolved = []
    teller.story.enter(state)
    places = list(_walked(teller, state, folder))
    left = look(state.db)
    if wrong := left.wrong() + _against(teller, state, None):
        raise Broken(f"the uncrashed run: {'; '.join(wrong)}")
    return Reference(places, left.end(), dict(teller.story.executed(state)), list(teller.resolved), state)


def _walked(teller: Teller, state: State, folder: Path, lives: int = 10**6, after: str = "") -> Iterator[Place]:
    """The places of the next lives of a story, with copies of it before each."""
    names: Counter[tuple[str, str]] = Counter()
    for _ in range(lives):
        action = teller.next(state)
        if action is None:
            return
        before = state.copy(folder / f"before-{state.lives}")
        for cell in teller.live(state, action).seen:
            names[cell[:2]] += 1
            yield Place(before, action, cell, names[cell[:2]], after)


def _against(teller: Teller, state: State, told: dict[str, int] | None) -> list[str]:
    """What the world's record says against this end."""
    story = teller.story
    done = story.executed(state)
    if story.wrong is not None:
        return story.wrong(state, done if told is None else told)
    found = [f"{key} was executed {n} times" for key, n in done.items() if n > 1]
    if told is not None and dict(done) != told:
        found.append(f"the world did {dict(done)}")
    return found


def crash(teller: Teller, place: Place, folder: Path) -> State:
    """The state after a death at this place."""
    state = place.before.copy(folder)
    teller.story.enter(state)
    teller.live(state, place.action, place.cell)
    return state


def recover(
    teller: Teller,
    state: State,
    told: Reference,
    each: Callable[[Life], None] = lambda life: None,
    judge: Judge = _content,
) -> None:
    """Go on to the end and compare. Raises Broken with everything that is not as it must be."""
    if teller.next(state) is None:
        teller.live(state, Action("work"))  # the file opens, and nobody moves a run that has ended
    left = teller.finish(state, each)
    end = left.end()
    wrong = left.wrong() + _against(teller, state, told.world)
    wrong += [f"{part}: {end[part]} instead of {told.end[part]}" for part in end if end[part] != told.end[part]]
    if wrong:
        raise Broken("\n".join(wrong))
    judge(state, left)


def cut(teller: Teller, place: Place, told: Reference, folder: Path, judge: Judge = _content) -> Cut:
    """One cell: die there, recover, compare. Raises Unreached where the process did not come by this place."""
    found = Cut(place.name, place.cell.point)
    teller.resolved = []
    try:
        state = crash(teller, place, folder)
        found.killed = True
        recover(teller, state, told, judge=judge)
        _only_where_it_may(teller, told)
        found.equal = True
        found.doubts = list(teller.resolved)
    except Unreached:
        raise
    except AssertionError as broken:
        found.twice = "was executed" in str(broken) or " acted " in str(broken)
        found.error = str(broken) or type(broken).__name__
        said = folder / "said.txt"
        found.said = said.read_text(errors="replace") if said.exists() else ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def single(teller: Teller, place: Place, told: Reference, folder: Path, tally: Tally, judge: Judge = _content) -> Cut:
    """One cell, into the tally. A place that several calls at once pass in any order may need a second try."""
    for n in range(TRIES):
        try:
            found = cut(teller, place, told, folder / str(n), judge)
            break
        except Unreached as unreached:
            found = Cut(place.name, place.cell.point, error=str(unreached))
    shutil.rmtree(folder, ignore_errors=True)
    tally.count(found)
    return found


def seconds(teller: Teller, place: Place, folder: Path, lives: int = SECOND_LIVES) -> list[Place]:
    """The places of the recovery from a death at this place, in so many lives: it has some that the story has not."""
    state = crash(teller, place, folder / "died")
    return list(_walked(teller, state, folder, lives, place.name))


def pair(
    teller: Teller,
    place: Place,
    told: Reference,
    folder: Path,
    tally: Tally,
    chosen: Callable[[list[Place]], list[Place]],
    judge: Judge = _content,
    lives: int = SECOND_LIVES,
) -> list[Cut]:
    """Die at this place, then again somewhere in the recovery, then recover: once for each second place `chosen`."""
    teller.resolved = []
    found: list[Cut] = []
    try:
        for n, second in enumerate(chosen(seconds(teller, place, folder, lives))):
            found.append(single(teller, second, told, folder / f"second-{n}", tally, judge))
    except Broken as broken:
        failed = Cut(place.name, place.cell.point, error=str(broken))
        tally.count(failed)
        found.append(failed)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def dice(*seed: object) -> Callable[[list[Place]], list[Place]]:
    """Chooses one place, the same for the same seed."""

    def choose(places: list[Place]) -> list[Place]:
        if not places:
            return []
        number = int.from_bytes(hashlib.sha256("/".join(map(str, seed)).encode()).digest()[:8])
        return [places[number % len(places)]]

    return choose


def _only_where_it_may(teller: Teller, told: Reference) -> None:
    allowed = told.doubts
    if wrong := [key for key in teller.resolved if key not in allowed and not teller.story.may_doubt(key)]:
        raise Broken("\n".join(f"{key} is uncertain, although {teller.story.blame(key)}" for key in wrong))
