"""Watches a run go on after a decision: how long until a worker had it, and where it went."""

from typing import NamedTuple

from outlast.cli.desk.port import Desk
from outlast.core.events import EventType
from outlast.core.machine import TERMINAL
from outlast.runtime.clocks import SystemClock
from outlast.runtime.views import ENDINGS, TAKEN

WITHIN_S = 5.0  # the target for going on after a decision (REQ-G201)
MOVED = frozenset({EventType.CHECKPOINT, EventType.PARKED, EventType.FLAGGED, *ENDINGS})


class Resumed(NamedTuple):
    """Real milliseconds until a worker had the run, and what it did then: a node, or a status."""

    ms: int
    then: str


async def resumed(desk: Desk, run: str, seq: int) -> Resumed | None:
    """What the run did after event `seq`, waiting for it 5 s at most; None when nobody has taken it until then."""
    clock = SystemClock()
    asked = clock.mono()
    taken: list[int] = []

    async def look() -> str | None:
        events = await desk.events(run, after=seq)
        if not taken and any(e["type"] in TAKEN or e["type"] in MOVED for e in events):
            taken.append(clock.mono() - asked)
        return next((str(e["data"]["node"]) for e in events if e["type"] in MOVED), None)

    if not (await desk.glance(run))["served"]:
        return None
    then = await desk.until(look, within_s=WITHIN_S)
    if not taken:
        return None
    view = await desk.glance(run)
    return Resumed(taken[0], view["status"].upper() if view["status"] in TERMINAL else then or view["node"])
