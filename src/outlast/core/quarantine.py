"""Quarantine of runs that may crash their worker: limits on the runs that a worker may hold together (S-5).

After two crashes, each run that the workers held joins a group of half as many runs. A group is halved again only if
its worker crashes. So after about log2(n) crashes the faulty run is held alone, and the others continue together. Only
crashes of a worker that held the run alone count towards asking a person. An advance clears the counters.
"""

from collections.abc import Iterable
from collections.abc import Mapping as Facts
from types import MappingProxyType
from typing import Final, NamedTuple

from outlast.core.codec import digest
from outlast.core.durations import DEATHS_ALONE_MAX, DEATHS_THEN_GROUPS
from outlast.core.rows.run_rows import Run, RunKey

ALONE: Final = 1
NONE_LOST: Final[Facts[RunKey, int]] = MappingProxyType({})


class Suspicion(NamedTuple):
    """Two columns of a run row: crashes counted at this stage, and the size of its group (0: no limit)."""

    crash_count: int
    group_max: int


def after_death(run: Run, held: int) -> Suspicion:
    """Return the columns after the worker of a run crashed while it held `held` runs; 0: it did not crash."""
    if not held:
        return Suspicion(run.crash_count, run.group_max)
    crash_count = run.crash_count + 1
    if run.group_max == ALONE or (not run.group_max and crash_count < DEATHS_THEN_GROUPS):
        return Suspicion(crash_count, run.group_max)
    largest = min(held, run.group_max) if run.group_max else held
    return Suspicion(0, (largest + 1) // 2)


def is_poisoned(run: Run) -> bool:
    """True if enough workers crashed while they held this run alone that a person must decide."""
    return run.group_max == ALONE and run.crash_count >= DEATHS_ALONE_MAX


def group_of(run: Run) -> int:
    """Return the maximum number of runs of its worker, including this one; 0: no limit, also for a poisoned run."""
    return 0 if is_poisoned(run) else run.group_max


class RunGroup:
    """Runs that one worker holds during one take: their number, and the smallest limit among them."""

    def __init__(self, held: int, most: int, groups: Iterable[int] = (), lost: Facts[RunKey, int] = NONE_LOST) -> None:
        """Create a group. `most`: limit of the worker; `groups`: `group_of` each run that it holds.

        `lost`: runs whose claim has no answer, with the size of their groups. They count, and may be claimed again.
        """
        self.held = held + len(lost)
        self.most = min((most, *(group for group in (*groups, *lost.values()) if group)))
        self.given = dict(lost)  # added runs with the size of their groups

    @property
    def free(self) -> int:
        """Number of runs that may join if none has a smaller limit."""
        return max(0, self.most - self.held)

    def fits(self, key: RunKey, group: int) -> bool:
        """True if this run may join, or has joined already with a group of this size."""
        return self.given.get(key) == group or self.held < (min(self.most, group) if group else self.most)

    def give(self, key: RunKey, group: int) -> None:
        """Add this run to the group."""
        if key not in self.given:
            self.given[key] = group
            self.held += 1
            self.most = min(self.most, group) if group else self.most


def makes_room(run: Run, workers: Iterable[str]) -> str:
    """Return the worker that releases its other runs for a run that fits nowhere; each worker gets the same result."""
    return min(workers, key=lambda worker: digest(worker, run.tenant, run.run), default="")
