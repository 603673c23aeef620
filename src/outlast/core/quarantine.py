"""Runs that may kill their worker: how many runs a worker may hold beside one, as deaths narrow it down (S-5).

Two deaths of workers put every run that they held into a group of half as many. Only a group whose worker dies is
halved again, so the run that kills is held alone after about log2(n) deaths, and the others run on beside each other.
Only deaths of a worker that held this run alone count towards calling a person. An advance ends all suspicion.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from outlast.core.codec import digest
from outlast.core.durations import DEATHS_ALONE_MAX, DEATHS_THEN_GROUPS
from outlast.core.rows import Run

ALONE: Final = 1
Key = tuple[str, str]


class Suspicion(NamedTuple):
    """Two columns of a run row: deaths counted at this stage, and the size of its group (0: no limit)."""

    crash_count: int
    group_max: int


def after_death(run: Run, held: int) -> Suspicion:
    """Return the suspicion of a run whose worker died while it held `held` runs; 0: it did not die, nothing changes."""
    if not held:
        return Suspicion(run.crash_count, run.group_max)
    crash_count = run.crash_count + 1
    if run.group_max == ALONE or (not run.group_max and crash_count < DEATHS_THEN_GROUPS):
        return Suspicion(crash_count, run.group_max)
    largest = min(held, run.group_max) if run.group_max else held
    return Suspicion(0, (largest + 1) // 2)


def is_poisoned(run: Run) -> bool:
    """True if so many workers died while they held this run alone that a person has to look."""
    return run.group_max == ALONE and run.crash_count >= DEATHS_ALONE_MAX


def group_of(run: Run) -> int:
    """Return how many runs its worker may hold, this one included; 0: no limit. A poisoned run is not executed."""
    return 0 if is_poisoned(run) else run.group_max


class RunGroup:
    """The runs that one worker holds during one take: how many they are, and how many each of them allows."""

    def __init__(self, held: int, most: int, groups: Iterable[int] = ()) -> None:
        """`most`: the worker's own limit; `groups`: `group_of` the runs that it holds."""
        self.held = held
        self.most = min((most, *(group for group in groups if group)))
        self.given: dict[Key, int] = {}  # the runs that were let in, each with its group

    @property
    def free(self) -> int:
        """Number of runs that may join, if none of them brings a smaller limit."""
        return max(0, self.most - self.held)

    def fits(self, key: Key, group: int) -> bool:
        """True if this run may join those that are held. A run that was let in may be asked about again."""
        return key in self.given or self.held < (min(self.most, group) if group else self.most)

    def give(self, key: Key, group: int) -> None:
        """Let this run in."""
        if key not in self.given:
            self.given[key] = group
            self.held += 1
            self.most = min(self.most, group) if group else self.most


def makes_room(run: Run, workers: Iterable[str]) -> str:
    """Return which of these workers lets its other runs go for one that fits nowhere; the same in each of them."""
    return min(workers, key=lambda worker: digest(worker, run.tenant, run.run), default="")
