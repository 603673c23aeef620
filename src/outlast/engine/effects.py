"""Writes of a walk: answered from the ledger if they were made before, else made now (S-17)."""

from typing import Any

from outlast.core.machine import EffectStatus, Reason
from outlast.core.overlay import Attention
from outlast.core.rows import Effect
from outlast.engine.reasons import EffectRefused, attention, is_reopened, refusal_of, uncertain
from outlast.engine.walk import Walk
from outlast.engine.write import Write
from outlast.flow.activity import Activity, BoundCall


async def perform(walk: Walk, activity: Activity[Any, Any], call: BoundCall) -> Any:
    """The answer of a write in this walk: recorded, or made now. Raises ActivityFailed for a recorded no."""
    walk.stir()
    if walk.closing:
        await walk.hang()
    visit = walk.ledger.run.visit if activity.scope == "visit" else 0
    ident = (visit, call.key)
    effect = walk.ledger.effects.get(ident)
    if effect is not None and effect.digest != call.digest:
        walk.call_person(_conflict(walk, effect, activity))
        await walk.hang()
    if walk.begun.setdefault(ident, call.digest) != call.digest:
        detail = f"key {call.key} is under way; now {activity.name} asks for it with other arguments"
        walk.call_person(attention(walk, Reason.CONTRADICTION, detail))
        await walk.hang()
    if effect is None or effect.status is EffectStatus.INTENDED or is_reopened(effect):
        return await walk.share(ident, lambda: Write(walk, activity, call, ident).drive())
    if effect.status is EffectStatus.DONE:
        return activity.response_codec.load(effect.response or b"null")
    if effect.status is EffectStatus.UNCERTAIN:
        walk.call_person(uncertain(walk, effect))
        await walk.hang()
    raise EffectRefused(refusal_of(effect), ident)


def _conflict(walk: Walk, effect: Effect, activity: Activity[Any, Any]) -> Attention:
    detail = (
        f"key {effect.key} is recorded for {effect.activity} with {effect.args.decode()[:200]}; "
        f"now {activity.name} asks for it with other arguments"
    )
    return attention(walk, Reason.CONTRADICTION, detail, effect)
