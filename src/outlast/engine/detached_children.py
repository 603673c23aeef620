"""Detach a child run from its parent, for an operator: the parent goes on, and the child keeps its attention (S-30)."""

from outlast.core import children
from outlast.core.acts import KeyedAct
from outlast.core.commit import Commit, Expect, Instant
from outlast.core.keys import check_given_reason
from outlast.core.rows.effect_columns import DETACHED
from outlast.core.rows.map_rows import MAP_OUTCOME
from outlast.core.rows.row_kind import Key, key_of
from outlast.core.rows.run_rows import Run
from outlast.engine.child_runs import parent_rows
from outlast.engine.commands import Once, check_seen, find_run, land, nothing
from outlast.errors import Conflict
from outlast.store.port import Store


async def detach(
    store: Store,
    *,
    tenant: str,
    run: str,
    actor: str,
    reason: str,
    seen: Expect | None = None,
    act: KeyedAct | None = None,
) -> None:
    """Let the parent of a child go on without it. Again changes nothing.

    Raises NotFound, InvalidInput, Conflict (ended, moved; it is no child, or holds up no run).
    """
    check_given_reason("a detach", "it appears in the history of the parent", reason)

    async def decide(now: Instant) -> tuple[Commit, None]:
        child = await find_run(store, tenant, run)
        check_seen(seen, child)
        parent = await parent_rows(store, child) if child.parent else children.NO_PARENT
        return children.detach(child, parent, actor=actor, reason=reason, now=now), None

    try:
        await land(store, f"run {run}", decide, seen=seen, once=Once(act, run, nothing))
    except Conflict as error:
        if error.refusal != DETACHED:
            raise


async def is_counted_detached(store: Store, child: Run) -> bool:
    """Return True if a map of its parent has counted a child because it was detached. Its row is gone then (S-31)."""
    after: Key = ()
    while page := await store.rows(MAP_OUTCOME, (child.tenant, child.parent, children.place_of(child)[0]), after=after):
        if any(row.child == child.run and row.is_detached for row in page):
            return True
        after = key_of(MAP_OUTCOME, page[-1])
    return False
