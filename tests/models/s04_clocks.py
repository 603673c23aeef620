"""S-4 on a store without a clock: each process has its own, and those of two may differ by SKEW ticks.

The first worker holds a run, renews its lease and calls; it may die at any moment. The second judges its lease and
its execution budget by another clock. The settle time (S-17) and the deadline of a wait (S-14) are searched with skewed
clocks, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from outlast.core import verbs
from outlast.core.commit import Commit, Put
from outlast.core.durations import Liveness
from outlast.core.machine import LeaseStatus, lease_target
from outlast.core.rows.store_rows import WORKER, Worker, has_expired
from outlast.engine.lease import ClockReading, Lease, closed, opened
from tests.models.explore import Variant
from tests.models.s14_waits import Waits
from tests.models.s17_effects import ASK, FREEZE, Effects
from tests.models.world import Rows, at, born, land, run_of

SKEW, WINDOW, BUDGET, END = 2, 2, 4, 9
LIVE = Liveness(heartbeat_window=WINDOW)


class S(NamedTuple):
    """The world: true time, the rows, and what the first worker knows of its lease."""

    rows: Rows
    t: int
    good_until: int  # of the first worker's lease, by its own boot clock
    dead: bool = False
    err: str = ""


class Boot:
    """The first worker's boot clock: it advances as true time does."""

    def __init__(self, t: int) -> None:
        self._t = t

    def boot(self) -> int:
        return self._t


@dataclass(frozen=True)
class Clocks:
    """The rule, or the rule without the widening of leases or of budgets."""

    ahead: tuple[int, int]  # ticks by which the clocks of the two workers are ahead of true time
    lease_skew: int = SKEW
    budget_skew: int = SKEW

    def first(self) -> tuple[S, ...]:
        rows = land((), born(), 1).rows
        now = 1 + self.ahead[0]
        row = opened("w0", name="", lanes="", now_real=now, now_business=now, live=LIVE)
        rows = land(rows, Commit((Put(WORKER, row, 0),)), now).rows
        commit = verbs.claim(run_of(rows), worker="w0", now=at(now), claim_ms=BUDGET)
        assert commit is not None
        return (S(land(rows, commit, now).rows, 1, self._heard(1, row)),)

    def good(self, s: S) -> bool:
        return bool(s.err) or run_of(s.rows).owner == "w1"

    def bad(self, s: S) -> str:
        return s.err

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        if s.err:
            return
        if s.t < END:
            yield f"t={s.t + 1}", s._replace(t=s.t + 1)
        row = next(row for row in s.rows if isinstance(row, Worker))
        if not s.dead:
            yield f"t={s.t}: w0 dies", s._replace(dead=True)
            yield from self._renews(s, row)
        yield from self._closes(s, row)
        yield from self._takes(s, row)

    def _heard(self, t: int, row: Worker) -> int:
        lease = Lease("w0")
        lease.renewed(ClockReading(t, t, t), row.lease_until, t + self.ahead[0])
        return lease.good_until_boot

    def _holds(self, s: S) -> bool:
        """Return True if the first worker may call: it lives, and its lease is good by its own clock."""
        lease = Lease("w0")
        lease.good_until_boot = s.good_until
        return not s.dead and lease.holds(Boot(s.t))  # type: ignore[arg-type]  # it reads no other clock

    def _renews(self, s: S, row: Worker) -> Iterator[tuple[str, S]]:
        now = s.t + self.ahead[0]
        if row.status is LeaseStatus.ALIVE and now + WINDOW > row.lease_until:
            after = row._replace(version=row.version + 1, status=lease_target("renew", row.status))
            after = after._replace(lease_until=now + WINDOW, renewed_at=now)
            left = land(s.rows, Commit((Put(WORKER, after, row.version),)), now)
            yield f"t={s.t}: w0 renews", s._replace(rows=left.rows, good_until=self._heard(s.t, after))

    def _closes(self, s: S, row: Worker) -> Iterator[tuple[str, S]]:
        now = s.t + self.ahead[1]
        if row.status is LeaseStatus.ALIVE and has_expired(row, now, self.lease_skew):
            left = land(s.rows, closed(row), now)
            err = "the row of a worker in good health was closed" if self._holds(s) else ""
            yield f"t={s.t}: w1 closes the row of w0", s._replace(rows=left.rows, err=err)

    def _takes(self, s: S, row: Worker) -> Iterator[tuple[str, S]]:
        now, run = s.t + self.ahead[1], run_of(s.rows)
        gone = {"w0": 0} if row.status is LeaseStatus.CLOSED else {}
        commit = verbs.claim(run, worker="w1", now=at(now), claim_ms=END, closed=gone, skew=self.budget_skew)
        if commit is not None and run.owner == "w0":
            within = not gone and run.due_at is not None and s.t + self.ahead[0] < run.due_at
            err = "a run was taken within its execution budget" if within else ""
            yield f"t={s.t}: w1 takes the run", s._replace(rows=land(s.rows, commit, now).rows, err=err)


BEHIND, FAST = (0, SKEW), (SKEW, 0)  # the writer's clock against the judge's
LATER = (0, 1, 1, 1)  # the first holder's clock is behind those of the others and of the person
LARGE = (
    Variant("settle time, clocks differ by two ticks", Effects(freeze=FREEZE, ahead=(0, 2, 1, 2), skew=2, end=15)),
    Variant("deadline, clocks differ by two ticks", Waits(ahead=2, skew=2)),
)
VARIANTS = (
    Variant("leases and budgets, the writer's clock is behind", Clocks(BEHIND)),
    Variant("leases and budgets, the writer's clock is ahead", Clocks(FAST)),
    Variant("settle time, the writer's clock is behind", Effects(freeze=FREEZE, ahead=LATER, skew=1)),
    Variant("settle time, the writer's clock is ahead", Effects(freeze=FREEZE, ahead=(1, 0, 0, 0), skew=1)),
    Variant("settle time, a person's clock is ahead", Effects(mode=ASK, freeze=FREEZE, ahead=LATER, skew=1)),
    Variant("deadline, the sender's clock is behind", Waits(ahead=1, skew=1)),
    Variant("a lease is not widened", Clocks(BEHIND, lease_skew=0), "in good health was closed"),
    Variant("a budget is not widened", Clocks(BEHIND, budget_skew=0), "within its execution budget"),
    Variant("clocks differ by a tick more than assumed", Clocks((0, SKEW + 1)), "in good health was closed"),
    Variant("settle time is not widened", Effects(freeze=FREEZE, ahead=LATER), "without a decision"),
    Variant("a person's answer is not widened", Effects(mode=ASK, freeze=FREEZE, ahead=LATER), "landed afterwards"),
    Variant("a deadline is not widened", Waits(ahead=1), "was left before it"),
)
