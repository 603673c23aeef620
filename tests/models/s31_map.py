"""S-31: a map over executions and crashes: one child for each input, a window of them, each end counted once.

A holder claims the parent, reads its rows, and moves the window with the real commits of `core/maps.py`. It may crash,
or be replaced while it still writes. Children complete, fail, or end later although they were asked to end. A person
may cancel the parent. The runs of the children are a set here: `s30_children.py` has their commits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from outlast.core import mailbox, maps, verbs
from outlast.core.commit import Commit, Erase, Put, append_to_inbox
from outlast.core.machine import EffectStatus, RunStatus
from outlast.core.maps import MapTerms
from outlast.core.rows.effect_columns import CHILD, ERROR, NO_CHILD, EffectError
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.map_rows import MAP_OUTCOME, MAP_PROGRESS, MapOutcome, MapProgress
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_columns import WaitingFor
from outlast.core.rows.run_rows import Run, is_due, is_over
from outlast.core.run_transition import fence
from tests.models.explore import Variant
from tests.models.world import (
    KIND_OF,
    MAPPING,
    SLICE,
    TENANT,
    Rows,
    at,
    born,
    fresh,
    land,
    nameless,
    notes_of,
    run_of,
    seen_by,
    unfenced,
)

T = 1
NAME = "m?0"
BOUNDED = MapTerms("w", 3, 2, 1, 0, "", "m", (0,))  # one of three is enough, and one failure too many
ALL = MapTerms("w", 3, 2, None, None, "", "m", (0,))


class Holder(NamedTuple):
    """A holder: the run as it was claimed, and the rows that it has read."""

    view: Run
    known: Rows
    seq: int


class S(NamedTuple):
    """State of the world. `alive`: places whose children live; `ends`: letters of those that have ended, in order."""

    rows: Rows
    holder: Holder | None = None
    replaced: Holder | None = None
    alive: tuple[int, ...] = ()
    started: tuple[int, ...] = ()
    ends: tuple[tuple[int, str], ...] = ()
    decided: str = ""
    crashes: int = 1
    cancels: int = 0
    err: str = ""


@dataclass(frozen=True)
class Map:
    """The rule, or the rule with a safeguard removed."""

    terms: MapTerms = BOUNDED
    crashes: int = 1
    cancels: int = 0
    replaces: bool = False
    count: Literal["one commit", "keeps the row", "without the outcome"] = "one commit"
    late_ends_decide: bool = False
    parks_by_mail: bool = True
    fences: bool = True
    next_by_rows: bool = True

    def first(self) -> tuple[S, ...]:
        rows = land((), born(), T).rows
        progress = MapProgress(TENANT, "r", run_of(rows).visit, NAME, 1, maps.NOT_STARTED * self.terms.n, "", 0)
        rows = land(rows, Commit((Put(MAP_PROGRESS, progress, 0),)), T).rows
        return (S(fresh(rows), crashes=self.crashes, cancels=self.cancels),)

    def good(self, s: S) -> bool:
        return is_over(run_of(s.rows)) and not s.alive

    # --- faults ----------------------------------------------------------------------------------------
    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        run, progress = run_of(s.rows), _progress(s.rows)
        calls = maps.calls_of(NAME, run, _effects(s.rows))
        outcomes = {row.place: row for row in s.rows if isinstance(row, MapOutcome)}
        if len(s.started) > len(set(s.started)):
            return "an input has two children"
        if len(s.alive) > self.terms.at_most:
            return "more children live than the window has"
        if s.decided and progress.decided != s.decided:
            return "the decision has changed"
        for place, letter in s.ends:
            counted = progress.states[place].lower()
            if counted == maps.NOT_STARTED and place not in calls:
                return "an ended child was lost"
            if counted != maps.NOT_STARTED and (counted != letter or place not in outcomes):
                return "a child was counted without its outcome"
            if counted != maps.NOT_STARTED and place in calls:
                return "a child was counted, and its row is in the ledger"
        if len(outcomes) != self.terms.n - progress.states.count(maps.NOT_STARTED):
            return "an outcome was not counted"
        cancelled = any(message.kind == "cancel" for message in notes_of(s.rows))  # what has ended then stays as it is
        asleep = not run.owner and not is_due(run, T) and not cancelled
        return "the parent sleeps, and has a child to count" if asleep and maps.to_count(progress, calls) else ""

    # --- everything that can happen --------------------------------------------------------------------
    def step(self, s: S) -> Iterator[tuple[str, S]]:
        run = run_of(s.rows)
        for place in s.alive:
            yield from self._ends(s, run, place)
        if s.cancels and not is_over(run):
            asked = mailbox.cancel(run, (), actor="ana", reason="why", now=at(T))
            yield "ana cancels the parent", self._landed(s, asked)._replace(cancels=s.cancels - 1)
        if s.replaced is not None:
            what, after = self._move(s._replace(replaced=None), s.replaced)
            yield f"the replaced holder: {what}", after._replace(holder=s.holder)
        if is_over(run):
            return
        if s.holder is not None:
            if s.crashes:
                less = s._replace(holder=None, crashes=s.crashes - 1)
                yield "the holder crashes", less
                if self.replaces:
                    yield "the run is taken from a living holder", less._replace(replaced=s.holder)
            yield self._move(s, s.holder)
        elif run.owner or is_due(run, T):
            closed = {run.owner: 0} if run.owner else {}
            commit = verbs.claim(run, worker="w", now=at(T), claim_ms=SLICE, closed=closed)
            assert commit is not None
            yield "a worker claims the parent", _read(self._landed(s, commit))

    def _ends(self, s: S, run: Run, place: int) -> Iterator[tuple[str, S]]:
        """End a child: its row in the parent has its outcome, and the parent a message unless it is due."""
        call = maps.calls_of(NAME, run, _effects(s.rows))[place]
        ends = {maps.COMPLETED: "completes", maps.FAILED: "fails"}
        if call.child.stop:
            ends[maps.CANCELLED] = "stops"
        for letter, word in ends.items():
            error = EffectError(RunStatus.CANCELLED if letter == maps.CANCELLED else RunStatus.FAILED, "why")
            done = letter == maps.COMPLETED
            row = call._replace(
                version=call.version + 1, status=EffectStatus.DONE if done else EffectStatus.REFUSED,
                response=b"1" if done else None, error_text="" if done else ERROR.encode(error),
                settled_at=len(s.ends) + 1, settled_by="call",
            )  # fmt: skip
            tells = not is_over(run) and (run.owner or not is_due(run, T))
            message = (append_to_inbox(TENANT, "r", "child", call.key, call.external_id),) if tells else ()
            after = self._landed(s, Commit((Put(EFFECT, row, call.version), *message)))
            alive = tuple(each for each in s.alive if each != place)
            yield f"child {place} {word}", after._replace(alive=alive, ends=(*s.ends, (place, letter)))

    # --- a holder --------------------------------------------------------------------------------------
    def _move(self, s: S, h: Holder) -> tuple[str, S]:
        """Do the next act of a holder, as `MapWait.move` does."""
        run, progress = h.view, _progress(h.known)
        calls, messages = maps.calls_of(NAME, run, _effects(h.known)), notes_of(h.known)
        living = maps.living(calls)
        stopping = progress.decided or any(message.kind == "cancel" for message in messages)
        if progress.settled or (stopping and not progress.decided and not living):
            outcome = RunStatus.COMPLETED if progress.settled else RunStatus.CANCELLED
            return self._act(s, h, f"ends {outcome.value}", _finish(h, outcome))
        counted = None if stopping and not progress.decided else maps.count(run, self.terms, progress, calls, messages)
        if counted is not None:
            return self._act(s, h, "counts", self._counting(counted[0], progress, calls))
        if not stopping and (places := maps.free_places(self.terms, progress, calls, self.terms.n)):
            place = places[0] if self.next_by_rows else len(progress.states.rstrip(maps.NOT_STARTED))
            commit = Commit((Put(EFFECT, _child(run, place), 0),), fence(run))
            return self._act(s, h, f"starts {place}", commit if self.fences else unfenced(commit), place)
        if stopping and (left := [each for each in living if not each.child.stop]):
            stop = CHILD.encode(left[0].child._replace(stop="why"))
            row = left[0]._replace(version=left[0].version + 1, child_text=stop)
            return self._act(s, h, f"stops {row.key}", Commit((Put(EFFECT, row, left[0].version),), fence(run)))
        if progress.decided and not living:
            return self._act(s, h, "settles the map", maps.settle(run, progress, at(T))[0])
        waiting = [WaitingFor("child", "a map")]
        park = verbs.park(run, "park", inbox_seq=h.seq, waiting=waiting, timers=(), now=at(T), mapping=MAPPING)
        return self._act(s, h, "parks", park if self.parks_by_mail else nameless(park))

    def _counting(self, commit: Commit, progress: MapProgress, calls: dict[int, Effect]) -> Commit:
        writes = list(commit.writes)
        if self.count == "keeps the row":
            writes = [each for each in writes if not (isinstance(each, Erase) and each.kind is EFFECT)]
        elif self.count == "without the outcome":
            writes = [each for each in writes if not (isinstance(each, Put) and each.kind is MAP_OUTCOME)]
        if self.late_ends_decide:
            for n in maps.to_count(progress, calls):
                undecided = progress._replace(decided="", states=progress.states.lower())
                progress = maps.with_letter(self.terms, undecided, n, maps.letter_of(calls[n]))
            row = progress._replace(version=progress.version + 1)
            old = Put(MAP_PROGRESS, row, progress.version)
            writes = [old if isinstance(each, Put) and each.kind is MAP_PROGRESS else each for each in writes]
        return commit._replace(writes=tuple(writes))

    def _act(self, s: S, h: Holder, what: str, commit: Commit, place: int | None = None) -> tuple[str, S]:
        """Land a commit of a holder. After a refusal it reads again, unless another holds the run."""
        left = land(s.rows, commit, T)
        if left.refused:
            run = run_of(s.rows)
            gone = is_over(run) or run.epoch != h.view.epoch
            if place is not None and not gone and self.fences:
                return f"it {what}", s._replace(err=f"a start meets the row of another child: {left.refused}")
            after = s._replace(holder=None) if gone else _read(s)
            return f"it {what}: refused ({left.refused})", after
        after = self._landed(s, commit)
        if place is not None:
            after = after._replace(alive=tuple(sorted((*s.alive, place))), started=tuple(sorted((*s.started, place))))
        if what.startswith(("parks", "ends")):
            return f"it {what}", after._replace(holder=None)
        known = {(type(row), key_of(KIND_OF[type(row)], row)): row for row in h.known}
        for write in commit.writes:
            if isinstance(write, Put):
                known[type(write.row), key_of(write.kind, write.row)] = write.row
            elif isinstance(write, Erase):
                known.pop((write.kind.row, write.key), None)
        return f"it {what}", after._replace(holder=h._replace(known=tuple(known.values())))

    def _landed(self, s: S, commit: Commit) -> S:
        left = land(s.rows, commit, T)
        assert not left.refused, left.refused
        run = run_of(left.rows)
        rows, changed = fresh(left.rows), {"err": s.err or left.broke}
        holders: dict[str, Any] = {}
        for name in ("holder", "replaced"):
            holder = getattr(s, name)
            view = None if holder is None else seen_by(holder.view, run)
            holders[name] = None if view is None else holder._replace(view=view)
        return s._replace(rows=rows, decided=s.decided or _progress(rows).decided, **holders, **changed)


def _read(s: S) -> S:
    run = run_of(s.rows)
    return s._replace(holder=Holder(run, s.rows, run.inbox_seq))


def _progress(rows: Rows) -> MapProgress:
    return next(row for row in rows if isinstance(row, MapProgress))


def _effects(rows: Rows) -> list[Effect]:
    return [row for row in rows if isinstance(row, Effect)]


def _child(run: Run, place: int) -> Effect:
    return Effect(
        tenant=TENANT, run=run.run, visit=run.visit, key=f"m/{place}", version=1, status=EffectStatus.INTENDED,
        activity="w", digest="d", node="a", args=b"{}", response=None, error_text="", external_id=f"c{place}",
        attempts=1, waited_ms=0, ordinal=place + 1, epoch=run.epoch, first_at=T, not_after=T, settle_after=0,
        covered_until=0, approval="", allowed_by="", undo="no: a model", settled_at=0, settled_by="",
        first_visit=run.visit, child_text=CHILD.encode(NO_CHILD._replace(map=NAME, place=place)),
    )  # fmt: skip


def _finish(h: Holder, outcome: RunStatus) -> Commit:
    return verbs.finish(
        h.view, outcome, inbox_seq=h.seq, state=b"{}", result=None, reason="why", not_undone=(), approvals=(),
        slots=(), now=at(T),
    )  # fmt: skip


VARIANTS = (
    Variant("a map with bounds, and crashes", Map(crashes=2)),
    Variant("a map that awaits all, and a cancel", Map(terms=ALL, cancels=1)),
    Variant("a replaced holder that still writes", Map(terms=ALL, replaces=True)),
    Variant("a count keeps the row", Map(count="keeps the row"), "its row is in the ledger"),
    Variant("a count writes no outcome", Map(count="without the outcome"), "without its outcome"),
    Variant("late ends decide", Map(late_ends_decide=True), "the decision has changed"),
    Variant("a park names no message", Map(parks_by_mail=False), "sleeps, and has a child to count"),
    Variant("a start without the claim", Map(terms=ALL, replaces=True, fences=False), "an input has two children"),
    Variant("the next input by letters alone", Map(next_by_rows=False), "meets the row of another child"),
)
LARGE = (Variant("four inputs", Map(terms=MapTerms("w", 4, 2, 2, 1, "", "m", (0,)), crashes=2, replaces=True)),)
