"""Rows of a held run: as its holder read them, with its own commits applied.

Theory of operation. A holder reads the rows of its run once, when it claims the run. Afterwards it decides from these
rows, and `apply` keeps them current. This module reads no store, no clock and no event loop.

Faults, and why no wrong row is stored because of them:

1. The rows are ahead of the store: a commit is applied when it is submitted, before it has landed. Each later
   decision from it is submitted in the same chain, so the store refuses both together (S-7). Then `renew` replaces the
   rows.
2. The rows are behind the store. Other writers add messages and evidence, decide approvals, and change shared effects
   of other runs. `inbox_known` shows that a message came. A commit that may not overlook one has `inbox_read` in its
   fence (S-1). Approvals and shared effects are written with the version that was read, so an old one is refused.
3. Another worker holds the run: all rows may be wrong. Every commit has a fence with the epoch of this claim, so none
   of them lands (S-2).
4. `apply` and the store's judge understand a commit differently. `tests/lockstep/test_held_run.py` compares them: after
   each commit, the rows equal those of a holder that reads them again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from outlast.core import budget, divergence
from outlast.core.commit import Commit, Erase, Instant, Put
from outlast.core.divergence import Missing, Requested
from outlast.core.failed_calls import EffectKey
from outlast.core.forks import ASKS, TERMS, AskedBelow, ForkLedger, asks_of, ledger_of
from outlast.core.living_forks import notes_of
from outlast.core.quarantine import group_of
from outlast.core.rows.effect_rows import EFFECT, EVIDENCE, MEMO, WAIT, Approval, Effect, Evidence, Memo, Usage, Wait
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.row_kind import AnyKind
from outlast.core.rows.run_rows import MESSAGE, Event, Message, Run
from outlast.core.run_transition import LogEntry, log_key
from outlast.core.usage import NOTHING_USED, SUMMED, Amounts, CallUsage, Used
from outlast.store.port import RunRows


class HeldRun:
    """Rows of one run, and values that its holder derives from them.

    Other modules read the attributes and change them through the methods alone, which a house rule checks. They are no
    properties, because a step reads them a hundred times.
    """

    __slots__ = (
        "_earlier",
        "_open",
        "_ordinal",
        "_usage_n",
        "approvals",
        "asks",
        "below_root",
        "children",
        "claimed_visit",
        "effects",
        "evidence",
        "fork",
        "fork_notes",
        "group",
        "has_children",
        "has_new_messages",
        "inbox_known",
        "inbox_read",
        "last",
        "loaded_visit",
        "memos",
        "messages",
        "noted",
        "notes",
        "others",
        "run",
        "starting",
        "tree",
        "usage_before",
        "usage_read",
        "usage_since",
        "waits",
    )

    def __init__(self, rows: RunRows) -> None:
        self.claimed_visit = rows.run.visit  # visit of the run when it was claimed
        self.notes: list[LogEntry] = []  # entries of the history about usage that is not counted
        self.tree = ""  # the run that names its tree; '': not asked for yet
        self._usage_n = 0  # number of the last usage row of this claim
        self.renew(rows)

    def renew(self, rows: RunRows) -> None:
        """Take rows that were read again under the same claim. Usage is numbered on, so no number is used twice."""
        self.run: Run = rows.run
        self.group = group_of(rows.run)  # as stored: an advance that has not landed does not end it (S-5)
        self.last: Event = rows.last  # newest event with a snapshot
        own = [*rows.effects, *(e for e in rows.shared if e.by_run == rows.run.run)]
        self.effects: dict[EffectKey, Effect] = {(e.visit, e.key): e for e in own}
        self._open: dict[EffectKey, Effect] = {ident: e for ident, e in self.effects.items() if e.settled_at == 0}
        self.children: dict[EffectKey, Effect] = {ident: e for ident, e in self._open.items() if e.child_text}
        self.has_children = any(e.child_text for e in own) or any(m.activity == divergence.MAP for m in rows.memos)
        for ident in self.children:  # living ones; they are no calls
            del self._open[ident]
        self.others: dict[str, Effect] = {e.key: e for e in rows.shared if e.by_run != rows.run.run}
        self.noted: set[str] = {e.key for e in rows.shared}  # shared effects named by a usage row of this run
        self.memos: dict[EffectKey, Memo] = {(m.visit, m.key): m for m in rows.memos}
        self.fork: ForkLedger | None = ledger_of(self.memos) if (0, TERMS) in self.memos else None
        self.asks: AskedBelow | None = None
        if self.fork is not None or (0, ASKS) in self.memos:
            self.asks = asks_of(self.memos, None if self.fork is None else self.fork.terms)
        self.fork_notes = notes_of(self.memos)
        self.waits: dict[EffectKey, Wait] = {(w.visit, w.key): w for w in rows.waits}
        self.approvals: dict[str, Approval] = {a.id: a for a in rows.approvals}
        self.evidence: tuple[Evidence, ...] = rows.evidence
        self.messages: tuple[Message, ...] = rows.messages
        self._earlier: dict[tuple[str, str], int] | None = None
        self.inbox_read = rows.run.inbox_seq  # number of the last message that this execution has read
        self.inbox_known = rows.run.inbox_seq  # … and of the last one that an answer of the store has named
        self.below_root = -1  # number of runs below its root, as counted and as far as it starts some; -1 = not counted
        self.starting = 0  # number of children whose start is under way
        self.has_new_messages = False  # a message has come that this execution has not read
        self.loaded_visit = rows.run.visit  # an execution of a later visit finds nothing recorded in it
        self._ordinal = max((e.ordinal for e in own), default=0)
        if self.has_children and self.memos:  # a move may name the numbers of counted children, whose rows are gone
            self._ordinal = max(self._ordinal, divergence.dropped_in(self.run, self.memos.values()).ordinal)
        self.usage_before: Amounts | None = None  # usage of the run up to `usage_read`; None = not read yet
        self.usage_read = self._usage_n  # later usage rows of this claim count in `usage_since`
        self.usage_since = NOTHING_USED

    def count_below_root(self, n: int) -> None:
        """Note the number of runs below the root."""
        self.below_root = n

    def begin_starts(self, n: int) -> None:
        """Note that the start of so many children is under way; below zero, that it has landed or failed."""
        self.starting += n

    def started_children(self) -> int:
        """Return the number of children that the run has started, those under way and repeated ones included."""
        own = (e for e in self.effects.values() if e.child_text and not e.undoes)
        return self.starting + sum(each.attempts for each in own)

    def use_tree(self, name: str) -> None:
        """Note the run that names the tree of this run."""
        self.tree = name

    # --- changes --------------------------------------------------------------------------------
    def apply(self, commit: Commit) -> None:
        """Apply a commit of this holder: the rows become those that the judge of the store leaves.

        Depends on nothing but these rows and the commit. It changes them in place, because a run may have thousands of
        effects and a copy for each commit would make a long visit quadratic.

        Rows of other runs and kinds that a holder does not keep are ignored. So are appended messages: the store
        numbers them, and this execution must not see them before it reads them (S-1).
        """
        for write in commit.writes:
            if not isinstance(write, Put):
                if type(write) is Erase:
                    self._forget(commit)
                    return
                continue
            row = write.row
            if row[1] != self.run.run and row[1] != "":  # of a child that this commit starts
                continue
            match row:
                case Run():
                    self.run = row
                case Event():
                    self.last = row if row.snapshot is not None else self.last
                case Effect():
                    self._keep(row)
                case Memo():
                    self.memos[row.visit, row.key] = row
                    if self.fork is not None:
                        self.fork.add(row)
                case Usage():
                    self.noted.add(row.key)
                case CallUsage() if row.epoch != SUMMED:
                    self.usage_since = self.usage_since.plus(row.amounts)
                case Wait():
                    self.waits[row.visit, row.key] = row
                case Approval():
                    self.approvals[row.id] = row

    def _forget(self, commit: Commit) -> None:
        """Forget the rows that a commit deletes. Its other writes come first, and are applied (S-32)."""
        numbers: set[str | int] = set()
        for write in commit.writes:
            if not isinstance(write, Erase):
                continue
            key = write.key
            if write.kind is MESSAGE:
                numbers.add(key[2])
            elif write.kind is EVIDENCE:
                self.evidence = tuple(each for each in self.evidence if each[:5] != key)
            elif (rows := self._rows_of(write.kind)) is not None:
                row = rows.pop((int(key[2]), str(key[3])), None)
                earlier = self._earlier
                if isinstance(row, Effect) and earlier and earlier.get((row.activity, row.key)) == row.visit:
                    del earlier[row.activity, row.key]
        if numbers:
            self.messages = tuple(each for each in self.messages if each.n not in numbers)

    def _rows_of(self, kind: AnyKind) -> dict[EffectKey, Any] | None:
        return self.effects if kind is EFFECT else self.memos if kind is MEMO else self.waits if kind is WAIT else None

    def _keep(self, row: Effect) -> None:
        if row.by_run not in ("", self.run.run):
            self.others[row.key] = row
            return
        ident = row.visit, row.key
        self.effects[ident] = row
        if row.child_text:
            self.children[ident], self.has_children = row, True
            if row.settled_at:
                del self.children[ident]
        elif row.settled_at == 0:
            self._open[ident] = row
        else:
            self._open.pop(ident, None)
        if row.by_run:  # another run's effect was undone, and this run has made the call again
            self.others.pop(row.key, None)

    def amend(self, run: Run) -> None:
        """Take a run row that was decided here and is written by the next move."""
        self.run = run

    def add_shared(self, effect: Effect) -> None:
        """Keep a shared effect of another run, as just read."""
        self.others[effect.key] = effect

    def hear(self, inbox_seq: int) -> None:
        """Note the number of a message that the store has named. Answers may arrive out of order."""
        if inbox_seq > self.inbox_known:
            self.inbox_known, self.has_new_messages = inbox_seq, inbox_seq > self.inbox_read

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Count further messages as read by this execution."""
        self.messages += tuple(messages)
        self.inbox_read = max(self.inbox_read, *(n.n for n in messages))
        self.has_new_messages = self.inbox_known > self.inbox_read

    def landed(self) -> None:
        """Leave the group of crashed runs if the run has left it and every commit so far has landed (S-5)."""
        self.group = group_of(self.run)

    def next_ordinal(self) -> int:
        """Return the number of a new effect. Undo goes by falling ordinal (S-19)."""
        self._ordinal += 1
        return self._ordinal

    def usage_puts(self, ident: EffectKey, activity: str, used: list[Used], now: Instant) -> tuple[Put, ...]:
        """Return the rows of usage that a call has reported, and empty the list."""
        rows = budget.usage_rows(self.run, ident, activity, used, after=self._usage_n, now=now)
        self.notes += budget.notes_of(ident, used)
        self._usage_n += len(rows)
        used.clear()
        return tuple(Put(CALL_USAGE, row, 0) for row in rows)

    def add_usage_before(self, amounts: Amounts) -> Amounts:
        """Keep the usage up to `usage_read`, as just read. Returns the usage of the whole run."""
        self.usage_before = amounts
        return amounts.plus(self.usage_since)

    def take_notes(self) -> list[LogEntry]:
        """Return the notes about usage since the last time."""
        notes, self.notes = self.notes, []
        return notes

    # --- reading --------------------------------------------------------------------------------
    def visit_of(self, activity: str, key: str) -> int:
        """Return the latest visit in which an activity recorded a key for that visit alone; 0 if it did not.

        A key that counts in the whole run may have been recorded when it counted in its visit.
        """
        if self._earlier is None:  # once for a claim: later rows are of activities that count within a visit
            own = sorted((visit, key, effect) for (visit, key), effect in self.effects.items() if visit)
            self._earlier = {(effect.activity, key): visit for visit, key, effect in own if not effect.undoes}
        return self._earlier.get((activity, key), 0)

    def bound_messages(self) -> frozenset[int]:
        """Return the numbers of messages that a wait of this run has bound, in any visit."""
        return frozenset(n for wait in self.waits.values() for n in wait.binding or ())

    def open_effects(self) -> list[Effect]:
        """Return the effects of any visit without a known outcome."""
        return list(self._open.values())

    def missing_calls(self, paid: Callable[[str], bool]) -> Missing:
        """Return the calls that earlier executions of the visit have recorded, and the next one must ask for (EFF-9).

        `paid` tells whether a lookup of this name is durable.
        """
        memos = self.memos.values()
        names = divergence.recorded(
            self.run,
            self.effects.values(),
            memos,
            self.waits.values(),
            self.approvals.values(),
            paid,
            divergence.dropped_in(self.run, memos),
        )
        found = set(names)
        return divergence.by_activity(found - divergence.accepted(self.run, self.messages) if found else found)

    def requested_approvals(self) -> dict[str, Requested]:
        """Return the requests for approval of the visit, by the name that asks for each (EFF-9)."""
        if not self.approvals:
            return {}
        dropped = divergence.dropped_in(self.run, self.memos.values())
        found = {each.name: each for each in divergence.requested(self.run, self.approvals.values(), dropped)}
        accepted = divergence.accepted(self.run, self.messages) if found else ()
        return {name: each for name, each in found.items() if name not in accepted}

    def unwritten(self, log_entries: Iterable[LogEntry]) -> tuple[LogEntry, ...]:
        """Return the log entries that no earlier execution of this visit has written."""
        return tuple(t for t in log_entries if (self.run.visit, log_key(t.key)) not in self.memos)
