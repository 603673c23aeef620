"""S-20: an approval is decided once, in time, never after a cancel, and covers one effect while it is valid.

One plan; the node is visited twice and wants the same call each time. Two deciders, who read before they write, a
canceller, a holder that may crash between any two of its commits. The receiver dedupes, so only approvals matter.
Where it takes two people, each of them votes once; where the plan may be changed, either may approve other bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from outlast.core import approvals, effect_verbs, mailbox, run_transition, verbs
from outlast.core.commit import Commit, Put
from outlast.core.effect_verbs import Intent
from outlast.core.machine import ENDED, ApprovalStatus, EffectStatus, RunStatus
from outlast.core.route import cancel_of
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.approval_columns import VOTES
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, Approval, Effect
from outlast.core.rows.run_columns import Timer, WaitingFor
from outlast.core.rows.run_rows import Message, Run
from tests.models.explore import Variant
from tests.models.world import (
    MAPPING,
    NEW,
    SLICE,
    TENANT,
    Landed,
    Rows,
    at,
    born,
    find,
    fresh,
    land,
    nameless,
    notes_of,
    run_of,
    seen_by,
    whenless,
)

START, WITHIN, VALID, END = 1, 2, 2, 7
DIGEST, CHANGED = "d", "e"
ANSWERS: tuple[Literal["approve", "reject", "again"], ...] = ("approve", "reject", "again")


class S(NamedTuple):
    """The world."""

    rows: Rows
    t: int = START
    clicks: tuple[tuple[str, Approval | None], ...] = (("looks", None), ("looks", None))  # deciders
    cancel: str = ""  # read, posted, told
    listed: tuple[Approval, ...] = ()  # approvals as the canceller read them
    view: Run | None = None  # the holder's copies
    known: tuple[Row, ...] = ()
    snap: int = 0
    pc: str = ""  # ready: intended, not yet sent; half: one of two commits of a broken intend has landed
    rest: Commit | None = None  # the other half
    crashes: int = 1
    voted: int = 0  # votes that were reported as accepted, if two are required
    over: bool = False
    err: str = ""


@dataclass(frozen=True)
class Approvals:
    """The rule, or the rule with a safeguard removed."""

    crashes: int = 1
    decide: str = "compare and set"  # or "read, then write"
    decide_when: bool = True
    cancel_withdraws: bool = True
    ask_names_mail: bool = True
    together: str = "one commit"  # or "consume first", "intend first"
    binds: bool = True
    bounded: bool = True  # not_after ends with the approval
    end_withdraws: bool = True
    quorum: int = 1
    edits: bool = False  # a decision may change the plan
    heeds_choice: bool = True  # the holder makes the plan that was chosen
    counts: bool = True  # short of the quorum nothing is approved

    def first(self) -> tuple[S, ...]:
        return (S(fresh(land((), born(), START).rows), crashes=self.crashes),)

    def good(self, s: S) -> bool:
        return s.over or run_of(s.rows).owner == ENDED

    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        a = _approval(s.rows)
        if a is None:
            return ""
        if run_of(s.rows).owner == ENDED and _standing(a):
            return f"the run has ended, its approval is still {a.status}"
        effects = [row for row in s.rows if isinstance(row, Effect)]
        if s.view is None and a.consumed_by and not effects:
            return "the authority is spent and nothing was intended"
        if sum(e.approval == a.id for e in effects) > 1:
            return "one approval authorised two effects"
        return ""

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        if s.over or s.err:
            return
        if s.t < END and _approval(s.rows) is not None:
            yield f"t={s.t + 1}", s._replace(t=s.t + 1)
        for i in (0, 1) if s.clicks[0] != s.clicks[1] else (0,):
            yield from self._decider(s, i)
        yield from self._canceller(s)
        if s.view is None:
            yield from self._claim(s)
            return
        if s.crashes:
            after = s._replace(view=None, known=(), snap=0, pc="", rest=None, crashes=s.crashes - 1)
            yield f"t={s.t}: the holder dies", after
        yield from self._holder(s, s.view)

    def _with(self, s: S, left: Landed, **changes: object) -> S:
        s = s._replace(**changes)  # type: ignore[arg-type]
        view = seen_by(s.view, run_of(left.rows))
        rows = tuple(_plain(row) for row in fresh(left.rows))
        return s._replace(rows=rows, known=tuple(map(_plain, s.known)), view=view, err=s.err or left.broke)

    # --- people --------------------------------------------------------------------------------------
    def _decider(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        phase, copy = s.clicks[i]

        def now(phase: str, copy: Approval | None = None) -> tuple[tuple[str, Approval | None], ...]:
            one, two = (phase, copy), s.clicks[1 - i]
            return (one, two) if (one[0], one[1] or ()) <= (two[0], two[1] or ()) else (two, one)

        a = _approval(s.rows)
        if phase == "looks" and a is not None and a.status is ApprovalStatus.PENDING:
            yield f"t={s.t}: decider {i + 1} reads the approval", s._replace(clicks=now("clicks", a))
        if phase != "clicks":
            return
        assert copy is not None and a is not None
        for verb, chosen in self._answers(copy):
            who = "q" if approvals.votes_of(copy) else "p"
            asked = copy if self.counts else copy._replace(quorum=1)
            commit = approvals.decide(asked, verb=verb, chosen=chosen, by=who, claims=(), reason="", now=at(s.t)).commit
            commit = commit if self.decide_when else whenless(commit)
            commit = commit if self.decide == "compare and set" else _forced(commit, s.rows)
            left = land(s.rows, commit, s.t)
            err = "" if left.refused else _wrongly_decided(s, a)
            voted = s.voted + (verb == "approve" and not left.refused and self.quorum > 1)
            if not err and verb == "approve" and not left.refused:
                err = self._miscounted(_approval(left.rows), voted)
            after = self._with(s, left, clicks=now("done"), err=err, voted=voted)
            yield f"t={s.t}: decider {i + 1} answers {verb} {chosen} ({left.refused or 'accepted'})", after

    def _answers(self, copy: Approval) -> Iterator[tuple[Literal["approve", "reject", "again"], str]]:
        for verb in ANSWERS:
            yield verb, DIGEST
        votes = approvals.votes_of(copy)
        if self.edits:
            yield "approve", CHANGED
        assert not votes or not self.edits, "votes for two plans are refused before the store is asked"

    def _miscounted(self, a: Approval | None, voted: int) -> str:
        assert a is not None
        if self.quorum == 1:
            return ""
        if a.status is ApprovalStatus.APPROVED and voted < self.quorum:
            return "approved by fewer people than it takes"
        return "" if len(approvals.votes_of(a)) == voted else "a vote was lost"

    def _canceller(self, s: S) -> Iterator[tuple[str, S]]:
        a = _approval(s.rows)
        rows = (a,) if a is not None else ()
        if s.cancel == "":
            listed = rows if self.cancel_withdraws else ()
            yield f"t={s.t}: a canceller reads the approvals", s._replace(cancel="read", listed=listed)
        elif s.cancel == "read":
            left = land(s.rows, mailbox.cancel(run_of(s.rows), s.listed, actor="c", reason="", now=at(s.t)), s.t)
            done = {"version": "", "ended": "told"}.get(left.refused, "posted")
            yield f"t={s.t}: cancel ({left.refused or 'posted'})", self._with(s, left, cancel=done, listed=())
        elif s.cancel == "posted":
            puts = tuple(put for row in rows if (put := approvals.withdraw(row, at(s.t))) is not None)
            left = land(s.rows, Commit(puts), s.t) if puts and self.cancel_withdraws else Landed(s.rows, "", 0, "")
            yield f"t={s.t}: the canceller sees: accepted", self._with(s, left, cancel="told")

    # --- the holder ------------------------------------------------------------------------------------
    def _claim(self, s: S) -> Iterator[tuple[str, S]]:
        run = run_of(s.rows)
        closed = {run.owner: 0} if run.owner else {}
        commit = verbs.claim(run, worker="w", now=at(s.t), claim_ms=SLICE, closed=closed)
        if commit is not None:
            left = land(s.rows, commit, s.t)
            yield f"t={s.t}: a holder takes the run", self._walk(s, left)

    def _walk(self, s: S, left: Landed) -> S:
        """Begin an execution: the holder reads its copies again."""
        mine = run_of(left.rows)
        return _reread(self._with(s, left, view=mine, snap=mine.inbox_seq, pc="", rest=None))

    def _speak(self, s: S, commit: Commit, what: str, **then: object) -> Iterator[tuple[str, S]]:
        """Land a commit of the holder. If it is refused, it begins again with fresh copies."""
        left = land(s.rows, commit, s.t)
        label = f"t={s.t}: {what} ({left.refused or 'landed'})"
        if left.refused:
            yield label, self._walk(s, Landed(s.rows, "", 0, ""))
            return
        known = _applied(s.known, commit)
        view = (
            run_of(left.rows) if any(isinstance(w, Put) and isinstance(w.row, Run) for w in commit.writes) else s.view
        )
        given_back = view is not None and view.owner != "w"
        after = self._with(s, left, **{"view": view, "known": known, **then})
        yield label, after._replace(view=None, known=(), snap=0, pc="") if given_back else after

    def _holder(self, s: S, view: Run) -> Iterator[tuple[str, S]]:
        if s.pc == "half":
            assert s.rest is not None
            yield from self._speak(s, s.rest, "the other half", pc="ready", rest=None)
            return
        if s.pc == "ready":
            yield from self._send(s, view)
            return
        effect = next((e for e in s.known if isinstance(e, Effect) and e.visit == view.visit), None)
        if cancel_of(notes_of(s.rows)[: s.snap]):
            if effect is not None and effect.status is EffectStatus.INTENDED:
                yield from self._speak(
                    s,
                    effect_verbs.mark_uncertain(view, effect, "interrupted", "", now=at(s.t)),
                    "mark_uncertain",
                    over=True,
                )
            else:
                yield from self._finish(s, view, RunStatus.CANCELLED)
        elif effect is not None and effect.status is EffectStatus.DONE:
            if view.visit == 1:
                commit = verbs.advance(view, node="a", status_label="", state=b"{}", now=at(s.t), claim_ms=SLICE)
                yield from self._speak(s, commit, "advance")
            else:
                yield from self._finish(s, view, RunStatus.COMPLETED)
        elif effect is not None and effect.status is EffectStatus.INTENDED:
            if s.t >= effect.covered_until and self.bounded:
                yield from self._speak(
                    s,
                    effect_verbs.mark_uncertain(view, effect, "approval_lapsed", "", now=at(s.t)),
                    "mark_uncertain",
                    over=True,
                )
            else:
                yield from self._intend(s, view, effect, None)
        else:
            yield from self._permitted(s, view)

    def _permitted(self, s: S, view: Run) -> Iterator[tuple[str, S]]:
        a = next((row for row in s.known if isinstance(row, Approval)), None)
        if a is None:
            commit = approvals.ask(
                question(s.t)._replace(quorum=self.quorum), fence=run_transition.fence(view, inbox_seq=s.snap)
            )
            yield from self._speak(s, commit if self.ask_names_mail else nameless(commit), "ask")
        elif a.status is ApprovalStatus.PENDING and s.t >= a.within_until:
            commit = approvals.expire(a, at(s.t), fence=run_transition.fence(view, inbox_seq=s.snap))
            yield from self._speak(s, commit, "expire", over=True)
        elif a.status is ApprovalStatus.PENDING:
            waiting, clocks = [WaitingFor("approval", a.id)], [Timer(a.id, a.within_until)]
            yield from self._speak(
                s,
                verbs.park(
                    view, "park", inbox_seq=s.snap, waiting=waiting, timers=clocks, now=at(s.t), mapping=MAPPING
                ),
                "park",
            )
        elif a.status is ApprovalStatus.APPROVED and not a.consumed_by and s.t < a.valid_until:
            yield from self._intend(s, view, None, a)
        elif a.status is ApprovalStatus.AGAIN and view.visit == 1:  # go round once more: a new visit, and what it asks
            commit = verbs.advance(view, node="a", status_label="", state=b"{}", now=at(s.t), claim_ms=SLICE)
            yield from self._speak(s, commit, "advance: once more")
        else:  # rejected, withdrawn, lapsed, or spent by the first visit
            yield from self._finish(s, view, RunStatus.CANCELLED)

    def _intend(self, s: S, view: Run, previous: Effect | None, a: Approval | None) -> Iterator[tuple[str, S]]:
        until = a.valid_until if a else previous.covered_until if previous else 0
        chosen = a.chosen if a and self.heeds_choice else previous.digest if previous else DIGEST
        what = Intent(view.visit, "k", "pay", chosen, b"", "", timeout_ms=1, start_budget_ms=2, settle_margin_ms=1)
        latest = until if self.bounded else None
        commit = effect_verbs.intend(
            view, what, previous, ordinal=view.visit, now=at(s.t), approval=a, latest_real=latest
        )
        if a is None or self.together == "one commit":
            commit = commit if self.binds or a is None else _unbound(commit)
            yield from self._speak(s, commit, f"intend, visit {view.visit}", pc="ready")
            return
        intend, consume = (commit._replace(writes=(write,)) for write in commit.writes)
        one, other = (consume, intend) if self.together == "consume first" else (intend, consume)
        yield from self._speak(s, one, "half of the intent", pc="half", rest=other)

    def _send(self, s: S, view: Run) -> Iterator[tuple[str, S]]:
        effect = next(e for e in s.known if isinstance(e, Effect) and e.visit == view.visit)
        if run_of(s.rows).epoch == view.epoch and cancel_of(notes_of(s.rows)):
            # the answer of the intent, or of a later commit, says that mail has come
            commit = effect_verbs.refuse(view, effect, "run_cancelled", "", now=at(s.t))
            yield from self._speak(s, commit, "does not send: cancelled", pc="")
        if s.t >= effect.not_after:
            yield f"t={s.t}: too late, does not send", s._replace(over=True)
            return
        a = _approval(s.rows)
        assert a is not None
        err = ""
        if not a.consumed_by and self.binds:
            err = "a call that no approval was consumed for"
        elif effect.digest != a.chosen:
            err = "a call of other bytes than those approved"
        elif s.t >= a.valid_until:
            err = "a call left after its approval had lapsed"
        commit = effect_verbs.record(view, effect, b"1", now=at(s.t))
        for label, after in self._speak(s, commit, "sends, records", pc=""):
            yield label, after._replace(err=err or after.err)

    def _finish(self, s: S, view: Run, outcome: RunStatus) -> Iterator[tuple[str, S]]:
        approvals = [row for row in s.known if isinstance(row, Approval)] if self.end_withdraws else []
        commit = verbs.finish(
            view, outcome, inbox_seq=s.snap, state=b"{}", result=None, reason="", not_undone=(),
            approvals=approvals, slots=(), now=at(s.t),
        )  # fmt: skip
        yield from self._speak(s, commit, f"the run ends {outcome}")


def _approval(rows: Rows) -> Approval | None:
    row = find(rows, APPROVAL, "r", "ap")
    return row if isinstance(row, Approval) else None


def _plain(row: Row) -> Row:
    """A row without the instants that nothing here asks for."""
    if isinstance(row, Message):
        return row._replace(at=0)
    if isinstance(row, Approval):
        votes = VOTES.encode(vote._replace(at=0) for vote in row.votes)
        return row._replace(asked_at=0, decided_at=0, votes_text=votes)
    if isinstance(row, Effect) and row.status is EffectStatus.DONE:
        return row._replace(first_at=1, not_after=1, settle_after=1, settled_at=1, attempts=1, version=NEW)
    if isinstance(row, Effect):
        return row._replace(first_at=1, settle_after=1, attempts=min(row.attempts, 2))
    return row


def _standing(a: Approval) -> bool:
    return a.status is ApprovalStatus.PENDING or (a.status is ApprovalStatus.APPROVED and not a.consumed_by)


def question(t: int) -> Approval:
    return Approval(
        tenant=TENANT, run="r", id="ap", version=1, status=ApprovalStatus.PENDING, visit=1, wait="ok", plans_text="[]",
        summary="", risk="", again=0, who="", requested_by="",
        asked_at=t, within_until=t + WITHIN, valid_ms=VALID, decided_at=0,
        decided_by="", claims_text="", reason="", chosen="", valid_until=0, consumed_by="",
    )  # fmt: skip


def _wrongly_decided(s: S, before: Approval) -> str:
    if before.decided_by:
        return "decided twice"
    if s.t >= before.within_until:
        return "decided after it had expired"
    return "accepted after the cancel was reported as accepted" if s.cancel == "told" else ""


def _reread(s: S) -> S:
    return s._replace(known=tuple(row for row in s.rows if isinstance(row, Effect | Approval)))


def _applied(known: tuple[Row, ...], commit: Commit) -> tuple[Row, ...]:
    """The holder's copies after its own commit."""
    rows = {(type(row).__name__, row[:4] if isinstance(row, Effect) else ()): row for row in known}
    for write in commit.writes:
        if isinstance(write, Put) and write.kind in (EFFECT, APPROVAL):
            rows[type(write.row).__name__, write.row[:4] if isinstance(write.row, Effect) else ()] = write.row
    return tuple(rows[name] for name in sorted(rows))


def _forced(commit: Commit, rows: Rows) -> Commit:
    """The decision written over the row as it is."""
    put = commit.writes[0]
    now = _approval(rows)
    assert isinstance(put, Put) and isinstance(put.row, Approval) and now is not None
    row = put.row._replace(version=now.version + 1, consumed_by=now.consumed_by)
    return commit._replace(writes=(Put(APPROVAL, row, now.version), *commit.writes[1:]))


def _unbound(commit: Commit) -> Commit:
    """The intent without the name of the effect that the approval is spent on."""
    effect, put = commit.writes
    assert isinstance(put, Put) and isinstance(put.row, Approval)
    return commit._replace(writes=(effect, put._replace(row=put.row._replace(consumed_by=""))))


LARGE = (
    Variant("as built, three crashes", Approvals(crashes=3)),
    Variant("as built, two people, two crashes", Approvals(crashes=2, quorum=2)),
    Variant("as built, a decision may change the plan, a crash", Approvals(edits=True)),
)
VARIANTS = (
    Variant("as built", Approvals()),
    Variant("a decision is read, then written", Approvals(decide="read, then write"), "decided twice"),
    Variant("a decision does not depend on the time", Approvals(decide_when=False), "after it had expired"),
    Variant("a cancel withdraws nothing", Approvals(cancel_withdraws=False), "after the cancel was reported"),
    Variant("ask does not name the mail", Approvals(ask_names_mail=False), "after the cancel was reported"),
    Variant("consumed in a commit before the intent", Approvals(together="consume first"), "nothing was intended"),
    Variant("consumed in a commit after the intent", Approvals(together="intend first"), "no approval was consumed"),
    Variant("consumed without the effect's name", Approvals(binds=False), "two effects"),
    Variant("not_after outlasts the approval", Approvals(bounded=False), "after its approval had lapsed"),
    Variant("as built, two people", Approvals(quorum=2, crashes=0)),
    Variant("as built, a decision may change the plan", Approvals(edits=True, crashes=0)),
    Variant("votes are read, then written", Approvals(quorum=2, decide="read, then write"), "a vote was lost"),
    Variant("a vote does not depend on the time", Approvals(quorum=2, decide_when=False), "after it had expired"),
    Variant("the first of two decides", Approvals(quorum=2, counts=False), "fewer people than it takes"),
    Variant(
        "a cancel leaves votes standing", Approvals(quorum=2, cancel_withdraws=False), "after the cancel was reported"
    ),
    Variant("the holder makes the plan it asked for", Approvals(edits=True, heeds_choice=False), "other bytes"),
    Variant("the end leaves the approval", Approvals(end_withdraws=False), "approval is still"),
)
