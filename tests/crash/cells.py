"""Every cell of a story, killed one at a time, and what must hold after each recovery."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.crash.look import look
from tests.crash.story import Action, Broken, Cell, Life, State, Teller, Unreached


class Place(NamedTuple):
    """A cell, the state it is reached from, and what is done there. `n` numbers equal labels of the whole story."""

    before: State
    action: Action
    cell: Cell
    n: int

    @property
    def name(self) -> str:
        label = self.cell.label or self.action.do
        return f"{label} {self.cell.point}" + (f" #{self.n}" if self.n > 1 else "")


@dataclass
class Reference:
    """The uncrashed run: its cells, and its end."""

    places: list[Place]
    end: dict[str, Any]
    world: dict[str, int]


@dataclass
class Tally:
    """What came of the cells."""

    listed: int = 0
    run: int = 0
    killed: int = 0
    equal: int = 0
    twice: int = 0
    uncertain: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)  # the points where a process was killed
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Another process's share of the same story."""
        self.listed = max(self.listed, other.listed)
        self.run += other.run
        self.killed += other.killed
        self.equal += other.equal
        self.twice += other.twice
        self.uncertain += Counter(other.uncertain)
        self.reached += Counter(other.reached)
        self.failures += other.failures


def reference(teller: Teller, folder: Path) -> Reference:
    """Tell the story once without a crash, keeping a copy of it before each life. Raises Broken if it is not sound."""
    state = State(folder / "now")
    state.folder.mkdir(parents=True)
    teller.workflow.enter(state)
    places: list[Place] = []
    names: Counter[tuple[str, str]] = Counter()
    while (action := teller.next(state)) is not None:
        before = state.copy(folder / f"before-{state.lives}")
        life = teller.live(state, action)
        for cell in life.seen:
            names[cell[:2]] += 1
            places.append(Place(before, action, cell, names[cell[:2]]))
    left = look(state.db)
    if wrong := left.wrong() + _twice(teller, state):
        raise Broken(f"the uncrashed run: {wrong}")
    assert not teller.resolved, f"the uncrashed run was uncertain of {teller.resolved}"
    return Reference(places, left.end(), teller.workflow.executed(state))


def _twice(teller: Teller, state: State) -> list[str]:
    return [f"{key} was executed {n} times" for key, n in teller.workflow.executed(state).items() if n > 1]


def crash(teller: Teller, place: Place, folder: Path) -> State:
    """The state after a death at this place."""
    state = place.before.copy(folder)
    teller.workflow.enter(state)
    teller.live(state, place.action, place.cell)
    return state


def recover(teller: Teller, state: State, told: Reference, each: Callable[[Life], None] = lambda life: None) -> None:
    """Go on to the end and compare. Raises Broken with everything that is not as it must be."""
    if teller.next(state) is None:
        teller.live(state, Action("work"))  # the file opens, and nobody moves a run that has ended
    left = teller.finish(state, each)
    wrong = left.wrong() + _twice(teller, state)
    end = left.end()
    wrong += [f"{part}: {end[part]} instead of {told.end[part]}" for part in end if end[part] != told.end[part]]
    if teller.workflow.executed(state) != told.world:
        wrong.append(f"the world did {teller.workflow.executed(state)}")
    if wrong:
        raise Broken("; ".join(wrong))


def single(teller: Teller, place: Place, told: Reference, folder: Path, tally: Tally) -> None:
    """One cell: die there, recover, compare; into the tally."""
    tally.run += 1
    teller.resolved = []
    try:
        state = crash(teller, place, folder)
        tally.killed += 1
        tally.reached[place.cell.point] += 1
        recover(teller, state, told)
        _only_where_it_may(teller)
        tally.equal += 1
        tally.uncertain.update(teller.resolved)
    except Broken as broken:
        tally.twice += "was executed" in str(broken)
        tally.failures.append(f"{place.name}: {broken}")
    shutil.rmtree(folder)


TRIES = 4
SECOND_LIVES = 3  # a second death is looked for in so many lives of the recovery


class Second(NamedTuple):
    """A place in the recovery from another place: in its `life`-th life from there."""

    life: int
    cell: Cell
    n: int


def pair(teller: Teller, place: Place, told: Reference, folder: Path, tally: Tally, dice: random.Random) -> None:
    """Die at this place, then again somewhere in the recovery, then recover.

    Which of several calls under way the first death cuts may differ from time to time, and with it the recovery:
    where the second place is not met again, another is chosen.
    """
    for n in range(TRIES):
        try:
            _pair(teller, place, told, folder / str(n), tally, dice)
            break
        except Unreached as unreached:
            if n == TRIES - 1:
                tally.failures.append(f"{place.name}: {unreached}")
        except Broken as broken:
            tally.twice += "was executed" in str(broken)
            tally.failures.append(f"{place.name}: {broken}")
            break
    shutil.rmtree(folder)


def _pair(teller: Teller, place: Place, told: Reference, folder: Path, tally: Tally, dice: random.Random) -> None:
    seconds = _recovery(teller, crash(teller, place, folder / "walk"))
    if not seconds:
        return  # nothing was left to do
    second = dice.choice(seconds)
    teller.resolved = []
    state = crash(teller, place, folder / "dies")
    for n in range(second.life + 1):
        action = teller.next(state)
        if action is None:
            raise Unreached(f"{second} came after the end")
        teller.live(state, action, second.cell if n == second.life else None)
    tally.run += 1
    tally.killed += 1
    tally.reached[second.cell.point] += 1
    try:
        recover(teller, state, told)
        _only_where_it_may(teller)
    except Broken as broken:
        raise Broken(f"then {second.cell.label} {second.cell.point} #{second.n}: {broken}") from broken
    tally.equal += 1
    tally.uncertain.update(teller.resolved)


def _recovery(teller: Teller, state: State) -> list[Second]:
    """The places of the recovery's first lives: it has some that the story has not."""
    seconds: list[Second] = []
    names: Counter[tuple[str, str]] = Counter()
    for life in range(SECOND_LIVES):
        action = teller.next(state)
        if action is None:
            break
        for cell in teller.live(state, action).seen:
            names[cell[:2]] += 1
            seconds.append(Second(life, cell, names[cell[:2]]))
    return seconds


def _only_where_it_may(teller: Teller) -> None:
    if wrong := [key for key in teller.resolved if not teller.workflow.may_doubt(key)]:
        raise Broken(f"uncertain, though the receiver dedupes or could be asked: {wrong}")
