"""Writes of a walk: answered from the ledger if they were made before, else made now (S-17)."""

from typing import Any

from outlast.core.machine import EffectStatus
from outlast.engine.conflict import contradiction, recorded_call, under_way, uses_recorded
from outlast.engine.reasons import EffectRefused, is_reopened, refusal_of, uncertain
from outlast.engine.shared import answer
from outlast.engine.transactions import write_of
from outlast.engine.walk import NodeExecution
from outlast.flow.activity import Activity, BoundCall


async def perform(walk: NodeExecution, activity: Activity[Any, Any], call: BoundCall) -> Any:
    """The answer of a write in this walk: recorded, or made now. Raises ActivityFailed for a recorded no."""
    walk.stir()
    if walk.closing:
        await walk.hang()
    visit = walk.ledger.run.visit if activity.scope == "visit" else 0
    ident = (visit, call.key)
    effect = walk.ledger.effects.get(ident)
    if effect is not None and effect.digest != call.digest:
        if effect.activity != activity.name or not uses_recorded(walk, ident, call.digest):
            walk.call_person(contradiction(walk, activity, call, effect))
            await walk.hang()
        call = recorded_call(activity, effect)
    first = walk.begun.setdefault(ident, call.digest)
    if first != call.digest and not (ident in walk.flights and uses_recorded(walk, ident, call.digest)):
        walk.call_person(under_way(walk, activity, call, ident))
        await walk.hang()
    make = write_of(walk, activity, call, ident)
    if activity.scope == "tenant" and (effect is None or effect.status is EffectStatus.UNDONE):
        return await walk.share(ident, lambda: answer(walk, activity, call, make))
    if effect is None or effect.status is EffectStatus.INTENDED or is_reopened(effect):
        return await walk.share(ident, lambda: make().drive())
    if effect.status is EffectStatus.DONE:
        return activity.response_codec.load(effect.response or b"null")
    if effect.status is EffectStatus.UNCERTAIN:
        walk.call_person(uncertain(walk, effect))
        await walk.hang()
    raise EffectRefused(refusal_of(effect), ident)
