"""S-29: the first of several waits, over executions and crashes: one winner, which stays, and no loser ends afterwards.

One visit. The set has the wait `a` for the signal n until D, the wait `b` for the signal m, and an approval `ap`.
Signals and the decision may come at any time. The holder executes the node, may crash and is replaced. An execution
reads its mailbox once, and may reach the set later.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from outlast.core import approvals, effect_verbs, first_wait, mailbox, run_transition, verbs
from outlast.core.commit import Commit, Put
from outlast.core.first_wait import Bound, Candidate, Winner
from outlast.core.machine import ApprovalStatus, WaitStatus
from outlast.core.rows.effect_rows import APPROVAL, MEMO, WAIT, Approval, Memo, Wait
from outlast.core.rows.run_columns import Timer, WaitingFor
from outlast.core.rows.run_rows import Message, Run
from tests.models.explore import Variant
from tests.models.s20_approvals import DIGEST, question
from tests.models.world import (
    MAPPING,
    SLICE,
    TENANT,
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

START, D, END = 1, 3, 4
SIGNALS = {"a": "n", "b": "m"}
NAMES = ("a", "b", "ap")


class S(NamedTuple):
    """The world."""

    rows: Rows
    t: int = START
    left: tuple[str, ...] = ("m", "n")  # signals still to be sent
    clicked: bool = False  # the approver has decided, or found that it is too late
    click: Approval | None = None  # as the approver has read it
    crashes: int = 1
    view: Run | None = None  # the holder's
    snap: int = 0  # the mailbox as its execution read it
    known: Approval | None = None  # the approval as its execution read it
    rest: Commit | None = None  # the other half of a broken end
    given: str = ""  # the winner that the code has received in any execution so far
    over: bool = False
    err: str = ""


@dataclass(frozen=True)
class First:
    """The rule, or the rule with a safeguard removed."""

    crashes: int = 1
    names_mail: bool = True
    judged_by: str = "the store"  # or "a holder one tick fast": no When, and its own clock
    by: str = "number"  # or "position"
    memo: bool = True
    together: bool = True  # the losers are closed in the commit of the winner
    closes: bool = True  # losers are closed at all
    withdraws: bool = True  # approvals that lost are withdrawn
    deadline: str = "of any wait"  # or "of its wait": a message counts until the deadline of its wait

    def first(self) -> tuple[S, ...]:
        return (S(fresh(land((), born(), START).rows), crashes=self.crashes),)

    def good(self, s: S) -> bool:
        return s.over

    def bad(self, s: S) -> str:
        if s.err or not s.given or s.rest is not None:
            return s.err
        rows, won = s.rows, s.given.partition(" ")[0]
        for name in ("a", "b"):
            wait = _wait(rows, name)
            if name != won and wait.status is WaitStatus.BOUND:
                return f"{won} was first, and {name} ended, too"
            if name != won and wait.status is WaitStatus.OPEN:
                return f"{won} was first, and {name} is still open"
        ap = _approval(rows)
        if won != "ap" and approvals.covers(ap, DIGEST, 0):
            return f"{won} was first, and the approval may still be used"
        ends = [(m.n, m.at) for m in notes_of(rows) if m.kind == "decision" or m.name in SIGNALS.values()]
        number = int(s.given.partition(" ")[2] or 0)
        early = [n for n, when in ends if when < D and (not number or n < number)]
        if early and number:
            return f"message {number} was first, yet message {early[0]} was left before it"
        if early:
            return f"the deadline was first, yet message {early[0]} was left before it"
        late = number and dict(ends)[number] >= D
        return f"message {number} was first, yet it was left after the deadline" if late else ""

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        if s.over or s.err:
            return
        if s.t < END:
            yield f"t={s.t + 1}", s._replace(t=s.t + 1)
        yield from self._outside(s)
        if s.view is None:
            yield from self._claim(s)
            return
        if s.crashes:
            yield f"t={s.t}: the holder dies", _given_up(s)._replace(crashes=s.crashes - 1)
        yield from self._execute(s, s.view)

    def _with(self, s: S, rows: Rows, broke: str, **changes: object) -> S:
        s = s._replace(**changes)  # type: ignore[arg-type]
        return s._replace(rows=fresh(rows), view=seen_by(s.view, run_of(rows)), err=broke or s.err)

    # --- outside -------------------------------------------------------------------------------------
    def _outside(self, s: S) -> Iterator[tuple[str, S]]:
        for name in s.left:
            rest = tuple(each for each in s.left if each != name)
            sent = mailbox.append_message(tenant=TENANT, run="r", kind="signal", name=name, actor="a", now=at(s.t))
            left = land(s.rows, sent, s.t)
            yield f"t={s.t}: the signal {name} is sent", self._with(s, left.rows, left.broke, left=rest)
        ap = find(s.rows, APPROVAL, "r", "ap")
        if s.clicked or not isinstance(ap, Approval):
            return
        if s.click is None:
            if ap.status is ApprovalStatus.PENDING:
                yield f"t={s.t}: the approver reads", s._replace(click=ap)
            return
        decided = approvals.decide(
            s.click, verb="approve", chosen=DIGEST, by="p", claims=(), reason="", now=at(s.t)
        ).commit
        left = land(s.rows, decided, s.t)
        after = self._with(s, left.rows, left.broke, clicked=True, click=None)
        yield f"t={s.t}: the approver approves ({left.refused or 'accepted'})", after

    # --- the holder ------------------------------------------------------------------------------------
    def _claim(self, s: S) -> Iterator[tuple[str, S]]:
        run = run_of(s.rows)
        closed = {run.owner: 0} if run.owner else {}
        commit = verbs.claim(run, worker="w", now=at(s.t), claim_ms=SLICE, closed=closed)
        if commit is None:
            return
        rows = land(s.rows, commit, s.t).rows
        mine = run_of(rows)
        for name in SIGNALS:
            if find(rows, WAIT, "r", 1, name) is None:
                deadline = D if name == "a" else 0
                wait = Wait(TENANT, "r", 1, name, 1, WaitStatus.OPEN, "receive", SIGNALS[name], deadline, 0, "", START)
                rows = land(rows, effect_verbs.open_wait(mine, wait), s.t).rows
        if find(rows, APPROVAL, "r", "ap") is None:
            asked = question(START)._replace(within_until=END + 1, valid_ms=END)
            rows = land(
                rows, approvals.ask(asked, fence=run_transition.fence(mine, inbox_seq=mine.inbox_seq)), s.t
            ).rows
        after = self._with(s, rows, "", view=mine)
        yield f"t={s.t}: an execution begins, {mine.inbox_seq} messages", _reread(after)

    def _won(self, s: S) -> Winner | None:
        """Return the winner of this execution, as it sees the rows."""
        notes = notes_of(s.rows)[: s.snap]
        assert s.known is not None
        own = {"a": D, "b": 0, "ap": 0}
        found: list[Candidate] = []
        for name in NAMES:
            message = _ends(name, notes, s.known)
            deadline = own[name]
            if message is not None and deadline and message.at >= deadline:
                message = None
            number, when = (message.n, message.at) if message is not None else (0, 0)
            if self.deadline == "of its wait":
                when = 0
            found.append(Candidate(name, number, when, deadline, deadline))
        if self.by == "position":
            found = [each._replace(number=i + 1 if each.number else 0) for i, each in enumerate(found)]
        return first_wait.first_of(found, s.t + (self.judged_by != "the store"))

    def _execute(self, s: S, view: Run) -> Iterator[tuple[str, S]]:
        if s.rest is not None:
            left = land(s.rows, s.rest, s.t)
            yield (
                f"t={s.t}: the other half ({left.refused or 'landed'})",
                self._with(s, left.rows, left.broke, rest=None),
            )
            return
        memo = find(s.rows, MEMO, "r", 1, first_wait.set_key(NAMES))
        if isinstance(memo, Memo):
            yield from self._advance(s, view, first_wait.winner_of(memo))
            return
        won = self._won(s)
        if won is None:
            yield from self._park(s, view)
            return
        yield from self._end(s, view, won)

    def _end(self, s: S, view: Run, won: Winner) -> Iterator[tuple[str, S]]:
        assert s.known is not None
        message = None if won.by_deadline else _ends(won.name, notes_of(s.rows)[: s.snap], s.known)
        waits = {name: _wait(s.rows, name) for name in SIGNALS}
        number = () if message is None else (message.n,)
        open_ = [wait for name, wait in waits.items() if name != won.name and wait.status is WaitStatus.OPEN]
        bound = None
        if won.name in waits:
            bound = Bound(waits[won.name], number or None, complete=bool(number))
            if bound.wait.status is not WaitStatus.OPEN:  # without the memo, from the rows
                yield from self._advance(s, view, won.name)
                return
        commit = first_wait.end_first(
            view,
            NAMES,
            won.name,
            bound=bound,
            lost=open_ if self.closes else (),
            withdrawn=(s.known,) if won.name != "ap" and self.withdraws else (),
            inbox_seq=s.snap,
            now=at(s.t),
        )
        commit = commit if self.names_mail else nameless(commit)
        commit = commit if self.judged_by == "the store" else whenless(commit)
        if not self.memo:
            commit = commit._replace(writes=tuple(w for w in commit.writes if not _is_memo(w)))
        rest = None
        if not self.together:
            own = tuple(
                w for w in commit.writes if isinstance(w, Put) and isinstance(w.row, Wait) and w.row.key == won.name
            )
            rest = commit._replace(writes=tuple(w for w in commit.writes if w not in own), whens=())
            commit = commit._replace(writes=own)
        left = land(s.rows, commit, s.t)
        what = f"{won.name} ends by {'its deadline' if won.by_deadline else f'message {number}'}"
        if left.refused:
            yield f"t={s.t}: {what} refused ({left.refused}); executes again", _reread(s)
            return
        given = f"{won.name} {number[0] if number else ''}".strip()
        err = left.broke
        if s.given and s.given != given:
            err = f"the code was given {s.given} in one execution and {given} in a later one"
        yield f"t={s.t}: {what}", self._with(s, left.rows, err, given=given, rest=rest)

    def _advance(self, s: S, view: Run, won: str) -> Iterator[tuple[str, S]]:
        if s.given.partition(" ")[0] != won:
            yield f"t={s.t}: {won} is given", s._replace(err=f"the code was given {s.given}, and later {won}")
            return
        commit = verbs.advance(view, node="b", status_label="", state=b"{}", now=at(s.t), claim_ms=SLICE)
        left = land(s.rows, commit, s.t)
        yield (
            f"t={s.t}: advance ({left.refused or 'landed'})",
            self._with(s, left.rows, left.broke, over=not left.refused),
        )

    def _park(self, s: S, view: Run) -> Iterator[tuple[str, S]]:
        if s.t >= D:
            return  # no wait can be open
        waiting = [WaitingFor("signal", name) for name in NAMES]
        commit = verbs.park(
            view, "park", inbox_seq=s.snap, waiting=waiting, timers=[Timer("a", D)], now=at(s.t), mapping=MAPPING
        )
        left = land(s.rows, commit, s.t)
        if left.refused:
            yield f"t={s.t}: park refused ({left.refused}); executes again", _reread(s)
        else:
            yield f"t={s.t}: park", _given_up(self._with(s, left.rows, left.broke))


def _given_up(s: S) -> S:
    return s._replace(view=None, snap=0, known=None, rest=None)


def _reread(s: S) -> S:
    """Begin an execution: the holder reads its copies."""
    return s._replace(snap=run_of(s.rows).inbox_seq, known=_approval(s.rows))


def _wait(rows: Rows, name: str) -> Wait:
    row = find(rows, WAIT, "r", 1, name)
    assert isinstance(row, Wait)
    return row


def _approval(rows: Rows) -> Approval:
    row = find(rows, APPROVAL, "r", "ap")
    assert isinstance(row, Approval)
    return row


def _ends(name: str, notes: tuple[Message, ...], ap: Approval) -> Message | None:
    """Return the message that ends a wait of the set, the earliest one."""
    if name == "ap":
        number, _ = first_wait.decided_at(ap, notes)
        return next((m for m in notes if m.n == number), None)
    return next((m for m in notes if m.kind == "signal" and m.name == SIGNALS[name]), None)


def _is_memo(write: object) -> bool:
    return isinstance(write, Put) and isinstance(write.row, Memo)


VARIANTS = (
    Variant("as built", First()),
    Variant("the end does not name the mail", First(names_mail=False), "was left before it"),
    Variant("the deadline is judged by a holder one tick fast", First(judged_by="a holder"), "was left before it"),
    Variant("the first wait of the call wins", First(by="position"), "was left before it"),
    Variant("a message counts until its own deadline", First(deadline="of its wait"), "after the deadline"),
    Variant("the winner is not remembered", First(memo=False), "nothing good can follow"),
    Variant("the losers are closed later", First(together=False), "is still open"),
    Variant("the losers stay open", First(closes=False), "is still open"),
    Variant("an approval that lost may be used", First(withdraws=False), "may still be used"),
)
LARGE = (Variant("as built, three crashes", First(crashes=3)),)
