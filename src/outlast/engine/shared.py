"""Effects that all runs of a tenant share: whose work it is, who waits for it, who takes its answer (S-18)."""

from collections.abc import Callable
from typing import Any

from outlast.core import sharing
from outlast.core.budget import SHARED_LOOK_AGAIN
from outlast.core.commit import Commit, Instant
from outlast.core.ledger import Intent
from outlast.core.machine import EffectStatus
from outlast.core.overlay import Armed, WaitingFor
from outlast.core.rows import EFFECT, USED, Effect
from outlast.engine.conflict import contradiction, uses_recorded
from outlast.engine.inquiry import millis
from outlast.engine.permission import Permission
from outlast.engine.reasons import EffectRefused, is_reopened, refusal_of
from outlast.engine.verdict import Parked
from outlast.engine.walk import NodeExecution, Unresolved
from outlast.engine.write import EffectExecutor
from outlast.flow.activity import Activity, BoundCall


class SharedExecutor(EffectExecutor):
    """A write of scope `tenant`: this run's to make and to settle, and every run's to use."""

    def _previous(self) -> Effect | None:
        return self.ledger.effects.get(self.ident) or self.ledger.others.get(self.call.key)

    async def _allowed(self, previous: Effect | None) -> Permission | None:
        """What was approved for another run's attempt, or for work that was undone, covers nothing here."""
        return await super()._allowed(sharing.goes_on(previous, self.ledger.run))

    def _intended(
        self, what: Intent, previous: Effect | None, allowed: Permission, ordinal: int, now: Instant
    ) -> Commit:
        assert isinstance(self.callee, Activity)
        keep, noted = self.callee.keep, self.call.key in self.ledger.noted
        what = what._replace(shared=True, keep_ms=millis(keep) if keep else 0, noted=noted)
        if previous is not None and sharing.goes_on(previous, self.ledger.run) is None:
            ordinal = self.ledger.next_ordinal()
        return super()._intended(what, previous, allowed, ordinal, now)


async def answer(
    walk: NodeExecution, activity: Activity[Any, Any], call: BoundCall, make: Callable[[], EffectExecutor]
) -> Any:
    """The answer of a shared write that this run has not made itself: another run's, or made now by `make`.

    Raises ActivityFailed for a recorded no, Unresolved where this walk gives no answer.
    """
    ledger = walk.ledger
    effect = ledger.others.get(call.key)
    if effect is None or effect.shared != USED or call.key not in ledger.noted:  # else it was used by this run before
        effect = await _look(walk, call.key)
    if effect is None or effect.status is EffectStatus.UNDONE:
        return await make().drive()
    if effect.digest != call.digest and (
        effect.activity != activity.name or not uses_recorded(walk, (0, call.key), call.digest)
    ):
        walk.call_person(contradiction(walk, activity, call, effect))
        raise Unresolved
    if is_reopened(effect):
        return await make().drive()
    if effect.status is EffectStatus.REFUSED:
        raise EffectRefused(refusal_of(effect), (0, call.key))
    if not sharing.is_usable(effect):
        await _wait(walk, effect)
    if effect.shared != USED or call.key not in ledger.noted:
        if not walk.may_begin():
            raise Unresolved
        await ledger.land(sharing.use(ledger.run, effect, noted=call.key in ledger.noted, now=ledger.now))
    return activity.response_codec.load(effect.response or b"null")


async def _look(walk: NodeExecution, key: str) -> Effect | None:
    """The row as it stands now; None where nobody has made this call yet."""
    ledger = walk.ledger
    row = await ledger.store.load(EFFECT, (ledger.run.tenant, "", 0, key))
    if not isinstance(row, Effect):
        return None
    assert row.by_run != ledger.run.run or row.status is EffectStatus.UNDONE, "a run knows its own from the claim on"
    ledger.others[key] = row
    return row


async def _wait(walk: NodeExecution, effect: Effect) -> None:
    """Another run has it under way, or is undoing it, and alone settles it: park until it has."""
    ledger = walk.ledger
    if effect.key not in ledger.noted:
        if not walk.may_begin():
            raise Unresolved
        await ledger.land(sharing.wait_for(ledger.run, effect, ledger.now))
    then = "goes on with its answer"
    what = f"{effect.activity} {effect.key}"
    waiting = WaitingFor("effect", what, who=f"run {effect.by_run}", since=ledger.now.business, then=then)
    walk.park(Parked("park", waiting, Armed(what, ledger.now.real + SHARED_LOOK_AGAIN, real=True)))
    raise Unresolved
