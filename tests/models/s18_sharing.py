"""S-18: two runs, one key of their tenant or tree: does the world see it twice, or a run use what is being undone?

Each run asks for the effect; the first to intend it owns it. Owner and user may be replaced at any moment. Once it is
done, the owner may end and undo it, unless the other has used its answer. After an undo, the next run to ask repeats
it.

A row of a tree goes once it is settled and no run names it. Its key has the root, so that runs of the tree find it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from outlast.core import compensation, effect_verbs, run_transition, verbs
from outlast.core.commit import Commit, Put
from outlast.core.keys import tree_key, undo_key
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT, UNDO_RESERVED, Effect, Usage
from outlast.core.rows.run_rows import Run
from tests.models.explore import Variant
from tests.models.world import SLICE, Rows, at, born, find, fresh, land, run_of, seen_by

RUNS = ("q", "r")
T = 1
KEY = tree_key(RUNS[0], "k")
CALL = effect_verbs.Intent(0, KEY, "pay", "d", b"{}", "reverse", 1, 2, 1, shared=True, keep_ms=1)
UNDO = effect_verbs.Intent(0, undo_key(KEY), "pay", "d", b"{}", "", 1, 2, 1)


class P(NamedTuple):
    """A holder: reads, intends, calls; undoes. `copy` is the row as it read it, or as its own commit left it."""

    pc: str = "-"
    view: Run | None = None
    copy: Effect | None = None
    undo: Effect | None = None


class S(NamedTuple):
    """The world."""

    rows: Rows
    p: tuple[P, ...] = (P(), P())
    claims: tuple[int, ...] = (0, 0)
    world: int = 0  # count at the receiver: done minus undone
    using: tuple[int, ...] = ()  # runs that rely on its answer
    err: str = ""


@dataclass(frozen=True)
class Sharing:
    """The rule, or the rule with a safeguard removed."""

    compares_use: bool = True  # a use names the version it read
    compares_undo: bool = True  # so does the undo's intent
    marks: bool = True  # the undo's intent marks the row, so that no run may use it
    owner_settles: bool = True  # only the owner resolves an open effect
    keeps_named: bool = True  # a purge leaves a row that a run names
    claims_max: int = 2

    def first(self) -> tuple[S, ...]:
        rows: Rows = ()
        for run in RUNS:
            rows = land(rows, born(run), T).rows
        return (S(_fresh(rows)),)

    def good(self, s: S) -> bool:
        return True

    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        if s.world > 1:
            return "the world saw it twice"
        if s.using and s.world == 0:
            return "a run uses an answer of what was undone"
        return ""

    # --- holders ----------------------------------------------------------------------------------------
    def step(self, s: S) -> Iterator[tuple[str, S]]:
        for i, p in enumerate(s.p):
            if s.claims[i] < self.claims_max:
                yield self._claim(s, i)
            act = getattr(self, f"_{p.pc}", None)
            if act is not None:
                yield from act(s, i, p)
        row = _row(s.rows)
        if row is not None and row.settled_at and not (self.keeps_named and _is_named(s.rows)):
            left = tuple(each for each in s.rows if each is not row)
            yield "a purge deletes the row", s._replace(rows=left)

    def _claim(self, s: S, i: int) -> tuple[str, S]:
        run = run_of(s.rows, RUNS[i])
        closed = {run.owner: 0} if run.owner else {}
        commit = verbs.claim(run, worker=f"w{i}", now=at(T), claim_ms=SLICE, closed=closed)
        assert commit is not None
        left = land(s.rows, commit, T)
        claims = tuple(n + (j == i) for j, n in enumerate(s.claims))
        p = P("asks", run_of(left.rows, RUNS[i]))
        return f"{RUNS[i]} is taken", self._with(s, left.rows, i, p, claims=claims)

    def _with(self, s: S, rows: Rows, i: int, p: P, **changes: object) -> S:
        ps = [*s.p]
        ps[i] = p
        views = [x._replace(view=seen_by(x.view, run_of(rows, RUNS[j]))) for j, x in enumerate(ps)]
        return s._replace(rows=_fresh(rows), p=tuple(views), **changes)  # type: ignore[arg-type]

    def _speak(self, s: S, i: int, commit: Commit, then: P, what: str, **changes: object) -> tuple[str, S]:
        """Read again after a refusal, as the engine does."""
        view = s.p[i].view
        assert view is not None
        left = land(s.rows, commit, T)
        if left.refused == "epoch":
            return f"{what}: another holds {RUNS[i]}", self._with(s, s.rows, i, P("gone"))
        if left.refused:
            return f"{what}: refused ({left.refused})", self._with(s, s.rows, i, P("asks", view))
        err = left.broke if self.compares_use and self.compares_undo else ""
        return what, self._with(s, left.rows, i, then, err=s.err or err, **changes)

    def _asks(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        """Read the row, now; act on it later."""
        yield f"{RUNS[i]} reads", self._with(s, s.rows, i, p._replace(pc="knows", copy=_row(s.rows)))

    def _knows(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        name, row, run = RUNS[i], p.copy, p.view
        assert run is not None
        noted = any(isinstance(x, Usage) and x.run == name for x in s.rows)
        if row is None or row.status is EffectStatus.UNDONE:
            intent = effect_verbs.intend(run, CALL._replace(noted=noted), row, ordinal=1, now=at(T))
            yield self._speak(
                s, i, intent, p._replace(pc="ready", copy=effect_verbs.intended(intent)), f"{name} intends"
            )
        elif row.status is EffectStatus.INTENDED and (row.by_run == name or not self.owner_settles):
            yield from self._settle(s, i, p, row, run)
        elif row.status is EffectStatus.INTENDED:
            yield from self._wait(s, i, p, row, run, noted)
        elif row.by_run == name:
            yield from self._undo(s, i, p, row, run)
        elif effect_verbs.is_usable(row) and i not in s.using:
            commit = effect_verbs.use(run, row, noted=noted, now=at(T))
            if not self.compares_use:  # the row as it is now
                now = _row(s.rows)
                assert now is not None
                commit = commit._replace(writes=commit.writes[1:])
                commit = commit._replace(writes=commit.writes or (Put(EFFECT, now, now.version),), expects=())
            using = tuple(sorted({*s.using, i}))
            yield self._speak(s, i, commit, p._replace(pc="gone"), f"{name} uses it", using=using)
        elif row.shared == UNDO_RESERVED:
            yield from self._wait(s, i, p, row, run, noted)

    def _wait(self, s: S, i: int, p: P, row: Effect, run: Run, noted: bool) -> Iterator[tuple[str, S]]:
        if not noted:
            yield self._speak(s, i, effect_verbs.wait_for(run, row, at(T)), P("asks", run), f"{RUNS[i]} waits")
        elif _row(s.rows) != row:
            yield f"{RUNS[i]} is told", self._with(s, s.rows, i, P("asks", run))

    def _settle(self, s: S, i: int, p: P, row: Effect, run: Run) -> Iterator[tuple[str, S]]:
        """Left open by a predecessor: the receiver is asked, after the settle time; or it is another run's."""
        if row.by_run != RUNS[i]:
            put = Put(EFFECT, row._replace(version=row.version + 1, by_run=RUNS[i], epoch=run.epoch), row.version)
            commit = Commit((put,), run_transition.fence(run))
            then = p._replace(pc="ready", copy=put.row)  # type: ignore[arg-type]
            yield self._speak(s, i, commit, then, f"{RUNS[i]} resolves what is not its own")
        elif any(x.pc == "ready" and x.copy is not None and x.copy.epoch != row.epoch for x in s.p):
            return  # a call of a predecessor may be under way: the settle time (s17_effects)
        elif s.world:
            done = effect_verbs.settle(run, row, b"1", now=at(T))
            yield self._speak(s, i, done, p._replace(pc="asks", copy=None), f"{RUNS[i]} finds it done")
        else:
            intent = effect_verbs.intend(run, CALL, row, ordinal=1, now=at(T))
            yield self._speak(
                s, i, intent, p._replace(pc="ready", copy=effect_verbs.intended(intent)), f"{RUNS[i]} intends"
            )

    def _ready(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        held = p.view is not None and p.view.epoch == run_of(s.rows, RUNS[i]).epoch
        if not held:
            yield f"{RUNS[i]} does not send: its intent is over", self._with(s, s.rows, i, P("gone"))
            return
        yield f"{RUNS[i]} calls", self._with(s, s.rows, i, p._replace(pc="called"), world=s.world + 1)

    def _called(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        assert p.view is not None and p.copy is not None
        done = effect_verbs.record(p.view, p.copy, b"1", now=at(T))
        yield self._speak(s, i, done, P("asks", p.view), f"{RUNS[i]} records it")

    # --- undo -------------------------------------------------------------------------------------------
    def _undo(self, s: S, i: int, p: P, row: Effect, run: Run) -> Iterator[tuple[str, S]]:
        """Its owner ends, and undoes it; not what another has used."""
        begun = _undo_row(s.rows, RUNS[i])
        if row.shared == 1:
            return
        if begun is not None and (begun.status is EffectStatus.DONE or begun.epoch == run.epoch):
            return  # a run ends once
        commit = compensation.intend_undo(run, UNDO, begun, row, ordinal=2, now=at(T))
        if not self.marks:
            commit = commit._replace(writes=commit.writes[:1])
        elif not self.compares_undo and len(commit.writes) > 1:
            now, put = _row(s.rows), commit.writes[1]
            assert now is not None and isinstance(put, Put) and isinstance(put.row, Effect)
            put = Put(EFFECT, put.row._replace(version=now.version + 1), now.version)
            commit = commit._replace(writes=(commit.writes[0], put))
        marked = row if row.shared == UNDO_RESERVED or not self.marks else commit.writes[1].row  # type: ignore[union-attr]
        then = p._replace(pc="undoes", copy=marked, undo=effect_verbs.intended(commit))  # type: ignore[arg-type]
        yield self._speak(s, i, commit, then, f"{RUNS[i]} is about to undo it")

    def _undoes(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        """The receiver dedupes undos by their key, so a successor's is the same one."""
        if p.view is not None and p.view.epoch == run_of(s.rows, RUNS[i]).epoch:
            yield f"{RUNS[i]} undoes it", self._with(s, s.rows, i, p._replace(pc="undid"), world=0)

    def _undid(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        assert p.view is not None and p.copy is not None and p.undo is not None
        commit = compensation.record_undo(p.view, p.undo, p.copy, now=at(T))
        yield self._speak(s, i, commit, P("gone"), f"{RUNS[i]} records the undo")


def _row(rows: Rows) -> Effect | None:
    row = find(rows, EFFECT, "", 0, KEY)
    return row if isinstance(row, Effect) else None


def _is_named(rows: Rows) -> bool:
    return any(isinstance(row, Usage) and row.key == KEY for row in rows)


def _undo_row(rows: Rows, run: str) -> Effect | None:
    row = find(rows, EFFECT, run, 0, undo_key(KEY))
    return row if isinstance(row, Effect) else None


def _fresh(rows: Rows) -> Rows:
    for run in RUNS:
        rows = fresh(rows, run)
    return rows


VARIANTS = (
    Variant("as built", Sharing()),
    Variant("a use does not name what it read", Sharing(compares_use=False), "what was undone"),
    Variant("an undo does not name what it read", Sharing(compares_undo=False), "what was undone"),
    Variant("an undo marks nothing", Sharing(marks=False), "what was undone"),
    Variant("a purge takes a row that a run names", Sharing(keeps_named=False), "twice"),
    Variant("any run that finds it open resolves it", Sharing(owner_settles=False), "twice"),
)
LARGE = (Variant("three holders each", Sharing(claims_max=3)),)
