"""One take of a worker: which runs that the store offers are claimed, left, or queued for any worker (S-2, S-5)."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from collections.abc import Mapping as Facts
from types import MappingProxyType
from typing import Final, NamedTuple

from outlast.core.budget import GROUP_PATIENCE, MINUTE
from outlast.core.clock import Clock
from outlast.core.commit import Commit, Instant, Mapping
from outlast.core.quarantine import RunGroup, group_of
from outlast.core.rows import Run
from outlast.core.verbs import claim, moved, requeue

KEPT: Final = 10  # of so many places one is kept; of fewer none
REMEMBERED: Final = 10 * MINUTE  # since a tenant's last run was walked here


class Capacity:
    """Of one worker. Who serves one tenant only keeps nothing back; places that are held are never taken away."""

    def __init__(self, count: int, clock: Clock) -> None:
        self._count = count
        self._kept = count // KEPT
        self._clock = clock
        self._walked: dict[str, int] = {}  # when a run of each tenant was last held here

    def walks(self, tenant: str) -> None:
        """A run of this tenant is held from now on."""
        self._walked[tenant] = self._clock.mono()

    def among(self, held: Iterable[tuple[str, str]]) -> "FreeSlots":
        """What is free beside these runs."""
        since = self._clock.mono() - REMEMBERED
        self._walked = {tenant: at for tenant, at in self._walked.items() if at >= since}
        share = self._count // (len(self._walked) + 1)
        return FreeSlots(held, self._count, self._kept if len(self._walked) > 1 else 0, share)


class FreeSlots:
    """The free places of one take, as its step gives them away; asked about a run again, it answers the same."""

    def __init__(self, held: Iterable[tuple[str, str]], count: int, kept: int, share: int) -> None:
        self.held = Counter(tenant for tenant, _ in held)
        self.refused = False  # somebody has to wait for a place though there is one
        self._free = count - self.held.total()
        self._kept, self._share = kept, share
        self._given: set[tuple[str, str]] = set()
        self._holds = Counter(self.held)

    def has(self, key: tuple[str, str]) -> bool:
        """May this run have a place?"""
        if key in self._given:
            return True
        if self._free - len(self._given) <= self._kept and self._holds[key[0]] >= self._share:
            self.refused = True
            return False
        self._given.add(key)
        self._holds[key[0]] += 1
        return True


Key = tuple[str, str]
Owners = Facts[str, int | None]
NO_OWNERS: Final[Owners] = MappingProxyType({})


class Taker(NamedTuple):
    """The worker of a take, as its step sees it."""

    worker: str
    budget_ms: int
    lanes: Collection[str]
    holders: Collection[Key]
    skipped: set[Key]  # runs that the store offers although this worker holds them
    is_ours_to_make_room: Callable[[Run], bool]


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
            self._taker.skipped.add(key)
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
        if is_wanted or (is_first and self._taker.is_ours_to_make_room(run)):
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
