"""What the ledger says of an effect that was refused or is in doubt, and the reasons to stop a walk for it."""

import json

from outlast.core.budget import HOLD_LOOK_AGAIN
from outlast.core.commit import Mapping
from outlast.core.machine import EffectStatus, Reason
from outlast.core.overlay import Armed, Attention, WaitingFor
from outlast.core.people import REOPENED
from outlast.core.rows import Effect, Hold
from outlast.engine.node_result import Parked
from outlast.engine.pauses import waiting_for
from outlast.engine.run_session import EffectKey, RunSession
from outlast.flow.outcomes import ActivityFailed, Refusal


class EffectRefused(ActivityFailed):
    """The refusal of one effect, which it names."""

    def __init__(self, refusal: Refusal, ident: EffectKey) -> None:
        super().__init__(refusal)
        self.ident = ident


def is_reopened(effect: Effect) -> bool:
    """Did a person say that it did not happen, or to try again?"""
    return effect.status is EffectStatus.REFUSED and refusal_of(effect).code == REOPENED


def refusal_of(effect: Effect) -> Refusal:
    """The recorded no of an effect."""
    error = json.loads(effect.error) if effect.error else {"code": EffectStatus.REFUSED.value, "detail": ""}
    return Refusal(error["code"], error["detail"])


def uncertain(session: RunSession, effect: Effect) -> Attention:
    """The reason to call a person: it may have happened."""
    error = refusal_of(effect)
    return attention(session, Reason.EFFECT_UNCERTAIN, f"{error.code}: {error.detail}", effect)


def attention(session: RunSession, reason: Reason, detail: str, effect: Effect | None = None) -> Attention:
    """An entry of the attention set, from now on; only messages the walk has not read can answer it."""
    key, visit = (effect.key, effect.visit) if effect else ("", 0)
    return Attention(reason, session.now.business, detail, key, visit, seen=session.inbox_read)


def held_up(hold: Hold, now_real: int) -> Parked:
    """Waiting for a release: it makes the run due; one that was missed is found by looking again."""
    return Parked("park", waiting_for(hold), Armed(hold.key, now_real + HOLD_LOOK_AGAIN, real=True))


def paused(hold: Hold, at_real: int, mapping: Mapping) -> Parked:
    """Waiting until one may try, or until another has: `at_real` is when this run looks again by itself."""
    then = "one run tries whether it answers; the others go on when it does"
    waiting = WaitingFor(
        "hold", f"{hold.key}: {hold.reason}", hold.by, hold.since, mapping.business(hold.again_at), then
    )
    return Parked("park", waiting, Armed(hold.key, at_real, real=True))
