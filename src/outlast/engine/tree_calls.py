"""Calls once per root: the runs of a tree share the row of each, by the rules of calls once per tenant (S-18)."""

from typing import Any

from outlast.core.forks import terms_in
from outlast.core.keys import OncePer, tree_key
from outlast.core.rows.run_rows import EVENT, RUN
from outlast.engine.node_execution import NodeExecution
from outlast.engine.run_session import RunSession
from outlast.flow.activity import Activity, BoundCall


def scope_of(session: RunSession, activity: Activity[Any, Any]) -> OncePer:
    """Return how far the keys of an activity count in a run."""
    return activity.once_per_in_child if session.held.run.root else activity.once_per


async def call_in_tree(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall
) -> tuple[Activity[Any, Any], BoundCall]:
    """Return a call once per root as the tree shares it. Raises StoreError."""
    shared = call._replace(key=tree_key(await tree_of(execution.session), call.key))
    execution.count_as(f"{activity.name}?{shared.key}")
    return activity.for_tree(), shared


async def tree_of(session: RunSession) -> str:
    """Return the run that names the tree of a run: its root, or the tree of the ancestor from which that was forked.

    A fork shares the calls of its lineage (S-28), so its tree does. Raises StoreError.
    """
    held = session.held
    if not held.tree:
        held.use_tree(await _read(session))
    return held.tree


async def _read(session: RunSession) -> str:
    held, store, tenant = session.held, session.store, session.held.run.tenant
    if not held.run.root and held.fork is None:
        return held.run.run
    root = held.run.root or held.run.run
    while True:
        first = await store.load(EVENT, (tenant, root, 1))
        terms = terms_in(first) if first is not None else None
        if terms is None:
            return root
        ancestor = await store.load(RUN, (tenant, terms.root))
        root = (ancestor.root if ancestor is not None else "") or terms.root
