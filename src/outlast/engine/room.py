"""Room under a limit for one call of a walk: there is some, it is waited for, or the run parks for it."""

from typing import Any

from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.rate_limit import CallSlot, at_the_limit
from outlast.flow.callee import Callee


async def room(walk: NodeExecution, callee: Callee) -> CallSlot | None:
    """The right to make one call, to be left when it has ended; None where there is no limit.

    Raises Unresolved when the run parks: a call waits as long as any wait in a visit does (S-17), then visibly.
    """
    limit = callee.limit
    if limit is None:
        return None
    name = limit_name(callee)
    throttle = walk.around.throttle
    place = await throttle.enter(name, limit)
    if place is None:
        now, mapping = walk.ledger.now, walk.ledger.store.mapping()
        waiting, at_real = throttle.wait(name, limit, now.real)
        walk.park(at_the_limit(waiting, at_real, now.business, mapping.business(at_real)))
        raise Unresolved
    return place


def limit_name(callee: Any) -> str:
    """What is counted together: the calls of one provider, or those of the activity alone."""
    shared = callee.provider != callee.name
    return f"provider/{callee.provider}" if shared else f"activity/{callee.name}"
