"""S-30: child runs over executions and crashes: one child for each key, no orphan, no lost end, no early undo.

A run is executed by a holder, which reads its inbox, then its rows, and acts on them. It may crash, or be
replaced while it still writes. People cancel runs, retry failed children and detach living ones. A child completes,
fails or waits without an end. The root has made a call before, which it undoes last. The real verbs and the real
judge decide about all rows; the rows of children are written here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from outlast.core import children, compensation, first_wait, mailbox, verbs
from outlast.core.commit import AppendMessage, Commit, Expect, Put, append_to_inbox
from outlast.core.keys import undo_key
from outlast.core.machine import Choice, EffectStatus, Reason, RunStatus, effect_target
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import EFFECT, MEMO, Effect, Memo
from outlast.core.rows.run_columns import DESCENT, Descent, Ending, WaitingFor
from outlast.core.rows.run_rows import RUN, Message, Run, is_due, is_over
from outlast.core.run_transition import fence
from tests.models.explore import Variant
from tests.models.world import (
    MAPPING,
    SLICE,
    TENANT,
    Rows,
    at,
    born,
    find,
    land,
    nameless,
    renumbered,
    seen_by,
    unfenced,
)

T = 1
P = "p"  # the root
MAIL = 5  # the number of every inbox, so that the model is finite
KEPT_MAIL = {"cancel": 1, "m": 2}
OPEN, DONE, REFUSED = EffectStatus.INTENDED, EffectStatus.DONE, EffectStatus.REFUSED
CANCEL_SENT = "cancel sent"
OWN = "own"  # key of an effect of the root
SET = ("c", "m")


class Child(NamedTuple):
    """Child as its parent declares it."""

    key: str
    abandon: bool = False
    ends: tuple[str, ...] = ("completes", "fails", "waits")
    undo: Literal["activity", "run"] = "activity"


class Act(NamedTuple):
    """Next act of a holder."""

    what: str
    key: str = ""
    outcome: RunStatus = RunStatus.COMPLETED


PARK = Act("park")


class Holder(NamedTuple):
    """Holder of a run. `seq` to `signalled`: its inbox; `known`: the run's ledger; `above`: rows of the parent."""

    pc: str
    view: Run
    seq: int
    cancelled: bool
    signalled: bool
    known: tuple[Effect, ...] = ()
    won: str = ""
    above: tuple[Run | None, tuple[Effect, ...]] = (None, ())
    rest: Act = PARK  # the other half of an act that a variant lands in two commits


class S(NamedTuple):
    """The world. The numbers are acts of people and crashes that may still happen."""

    rows: Rows
    crashes: int
    cancels: int
    retries: int
    detaches: int
    signals: int
    holders: tuple[tuple[str, Holder], ...] = ()
    replaced: tuple[str, Holder] | None = None  # it does not know it
    detached: tuple[str, ...] = ()
    err: str = ""


@dataclass(frozen=True)
class Children:
    """The rule, or the rule with a safeguard removed.

    `body`: of the root. `run` awaits its children, `start` awaits none, `first` and `wait` await the first of a child
    and a signal; with `wait`, a child that loses goes on.
    """

    tree: tuple[tuple[str, tuple[Child, ...]], ...] = ((P, (Child("c"),)),)
    body: Literal["run", "start", "first", "wait"] = "run"  # of the root
    asks: bool = False  # a failed child is a question to a person
    crashes: int = 1
    cancels: int = 1
    retries: int = 0
    detaches: int = 0
    signals: int = 0
    purges: bool = False
    replaces: bool = False  # a holder may be replaced that still writes
    start: Literal["one commit", "two commits", "without the claim"] = "one commit"
    row_of_end: Literal["of this child", "none"] = "of this child"
    retries_detached: bool = False  # a detached child may be tried again
    message: Literal["unless due", "unless due, unchecked", "always"] = "unless due"
    parks_by_mail: bool = True
    mail_first: bool = True
    waits_at_end: bool = True
    undoes_last: bool = True  # after all living children have ended
    cancel: Literal["one commit", "mark first"] = "one commit"
    loser: Literal["one commit", "later"] = "one commit"
    undoes_left: bool = False  # children that are left to themselves
    spares_undo: bool = True  # a run that undoes a child is not cancelled as a living one

    def first(self) -> tuple[S, ...]:
        rows = land((), born(P), T).rows
        rows = tuple(row._replace(workflow=P) if isinstance(row, Run) else row for row in rows)
        own = _row(P, Child(OWN), "", 1)._replace(status=DONE, settled_at=T)
        rows = land(rows, Commit((Put(EFFECT, own, 0),)), T).rows
        return (_fresh(S(rows, self.crashes, self.cancels, self.retries, self.detaches, self.signals)),)

    def good(self, s: S) -> bool:
        """True if all runs have ended or rest: a child that no cancel has reached, or the root that asks a person."""
        return all(is_over(run) or self._may_rest(s, run) for run in _runs(s.rows))

    def _may_rest(self, s: S, run: Run) -> bool:
        lost = self.body == "first" and run.run == P and find(s.rows, MEMO, P, 1, first_wait.set_key(SET)) is not None
        return not (run.owner or is_due(run, T) or run.ending_text or lost)

    # --- faults ------------------------------------------------------------------------------------
    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        seen: set[str] = set()
        for run in _runs(s.rows):
            if run.run[:-1] in seen:
                return "two children were started under one key"
            seen.add(run.run[:-1])
            if wrong := self._bad_child(s, run) or self._bad_sleep(s, run):
                return wrong
        return ""

    def _bad_child(self, s: S, run: Run) -> str:
        parent, kid = self._place(run.run)
        if kid is None:
            return ""
        above, row = _run(s.rows, parent), _effect(s.rows, parent, kid.key)
        free = kid.abandon or run.run in s.detached
        if not is_over(run) and not free and (above is None or is_over(above)):
            return "an orphan: a child goes on although its parent has ended"
        if row is not None and row.external_id != run.run and not is_over(run):
            return "a run was started beside a living one of its key"
        if row is None or row.external_id != run.run:
            return ""
        if is_over(run) and row.status is OPEN:
            return "a child has ended, and its row does not say so"
        if not is_over(run) and row.status is not OPEN and run.run not in s.detached:
            return "the row of a child has the end of another one"
        return ""

    def _bad_sleep(self, s: S, run: Run) -> str:
        if run.owner or is_due(run, T):
            return ""
        acts = self._acts(_read(s.rows, _mail(s.rows, run)))
        return "" if PARK in acts else f"{run.run} sleeps, and could go on"

    def _bad_undo(self, s: S, run: Run, row: Effect) -> str:
        for other in _runs(s.rows):
            parent, kid = self._place(other.run)
            if parent == run.run and kid and not is_over(other):
                free = kid.abandon or other.run in s.detached or kid.key.startswith("undo/")
                if not free:
                    return "an effect was undone before a living child had ended"
        mine, left = _ledger(s.rows, run.run), {kid.key for kid in self._kids(run.run) if kid.abandon}
        later = [e for e in mine if e.status is DONE and not e.undoes and e.ordinal > row.ordinal]
        if any(each.key not in left for each in later):
            return "an effect was undone before a later one"
        if any(e.status is EffectStatus.UNDONE and e.ordinal < row.ordinal for e in mine):
            return "an effect was undone after an earlier one"
        return ""

    # --- decisions of a holder -----------------------------------------------------
    def _kids(self, run: str) -> tuple[Child, ...]:
        return dict(self.tree).get(_path(run), ())

    def _place(self, run: str) -> tuple[str, Child | None]:
        """Return the parent of a run and its declaration there."""
        parent, _, name = run.rpartition(".")
        key = name.partition("#")[0]
        if key.startswith("undo/"):
            return parent, Child(key, ends=("completes",))
        return parent, next((kid for kid in self._kids(parent) if kid.key == key), None)

    def _acts(self, h: Holder) -> list[Act]:
        run, rows = h.view, {row.key: row for row in h.known}
        kids = self._kids(run.run)
        if run.ending is not None:
            return [self._unwind(run.ending.outcome, kids, h.known)]
        if h.cancelled:
            return [self._give_up(RunStatus.CANCELLED, kids, h.known)]
        _, me = self._place(run.run)
        if me is not None and not kids:
            ends = {"completes": Act("end"), "fails": Act("end", outcome=RunStatus.FAILED), "waits": PARK}
            return [ends[each] for each in me.ends]
        for kid in kids:
            row = rows.get(kid.key)
            if row is None or mailbox.is_reopened(row):
                return [Act("start", kid.key)]
        body = self.body if run.run == P else "run"
        failed = any(rows[kid.key].status is REFUSED for kid in kids)
        waits = any(rows[kid.key].status is OPEN for kid in kids)
        if body in ("first", "wait"):
            if not h.won:
                ended = rows["c"].status is not OPEN
                return [Act("win", "c") if ended else Act("win", "m") if h.signalled else PARK]
            failed, waits = failed and h.won == "c", False
        elif body == "start":
            failed = waits = False
        if failed:
            return [PARK if self.asks else self._give_up(RunStatus.FAILED, kids, h.known)]
        living = self._living(kids, h.known) if self.waits_at_end else []
        return [PARK if waits or living else Act("end")]

    def _living(self, kids: Iterable[Child], known: Iterable[Effect]) -> list[Effect]:
        left = {kid.key for kid in kids if kid.abandon}
        spared = [row for row in known if row.undoes] if self.spares_undo else []
        return [row for row in known if row.status is OPEN and row.key not in left and row not in spared]

    def _owed(self, kids: Iterable[Child], known: Iterable[Effect]) -> list[Effect]:
        left = {kid.key for kid in kids if kid.abandon and not self.undoes_left}
        found = [row for row in known if row.status is DONE and not row.undoes and row.key not in left]
        return sorted(found, key=lambda row: -row.ordinal)

    def _give_up(self, outcome: RunStatus, kids: tuple[Child, ...], known: tuple[Effect, ...]) -> Act:
        must = self._living(kids, known) or self._owed(kids, known)
        return Act("compensate" if must else "end", outcome=outcome)

    def _unwind(self, outcome: RunStatus, kids: tuple[Child, ...], known: tuple[Effect, ...]) -> Act:
        living, owed = self._living(kids, known), self._owed(kids, known)
        if owed and not self.undoes_last:
            return Act("undo", owed[0].key)
        for row in living:
            if row.allowed_by != CANCEL_SENT:
                return Act("cancel", row.key)
        if living or any(row.undoes and row.status is OPEN for row in known):
            return PARK
        return Act("undo", owed[0].key) if owed else Act("end", outcome=outcome)

    # --- everything that can happen -----------------------------------------------------------------------
    def step(self, s: S) -> Iterator[tuple[str, S]]:
        held = dict(s.holders)
        for run in _runs(s.rows):
            if is_over(run):
                continue
            yield from self._people(s, run)
            holder = held.get(run.run)
            if holder is None:
                if run.owner or is_due(run, T):
                    yield self._claim(s, run)
                continue
            if s.crashes and holder.pc != "reads":
                one_less = _without(s, run.run)._replace(crashes=s.crashes - 1)
                yield f"the holder of {run.run} crashes", one_less
                if s.replaced is None and self.replaces:
                    yield f"{run.run} is taken from a living holder", one_less._replace(replaced=(run.run, holder))
            for what, after in self._hold(s, run.run, holder):
                yield what, _fresh(after)
        if s.replaced is not None:
            name, holder = s.replaced
            for _, after in self._hold(s._replace(replaced=None), name, holder):
                yield f"the replaced holder of {name} writes", _fresh(after._replace(holders=s.holders))
        root = _run(s.rows, P)
        if self.purges and root is not None and is_over(root):
            rest = tuple(row for row in s.rows if row[1] != P)
            yield "the root is purged", s._replace(rows=rest)

    def _people(self, s: S, run: Run) -> Iterator[tuple[str, S]]:
        parent, kid = self._place(run.run)
        if s.cancels and not (kid and kid.key.startswith("undo/")):
            asked = mailbox.cancel(run, (), actor="ana", reason="why", now=at(T))
            yield f"ana cancels {run.run}", self._sent(s, asked, cancels=s.cancels - 1)
        if s.signals and run.run == P:
            sent = mailbox.append_message(tenant=TENANT, run=P, kind="signal", name="m", actor="a", now=at(T))
            yield "the signal m is sent", self._sent(s, sent, signals=s.signals - 1)
        for failed in _ledger(s.rows, run.run):
            if failed.child.detached and not self.retries_detached:
                continue
            if s.retries and failed.status is REFUSED and not mailbox.is_reopened(failed) and not run.ending_text:
                again = mailbox.answer(
                    run, Reason.RETRIES_EXHAUSTED, Choice.RETRY, key=failed.key, actor="ana", text="why", by_ms=0,
                    now=at(T), refused=[failed],
                )  # fmt: skip
                yield f"ana retries {failed.key} of {run.run}", self._sent(s, again, retries=s.retries - 1)
        row = None if kid is None else _effect(s.rows, parent, kid.key)
        above = _run(s.rows, parent)
        if s.detaches and row and row.status is OPEN and above and not is_over(above):
            place, of = children.ParentRows(above, row), DESCENT.encode(Descent(parent))
            commit = children.detach(run._replace(descent_text=of), place, actor="ana", reason="why", now=at(T))
            after = self._sent(s, commit, detaches=s.detaches - 1)
            yield f"ana detaches {run.run}", after._replace(detached=(*s.detached, run.run))

    def _sent(self, s: S, commit: Commit, **changes: Any) -> S:
        left = land(s.rows, commit, T)
        assert not left.refused, left.refused
        return _fresh(s._replace(rows=left.rows, err=s.err or left.broke, **changes))

    def _claim(self, s: S, run: Run) -> tuple[str, S]:
        closed = {run.owner: 0} if run.owner else {}
        commit = verbs.claim(run, worker="w", now=at(T), claim_ms=SLICE, closed=closed)
        assert commit is not None
        left = land(s.rows, commit, T)
        after = s._replace(rows=left.rows, err=s.err or left.broke)
        return f"{run.run} is claimed", _fresh(self._reread(after, run.run))

    def _reread(self, s: S, name: str) -> S:
        """Begin an execution. The inbox is read before the rows."""
        run = _run(s.rows, name)
        assert run is not None
        h = _mail(s.rows, run)
        return _with(s, name, h if self.mail_first else _read(s.rows, h)._replace(pc="reads"))

    def _hold(self, s: S, name: str, h: Holder) -> Iterator[tuple[str, S]]:
        if h.pc == "reads":
            run = _run(s.rows, name)
            assert run is not None
            late = _mail(s.rows, run)._replace(view=h.view, pc="acts", known=h.known, won=h.won)
            yield f"{name} reads its rows", _with(s, name, _read(s.rows, h) if self.mail_first else late)
        elif h.pc == "ends":
            yield from self._end(s, name, h)
        elif h.pc == "rest":
            yield from self._act(s, name, h, h.rest)
        else:
            for act in self._acts(h):
                yield from self._act(s, name, h, act)

    def _act(self, s: S, name: str, h: Holder, act: Act) -> Iterator[tuple[str, S]]:
        row = next((each for each in h.known if each.key == act.key), None)
        label = f"{name}: {act.what} {act.key or act.outcome.value}"
        then = h._replace(pc="acts", rest=PARK)
        if act.what == "park":
            waiting = [WaitingFor("signal", "a child")]
            commit = verbs.park(h.view, "park", inbox_seq=h.seq, waiting=waiting, timers=(), now=at(T), mapping=MAPPING)
            yield self._land(s, name, h, commit if self.parks_by_mail else nameless(commit), None, f"{name}: park")
        elif act.what == "compensate":
            yield self._land(s, name, h, self._compensate(h, act), then, label)
        elif act.what == "end" and name != P:
            parent, kid = self._place(name)
            assert kid is not None
            above = _run(s.rows, parent), _ledger(s.rows, parent)
            read = h._replace(pc="ends", above=above, rest=act)
            yield f"{label}: it reads the rows of {parent}", _with(s, name, read)
        elif act.what == "end":
            yield self._land(s, name, h, _finish(h, act.outcome), None, label)
        elif act.what == "start":
            kid = next(each for each in self._kids(name) if each.key == act.key)
            yield self._start(s, name, h, kid, row, label)
        elif act.what == "row":
            kid = next(each for each in self._kids(name) if each.key == act.key)
            child = max(run.run for run in _runs(s.rows) if run.run.startswith(f"{name}.{act.key}#"))
            commit = Commit((Put(EFFECT, _row(name, kid, child, 2), 0),), fence(h.view))
            yield self._land(s, name, h, commit, then, label)
        elif act.what == "undo":
            assert row is not None
            yield self._undo(s, name, h, row, label)
        elif act.what == "win":
            yield self._win(s, name, h, act, label)
        else:
            assert act.what in ("cancel", "message") and row is not None
            yield self._cancel(s, name, h, row, act, label)

    # --- commits -------------------------------------------------------------------------------------------
    def _land(self, s: S, name: str, h: Holder, commit: Commit, then: Holder | None, what: str) -> tuple[str, S]:
        """Land a commit of a holder. After a refusal it reads again, unless another holds the run."""
        left = land(s.rows, commit, T)
        if left.refused:
            run = _run(s.rows, name)
            gone = run is None or is_over(run) or run.epoch != h.view.epoch
            return f"{what}: refused ({left.refused})", _without(s, name) if gone else self._reread(s, name)
        after = s._replace(rows=left.rows, err=s.err or left.broke)
        if then is None:
            return what, _without(after, name)
        mine = {w.row.key: w.row for w in commit.writes if isinstance(w, Put) and isinstance(w.row, Effect)}
        known = {row.key: row for row in h.known} | mine
        run = _run(left.rows, name)
        assert run is not None
        moved = any(isinstance(w, Put) and w.row[:2] == (TENANT, name) and w.kind is RUN for w in commit.writes)
        view = run if moved else h.view
        return what, _with(after, name, then._replace(view=view, known=tuple(sorted(known.values()))))

    def _start(self, s: S, name: str, h: Holder, kid: Child, row: Effect | None, what: str) -> tuple[str, S]:
        ordinal = row.ordinal if row else max((each.ordinal for each in h.known), default=0) + 1
        number = row.attempts + 1 if row else 1
        commit, child = _born_child(s.rows, h.view, kid.key, number)
        if self.start == "two commits" and row is None:
            after = h._replace(pc="rest", rest=Act("row", kid.key))
            return self._land(s, name, h, commit, after, f"{what}: the run")
        new = _row(name, kid, child, ordinal)._replace(attempts=number, version=row.version + 1 if row else 1)
        assert effect_target("intend", row.status if row else None) is OPEN
        both = commit._replace(writes=(*commit.writes, Put(EFFECT, new, row.version if row else 0)))
        both = unfenced(both) if self.start == "without the claim" else both
        return self._land(s, name, h, both, h._replace(pc="acts"), what)

    def _cancel(self, s: S, name: str, h: Holder, row: Effect, act: Act, what: str) -> tuple[str, S]:
        then = h._replace(pc="acts", rest=PARK)
        if row.undoes:
            return what, s._replace(err="a run that undoes a child was cancelled")
        mark = Put(EFFECT, row._replace(version=row.version + 1, allowed_by=CANCEL_SENT), row.version)
        message = append_to_inbox(TENANT, row.external_id, "cancel", "cancel", name)
        writes: tuple[Put | AppendMessage, ...] = (mark, message)
        if act.what == "message":
            writes = (message,)
        elif self.cancel == "mark first":
            writes, then = (mark,), h._replace(pc="rest", rest=Act("message", row.key))
        return self._land(s, name, h, Commit(writes, fence(h.view)), then, what)

    def _win(self, s: S, name: str, h: Holder, act: Act, what: str) -> tuple[str, S]:
        commit = first_wait.end_first(
            h.view, SET, act.key, bound=None, lost=(), withdrawn=(), inbox_seq=h.seq, now=at(T)
        )
        then = h._replace(won=act.key)
        loser = next((each for each in h.known if each.key == "c" and each.status is OPEN), None)
        if loser is not None and self.body == "first":
            if self.loser == "later":
                then = then._replace(pc="rest", rest=Act("cancel", "c"))
            else:
                mark = Put(EFFECT, loser._replace(version=loser.version + 1, allowed_by=CANCEL_SENT), loser.version)
                message = append_to_inbox(TENANT, loser.external_id, "cancel", "cancel", name)
                commit = commit._replace(writes=(*commit.writes, mark, message))
        return self._land(s, name, h, commit, then, what)

    def _compensate(self, h: Holder, act: Act) -> Commit:
        ending = Ending(act.outcome, "why", "")
        return compensation.compensate(h.view, ending, h.known, inbox_seq=h.seq, approvals=(), now=at(T))

    def _undo(self, s: S, name: str, h: Holder, row: Effect, what: str) -> tuple[str, S]:
        kid = next((each for each in self._kids(name) if each.key == row.key), Child(OWN))
        if kid.undo == "run":
            reverse = Child(undo_key(row.key))
            commit, child = _born_child(s.rows, h.view, reverse.key, 1)
            ordinal = max(each.ordinal for each in h.known) + 1
            new = _row(name, reverse, child, ordinal)._replace(undoes=f"0:{row.key}")
            commit = commit._replace(writes=(*commit.writes, Put(EFFECT, new, 0)))
        else:
            commit = Commit((_undone(row),), fence(h.view))
        label, after = self._land(s, name, h, commit, h._replace(pc="acts"), what)
        run = _run(s.rows, name)
        if ": refused" not in label and run is not None:
            after = after._replace(err=after.err or self._bad_undo(s, run, row))
        return label, after

    def _end(self, s: S, name: str, h: Holder) -> Iterator[tuple[str, S]]:
        """End a child: its run, the row of its parent, and a message to the parent unless it is due."""
        commit = _finish(h, h.rest.outcome)
        parent, kid = self._place(name)
        assert kid is not None
        above, ledger = h.above
        row = next((each for each in ledger if each.key == kid.key), None)
        named = row is not None and row.external_id == name and row.status is OPEN
        writes: list[Put | AppendMessage] = []
        expects: tuple[Expect, ...] = ()
        if row is not None and named and self.row_of_end != "none":
            writes += _ended(row, ledger, h.rest.outcome)
        message = append_to_inbox(TENANT, parent, "child", name, "")
        if self.message == "always":
            writes.append(message)
        elif named and above is not None and not is_over(above):
            if above.owner or not is_due(above, T):
                writes.append(message)
            elif self.message == "unless due":
                expects = (Expect(RUN, above[:2], above.version),)
        commit = commit._replace(writes=(*commit.writes, *writes), expects=expects)
        yield self._land(s, name, h, commit, None, f"{name} ends {h.rest.outcome.value}")


# --- rows ------------------------------------------------------------------------------------------------
def _path(run: str) -> str:
    """Return the keys that lead from the root to a run."""
    return ".".join(each.partition("#")[0] for each in run.split("."))


def _row(parent: str, kid: Child, child: str, ordinal: int) -> Effect:
    """Return the row of a new child."""
    return Effect(
        tenant=TENANT, run=parent, visit=0, key=kid.key, version=1, status=OPEN, activity="w", digest="d", node="a",
        args=b"{}", response=None, error_text="", external_id=child, attempts=1, waited_ms=0, ordinal=ordinal, epoch=0,
        first_at=T, not_after=T, settle_after=0, covered_until=0, approval="", allowed_by="", undo="reverse",
        settled_at=0, settled_by="",
    )  # fmt: skip


def _born_child(rows: Rows, parent: Run, key: str, number: int) -> tuple[Commit, str]:
    """Return the commit that starts the child of a key under the claim of its parent, and the new run's name."""
    name = f"{parent.run}.{key}#{number}"
    child = name + "abc"[sum(run.run.startswith(name) for run in _runs(rows))]
    return born(child)._replace(fence=fence(parent)), child


def _finish(h: Holder, outcome: RunStatus) -> Commit:
    return verbs.finish(
        h.view, outcome, inbox_seq=h.seq, state=b"{}", result=None, reason="why", not_undone=(), approvals=(),
        slots=(), now=at(T),
    )  # fmt: skip


def _ended(row: Effect, ledger: Iterable[Effect], outcome: RunStatus) -> Iterator[Put]:
    """Yield the row of a child with its end, and the row of the child that it has undone."""
    fine = outcome is RunStatus.COMPLETED
    error = None if fine else EffectError("cancelled" if outcome is RunStatus.CANCELLED else "failed", "why")
    after = row._replace(
        version=row.version + 1,
        status=effect_target("record" if fine else "refuse", row.status),
        error_text=ERROR.encode(error),
        settled_at=T,
    )
    yield Put(EFFECT, after, row.version)
    if row.undoes and fine:
        yield _undone(next(each for each in ledger if f"0:{each.key}" == row.undoes))


def _undone(row: Effect) -> Put:
    after = row._replace(version=row.version + 1, status=effect_target("undo", row.status))
    return Put(EFFECT, after, row.version)


def _runs(rows: Rows) -> list[Run]:
    return [row for row in rows if isinstance(row, Run)]


def _run(rows: Rows, name: str) -> Run | None:
    row = find(rows, RUN, name)
    assert row is None or isinstance(row, Run)
    return row


def _effect(rows: Rows, run: str, key: str) -> Effect | None:
    return next((row for row in _ledger(rows, run) if row.key == key), None)


def _ledger(rows: Rows, run: str) -> tuple[Effect, ...]:
    return tuple(row for row in rows if isinstance(row, Effect) and row.run == run)


def _mail(rows: Rows, run: Run) -> Holder:
    """Return a holder that has read its inbox."""
    names = {row.name for row in rows if isinstance(row, Message) and row.run == run.run}
    return Holder("reads", run, run.inbox_seq, "cancel" in names, "m" in names)


def _read(rows: Rows, h: Holder) -> Holder:
    """Return the holder after it has read its rows."""
    memo = find(rows, MEMO, h.view.run, 1, first_wait.set_key(SET))
    won = first_wait.winner_of(memo) if isinstance(memo, Memo) else ""
    return h._replace(pc="acts", known=_ledger(rows, h.view.run), won=won)


def _with(s: S, name: str, h: Holder) -> S:
    return s._replace(holders=tuple(sorted((dict(s.holders) | {name: h}).items())))


def _without(s: S, name: str) -> S:
    return s._replace(holders=tuple(each for each in s.holders if each[0] != name))


# --- counters, made finite --------------------------------------------------------------------------------
def _fresh(s: S) -> S:
    """Return the state with the counters of all runs, and what holders know of them, at one value each."""
    runs = {run.run: run for run in _runs(s.rows)}
    rows: list[Row] = []
    for row in s.rows:
        if isinstance(row, Run):
            rows.append(_renumbered(row))
        elif not isinstance(row, Message):
            rows.append(row)
        elif not is_over(runs[row.run]) and row.name in KEPT_MAIL:
            rows.append(row._replace(n=KEPT_MAIL[row.name], actor=""))
    holders = tuple((name, _known(h, runs)) for name, h in s.holders)
    replaced = s.replaced and (s.replaced[0], _known(s.replaced[1], runs))
    if replaced is not None and is_over(runs.get(replaced[0], replaced[1].view)):
        replaced = None
    return s._replace(rows=tuple(dict.fromkeys(rows)), holders=holders, replaced=replaced)


def _renumbered(run: Run) -> Run:
    status = RunStatus.RUNNING if run.status is RunStatus.RECOVERING else run.status
    return renumbered(run)._replace(inbox_seq=MAIL, status=status)


def _known(h: Holder, runs: dict[str, Run]) -> Holder:
    run = runs.get(h.view.run)
    above = h.above[0]
    if above is not None:
        now = runs.get(above.run)
        old = now is None or now.version != above.version
        above = _renumbered(above)
        above = above._replace(version=above.version - 1) if old else above
    if run is None:
        return h._replace(above=(above, h.above[1]))
    view = seen_by(h.view, run)
    assert view is not None
    status = RunStatus.RUNNING if view.status is RunStatus.RECOVERING else view.status
    seq = MAIL if h.seq == run.inbox_seq else MAIL - 1
    return h._replace(view=view._replace(status=status, inbox_seq=MAIL), seq=seq, above=(above, h.above[1]))


ONE = ((P, (Child("c"),)),)
TWO = ((P, (Child("c"), Child("d"))),)
LEVELS = ((P, (Child("c"),)), ("p.c", (Child("g"),)))
LEFT_ALONE = ((P, (Child("c", ends=("completes", "waits")), Child("d", abandon=True, ends=("completes",)))),)
REVERSED = ((P, (Child("c", ends=("completes",), undo="run"),)),)

DETACHES = Children(ONE, asks=True, detaches=1, retries=1, cancels=0)
TWICE = "two children were started under one key"
ORPHAN = "an orphan"
LIVING = "before a living child had ended"
SLEEPS = "sleeps, and could go on"
STUCK = "nothing good can follow"

VARIANTS = (
    Variant("as built, one child and its retry", Children(ONE, asks=True, retries=1, replaces=True)),
    Variant("as built, two children", Children(TWO)),
    Variant("as built, three levels", Children(LEVELS)),
    Variant("as built, one child is left to itself", Children(LEFT_ALONE, "start", purges=True)),
    Variant("as built, the first of a child and a signal", Children(ONE, "first", signals=1)),
    Variant("as built, the first of a child that is only waited for", Children(ONE, "wait", signals=1)),
    Variant("as built, a run undoes a child", Children(REVERSED, crashes=2)),
    Variant("as built, a detached child", DETACHES),
    Variant("the run and its row start in two commits", Children(ONE, start="two commits"), TWICE),
    Variant("a start does not name the claim", Children(ONE, start="without the claim", replaces=True), LIVING),
    Variant("the end does not write the row", Children(ONE, row_of_end="none"), "its row does not say so"),
    Variant(
        "a due parent gets no message, unchecked",
        Children(TWO, crashes=0, cancels=0, message="unless due, unchecked"),
        SLEEPS,
    ),
    Variant("a parent parks without its inbox number", Children(ONE, parks_by_mail=False), SLEEPS),
    Variant("the rows are read before the inbox", Children(ONE, mail_first=False), SLEEPS),
    Variant("a parent completes over an open child", Children(ONE, "start", waits_at_end=False), ORPHAN),
    Variant("effects are undone before the children end", Children(ONE, undoes_last=False), LIVING),
    Variant("a child is marked before its cancel is sent", Children(ONE, cancel="mark first"), STUCK),
    Variant("an ended parent must get a message", Children(LEFT_ALONE, "start", message="always"), STUCK),
    Variant("the loser is cancelled later", Children(ONE, "first", signals=1, cancels=0, loser="later"), STUCK),
    Variant("a detached child is tried again", replace(DETACHES, retries_detached=True), "beside a living one"),
    Variant(
        "a child left to itself is undone", Children(LEFT_ALONE, "start", undoes_left=True), "after an earlier one"
    ),
    Variant("a run that undoes is a living child", Children(REVERSED, spares_undo=False), "undoes a child"),
)
LARGE = (
    Variant("as built, two children and a holder that is replaced", Children(TWO, cancels=0, replaces=True)),
    Variant("as built, three levels, two crashes", Children(LEVELS, crashes=2, cancels=2)),
    Variant("as built, a detached child is cancelled", replace(DETACHES, cancels=1)),
)
