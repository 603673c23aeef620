"""One take of a worker: which runs that the store offers are claimed, left, or queued for any worker (S-2, S-5)."""

from collections.abc import Callable, Collection
from collections.abc import Mapping as Facts
from types import MappingProxyType
from typing import Final, NamedTuple

from outlast.core.budget import GROUP_PATIENCE
from outlast.core.commit import Commit, Instant, Mapping
from outlast.core.quarantine import RunGroup, group_of
from outlast.core.rows import Run
from outlast.core.verbs import claim, moved, requeue
from outlast.engine.places import FreeSlots

Key = tuple[str, str]
Owners = Facts[str, int | None]
NO_OWNERS: Final[Owners] = MappingProxyType({})


class Taker(NamedTuple):
    """The worker of a take, as its step sees it."""

    worker: str
    budget_ms: int
    lanes: Collection[str]
    holders: Collection[Key]
    declined: set[Key]  # runs that the store offers although this worker holds them
    leaves_room_to_us: Callable[[Run], bool]


class Taking:
    """The step of one take, and the results for the next one. Runs come in the store's writing thread."""

    def __init__(self, taker: Taker, owners: Owners, group: RunGroup, room: FreeSlots, makes_room: Run | None) -> None:
        """`makes_room`: the run for which this worker lets its other runs go; until it fits nothing else joins."""
        self.before: dict[Key, Run] = {}  # each run as it was when it was claimed
        self.overdue: set[str] = set()  # owners of runs that are due; whether they live is to be found out first
        self.passed = 0  # runs that were offered and left, so that the next take looks beyond them
        self.makes_room = makes_room if owners else None
        self._only = makes_room
        self._taker = taker
        self._owners = owners
        self._closed = {owner: held for owner, held in owners.items() if held is not None}
        self._group = group
        self._room = room

    def step(self, run: Run, now: Instant, _: Mapping) -> Commit | None:
        """Move one run that the store offers. Asked about a run again, it answers the same."""
        key = (run.tenant, run.run)
        if key in self._taker.holders:  # just given back: looked for again once its holder is gone
            self._taker.declined.add(key)
            self.passed += 1
            return None
        if run.lane not in self._taker.lanes:  # of a dead worker that served more than this one
            return None
        commit = self._of_owners(run, now) if self._owners else self._due(run, now)
        if commit is not None:
            self.before[key] = run
        else:
            self.passed += 1
        return commit

    def _due(self, run: Run, now: Instant) -> Commit | None:
        if run.owner:
            self.overdue.add(run.owner)
            return None
        key, group = (run.tenant, run.run), group_of(run)
        if not self._fits(key, group):
            self._left(run, now)
            return None
        if not self._room.has(key):
            return None
        self._group.give(key, group)
        return self._claim(run, now)

    def _left(self, run: Run, now: Instant) -> None:
        """A run does not fit. After a while one worker makes room for it, which every worker names alike."""
        is_wanted = self._only is not None and self._only[:2] == run[:2]
        late = run.due_at is not None and run.due_at + GROUP_PATIENCE <= now.real
        is_first = self._only is None and self._group.free > 0 and late
        if is_wanted or (is_first and self._taker.leaves_room_to_us(run)):
            self.makes_room = self._only = run

    def _of_owners(self, run: Run, now: Instant) -> Commit | None:
        """A run of a dead worker is claimed or queued; one of a worker that lives only if it is overdue."""
        commit = self._claim(run, now)
        if commit is None:
            return None
        key, group = (run.tenant, run.run), group_of(moved(commit))
        if self._fits(key, group):
            self._group.give(key, group)
            return commit
        return requeue(run, now=now, closed=self._closed) if run.owner in self._closed else None

    def _fits(self, key: Key, group: int) -> bool:
        return (self._only is None or self._only[:2] == key) and self._group.fits(key, group)

    def _claim(self, run: Run, now: Instant) -> Commit | None:
        taker = self._taker
        return claim(run, worker=taker.worker, now=now, budget_ms=taker.budget_ms, closed=self._closed)
