"""S-2: leases of workers, closing, epochs raised on give-back, and a claim whose reply was lost.

One run, two workers, one effect. A worker may pause between any two of its steps, its lease may expire at any moment.
A claim's reply may be lost; a task of a walk may outlive its give-back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from outlast.core import effect_verbs, verbs
from outlast.core.commit import Commit, Put
from outlast.core.durations import Liveness
from outlast.core.machine import ENDED, EffectStatus, LeaseStatus, RunStatus, lease_target
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.run_columns import WaitingFor
from outlast.core.rows.run_rows import Run
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.engine.lease import closed, opened
from tests.models.explore import Variant
from tests.models.world import (
    MAPPING,
    SLICE,
    Landed,
    Rows,
    at,
    born,
    find,
    fresh,
    land,
    run_of,
    seen_by,
)

NOW, FRESH = at(1), 2  # a lease until 2 is fresh, one until 1 has expired
INTENT = effect_verbs.Intent(1, "k", "pay", "d", b"", "", 1, 2, 1)


class W(NamedTuple):
    """A worker: its copy of its row, the reply it awaits, its execution, and the rows that a renewal has read."""

    row: Worker | None = None  # None: it was closed and stopped
    reply: str = ""  # '' no take under way, "sent", "lands"
    taken: Run | None = None  # in a reply under way
    view: Run | None = None  # walked
    left: Run | None = None  # of a task that outlived its walk
    mine: Run | None = None  # renewal: mine in the store


class S(NamedTuple):
    """The world."""

    rows: Rows
    w: tuple[W, W]
    expiries: int
    losses: int = 1
    parks: int = 1
    err: str = ""


@dataclass(frozen=True)
class Leases:
    """The rule, or the rule with a safeguard removed."""

    expiries: int = 1
    raises_epoch: bool = True  # a give-back
    closes: str = "expired only"  # or "any"
    compares: bool = True
    waits_for_reply: bool = True  # no comparison while a take is under way

    def first(self) -> tuple[S, ...]:
        rows = fresh(land((), born(), 1).rows)
        ws = tuple(W(opened(f"w{i}", name="", lanes="", now_real=1, now_business=1, live=Liveness())) for i in (0, 1))
        ws = tuple(w._replace(row=_lease(w.row, FRESH)) for w in ws)
        for w in ws:
            assert w.row is not None
            rows = land(rows, Commit((Put(WORKER, w.row, 0),)), 1).rows
        return (S(rows, ws, self.expiries),)  # type: ignore[arg-type]

    def good(self, s: S) -> bool:
        return bool(s.err) or run_of(s.rows).owner == ENDED or all(w.row is None for w in s.w)

    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        run, effect = run_of(s.rows), _effect(s.rows)
        if run.owner == ENDED and effect is not None and effect.status is EffectStatus.INTENDED:
            return "an effect was left open by a run that has ended"
        return ""

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        for i, w in enumerate(s.w):
            if w.row is not None:
                yield from self._leases(s, i, w)
                yield from self._takes(s, i, w)
                yield from self._compares(s, i, w)
                if w.view is not None:
                    yield from self._walks(s, i, w, w.view)
            if w.left is not None:
                yield from self._leftover(s, i, w, w.left)

    def _with(self, s: S, left: Landed, i: int, w: W, **changes: object) -> S:
        run = run_of(left.rows)
        ws = (w, s.w[1]) if i == 0 else (s.w[0], w)
        s = s._replace(w=tuple(_renumbered(x, run) for x in ws), **changes)  # type: ignore[arg-type]
        return s._replace(rows=_plain(fresh(left.rows)), err=s.err or left.broke)

    # --- rows of workers ---------------------------------------------------------------------------------
    def _leases(self, s: S, i: int, w: W) -> Iterator[tuple[str, S]]:
        row, other = _worker(s.rows, i), _worker(s.rows, 1 - i)
        if s.expiries and row.status is LeaseStatus.ALIVE and row.lease_until == FRESH:
            rows = tuple(_lease(r, 1) if r is row else r for r in s.rows)
            after = self._with(s, Landed(rows, "", 0, ""), i, w, expiries=s.expiries - 1)  # type: ignore[arg-type]
            yield f"the lease of w{i} expires", after
        if row.status is LeaseStatus.CLOSED:
            assert w.row is not None
            renewed = w.row._replace(version=w.row.version + 1, status=lease_target("renew", w.row.status))
            left = land(s.rows, Commit((Put(WORKER, renewed, w.row.version),)), 1)
            assert left.refused == "version", "a closed row never renews"
            yield f"w{i} learns that it was closed, and stops", self._with(s, left, i, W(left=w.view or w.left))
        elif row.lease_until != FRESH:
            rows = tuple(_lease(r, FRESH) if r is row else r for r in s.rows)
            yield f"w{i} renews", self._with(s, Landed(rows, "", 0, ""), i, w)
        expired = other.lease_until != FRESH or self.closes == "any"
        if other.status is LeaseStatus.ALIVE and expired:
            left = land(s.rows, closed(other), 1)
            err = "the row of a worker in good health was closed" if other.lease_until == FRESH else ""
            yield f"w{i} closes the row of w{1 - i}", self._with(s, left, i, w, err=err)

    # --- taking ----------------------------------------------------------------------------------------------
    def _takes(self, s: S, i: int, w: W) -> Iterator[tuple[str, S]]:
        here = Landed(s.rows, "", 0, "")
        if not w.reply and w.view is None and (w.mine is None or not self.waits_for_reply):
            yield f"w{i} sends a take", self._with(s, here, i, w._replace(reply="sent"))
        elif w.reply == "sent":
            gone = {f"w{j}": 0 for j in (0, 1) if _worker(s.rows, j).status is LeaseStatus.CLOSED}
            commit = verbs.claim(run_of(s.rows), worker=f"w{i}", now=NOW, claim_ms=SLICE, closed=gone)
            left = land(s.rows, commit, 1) if commit is not None else here
            taken = run_of(left.rows) if commit is not None else None
            after = w._replace(reply="lands" if taken else "", taken=taken)
            yield f"the store: w{i} takes {'the run' if taken else 'nothing'}", self._with(s, left, i, after)
        elif w.reply == "lands":
            done = w._replace(reply="", taken=None)
            yield f"w{i} hears of its claim", self._with(s, here, i, done._replace(view=w.taken))
            if s.losses:
                yield f"the reply to w{i} is lost", self._with(s, here, i, done, losses=s.losses - 1)

    def _compares(self, s: S, i: int, w: W) -> Iterator[tuple[str, S]]:
        """A renewal compares the rows that are ours (read first) with the runs executed here (read second)."""
        if not self.compares or (w.reply and self.waits_for_reply):
            return
        run, here = run_of(s.rows), Landed(s.rows, "", 0, "")
        if w.mine is None:
            if run.owner == f"w{i}":
                yield f"w{i} reads what is its own in the store", self._with(s, here, i, w._replace(mine=run))
            return
        after = w._replace(mine=None)
        if w.view is not None:
            yield f"w{i} walks it: nothing to give back", self._with(s, here, i, after)
            return
        commit = verbs.hand_back(w.mine, inbox_seq=None, now=NOW, mapping=MAPPING, why="nobody walked it")
        left = land(s.rows, commit, 1)
        robbed = not left.refused and w.taken is not None and w.taken.epoch == run.epoch
        err = "a worker gave back the run it was about to walk" if robbed else ""
        yield (
            f"w{i} gives back what it does not walk ({left.refused or 'landed'})",
            self._with(s, left, i, after, err=err),
        )

    # --- walking -----------------------------------------------------------------------------------------------
    def _speak(self, s: S, i: int, commit: Commit, w: W, what: str, **more: object) -> tuple[str, S]:
        """Land a commit of the execution. If it is refused, the execution ends here."""
        left = land(s.rows, commit, 1)
        if left.refused:
            return f"w{i}: {what} refused ({left.refused})", self._with(s, left, i, w._replace(view=None, left=None))
        return f"w{i}: {what}", self._with(s, left, i, w, **more)

    def _walks(self, s: S, i: int, w: W, view: Run) -> Iterator[tuple[str, S]]:
        effect = _effect(s.rows)
        if effect is None:
            commit = effect_verbs.intend(view, INTENT, None, ordinal=1, now=NOW)
            yield self._speak(s, i, commit, w, "intends")
        elif effect.status is EffectStatus.INTENDED:
            yield self._speak(s, i, effect_verbs.record(view, effect, b"1", now=NOW), w, "records")
        if s.parks and effect is None:
            waiting = [WaitingFor("signal", "n")]
            commit = verbs.park(
                view, "park", inbox_seq=view.inbox_seq, waiting=waiting, timers=(), now=NOW, mapping=MAPPING
            )
            commit = commit if self.raises_epoch else _same_epoch(commit, view)
            then = w._replace(view=None, left=view)
            yield self._speak(s, i, commit, then, "parks, and a task of the walk lives on", parks=s.parks - 1)
        if effect is not None and effect.status is EffectStatus.DONE:
            commit = verbs.finish(
                view, RunStatus.COMPLETED, inbox_seq=view.inbox_seq, state=b"{}", result=None, reason="", not_undone=(),
                approvals=(), slots=(), now=NOW,
            )  # fmt: skip
            yield self._speak(s, i, commit, w._replace(view=None), "ends the run")

    def _leftover(self, s: S, i: int, w: W, left: Run) -> Iterator[tuple[str, S]]:
        if _effect(s.rows) is not None:
            return
        owner = run_of(s.rows).owner
        label, after = self._speak(
            s,
            i,
            effect_verbs.intend(left, INTENT, None, ordinal=1, now=NOW),
            w._replace(left=None),
            "a leftover intends",
        )
        landed = _effect(after.rows) is not None
        wrong = landed and owner != left.owner
        yield label, after._replace(err="a leftover of a run that was given back intended" if wrong else after.err)


def _worker(rows: Rows, i: int) -> Worker:
    return next(row for row in rows if isinstance(row, Worker) and row.id == f"w{i}")


def _effect(rows: Rows) -> Effect | None:
    row = find(rows, EFFECT, "r", 1, "k")
    return row if isinstance(row, Effect) else None


def _lease(row: object, until: int) -> Worker:
    assert isinstance(row, Worker) and row.tenant == STORE
    return row._replace(lease_until=until)


def _renumbered(w: W, run: Run) -> W:
    return w._replace(
        taken=seen_by(w.taken, run), view=seen_by(w.view, run), left=seen_by(w.left, run), mine=seen_by(w.mine, run)
    )


def _plain(rows: Rows) -> Rows:
    """A run that parked is due again at once here: something always comes."""
    return tuple(row._replace(due_at=1) if isinstance(row, Run) and row.owner == "" else row for row in rows)


def _same_epoch(commit: Commit, view: Run) -> Commit:
    put = commit.writes[0]
    assert isinstance(put, Put) and isinstance(put.row, Run)
    return commit._replace(writes=(put._replace(row=put.row._replace(epoch=view.epoch)), *commit.writes[1:]))


LARGE = (Variant("as built, three expiries", Leases(expiries=3)),)
VARIANTS = (
    Variant("as built", Leases()),
    Variant("no lease ever expires, no claim is compared", Leases(expiries=0, compares=False), "stuck"),
    Variant("no lease ever expires", Leases(expiries=0)),
    Variant("a give-back keeps the epoch", Leases(raises_epoch=False), "the epoch did not rise"),
    Variant("a row is closed before it has expired", Leases(closes="any"), "in good health was closed"),
    Variant("compared while a take is under way", Leases(waits_for_reply=False), "about to walk"),
)
