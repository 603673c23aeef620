"""Capacity of a worker, and the decision which offered runs one take claims (S-2, S-5, S35)."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from collections.abc import Mapping as Facts
from types import MappingProxyType
from typing import Final, NamedTuple

from outlast.core.clock import Clock
from outlast.core.commit import Commit, Instant, Mapping
from outlast.core.durations import GROUP_PATIENCE, MINUTE
from outlast.core.quarantine import RunGroup, group_of
from outlast.core.rows import Run
from outlast.core.verbs import claim, moved, requeue

KEPT: Final = 10  # one slot in so many is reserved; none of fewer
REMEMBERED: Final = 10 * MINUTE  # since a tenant's last run here


class Capacity:
    """Slots of one worker.

    If it serves several tenants, the last ones are reserved for small shares.

    A tenant that holds its share or more gets no reserved slot. Slots in use are never taken away.
    """

    def __init__(self, count: int, clock: Clock) -> None:
        self._count = count
        self._kept = count // KEPT
        self._clock = clock
        self._walked: dict[str, int] = {}  # monotonic time of each tenant's last run here

    def note_held(self, tenant: str) -> None:
        """Record that a run of this tenant is held."""
        self._walked[tenant] = self._clock.mono()

    def among(self, held: Iterable[tuple[str, str]]) -> "FreeSlots":
        """Return the free slots beside these runs."""
        since = self._clock.mono() - REMEMBERED
        self._walked = {tenant: at for tenant, at in self._walked.items() if at >= since}
        share = self._count // (len(self._walked) + 1)
        return FreeSlots(held, self._count, self._kept if len(self._walked) > 1 else 0, share)


class FreeSlots:
    """Free slots of one take. Repeated questions about one run get the same answer."""

    def __init__(self, held: Iterable[tuple[str, str]], count: int, kept: int, share: int) -> None:
        self.held = Counter(tenant for tenant, _ in held)
        self.refused = False  # a run was refused although a slot is free
        self._free = count - self.held.total()
        self._kept, self._share = kept, share
        self._given: set[tuple[str, str]] = set()
        self._holds = Counter(self.held)

    def has(self, key: tuple[str, str]) -> bool:
        """Give a slot to a run; False if its tenant gets no slot."""
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
    """The worker of a take."""

    worker: str
    budget_ms: int
    lanes: Collection[str]
    holders: Collection[Key]
    skipped: set[Key]  # runs that the store offers although this worker holds them
    is_ours_to_make_room: Callable[[Run], bool]


class Taking:
    """Decisions of one take, and its results for the next one. Called in the store's writing thread."""

    def __init__(self, taker: Taker, owners: Owners, group: RunGroup, room: FreeSlots, makes_room: Run | None) -> None:
        """Create the decisions of one take.

        `makes_room`: the run for which this worker releases its other runs; no other run is claimed until it fits.
        """
        self.before: dict[Key, Run] = {}  # each claimed run before its claim
        self.overdue: set[str] = set()  # owners of due runs, to be checked before they are taken over
        self.passed = 0  # runs that were offered and skipped; the next take reads so many more
        self.makes_room = makes_room if owners else None
        self._only = makes_room
        self._taker = taker
        self._owners = owners
        self._closed = {owner: held for owner, held in owners.items() if held is not None}
        self._group = group
        self._room = room

    def step(self, run: Run, now: Instant, _: Mapping) -> Commit | None:
        """Return the commit that claims an offered run, or None. Repeated calls for one run answer the same."""
        key = (run.tenant, run.run)
        if key in self._taker.holders:  # just released: taken again once its executor has finished
            self._taker.skipped.add(key)
            self.passed += 1
            return None
        if run.lane not in self._taker.lanes:  # of a dead worker that served other lanes too
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
        """Note a run that does not fit. After a while one worker, the same for all, makes room for it."""
        is_wanted = self._only is not None and self._only[:2] == run[:2]
        late = run.due_at is not None and run.due_at + GROUP_PATIENCE <= now.real
        is_first = self._only is None and self._group.free > 0 and late
        if is_wanted or (is_first and self._taker.is_ours_to_make_room(run)):
            self.makes_room = self._only = run

    def _of_owners(self, run: Run, now: Instant) -> Commit | None:
        """Return the commit that claims or queues a run of a dead worker, or an overdue run of a live one."""
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
