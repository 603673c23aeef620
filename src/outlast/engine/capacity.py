"""Capacity of a worker: the runs that it holds, and those that it may claim (S-5).

Theory of operation. The decisions of a take are made inside the store's transaction, run by run, and may be repeated
by it. So `Taking.step` answers the same for the same run, and its results count only after the take (`end_take`).
Faults:

1. *One tenant takes all places.* One place of ten is kept for tenants that hold less than their share. A place in use
   is never taken away.
2. *A run that was dangerous to its worker must run with few others*, while this worker holds many (quarantine). After
   a while one worker, the same for all, takes no other run until that one fits (`makes_room`).
3. *Places are free, and the only due runs may not have them.* No notice comes when that changes. `next_look` says
   SOON.
4. *A run is offered that its executor here is about to release.* It is skipped and counted, and the next take reads
   as many more, or skipped runs could hide all others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from collections.abc import Mapping as Facts
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Instant, Mapping
from outlast.core.durations import GROUP_PATIENCE, MINUTE
from outlast.core.lanes import OWN
from outlast.core.quarantine import RunGroup, group_of
from outlast.core.row_checks import check_readable
from outlast.core.rows.run_rows import Run, RunKey, is_overdue
from outlast.core.verbs import claim, moved, requeue
from outlast.engine.run_session import RunSession

Owners = Facts[str, int | None]
NO_OWNERS: Final[Owners] = MappingProxyType({})
TAKE_MAX: Final = 200  # runs claimed in one transaction
TAKE_OVER_MAX: Final = 1_000  # the same for runs of dead workers: all are claimed before the first is executed
KEPT: Final = 10  # one of ten places is reserved; none of fewer places
ROOM_KEPT: Final = 2 * GROUP_PATIENCE  # for a run that an engine asks for again and again
REMEMBERED: Final = 10 * MINUTE  # since a tenant's last run here


class Look(Enum):
    """The time at which a worker looks for due runs again."""

    NOW = "now"
    SOON = "soon"
    """A place is free that no due run may have now; that changes without a notice."""
    WHEN_DUE = "when due"
    WHEN_RELEASED = "when released"


class LostClaim(NamedTuple):
    """Claim of a run that this worker does not execute."""

    group: int  # `group_of` the run
    before: int = 0  # version of the run row that the claim may still change; 0: the claim has landed


class Capacity:
    """Places of one worker: the runs that it holds, and those that it may claim.

    If it serves several tenants, the last ones are reserved for small shares.

    A tenant that holds its share or more gets no reserved place. Places in use are never taken away.
    """

    def __init__(self, count: int, clock: Clock) -> None:
        self.count = count
        self.held: dict[RunKey, RunSession] = {}
        self.lost_claims: dict[RunKey, LostClaim] = {}  # they count as held
        self.changed = asyncio.Event()  # set when a run may fit that did not, and when the worker stops
        self.claiming = asyncio.Lock()  # while runs are claimed or returned
        self._kept = count // KEPT
        self._clock = clock
        self._recent: dict[str, int] = {}  # monotonic time of each tenant's last run here
        self._grouped: dict[RunKey, RunSession] = {}  # runs of groups, held because their workers crashed
        # a due run whose group allows fewer runs than are held; claimed before others
        self._makes_room: Run | None = None
        self._room_asked = 0  # monotonic time at which that run was offered last
        self._skipped: set[RunKey] = set()  # runs that the store offered although this worker holds them
        self._reserving = False  # a place is free, and reserved for other tenants than those with due runs
        self._passed = 0  # runs that the last take skipped; the next one reads as many more

    def group(self) -> RunGroup:
        """Return the number of runs that this worker holds, and the smallest limit among their groups."""
        groups = [session.held.group for session in self._grouped.values()]
        lost = {key: claim.group for key, claim in self.lost_claims.items()}
        return RunGroup(len(self.held), self.count, groups, lost)

    def free_places(self) -> "FreePlaces":
        """Return the free places beside the runs that are held."""
        since = self._clock.mono() - REMEMBERED
        self._recent = {tenant: at for tenant, at in self._recent.items() if at >= since}
        share = self.count // (len(self._recent) + 1)
        return FreePlaces(self.held, self.count, self._kept if len(self._recent) > 1 else 0, share)

    def begin_take(
        self,
        worker: str,
        claim_ms: int,
        lanes: Collection[str],
        owners: Owners,
        is_ours: Callable[[Run, int], bool],
        *,
        asked: RunKey | None = None,
        skew: int = 0,
    ) -> "Taking":
        """Return the decisions of one take: of due runs, of runs of these `owners`, or of the one run `asked` for.

        `skew`: of the store.
        """
        if asked is not None and self._makes_room is not None and self._clock.mono() - self._room_asked > ROOM_KEPT:
            self._makes_room = None  # no engine asks for it here any more
        taker = Taker(worker, claim_ms, lanes, self.held, self._skipped, is_ours, skew)
        group = self.group()
        passed = min(self._passed, TAKE_OVER_MAX) + len(self.lost_claims)
        most = TAKE_OVER_MAX if owners else min(group.free, TAKE_MAX) + passed
        return Taking(taker, owners, group, self.free_places(), self._makes_room, most, asked)

    def end_take(self, taking: "Taking", ours: Iterable[Run]) -> None:
        """Record the results of a take. Claims of `ours` count as lost until `hold`."""
        if not taking.owners:
            self._reserving, self._passed = taking.room.refused, taking.passed
        if taking.makes_room is not self._makes_room:
            self._room_asked = self._clock.mono()
        self._makes_room = taking.makes_room
        self.lost_claims |= {(run.tenant, run.run): LostClaim(group_of(run)) for run in ours}

    def lose_take(self, taking: "Taking") -> None:
        """Record the claims of a take without an answer: each may land at any time until its row changes."""
        given = taking.group.given
        self.lost_claims |= {
            key: LostClaim(given[key], run.version) for key, run in taking.before.items() if key in given
        }

    def next_look(self, taken: int) -> Look:
        """Return when to look again after a take that moved `taken` runs."""
        free = self.group().free
        if self._makes_room is not None or (free <= 0 and self._grouped):
            return Look.SOON  # a group may dissolve before any of its runs is released
        if free <= 0:
            return Look.WHEN_RELEASED
        if taken >= min(free, TAKE_MAX):
            return Look.NOW
        return Look.SOON if self._reserving or self._passed else Look.WHEN_DUE

    def hold(self, session: RunSession) -> None:
        """Record that a claimed run is executed here."""
        key = (session.held.run.tenant, session.held.run.run)
        self.held[key] = session
        if session.held.group:
            self._grouped[key] = session
        self._recent[key[0]] = self._clock.mono()

    def release(self, session: RunSession, worker: str) -> None:
        """Record that the executor of a run has ended."""
        key = (session.held.run.tenant, session.held.run.run)
        self.held.pop(key, None)
        if session.held.run.owner == worker:  # its executor does not know the current owner
            self.lost_claims[key] = LostClaim(session.held.group)
        was_grouped = self._grouped.pop(key, None) is not None
        waited_for = was_grouped or self._reserving or self._passed or key in self._skipped
        if self.count - len(self.held) == 1 or waited_for:
            self._skipped.discard(key)
            self.changed.set()


class FreePlaces:
    """Free places of one take. Repeated questions about one run get the same answer."""

    def __init__(self, held: Iterable[tuple[str, str]], count: int, kept: int, share: int) -> None:
        self.held = Counter(tenant for tenant, _ in held)
        self.refused = False  # a run was refused although a place is free
        self._free = count - self.held.total()
        self._kept, self._share = kept, share
        self._given: set[tuple[str, str]] = set()
        self._holds = Counter(self.held)

    def has(self, key: tuple[str, str]) -> bool:
        """Give a place to a run; False if its tenant gets no place."""
        if key in self._given:
            return True
        if self._free - len(self._given) <= self._kept and self._holds[key[0]] >= self._share:
            self.refused = True
            return False
        self._given.add(key)
        self._holds[key[0]] += 1
        return True


class Taker(NamedTuple):
    """The worker of a take."""

    worker: str
    claim_ms: int
    lanes: Collection[str]
    holders: Collection[RunKey]
    skipped: set[RunKey]  # runs that the store offers although this worker holds them
    is_ours_to_make_room: Callable[[Run, int], bool]
    skew: int  # ms by which the clock of an owner may differ from this worker's


class Taking:
    """Decisions of one take, and its results for the next one. Called in the store's writing thread."""

    def __init__(
        self,
        taker: Taker,
        owners: Owners,
        group: RunGroup,
        room: FreePlaces,
        makes_room: Run | None,
        most: int,
        asked: RunKey | None = None,
    ) -> None:
        """Create the decisions of one take of at most `most` runs.

        `makes_room`: the run for which this worker releases its other runs; no other run is claimed until it fits.
        """
        self.most = most
        self.owners = owners
        self.room = room
        self.before: dict[RunKey, Run] = {}  # each claimed run before its claim
        self.overdue: set[str] = set()  # owners of due runs, to be checked before they are taken over
        self.passed = 0  # runs that were offered and skipped; the next take reads as many more
        is_other = asked is not None and makes_room is not None and makes_room[:2] != asked
        self.makes_room = makes_room if owners or is_other else None
        self._only = makes_room
        self._taker = taker
        self._closed = {owner: held for owner, held in owners.items() if held is not None}
        self.group = group

    def step(self, run: Run, now: Instant, _: Mapping) -> Commit | None:
        """Return the commit that claims an offered run, or None. Repeated calls for one run answer the same.

        Raises Corrupt for a run of which a column cannot be read: no executor could continue it.
        """
        key = (run.tenant, run.run)
        if key in self._taker.holders:  # just released: taken again once its executor has finished
            self._taker.skipped.add(key)
            self.passed += 1
            return None
        if self.owners and run.scheduler != OWN:
            return self._queued(run, now)
        if run.lane not in self._taker.lanes:  # of a dead worker that served other lanes too
            return None
        check_readable(run)
        commit = self._of_owners(run, now) if self.owners else self._due(run, now)
        if commit is not None:
            self.before[key] = run
        else:
            self.passed += 1
        return commit

    def _due(self, run: Run, now: Instant) -> Commit | None:
        if run.owner:
            if is_overdue(run, now.real, self._taker.skew):
                self.overdue.add(run.owner)
            return None
        key, group = (run.tenant, run.run), group_of(run)
        if not self._fits(key, group):
            self._left(run, now)
            return None
        if not self.room.has(key):
            return None
        self.group.give(key, group)
        return self._claim(run, now)

    def _left(self, run: Run, now: Instant) -> None:
        """Note a run that does not fit. After a while one worker, the same for all, makes room for it."""
        is_wanted = self._only is not None and self._only[:2] == run[:2]
        late = run.due_at is not None and run.due_at + GROUP_PATIENCE <= now.real
        is_first = self._only is None and self.group.free > 0 and late
        if is_wanted or (is_first and self._taker.is_ours_to_make_room(run, now.real)):
            self.makes_room = self._only = run

    def _of_owners(self, run: Run, now: Instant) -> Commit | None:
        """Return the commit that claims or queues a run of a dead worker, or an overdue run of a live one."""
        commit = self._claim(run, now)
        if commit is None:
            return None
        key, group = (run.tenant, run.run), group_of(moved(commit))
        if self._fits(key, group):
            self.group.give(key, group)
            return commit
        return requeue(run, now=now, closed=self._closed) if run.owner in self._closed else None

    def _queued(self, run: Run, now: Instant) -> Commit | None:
        """Return the commit that queues a run of a guest's dead worker: its engine says where it goes on."""
        if run.owner in self._closed or is_overdue(run, now.real, self._taker.skew):
            return requeue(run, now=now, closed={run.owner: self._closed.get(run.owner, 0)})
        return None

    def _fits(self, key: RunKey, group: int) -> bool:
        return (self._only is None or self._only[:2] == key) and self.group.fits(key, group)

    def _claim(self, run: Run, now: Instant) -> Commit | None:
        taker = self._taker
        return claim(run, worker=taker.worker, now=now, claim_ms=taker.claim_ms, closed=self._closed, skew=taker.skew)
