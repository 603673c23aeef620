"""S-6 with child runs: one slot, two tenants, trees of depth 3, and runs that begin at any time.

A parent starts its children, gives its slot back while one of them lives, and needs a slot again to complete. A holder
reads and commits in one step here, because `s06_slots` has the races between the two.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from outlast.core import verbs
from outlast.core.children import returning
from outlast.core.commit import Commit, append_to_inbox
from outlast.core.machine import RunStatus
from outlast.core.rows.limit_rows import Slot
from outlast.core.rows.run_columns import Descent, WaitingFor
from outlast.core.rows.run_rows import Run, is_due, is_over, queue_order
from outlast.core.rows.store_rows import STORE
from outlast.core.run_transition import SlotChange, admit, fence, hand_over, queue
from outlast.core.verbs import AT_TOP, NewRun, TreePlace
from tests.models.explore import Variant
from tests.models.world import LANE, MAPPING, NEW, SLICE, SLICE_END, Rows, at, land, renumbered

NOW = at(9)
FREE = Slot(STORE, 0, 1, "", "")
CHAIN = (("t/d", ("t/c",)), ("t/c", ("t/b",)), ("t/b", ("t/a",)))
"""Children of each run. A child sorts before its parent, so that no name helps."""
PAIR = (("t/d", ("t/b", "t/c")),)
THREE = (("t/d", ("t/a", "t/b", "t/c")),)


class S(NamedTuple):
    """The world."""

    rows: Rows
    err: str = ""


@dataclass(frozen=True)
class Trees:
    """The rule, or the rule with a safeguard removed."""

    roots: tuple[str, ...] = ("t/d", "u/x", "u/y")  # in the order of their starts
    children: tuple[tuple[str, tuple[str, ...]], ...] = CHAIN
    order: Literal["root", "own creation", "root without depth"] = "root"
    gives_back: bool = True  # while it waits for a child
    counts_parent: bool = True  # when its child ends, although it is not in the queue yet

    def first(self) -> tuple[S, ...]:
        return (S((FREE,)),)

    def good(self, s: S) -> bool:
        return all((run := _run(s.rows, name)) is not None and is_over(run) for name in self.roots)

    def bad(self, s: S) -> str:
        return s.err

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        name = next((root for root in self.roots if _run(s.rows, root) is None), None)
        if name is not None:
            yield f"{name} starts", self._land(s, _start(s.rows, name, AT_TOP))
        if not _slot(s.rows).holder and (heir := self._heir(s.rows)) is not None:
            yield f"a renewal gives the slot to {heir.run}", self._land(s, self._handed(s.rows))
        for run in _runs(s.rows):
            if run.owner == "w":
                yield from self._holds(s, run)
            elif not is_over(run) and is_due(run, NOW.real):
                claimed = verbs.claim(run, worker="w", now=NOW, claim_ms=SLICE)
                assert claimed is not None
                yield f"{run.run} is taken", self._land(s, claimed)

    def _holds(self, s: S, run: Run) -> Iterator[tuple[str, S]]:
        slot, mine = _slot(s.rows), bool(run.slots)
        if not mine:
            heir = self._heir(s.rows, run)
            if slot.holder == run.run or (not slot.holder and heir is run):
                yield f"{run.run} is admitted", self._land(s, admit(run, [slot], now=NOW))
            elif not slot.holder:
                yield f"{run.run} leaves the slot", self._land(s, self._handed(s.rows))
            else:
                yield f"{run.run} waits for a slot", self._land(s, queue(run, [slot], now=NOW, mapping=MAPPING))
            return
        names = dict(self.children).get(run.run, ())
        new = next((name for name in names if _run(s.rows, name) is None), None)
        freed = [SlotChange(slot, self._heir(s.rows))]
        if new is not None:
            place = TreePlace(run.root or run.run, run.root_created_at, run.depth + 1, Descent(run.run, f"0:{new}"))
            started = _start(s.rows, new, place)
            yield f"{run.run} starts {new}", self._land(s, started._replace(fence=fence(run)))
        elif living := [name for name in names if not is_over(_known(s.rows, name))]:
            waiting = [WaitingFor("child", "c", who=name) for name in living]
            parked = verbs.park(
                run, "park", inbox_seq=run.inbox_seq, waiting=waiting, timers=(), now=NOW, mapping=MAPPING,
                freed=freed if self.gives_back else (),
            )  # fmt: skip
            yield f"{run.run} waits for a child", self._land(s, parked)
        else:
            parent = returning(_run(s.rows, run.parent), run)
            freed = [SlotChange(slot, self._heir(s.rows, parent if self.counts_parent else None))]
            yield f"{run.run} ends", self._land(s, _finish(s.rows, run, freed), parent)

    # --- the queue -------------------------------------------------------------------------------------
    def _heir(self, rows: Rows, beside: Run | None = None) -> Run | None:
        """Return the run that gets the free slot. `beside`: a run that needs one and is not in the queue."""
        waiting = [run for run in _runs(rows) if (run.queue or run is beside) and not run.slots]
        return min(waiting, key=self._key, default=None)

    def _key(self, run: Run) -> tuple[object, ...]:
        if self.order == "own creation":
            return run.created_at, run.tenant, run.run
        if self.order == "root without depth":
            return run.root_created_at, run.tenant, run.run
        return queue_order(run)

    def _handed(self, rows: Rows) -> Commit:
        writes, expects = hand_over([SlotChange(_slot(rows), self._heir(rows))])
        return Commit(writes, expects=expects)

    # --- rows ------------------------------------------------------------------------------------------
    def _land(self, s: S, commit: Commit, parent: Run | None = None) -> S:
        left = land(s.rows, commit, NOW.real)
        assert not left.refused, left.refused
        rows = tuple(
            renumbered(row)._replace(inbox_seq=1, status=_plain(row.status), waiting_for_text=row.waiting_for_text)
            if isinstance(row, Run)
            else row._replace(version=NEW)
            if isinstance(row, Slot)
            else row
            for row in left.rows
            if isinstance(row, Run | Slot)
        )
        return S(rows, s.err or left.broke or self._passed_over(s.rows, rows, parent))

    def _passed_over(self, before: Rows, rows: Rows, parent: Run | None) -> str:
        """Name a run that should have had the slot before the one that got it. `parent`: of a child that ends."""
        holder = _slot(rows).holder
        if not holder or holder == _slot(before).holder:
            return ""
        got = _run(before, holder)
        assert got is not None
        waiting = [run for run in _runs(before) if (run.queue or run is parent) and not run.slots]
        older = [run for run in waiting if queue_order(run) < queue_order(got)]
        return f"{holder} got the slot, and {older[0].run} was passed over" if older else ""


def _start(rows: Rows, name: str, place: TreePlace) -> Commit:
    now = at(1 + len(_runs(rows)))
    tenant = name.partition("/")[0]
    new = NewRun(tenant, name, "w", LANE, "a", "", b"{}", now.business + SLICE_END, "tester", place=place)
    return verbs.start(new, now, limited=True)


def _finish(rows: Rows, run: Run, freed: list[SlotChange]) -> Commit:
    commit = verbs.finish(
        run, RunStatus.COMPLETED, inbox_seq=run.inbox_seq, state=b"{}", result=None, reason="", not_undone=(),
        approvals=(), slots=freed, now=NOW,
    )  # fmt: skip
    parent = _run(rows, run.parent)
    if parent is None or is_due(parent, NOW.real):
        return commit
    return commit._replace(writes=(*commit.writes, append_to_inbox(run.tenant, run.parent, "child", run.run, "")))


def _plain(status: RunStatus) -> RunStatus:
    return RunStatus.RUNNING if status is RunStatus.RECOVERING else status


def _slot(rows: Rows) -> Slot:
    return next(row for row in rows if isinstance(row, Slot))


def _runs(rows: Rows) -> list[Run]:
    return [row for row in rows if isinstance(row, Run)]


def _known(rows: Rows, name: str) -> Run:
    run = _run(rows, name)
    assert run is not None
    return run


def _run(rows: Rows, name: str) -> Run | None:
    return next((run for run in _runs(rows) if run.run == name), None)


PASSED_OVER = "was passed over"
VARIANTS = (
    Variant("as built, a tree of depth 3 and two runs of another tenant", Trees()),
    Variant("as built, two trees and a run between them", Trees(("t/d", "u/x", "u/z"), (*PAIR, ("u/z", ("u/y",))))),
    Variant("as built, a parent of three children", Trees(("t/d", "u/x"), THREE)),
    Variant("runs get slots by their own creation", Trees(order="own creation"), PASSED_OVER),
    Variant("a child may go before its parent", Trees(("t/d",), THREE, order="root without depth"), PASSED_OVER),
    Variant("a parent is counted once it has queued", Trees(counts_parent=False), PASSED_OVER),
    Variant("a parent keeps its slot while it waits for a child", Trees(gives_back=False), "stuck"),
)
