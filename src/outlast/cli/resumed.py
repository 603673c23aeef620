"""Watches a run go on after a decision: how long until a worker had it, and where it went."""

from typing import NamedTuple

from outlast.core.events import EventType
from outlast.core.rows import is_over
from outlast.runtime.clocks import SystemClock
from outlast.runtime.operations import Operations
from outlast.runtime.views import ENDINGS, TAKEN
from outlast.runtime.watch import until

WITHIN_S = 5.0  # the target for going on after a decision (REQ-G201)
MOVED = frozenset({EventType.CHECKPOINT, EventType.PARKED, EventType.FLAGGED, *ENDINGS})


class Resumed(NamedTuple):
    """Real milliseconds until a worker had the run, and what it did then: a node, or a status."""

    ms: int
    then: str


async def resumed(ops: Operations, run: str, seq: int) -> Resumed | None:
    """What the run did after event `seq`, waiting for it 5 s at most; None when nobody has taken it until then."""
    clock = SystemClock()
    asked = clock.mono()
    taken: list[int] = []

    async def look() -> str | None:
        events = await ops.history(run, after=seq)
        if not taken and any(e.type in TAKEN or e.type in MOVED for e in events):
            taken.append(clock.mono() - asked)
        return next((e.node for e in events if e.type in MOVED), None)

    if not await _serves(ops, run):
        return None
    then = await until(ops.store, look, within_s=WITHIN_S)
    if not taken:
        return None
    row = await ops.run(run)
    return Resumed(taken[0], row.status.upper() if is_over(row) else then or row.node)


async def _serves(ops: Operations, run: str) -> bool:
    return (await ops.run(run)).lane in await ops.serving()
