"""S-28: a run in flight is forked: can both make a call once per run, or one undo what the other relies on?

The ancestor is executed in a visit that asks once for the key, before, while or after it is forked. Its holder may be
replaced. Then it completes, or fails and undoes its effects, and its ledger is purged. The fork is begun in three
steps: the note, the copies, the run. Its body asks for the same key. The real verbs and the real judge decide about
all rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from outlast.core import compensation, effect_verbs, forks, verbs
from outlast.core.commit import Commit, Put
from outlast.core.forks import CopiedCall, ForkLedger, ForkPoint, ForkTerms, FromRecording, WaitForAncestor
from outlast.core.keys import lineage_key, undo_key
from outlast.core.living_forks import ForkNote, kept_by_forks, note_fork, notes_of
from outlast.core.machine import EffectStatus, RunStatus
from outlast.core.rows.effect_rows import EFFECT, UNDO_RESERVED, Effect, Memo
from outlast.core.rows.run_columns import Ending
from outlast.core.rows.run_rows import RUN, Run, is_over
from tests.models.explore import Variant
from tests.models.world import SLICE, TENANT, Rows, at, born, find, land, run_of

T = 1
A, F = "a", "f"
SHARED = lineage_key(A, "k")
OWN_CALL = effect_verbs.Intent(0, "k", "pay", "d", b"{}", "reverse", 1, 2, 1)
SHARED_CALL = OWN_CALL._replace(key=SHARED, shared=True)
POINT = ForkPoint(seq=1, node="a", visit=1, at=1)
TERMS = ForkTerms(A, A, 1, "live", "live", both_go_on="why")
ENDING = Ending(RunStatus.FAILED, "it failed", "tester")
OPEN = (EffectStatus.INTENDED, EffectStatus.UNCERTAIN)


class Holder(NamedTuple):
    """Holder of a run. `view`: its row; `row`: the effect that it acts on; `noted`: notes that it has read."""

    pc: str = "-"
    view: Run | None = None
    row: Effect | None = None
    notes: tuple[ForkNote, ...] = ()


class Start(NamedTuple):
    """The caller who forks."""

    pc: str = "reads"
    view: Run | None = None
    calls: tuple[CopiedCall, ...] = ()
    noted: bool = False


class S(NamedTuple):
    """The world. `made` and `undone` count at the receiver; `relies`: the fork has an answer."""

    rows: Rows
    a: Holder = Holder()
    f: Holder = Holder()
    start: Start = Start()
    claims: int = 0
    made: int = 0
    undone: int = 0
    relies: bool = False
    purged: bool = False
    err: str = ""


@dataclass(frozen=True)
class LivingAncestors:
    """The rule, or the rule with a safeguard removed."""

    reads_notes: bool = True  # the ancestor makes calls once per run under the key of the lineage
    names_version: bool = True  # its intent names the version of its row
    notes_first: bool = True  # the copies are read after the note
    keeps: bool = True  # the ancestor does not undo what the fork relies on
    note_raises_version: bool = True
    refuses_undoing: bool = True  # an ancestor that undoes its effects is not forked
    refuses_purged: bool = True
    claims_max: int = 2

    def first(self) -> tuple[S, ...]:
        return (S(land((), born(A), T).rows),)

    def good(self, s: S) -> bool:
        return s.start.pc == "given up" or s.f.pc in ("over", "waits") or s.claims == self.claims_max

    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        if s.made - s.undone > 1:
            return "a call once per run was made twice in a lineage"
        if s.relies and s.undone:
            return "a run undid what its fork relies on"
        return ""

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        if s.claims < self.claims_max and not is_over(run_of(s.rows, A)):
            yield self._claim(s)
        for act in (f"_a_{s.a.pc}", f"_f_{s.f.pc}", f"_start_{s.start.pc}"):
            if (found := getattr(self, act.replace(" ", "_"), None)) is not None:
                yield from found(s)
        if is_over(run_of(s.rows, A)) and not s.purged:
            kept = tuple(r for r in s.rows if not (isinstance(r, Effect | Memo) and r.run == A))
            yield "the ledger of a is purged", s._replace(rows=kept, purged=True)

    # --- the ancestor -----------------------------------------------------------------------------------
    def _claim(self, s: S) -> tuple[str, S]:
        run = run_of(s.rows, A)
        commit = verbs.claim(run, worker=f"w{s.claims}", now=at(T), claim_ms=SLICE, closed={run.owner: 0})
        assert commit is not None
        rows = land(s.rows, commit, T).rows
        return "a is claimed", s._replace(rows=rows, a=self._read(s, rows), claims=s.claims + 1)

    def _read(self, s: S, rows: Rows) -> Holder:
        memos = {(m.visit, m.key): m for m in rows if isinstance(m, Memo) and m.run == A}
        notes = notes_of(memos) if self.reads_notes else ()
        return Holder("undoes" if run_of(rows, A).ending_text else "asks", run_of(rows, A), None, notes)

    def _speak(self, s: S, commit: Commit, then: Holder, what: str, **changes: object) -> tuple[str, S]:
        """Land a commit of the holder of a. After a refusal it reads again, unless it holds the run no more."""
        left = land(s.rows, commit, T)
        if left.refused in ("epoch", "ended"):
            return f"{what}: it is held by another", s._replace(a=Holder("gone"))
        if left.refused:
            return f"{what}: refused ({left.refused})", s._replace(a=self._read(s, s.rows))
        view = run_of(left.rows, A)
        then = then._replace(view=then.view if then.view and then.view.epoch != view.epoch else view)
        if not any(isinstance(w, Put) and w.kind is RUN for w in commit.writes):
            then = then._replace(view=s.a.view)
        return what, s._replace(rows=left.rows, a=then, err=s.err or left.broke, **changes)

    def _a_asks(self, s: S) -> Iterator[tuple[str, S]]:
        run, own = s.a.view, _row(s.rows, A, "k")
        assert run is not None
        shares = own is None and bool(s.a.notes)
        row = _row(s.rows, "", SHARED) if shares else own
        if row is None:
            call = SHARED_CALL if shares else OWN_CALL
            intent = effect_verbs.intend(run, call, None, ordinal=1, now=at(T))
            if not self.names_version and intent.fence is not None:
                intent = intent._replace(fence=intent.fence._replace(version=None))
            then = s.a._replace(pc="ready", row=effect_verbs.intended(intent))
            yield self._speak(s, intent, then, f"a intends {call.key}")
        elif row.by_run not in ("", A):
            yield from self._a_shares(s, row, run)
        elif row.status is EffectStatus.INTENDED:
            if s.made:  # left open by a predecessor: the receiver is asked
                done = effect_verbs.settle(run, row, b"1", now=at(T))
                yield self._speak(s, done, s.a._replace(pc="asks"), "a finds it done")
            else:
                intent = effect_verbs.intend(run, SHARED_CALL if shares else OWN_CALL, row, ordinal=1, now=at(T))
                then = s.a._replace(pc="ready", row=effect_verbs.intended(intent))
                yield self._speak(s, intent, then, "a intends it again")
        else:
            yield "a has its answer", s._replace(a=s.a._replace(pc="ends", row=row))

    def _a_shares(self, s: S, row: Effect, run: Run) -> Iterator[tuple[str, S]]:
        if effect_verbs.is_usable(row):
            commit = effect_verbs.use(run, row, noted=False, now=at(T))
            yield self._speak(s, commit, s.a._replace(pc="ends", row=None), "a uses that of f")

    def _a_ready(self, s: S) -> Iterator[tuple[str, S]]:
        assert s.a.view is not None
        if run_of(s.rows, A).epoch == s.a.view.epoch:
            yield "a calls", s._replace(a=s.a._replace(pc="called"), made=s.made + 1)

    def _a_called(self, s: S) -> Iterator[tuple[str, S]]:
        assert s.a.view is not None and s.a.row is not None
        done = effect_verbs.record(s.a.view, s.a.row, b"1", now=at(T))
        yield self._speak(s, done, s.a._replace(pc="asks"), "a records it")

    def _a_ends(self, s: S) -> Iterator[tuple[str, S]]:
        run = s.a.view
        assert run is not None
        if not run.ending_text:
            commit = compensation.compensate(run, ENDING, (), inbox_seq=None, approvals=(), now=at(T))
            yield self._speak(s, commit, s.a._replace(pc="undoes"), "a fails")
        yield self._speak(s, _finish(run, RunStatus.COMPLETED), Holder("gone"), "a completes")

    def _a_undoes(self, s: S) -> Iterator[tuple[str, S]]:
        run = s.a.view
        row = _row(s.rows, A, "k") or _row(s.rows, "", SHARED)
        assert run is not None
        if row is None or row.status is not EffectStatus.DONE or row.by_run not in ("", A):
            yield self._speak(s, _finish(run, RunStatus.FAILED), Holder("gone"), "a has failed")
            return
        if (row.by_run and row.shared not in (0, UNDO_RESERVED)) or (self.keeps and kept_by_forks(s.a.notes, row)):
            return  # a person decides, which is outside this search
        begun = _row(s.rows, A, undo_key(row.key))
        call = effect_verbs.Intent(0, undo_key(row.key), "pay", "d", b"{}", "", 1, 2, 1)
        if begun is None or begun.epoch != run.epoch:
            commit = compensation.intend_undo(run, call, begun, row, ordinal=2, now=at(T))
            yield self._speak(s, commit, s.a._replace(pc="reverses"), "a is about to undo it")

    def _a_reverses(self, s: S) -> Iterator[tuple[str, S]]:
        assert s.a.view is not None
        if run_of(s.rows, A).epoch == s.a.view.epoch:
            yield "a undoes it", s._replace(a=s.a._replace(pc="reversed"), undone=1)

    def _a_reversed(self, s: S) -> Iterator[tuple[str, S]]:
        original = _row(s.rows, A, "k") or _row(s.rows, "", SHARED)
        assert s.a.view is not None and original is not None
        undo = _row(s.rows, A, undo_key(original.key))
        assert undo is not None
        commit = compensation.record_undo(s.a.view, undo, original, now=at(T))
        yield self._speak(s, commit, s.a._replace(pc="undoes"), "a records the undo")

    # --- the start of the fork ------------------------------------------------------------------------
    def _start_reads(self, s: S) -> Iterator[tuple[str, S]]:
        run = run_of(s.rows, A)
        if run.ending_text and not is_over(run) and self.refuses_undoing:
            return  # refused until it has ended
        pc = "copies" if is_over(run) else "notes"
        yield "the caller reads a", s._replace(start=Start(pc, run, self._calls(s, False)))

    def _start_notes(self, s: S) -> Iterator[tuple[str, S]]:
        run = s.start.view
        assert run is not None
        appends = not self.note_raises_version or bool(run.ending_text)
        if appends:
            run = run_of(land((), born(A), T).rows, A)
        commit = note_fork(run, ForkNote(F, "ana", "why", 1, 1, run.visit, "live"), 0, now=at(T))
        if appends:  # as an append to the ledger alone
            commit = Commit(tuple(w for w in commit.writes if isinstance(w, Put) and isinstance(w.row, Memo)))
        left = land(s.rows, commit, T)
        if left.refused:
            yield f"the note is refused ({left.refused})", s._replace(start=Start())
        else:
            after = s._replace(rows=left.rows, start=s.start._replace(pc="copies", noted=True))
            yield "the note lands", after._replace(err=s.err or left.broke)

    def _start_copies(self, s: S) -> Iterator[tuple[str, S]]:
        if s.purged and self.refuses_purged:
            yield "the start is refused: purged", s._replace(start=Start("given up"))
            return
        calls = self._calls(s, s.start.noted) if self.notes_first else s.start.calls
        yield "the caller copies", s._replace(start=s.start._replace(pc="writes", view=run_of(s.rows, A), calls=calls))

    def _calls(self, s: S, noted: bool) -> tuple[CopiedCall, ...]:
        effects = [r for r in s.rows if isinstance(r, Effect) and A in (r.run, r.by_run)]
        until = run_of(s.rows, A).visit if noted else None
        return tuple(forks.copies_of(run_of(s.rows, A), POINT, effects, (), None, until))

    def _start_writes(self, s: S) -> Iterator[tuple[str, S]]:
        yield "f begins", self._begun(s)

    def _begun(self, s: S) -> S:
        rows = land(s.rows, born(F), T).rows
        commit = verbs.claim(run_of(rows, F), worker="x", now=at(T), claim_ms=SLICE)
        assert commit is not None
        rows = land(rows, commit, T).rows
        relies = any(call.status == EffectStatus.DONE for call in s.start.calls)
        f = Holder("asks", run_of(rows, F))
        return s._replace(rows=rows, start=s.start._replace(pc="begun"), f=f, relies=relies)

    # --- the fork -----------------------------------------------------------------------------------------
    def _f_asks(self, s: S) -> Iterator[tuple[str, S]]:
        ledger = ForkLedger(TERMS, s.start.calls)
        answer = forks.answer_in_fork(ledger, "write", "run", 1, "k", lambda call: True)
        if isinstance(answer, FromRecording):
            yield "f is answered from its copies", s._replace(f=Holder("over"))
        elif isinstance(answer, WaitForAncestor):
            row = _row(s.rows, A, "k") or _row(s.rows, "", SHARED)
            if row is not None and row.status is EffectStatus.DONE:
                yield "f is answered by a", s._replace(f=Holder("over"), relies=True)
            elif row is None or row.status in OPEN:
                yield "f waits for a", s._replace(f=s.f._replace(pc="waits"))
        else:
            yield from self._f_shares(s)

    def _f_waits(self, s: S) -> Iterator[tuple[str, S]]:
        yield "f looks again", s._replace(f=s.f._replace(pc="asks"))

    def _f_shares(self, s: S) -> Iterator[tuple[str, S]]:
        row, run = _row(s.rows, "", SHARED), s.f.view
        assert run is not None
        if row is None or row.status is EffectStatus.UNDONE:
            intent = effect_verbs.intend(run, SHARED_CALL, row, ordinal=1, now=at(T))
            left = land(s.rows, intent, T)
            if not left.refused:
                then = s.f._replace(pc="ready", row=effect_verbs.intended(intent))
                yield "f intends it", s._replace(rows=left.rows, f=then)
        elif effect_verbs.is_usable(row):
            left = land(s.rows, effect_verbs.use(run, row, noted=False, now=at(T)), T)
            yield "f uses that of a", s._replace(rows=left.rows, f=Holder("over"), relies=True)
        else:
            yield "f waits for a", s._replace(f=s.f._replace(pc="waits"))

    def _f_ready(self, s: S) -> Iterator[tuple[str, S]]:
        assert s.f.view is not None and s.f.row is not None
        done = effect_verbs.record(s.f.view, s.f.row, b"1", now=at(T))
        rows = land(s.rows, done, T).rows
        yield "f calls and records it", s._replace(rows=rows, f=Holder("over"), made=s.made + 1)


def _finish(run: Run, outcome: RunStatus) -> Commit:
    return verbs.finish(
        run, outcome, inbox_seq=run.inbox_seq, state=b"{}", result=None, reason="", not_undone=(), approvals=(),
        slots=(), now=at(T),
    )  # fmt: skip


def _row(rows: Rows, run: str, key: str) -> Effect | None:
    row = find(rows, EFFECT, run, 0, key)
    assert row is None or isinstance(row, Effect)
    return row


assert run_of(land((), born(A), T).rows, A).tenant == TENANT
VARIANTS = (
    Variant("as built, with an ancestor in flight", LivingAncestors()),
    Variant("an ancestor does not read notes", LivingAncestors(reads_notes=False), "twice in a lineage"),
    Variant("an intent does not name the version of the run", LivingAncestors(names_version=False), "twice in a"),
    Variant("the calls are copied before the note", LivingAncestors(notes_first=False), "twice in a lineage"),
    Variant("an ancestor undoes what a fork has", LivingAncestors(keeps=False), "undid what its fork relies on"),
    Variant("a note does not raise the version", LivingAncestors(note_raises_version=False), "twice in a lineage"),
    Variant("an ancestor is forked while it undoes", LivingAncestors(refuses_undoing=False), "undid what its fork"),
    Variant("a purged ledger is copied", LivingAncestors(refuses_purged=False), "twice in a lineage"),
)
LARGE = (Variant("three holders of the ancestor", LivingAncestors(claims_max=3)),)
