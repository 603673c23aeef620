"""Budgets before each call: of the run, of its tree, and of its tenant for each day (RUN-10, RUN-13).

Theory of operation. A budget is compared with the sum of usage rows, so the sum is right after every crash. A run below
a root compares the limits that it was started with. If they are used up, it parks, and the same commit sends the root
a message. The holder of the root answers each such run: it lets the run look again, or it asks a person, once for all.
Faults, and why no run waits without an end:

1. *A person raises the budget as a run parks.* The message of the run comes after the raise, so the root reads both.
2. *The holder of the root dies before it has answered all.* The runs still wait, and the next holder finds them by
   their messages. A run that gets two answers looks again and parks again.
3. *The sum of the root lags* (DynamoDB). The run looks again, parks again, and asks again.
4. *The root ends.* No person can raise its budget then, so it limits no run any more. Its abandoned runs find this at
   their next look, after an hour at most. A park that would ask an ended root is refused.
"""

from collections.abc import Iterable

from outlast.core.budget import (
    Spending,
    Spent,
    TreeSpending,
    asked_by,
    exhausted,
    flagged_for_tree,
    limits_waited_for,
    look_again_below,
    raises_of,
    spent_of_tree,
    waiting_for_tree,
    waits_for_tree,
)
from outlast.core.commit import Expect
from outlast.core.conclude import Parked
from outlast.core.limits import DESCENDANTS_MAX
from outlast.core.rows.limit_rows import TENANT_BUDGET
from outlast.core.rows.run_columns import Attention, Timer
from outlast.core.rows.run_rows import MESSAGE, RUN, Message, Run, is_over
from outlast.core.usage import NO_LIMITS, NOTHING_USED, day_of
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.run_session import RunSession
from outlast.store.port import Store
from outlast.store.queries import RunsBelow
from outlast.store.usage_sums import TenantDayUsage


async def check_budget(execution: NodeExecution, activity: str) -> None:
    """Park the run if its budget, that of its tree, or the daily budget of its tenant is used up.

    Raises Unresolved, StoreError.
    """
    if execution.closing and not execution.may_begin():
        raise Unresolved
    if (spent := await spent_budget(execution, activity)) is not None:
        execution.out_of_budget(*spent)
        raise Unresolved
    if over := await spent_in_tree(execution):
        run, now = execution.session.held.run, execution.session.clock.now
        waiting = waiting_for_tree(run, over, now)
        execution.park(Parked("park", waiting, Timer(waiting.kind, waiting.until)))
        raise Unresolved
    if execution.closing and not execution.may_begin():
        raise Unresolved


async def is_covered(execution: NodeExecution, activity: str) -> bool:
    """Return True if no budget of the run, its tree or its tenant is used up. Raises StoreError."""
    return await spent_budget(execution, activity) is None and not await spent_in_tree(execution)


async def spent_budget(execution: NodeExecution, activity: str) -> tuple[Attention, tuple[Expect, ...]] | None:
    """Return the reason to ask a person because a budget is used up, and the rows that say so; None if money is left.

    The budget of a run stops each new call. If it is the root of a tree, it is compared with the usage of the tree. The
    budget of a tenant stops the activities that have reported usage on the same day, so that runs which cost nothing go
    on. Raises StoreError.
    """
    session, budget = execution.session, execution.workflow.budget
    run, now = session.held.run, session.clock.now
    row = await execution.services.budgets.of(run.tenant)
    used = NOTHING_USED
    if budget is not None:
        is_top = session.held.has_children and not run.root
        used = await session.used_in_tree() if is_top else await session.used()
    limits, day_used = NO_LIMITS, NOTHING_USED
    if row is not None:
        found = await session.store.query(TenantDayUsage(run.tenant, day_of(now.business), activity))
        limits, day_used = (row.limits if found.reports else NO_LIMITS), found.amounts
    spending = Spending(execution.own_limits.of_calls, used, limits, day_used)
    reason = exhausted(spending, run, session.held.messages, seen=session.held.inbox_read, now=now)
    if reason is None:
        return None
    return reason, () if row is None else (Expect(TENANT_BUDGET, (row.tenant, row.key), row.version),)


async def spent_in_tree(execution: NodeExecution) -> tuple[Spent, ...]:
    """Return the limits of the root's budget that the tree of the run has used up. Raises StoreError.

    The root is read only if a limit is met without its raises. A root that has ended limits no run, because no person
    can raise its budget.
    """
    session, run = execution.session, execution.session.held.run
    limits = run.descent.budget.of_calls if run.root else NO_LIMITS
    if limits == NO_LIMITS:
        return ()
    spending, now = TreeSpending(await session.used_in_tree(), run.root_created_at), session.clock.now
    if not spent_of_tree(limits, spending, now):
        return ()
    root = await session.store.load(RUN, (run.tenant, run.root))
    if root is None or is_over(root):
        return ()
    raises = raises_of(await session.store.rows(MESSAGE, (run.tenant, run.root)))
    return spent_of_tree(limits, spending._replace(raises=raises), now)


async def waiting_below(store: Store, root: Run, messages: Iterable[Message]) -> list[Run]:
    """Return the runs below a root that wait for its budget. `messages`: of the root. Raises StoreError."""
    if not (asked := asked_by(messages)):
        return []
    rows = await store.load_many(RUN, [(root.tenant, each) for each in asked], listed=True)
    return [run for run in rows if run is not None and waits_for_tree(run) == root.run]


async def answer_tree(session: RunSession) -> Attention | None:
    """Let the runs below a root that wait for its budget go on; return the reason to ask a person if some must wait.

    Each run is compared with the limits that it was started with. Raises StoreError, RunLost, ConditionFailed.
    """
    held, now = session.held, session.clock.now
    if not (waiting := await waiting_below(session.store, held.run, held.messages)):
        return None
    spending = TreeSpending(await session.used_in_tree(), held.run.created_at, raises_of(held.messages))
    limits = {run.run: limits_waited_for(run) for run in waiting}
    if any(each.children is not None for each in limits.values()):
        below = await session.store.query(RunsBelow(held.run.tenant, held.run.run, DESCENDANTS_MAX))
        spending = spending._replace(used=spending.used._replace(children=below))
    still = [(run, over) for run in waiting if (over := spent_of_tree(limits[run.run], spending, now))]
    kept = {run.run for run, _ in still}
    for commit in look_again_below(held.run, [run for run in waiting if run.run not in kept]):
        await session.chain.land(commit)
    if not still:
        return None
    return flagged_for_tree(held.run, still[0][1], len(still), seen=held.inbox_read, now=now)
