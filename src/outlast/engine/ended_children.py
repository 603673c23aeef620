"""Children that have ended, by the time that a node asks: a list that each re-run of the visit gets again (S-30).

The memo of the list lands before the node gets it. A child that ends later is in the list of a later question. Nothing
is lost in between: the row of a child keeps its outcome, and its message ends the wait of a parent that has parked.
"""

import json
from collections.abc import Sequence
from typing import Final

from outlast.core import effect_verbs
from outlast.core.children import CHILD_KIND
from outlast.core.failed_calls import EffectKey
from outlast.core.first_wait import ended_between
from outlast.core.rows.effect_rows import Effect, Memo
from outlast.core.rows.run_rows import Message
from outlast.engine.child_runs import opened, parked
from outlast.engine.held_run import HeldRun
from outlast.engine.node_execution import NodeExecution, Unresolved

ENDED: Final = "outlast.ended"
"""Name, in place of an activity, of the memos that list children which have ended."""


async def ended_children(
    execution: NodeExecution, key: str, children: Sequence[EffectKey], *, wait: bool
) -> list[EffectKey]:
    """Return those of these children that have ended, in the order of their ends. `key`: of the memo.

    With `wait`, the run parks until one of them has ended. Raises Unresolved.
    """
    held = execution.session.held
    if (known := _recorded(held, key)) is not None:
        return known
    rows = [await opened(execution, ident) for ident in children]
    ended = sorted((row for row in rows if row.settled_at), key=lambda row: place_of_end(row, held.messages))
    if wait and rows and not ended:
        for row in rows:
            execution.park(parked(row))
        raise Unresolved
    found = [(row.visit, row.key) for row in ended]
    await _record(execution, key, found)
    return found


def _recorded(held: HeldRun, key: str) -> list[EffectKey] | None:
    """Return the list that an earlier execution of the visit got; None if none did."""
    memo = held.memos.get((held.run.visit, key))
    return None if memo is None else [(visit, child) for visit, child in json.loads(memo.response or b"[]")]


async def _record(execution: NodeExecution, key: str, found: list[EffectKey]) -> None:
    if not execution.may_begin():
        raise Unresolved
    session, run = execution.session, execution.session.held.run
    response, now = json.dumps(found).encode(), session.clock.now.business
    memo = Memo(run.tenant, run.run, run.visit, key, ENDED, "", response, "", now)
    await session.chain.land(effect_verbs.remember(run, memo))


def place_of_end(row: Effect, messages: Sequence[Message]) -> tuple[float, int]:
    """Return the place of a child's end: the number of its message, else that of the last message before it.

    The message of an end is left out if the parent was due without an owner, which it read afterwards.
    """
    mine = [m.n for m in messages if m.kind == CHILD_KIND and m.name == row.key and m.actor == row.external_id]
    return mine[0] if mine else ended_between(row.settled_at, messages), row.ordinal
