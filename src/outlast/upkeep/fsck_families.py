"""Checks of parents and children: each row of a child has its run, and each child its place (S-30)."""

from collections.abc import Mapping, Sequence

from outlast.core import children
from outlast.core.keys import tree_of_key
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT, USAGE, Effect, Usage
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.upkeep.fsck_checks import Violations, violation


def child_living(calls: Sequence[Effect], runs: Mapping[str, Run], root: Run | None) -> Violations:
    """Check that each row of a child has its run, and that a row without an outcome has a living one.

    The last commit of a child settles its row. `root`: of the tree. While it lives, only a run goes that a
    window has passed (S-32); `calls` has no row of such a child.
    """
    for call in calls:
        run, is_open = runs.get(call.external_id), call.status is EffectStatus.INTENDED
        if run is None:
            if is_open:
                yield violation(EFFECT, call, f"its run {call.external_id} does not exist, and its row has no outcome")
            elif root is not None and not is_over(root):
                yield violation(
                    EFFECT, call, f"its run {call.external_id} does not exist, and {root.run} has not ended"
                )
        elif is_open and is_over(run):
            yield violation(EFFECT, call, f"its run {call.external_id} has ended, and its row has no outcome")
        elif (run.parent, children.place_of(run)) != (call.run, (call.visit, call.key)):
            yield violation(EFFECT, call, f"its run {call.external_id} was started by {run.parent} as {run.called_as}")


def root_known(run: Run, *, exists: bool) -> Violations:
    """Check that the root of a child is stored, because a purge deletes a tree from its root, and that one last."""
    if not exists:
        yield violation(RUN, run, f"its root {run.root} does not exist, so no purge deletes it")


def child_placed(run: Run, parent: Run | None, call: Effect | None, *, purged: bool) -> Violations:
    """Check that a child agrees with its parent and with its row there, as far as they exist.

    `purged`: the ledger of the parent was deleted, or a map there has counted the child. A row has one run per attempt,
    because the id of a run is a digest of its parent, its place and the number of the attempt.
    """
    if parent is None:
        return
    root, depth = parent.root or parent.run, parent.depth + 1
    if (run.root, run.depth) != (root, depth):
        yield violation(RUN, run, f"of the tree of {run.root} at depth {run.depth}; its parent says {root} and {depth}")
    if call is None or not call.child_text:
        if not purged:
            yield violation(RUN, run, f"the ledger of {parent.run} has no child at {run.called_as}")
        return
    if run.run not in children.runs_of(call):
        yield violation(RUN, run, f"the row at {run.called_as} of {parent.run} names {call.external_id}")
    elif is_over(run) or (call.child.detached and call.external_id == run.run):
        return
    elif call.status is not EffectStatus.INTENDED or call.external_id != run.run:
        yield violation(RUN, run, f"it has not ended, and its row in {parent.run} is {call.status.value}")
    elif is_over(parent) and call.child.close != "abandon":
        yield violation(RUN, run, f"it has not ended, and its parent {parent.run} has")


def used_in_tree(usage: Usage, run: Run | None, root: Run | None) -> Violations:
    """Check that a run names no call once per root of another tree (S-18). `root`: the root of the run.

    A fork and the runs below it name the calls of the tree that it was forked from.
    """
    tree = tree_of_key(usage.key)
    if not tree or run is None or root is None or root.forked_from:
        return
    if root.run != tree:
        yield violation(USAGE, usage, f"{usage.run} is of the tree of {root.run} and used a call of that of {tree}")
