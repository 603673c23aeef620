"""Budgets before each start of a child run: of the run, and of the root of its tree (RUN-13).

Theory of operation. The runs below a root are counted by an index before each start under such a budget, and a run adds
those that it starts itself. Faults, and why they do no harm:

1. *Several starts of one run pass at once.* `StartRoom.left` and the count of a start have no await between them, so
   the second one sees the first.
2. *Two runs of a tree start at once.* The index has neither, so a tree may exceed its limit by one start for each run
   that starts at this moment.
3. *A start is refused after it was counted.* The run counts one too many until its next claim: it starts less, and a
   person or the next claim lets it go on.
"""

from typing import NamedTuple

from outlast.core.budget import (
    Spent,
    raised,
    raises_of,
    refused_start,
    total_of,
    used_up,
    waiting_for_tree,
)
from outlast.core.conclude import Parked
from outlast.core.limits import DESCENDANTS_MAX
from outlast.core.rows.run_columns import Timer
from outlast.core.rows.run_rows import MESSAGE, RUN, is_over
from outlast.core.usage import NO_LIMITS
from outlast.engine.held_run import HeldRun
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.store.queries import RunsBelow


class StartRoom(NamedTuple):
    """Limits of the children that a run may start, raises included. None: no limit."""

    own: int | None
    tree: int | None

    def left(self, held: HeldRun) -> int:
        """Return the number of children that the run may start now."""
        return min(limit - used for limit, used in self._pairs(held) if limit is not None)

    def over(self, held: HeldRun) -> tuple[bool, Spent]:
        """Return the limit that leaves nothing, and whether it is that of the tree."""
        (own, used), (tree, below) = self._pairs(held)
        if own is not None and used >= own:
            return False, Spent("children", used, own)
        assert tree is not None
        return True, Spent("children", below, tree)

    def _pairs(self, held: HeldRun) -> tuple[tuple[int | None, int], tuple[int | None, int]]:
        own = held.below_root if not held.run.root else held.started_children()
        return (self.own, own), (self.tree, held.below_root)


async def start_room(execution: NodeExecution) -> StartRoom | None:
    """Return how many children a run may start; None without a limit. Raises StoreError."""
    session, held = execution.session, execution.session.held
    run = held.run
    own = execution.own_limits.of_starts
    tree = run.descent.budget.of_starts if run.root else NO_LIMITS
    if own == tree == NO_LIMITS:
        return None
    below = await session.store.query(RunsBelow(run.tenant, run.root or run.run, DESCENDANTS_MAX))
    held.count_below_root(max(below, held.below_root))
    own = raised(own, total_of(raises_of(held.messages)))
    if tree.children is not None and held.below_root >= tree.children:
        root = await session.store.load(RUN, (run.tenant, run.root))
        if root is None or is_over(root):  # no person can raise its budget, so it limits no run
            tree = NO_LIMITS
        else:
            tree = raised(tree, total_of(raises_of(await session.store.rows(MESSAGE, (run.tenant, run.root)))))
    found = StartRoom(own.children, tree.children)
    return None if found == (None, None) else found


def check_room_left(execution: NodeExecution, room: StartRoom | None, *, proposed: bool) -> int:
    """Return the number of children that a run may start now, at least one; -1 without a limit.

    If none is left, the run parks as for any budget. A start that a model has `proposed` is refused instead. Raises
    LimitExceeded, Unresolved.
    """
    held, now = execution.session.held, execution.session.clock.now
    if room is None:
        return -1
    if (left := room.left(held)) > 0:
        return left
    of_tree, spent = room.over(held)
    if proposed:
        raise refused_start(held.run, spent, held.run.root if of_tree else held.run.run)
    if of_tree:
        waiting = waiting_for_tree(held.run, (spent,), now)
        execution.park(Parked("park", waiting, Timer(waiting.kind, waiting.until)))
    else:
        execution.out_of_budget(used_up(spent, seen=held.inbox_read, now=now), ())
    raise Unresolved
