"""S-13 and S-14: waits over executions and crashes, and a deadline against a message.

One visit. Wait `a` has the deadline D, wait `b` has none; both match the same notes. Notes may be posted at any
time; the holder walks, may crash and is replaced; a walk reads its mailbox once, and may reach its waits later.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from outlast.core import effect_verbs, mailbox, verbs
from outlast.core.machine import WaitStatus
from outlast.core.rows.effect_columns import DEADLINE
from outlast.core.rows.effect_rows import WAIT, Wait
from outlast.core.rows.run_columns import Timer, WaitingFor
from outlast.core.rows.run_rows import Run
from tests.models.explore import Variant
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

START, D, END = 1, 3, 5
UNBOUND = ""


class S(NamedTuple):
    """The world."""

    rows: Rows
    t: int
    left: int  # notes still to be posted
    crashes: int
    posting: tuple[int, ...] = ()  # instants at which a post's transaction began (only if notes are stamped then)
    view: Run | None = None  # the holder's
    snap: int = 0  # the mailbox as its walk read it
    memory: tuple[str, str] = (UNBOUND, UNBOUND)  # bindings kept by the process only (a broken variant)
    given: tuple[str, str] = (UNBOUND, UNBOUND)  # answers that the code has received in any execution so far
    over: bool = False
    err: str = ""


@dataclass(frozen=True)
class Waits:
    """The rule, or the rule with a safeguard removed."""

    messages: int = 2
    crashes: int = 2
    bind_names_mail: bool = True
    stamp: str = "under the lock"  # or "at the start of the transaction"
    judged_by: str = "the store"  # or "a holder one tick fast": no When, and its own clock
    binding: str = "stored"  # or "in memory"
    deadline: str = "stored"  # or "again in each execution"
    takes: str = "unbound only"  # or "anything"
    ahead: int = 0  # ticks by which the holder's clock is ahead of the senders'
    skew: int = 0  # of the store, by which deadlines are widened (S-4)

    def first(self) -> tuple[S, ...]:
        return (S(fresh(land((), born(), START).rows), START, self.messages, self.crashes),)

    def good(self, s: S) -> bool:
        return s.over

    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        a, b = self._binding(s, "a"), self._binding(s, "b")
        notes = notes_of(s.rows)
        if a == DEADLINE:
            early = [n.n for n in notes if n.at < D and f"[{n.n}]" != b]
            if early:
                return f"bound to its deadline, yet note {early[0]} was left before it"
        elif a and notes[int(a[1:-1]) - 1].at >= D:
            return "bound to a note that was left after its deadline"
        if a and a == b:
            return "one note answers two waits"
        wait = find(s.rows, WAIT, "r", 1, "a")
        return "the deadline moved on a later walk" if isinstance(wait, Wait) and wait.deadline != D else ""

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        if s.over or s.err:
            return
        if s.t < END:
            yield f"t={s.t + 1}", s._replace(t=s.t + 1)
        yield from self._posts(s)
        if s.view is None:
            yield from self._claim(s)
            return
        if s.crashes:
            after = s._replace(view=None, snap=0, memory=(UNBOUND, UNBOUND), crashes=s.crashes - 1)
            yield f"t={s.t}: the holder dies", after
        yield from self._bind(s, s.view, 0)
        yield from self._bind(s, s.view, 1)
        yield from self._verdict(s, s.view)

    def _with(self, s: S, rows: Rows, broke: str, **changes: object) -> S:
        s = s._replace(**changes)  # type: ignore[arg-type]
        return s._replace(rows=fresh(rows), view=seen_by(s.view, run_of(rows)), err=broke or s.err)

    # --- outside ---------------------------------------------------------------------------------
    def _posts(self, s: S) -> Iterator[tuple[str, S]]:
        commit = mailbox.append_message(tenant=TENANT, run="r", kind="signal", name="n", actor="a", now=at(s.t))
        if self.stamp == "under the lock":
            if s.left:
                left = land(s.rows, commit, s.t)
                yield f"t={s.t}: a note is posted", self._with(s, left.rows, left.broke, left=s.left - 1)
            return
        if s.left:
            yield f"t={s.t}: a post's transaction begins", s._replace(posting=(*s.posting, s.t), left=s.left - 1)
        for i, began in enumerate(s.posting):
            left = land(s.rows, commit, began)
            rest = s.posting[:i] + s.posting[i + 1 :]
            yield f"t={s.t}: it lands, stamped {began}", self._with(s, left.rows, left.broke, posting=rest)

    # --- the holder --------------------------------------------------------------------------------
    def _clock(self, s: S) -> int:
        return s.t + self.ahead

    def _closes(self, wait: Wait) -> int:
        return effect_verbs.closes_at(wait.deadline, MAPPING, self.skew)

    def _claim(self, s: S) -> Iterator[tuple[str, S]]:
        run = run_of(s.rows)
        closed = {run.owner: 0} if run.owner else {}
        commit = verbs.claim(run, worker="w", now=at(self._clock(s)), claim_ms=SLICE, closed=closed)
        if commit is None:
            return
        rows = land(s.rows, commit, self._clock(s)).rows
        mine = run_of(rows)
        for key in "ab":
            rows = self._declare(rows, mine, key, self._clock(s))
        after = self._with(s._replace(view=mine, snap=mine.inbox_seq), rows, "")
        yield f"t={s.t}: a walk begins, {mine.inbox_seq} notes", after

    def _declare(self, rows: Rows, run: Run, key: str, t: int) -> Rows:
        """The first asking of a wait: D from the start, whenever it is asked for (the execution may be late)."""
        old = find(rows, WAIT, "r", 1, key)
        if old is None:
            deadline = D if key == "a" else 0
            wait = Wait(TENANT, "r", 1, key, 1, WaitStatus.OPEN, "receive", key, deadline, 0, "", START)
            return land(rows, effect_verbs.open_wait(run, wait), t).rows
        if self.deadline != "stored" and key == "a":
            assert isinstance(old, Wait)
            moved = old._replace(deadline=max(D, t + D - START))
            return tuple(moved if row is old else row for row in rows)
        return rows

    def _wait(self, s: S, key: str) -> Wait:
        row = find(s.rows, WAIT, "r", 1, key)
        assert isinstance(row, Wait)
        return row

    def _binding(self, s: S, key: str) -> str:
        row = find(s.rows, WAIT, "r", 1, key)
        return s.memory["ab".index(key)] or (row.binding_text if isinstance(row, Wait) else "")

    def _free(self, s: S, wait: Wait) -> tuple[int, ...]:
        """Return the messages that this execution may give to this wait."""
        taken = {self._binding(s, key) for key in "ab"} if self.takes == "unbound only" else set()
        notes = notes_of(s.rows)[: s.snap]
        return tuple(n.n for n in notes if f"[{n.n}]" not in taken and (not wait.deadline or n.at < wait.deadline))

    def _bind(self, s: S, view: Run, i: int) -> Iterator[tuple[str, S]]:
        key = "ab"[i]
        wait = self._wait(s, key)
        if self._binding(s, key):
            return
        free = self._free(s, wait)
        fast = self.judged_by != "the store"
        late = bool(wait.deadline) and self._clock(s) + fast >= self._closes(wait)
        if not free and not late:
            return
        commit = effect_verbs.bind(
            view, wait, free[:1] if free else None, inbox_seq=s.snap, complete=bool(free), closes=self._closes(wait)
        )
        commit = commit if self.bind_names_mail else nameless(commit)
        commit = whenless(commit) if fast else commit
        left = land(s.rows, commit, self._clock(s))
        what = f"note {free[0]}" if free else DEADLINE
        if left.refused:
            yield (
                f"t={s.t}: {key} to {what} refused ({left.refused}); walks again",
                s._replace(snap=run_of(s.rows).inbox_seq),
            )
            return
        bound = f"[{free[0]}]" if free else DEADLINE
        err = left.broke
        if s.given[i] and s.given[i] != bound:
            err = f"wait {key} was answered {s.given[i]} in one walk and {bound} in a later one"
        given = (bound, s.given[1]) if i == 0 else (s.given[0], bound)
        if self.binding == "in memory":
            memory = (bound, s.memory[1]) if i == 0 else (s.memory[0], bound)
            yield f"t={s.t}: {key} takes {what}", s._replace(memory=memory, given=given, err=err)
        else:
            yield f"t={s.t}: {key} is bound to {what}", self._with(s, left.rows, err, given=given)

    def _verdict(self, s: S, view: Run) -> Iterator[tuple[str, S]]:
        open_ = [key for key in "ab" if not self._binding(s, key)]
        if not open_:
            commit = verbs.advance(view, node="b", status_label="", state=b"{}", now=at(self._clock(s)), claim_ms=SLICE)
            left = land(s.rows, commit, self._clock(s))
            yield (
                f"t={s.t}: advance ({left.refused or 'landed'})",
                self._with(s, left.rows, left.broke, over=not left.refused),
            )
            return
        if any(self._free(s, self._wait(s, key)) for key in open_) or (
            "a" in open_ and self._clock(s) >= self._closes(self._wait(s, "a"))
        ):
            return  # the walk binds it first
        clocks = [Timer("a", self._closes(self._wait(s, "a")))] if "a" in open_ else []
        waiting = [WaitingFor("signal", key) for key in open_]
        commit = verbs.park(
            view, "park", inbox_seq=s.snap, waiting=waiting, timers=clocks, now=at(self._clock(s)), mapping=MAPPING
        )
        left = land(s.rows, commit, self._clock(s))
        if left.refused:
            yield f"t={s.t}: park refused ({left.refused}); walks again", s._replace(snap=run_of(s.rows).inbox_seq)
        else:
            after = self._with(s, left.rows, left.broke)
            yield f"t={s.t}: park", after._replace(view=None, snap=0, memory=(UNBOUND, UNBOUND))


LARGE = (Variant("as built, three notes, three crashes", Waits(messages=3, crashes=3)),)
VARIANTS = (
    Variant("as built", Waits()),
    Variant("bind does not name the mail", Waits(bind_names_mail=False), "was left before it"),
    Variant("a note bears the time its transaction began", Waits(stamp="at the start"), "was left before it"),
    Variant("the deadline is judged by a holder one tick fast", Waits(judged_by="a holder"), "was left before it"),
    Variant("a binding is kept in memory", Waits(binding="in memory"), "in one walk"),
    Variant("the deadline is computed again in each execution", Waits(deadline="anew"), "the deadline moved"),
    Variant("a bound note is still offered", Waits(takes="anything"), "one note answers two"),
)
