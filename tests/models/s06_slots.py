"""S-6: one slot, three runs, first come first served; a run may be cancelled before it was admitted.

A holder reads the slot row and the queue in one step and commits in another: admitted, or asleep until a slot is handed
over. Ending reads who is queued, then commits: the slot goes to the oldest, in the run's own commit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from outlast.core import mailbox, verbs
from outlast.core.commit import Commit, Put
from outlast.core.machine import ENDED, RunStatus
from outlast.core.route import cancel_of
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_rows import Message, Run
from outlast.core.rows.store_rows import STORE
from outlast.core.run_transition import SlotChange, admit, hand_over, queue
from tests.models.explore import Variant
from tests.models.world import (
    MAPPING,
    NEW,
    OLD,
    SLICE,
    Landed,
    Rows,
    at,
    born,
    fresh,
    land,
    run_of,
    seen_by,
)

NOW = at(1)
RUNS = ("r1", "r2", "r3")
FREE = Slot(STORE, 0, 1, "", "")


class H(NamedTuple):
    """A run's holder and what it has read."""

    pc: str = "new"  # new, out, looks, decides, works, ends
    view: Run | None = None
    slot: Slot | None = None
    heir: Run | None = None
    slept: bool = False  # must wait for a slot


class S(NamedTuple):
    """The world."""

    rows: Rows
    h: tuple[H, ...]
    cancels: int
    repair: tuple[Slot, Run | None] | None = None  # rows that a renewal has read
    err: str = ""


@dataclass(frozen=True)
class Slots:
    """The rule, or the rule with a safeguard removed."""

    runs: int = 3
    cancels: int = 0
    sleep_names_slots: bool = True
    heirs: str = "oldest queued"  # or "sleepers only", "none"
    slot_is_a_row: bool = True  # or counted, then admitted
    repairs: bool = True
    looks_at_queue: bool = True  # before it takes a free slot
    ends_in_one: bool = False  # who is queued is read in the step that commits the end

    def first(self) -> tuple[S, ...]:
        return (S((FREE,), (H(),) * self.runs, self.cancels),)

    def good(self, s: S) -> bool:
        return all(h.pc != "new" and run_of(s.rows, name).owner == ENDED for h, name in zip(s.h, RUNS, strict=False))

    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        slot = _slot(s.rows)
        admitted = [row.run for row in s.rows if isinstance(row, Run) and row.slots]
        if len(admitted) > 1 or (admitted and admitted != [slot.holder]):
            return f"admitted: {admitted}, the slot row names {slot.holder!r}"
        return ""

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        for i, h in enumerate(s.h):
            yield from getattr(self, f"_{h.pc}")(s, i, h)
            if s.cancels and h.pc != "new":
                yield from self._cancel(s, i)
        if self.repairs:
            yield from self._repair(s)

    def _with(self, s: S, left: Landed, i: int, h: H, **changes: object) -> S:
        rows = left.rows
        for row in left.rows:
            if isinstance(row, Run):
                rows = fresh(rows, row.run)
        slot = _slot(left.rows)
        rows = tuple(
            row._replace(version=NEW)
            if isinstance(row, Slot)
            else row._replace(at=0)
            if isinstance(row, Message)
            else row
            for row in rows
        )
        s = s._replace(h=(*s.h[:i], h, *s.h[i + 1 :]), **changes)  # type: ignore[arg-type]
        hs = tuple(_copies(x, left.rows, slot, RUNS[j]) for j, x in enumerate(s.h))
        repair = s.repair and (_aged(s.repair[0], slot), _heir_copy(s.repair[1], left.rows))
        return s._replace(rows=rows, h=hs, repair=repair, err=s.err or left.broke)

    # --- from outside ------------------------------------------------------------------------------------
    def _cancel(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        commit = mailbox.cancel(run_of(s.rows, RUNS[i]), (), actor="c", reason="", now=NOW)
        left = land(s.rows, commit, 1)
        if not left.refused:
            yield f"{RUNS[i]} is cancelled", self._with(s, left, i, s.h[i], cancels=s.cancels - 1)

    def _repair(self, s: S) -> Iterator[tuple[str, S]]:
        """Each worker's renewal hands on what it finds free."""
        slot = _slot(s.rows)
        here = Landed(s.rows, "", 0, "")
        if s.repair is None:
            heir = self._heir(s.rows, slot)
            ended = bool(slot.holder) and run_of(s.rows, slot.holder).owner == ENDED
            if ended or (not slot.holder and heir is not None):
                yield "a renewal finds the slot unused", self._with(s, here, 0, s.h[0], repair=(slot, heir))
            return
        writes, expects = hand_over([SlotChange(*s.repair)])
        left = land(s.rows, Commit(writes, expects=expects), 1)
        yield f"the renewal hands it on ({left.refused or 'landed'})", self._with(s, left, 0, s.h[0], repair=None)

    # --- a run -----------------------------------------------------------------------------------------------
    def _new(self, s: S, i: int, h: H) -> Iterator[tuple[str, S]]:
        if i == 0 or s.h[i - 1].pc != "new":
            left = land(s.rows, born(RUNS[i], limited=True), 1)
            yield f"{RUNS[i]} starts", self._with(s, left, i, H("out"))

    def _out(self, s: S, i: int, h: H) -> Iterator[tuple[str, S]]:
        commit = verbs.claim(run_of(s.rows, RUNS[i]), worker=f"w{i}", now=NOW, claim_ms=SLICE)
        if commit is not None:
            left = land(s.rows, commit, 1)
            yield f"{RUNS[i]} is taken", self._with(s, left, i, h._replace(pc="looks", view=run_of(left.rows, RUNS[i])))

    def _looks(self, s: S, i: int, h: H) -> Iterator[tuple[str, S]]:
        """A turn of its holder begins: all rows are read again."""
        run, slot = run_of(s.rows, RUNS[i]), _slot(s.rows)
        h = h._replace(view=run, slot=slot, heir=None if slot.holder else self._heir(s.rows, slot))
        here = Landed(s.rows, "", 0, "")
        if not run.queue:
            yield f"{RUNS[i]} is in", self._with(s, here, i, h._replace(pc="works", slot=None, heir=None))
        elif self._cancelled(s.rows, run):
            yield (
                f"{RUNS[i]} reads that it was cancelled",
                self._with(s, here, i, h._replace(pc="works", slot=None, heir=None)),
            )
        else:
            yield f"{RUNS[i]} reads the slot: {slot.holder or 'free'}", self._with(s, here, i, h._replace(pc="decides"))

    def _decides(self, s: S, i: int, h: H) -> Iterator[tuple[str, S]]:
        assert h.view is not None and h.slot is not None
        name = RUNS[i]
        if not h.slot.holder and h.heir is not None and h.heir.run != name and self.looks_at_queue:
            writes, expects = hand_over([SlotChange(h.slot, h.heir)])
            left = land(s.rows, Commit(writes, expects=expects), 1)
            then = h._replace(pc="looks", slot=None, heir=None)
            yield (
                f"{name} leaves the free slot to {h.heir.run} ({left.refused or 'landed'})",
                self._with(s, left, i, then),
            )
            return
        if h.slot.holder in ("", name):
            commit = admit(h.view, [h.slot], now=NOW)
            commit = commit if self.slot_is_a_row else _without_slots(commit)
            left = land(s.rows, commit, 1)
            then = h._replace(pc="looks", slot=None, heir=None)
            err = "" if left.refused else _barged(s, i)
            yield f"{name} is admitted ({left.refused or 'landed'})", self._with(s, left, i, then, err=err)
            return
        commit = queue(h.view, [h.slot], now=NOW, mapping=MAPPING)
        left = land(s.rows, commit if self.sleep_names_slots else _without_slots(commit), 1)
        then = h._replace(pc="looks", slot=None) if left.refused else H("out", slept=True)
        yield f"{name} falls asleep ({left.refused or 'landed'})", self._with(s, left, i, then)

    def _works(self, s: S, i: int, h: H) -> Iterator[tuple[str, S]]:
        """It is about to end: the slots it holds, and the heir of each, are read."""
        slot = _slot(s.rows)
        mine = slot if slot.holder == RUNS[i] else None
        heir = self._heir(s.rows, slot) if mine else None
        then = h._replace(pc="ends", view=run_of(s.rows, RUNS[i]), slot=mine, heir=heir)
        word = f"the slot goes to {heir.run if heir else 'no run'}" if mine else "it holds no slot"
        yield f"{RUNS[i]} is about to end: {word}", self._with(s, Landed(s.rows, "", 0, ""), i, then)

    def _ends(self, s: S, i: int, h: H) -> Iterator[tuple[str, S]]:
        assert h.view is not None
        if self.ends_in_one:
            slot = _slot(s.rows)
            mine = slot.holder == RUNS[i]
            h = h._replace(slot=slot if mine else None, heir=self._heir(s.rows, slot) if mine else None)
        commit = verbs.finish(
            h.view, RunStatus.COMPLETED, inbox_seq=h.view.inbox_seq, state=b"{}", result=None, reason="", not_undone=(),
            approvals=(), slots=[SlotChange(h.slot, h.heir)] if h.slot else (), now=NOW,
        )  # fmt: skip
        left = land(s.rows, commit, 1)
        then = h._replace(pc="looks", slot=None, heir=None) if left.refused else H("over")
        yield f"{RUNS[i]} ends ({left.refused or 'landed'})", self._with(s, left, i, then)

    def _over(self, s: S, i: int, h: H) -> Iterator[tuple[str, S]]:
        yield from ()

    def _cancelled(self, rows: Rows, run: Run) -> bool:
        notes = [row for row in rows if isinstance(row, Message) and row.run == run.run]
        return cancel_of(notes) is not None

    def _heir(self, rows: Rows, slot: Slot) -> Run | None:
        """Return the run that gets the slot, as engine/slots chooses: the oldest queued run that holds none."""
        queued = [row for row in rows if isinstance(row, Run) and row.queue and row.run != slot.holder]
        if self.heirs == "sleepers only":
            queued = [row for row in queued if row.owner == "" and row.due_at is None]
        return min(queued, key=lambda row: row.run, default=None) if self.heirs != "none" else None


def _slot(rows: Rows) -> Slot:
    return next(row for row in rows if isinstance(row, Slot))


def _aged(copy: Slot, slot: Slot) -> Slot:
    return copy._replace(version=NEW if copy.version == slot.version else OLD)


def _heir_copy(copy: Run | None, rows: Rows) -> Run | None:
    return None if copy is None else seen_by(copy, run_of(rows, copy.run))


def _copies(h: H, rows: Rows, slot: Slot, name: str) -> H:
    view = None if h.view is None else seen_by(h.view, run_of(rows, name))
    return h._replace(view=view, slot=h.slot and _aged(h.slot, slot), heir=_heir_copy(h.heir, rows))


def _barged(s: S, i: int) -> str:
    """Name an older run that had to wait and was passed over."""
    for j, h in enumerate(s.h[:i]):
        if h.slept and h.pc != "over":
            return f"{RUNS[i]} was admitted before {RUNS[j]}, which came first"
    return ""


def _without_slots(commit: Commit) -> Commit:
    """The commit without the slot rows it writes or expects."""
    writes = tuple(w for w in commit.writes if not (isinstance(w, Put) and w.kind is SLOT))
    return commit._replace(writes=writes, expects=tuple(e for e in commit.expects if e.kind is not SLOT))


LARGE = (
    Variant("the rule, three runs and a cancel", Slots(cancels=1)),
    Variant(
        "no renewal, but the end reads the queue in its own commit, and a cancel",
        Slots(repairs=False, ends_in_one=True, cancels=1),
    ),
)
VARIANTS = (
    Variant("the rule: a free slot is left to the oldest, a renewal hands on what is unused", Slots()),
    Variant("the rule, with a cancel", Slots(runs=2, cancels=1)),
    Variant("a free slot is taken without a look at the queue", Slots(looks_at_queue=False), "which came first"),
    Variant("no renewal looks at this limit", Slots(repairs=False), "stuck"),
    Variant("no renewal, but the end reads the queue in its own commit", Slots(repairs=False, ends_in_one=True)),
    Variant("sleeping names no slot", Slots(repairs=False, ends_in_one=True, sleep_names_slots=False), "stuck"),
    Variant("the slot goes to sleepers only", Slots(heirs="sleepers only", looks_at_queue=False), "which came first"),
    Variant("the slot goes to no run", Slots(heirs="none", looks_at_queue=False, repairs=False), "which came first"),
    Variant("counted, then admitted", Slots(slot_is_a_row=False), "admitted:"),
)
