"""Ending a run: what is open settles first, then one commit ends it, frees its slots and withdraws its approvals."""

from typing import Any

from outlast.core import ledger as moves
from outlast.core.machine import EffectStatus, RunStatus
from outlast.core.moves import Told
from outlast.core.overlay import Armed, Attention, WaitingFor
from outlast.core.rows import Effect
from outlast.core.verbs import finish
from outlast.engine import slots
from outlast.engine.inquiry import reconcile
from outlast.engine.reasons import uncertain
from outlast.engine.verdict import Flagged, Parked, Resting
from outlast.engine.walk import Walk
from outlast.engine.write import CANCELLED
from outlast.errors import LimitExceeded, NotStorable
from outlast.errors import NotFound as NotKnown
from outlast.flow.activity import Activity
from outlast.flow.outcomes import CannotTell, Found, NotFound


async def settle_for_end(walk: Walk) -> Flagged | Resting | None:
    """Settle every open effect without making any call again; None once all are settled (EFF-8, S-19)."""
    parked: list[Parked] = []
    flagged: list[Attention] = []
    for effect in walk.ledger.open_effects():
        if effect.status is EffectStatus.INTENDED and (wait := await _settle(walk, effect)) is not None:
            parked.append(wait)
        left = walk.ledger.effects[effect.visit, effect.key]
        if left.status is EffectStatus.UNCERTAIN:
            flagged.append(uncertain(walk, left))
    if flagged:
        return Flagged(tuple(flagged))
    return Resting(tuple(parked)) if parked else None


async def _settle(walk: Walk, effect: Effect) -> Parked | None:
    ledger = walk.ledger
    run = ledger.run
    if effect.quiet_until == 0:
        ledger.submit(moves.refuse(run, effect, CANCELLED, "the run ended before another attempt", now=ledger.now))
        return None
    try:
        activity = walk.workflow.activity(effect.activity)
    except NotKnown as error:
        ledger.submit(moves.doubt(run, effect, "activity_gone", error.what, now=ledger.now))
        return None
    if activity.mode != "reconcile":
        ledger.submit(
            moves.doubt(run, effect, "interrupted", "its outcome is not known and the run ends", now=ledger.now)
        )
        return None
    asked_at = ledger.now.real  # an answer speaks of the moment it was asked for
    answer = await _ask(walk, activity, effect)
    if isinstance(answer, Found):
        ledger.submit(moves.settle(run, effect, answer.response, now=ledger.now, external_id=answer.external_id or ""))
    elif effect.quiet_until > asked_at:
        until = ledger.store.mapping().business(effect.quiet_until)
        what = f"the outcome of {effect.activity} {effect.key}"
        waiting = WaitingFor("quiet", what, since=ledger.now.business, until=until, then="asks the receiver")
        return Parked("quiet", waiting, Armed(what, effect.quiet_until, real=True))
    elif isinstance(answer, NotFound):
        ledger.submit(moves.refuse(run, effect, CANCELLED, "the receiver does not know it", now=ledger.now))
    else:
        ledger.submit(moves.doubt(run, effect, "cannot_tell", answer.why, now=ledger.now))
    return None


async def _ask(walk: Walk, activity: Activity[Any, Any], effect: Effect) -> Found[bytes] | NotFound | CannotTell:
    """The receiver's answer, as it is stored; arguments or a response that no longer fit cannot tell."""
    try:
        args, kwargs = activity.load_args(effect.args)
        answer = await reconcile(walk, activity, args, kwargs, effect)
        if isinstance(answer, Found):
            return Found(activity.response_codec.dump(answer.response), answer.external_id)
    except (NotStorable, LimitExceeded) as error:
        return CannotTell(f"{error.what}: {error.why}")
    return answer


def standing(effects: list[Effect]) -> list[str]:
    """The done effects that stand and have an undo, latest first: what an operator would have to undo by hand."""
    done = [e for e in effects if e.status is EffectStatus.DONE and e.undo]
    return [f"{e.activity} {e.key}" for e in sorted(done, key=lambda e: -e.ordinal)]


async def end(
    walk: Walk, outcome: RunStatus, *, state: bytes, result: Any, reason: str, told: tuple[Told, ...]
) -> None:
    """One commit. Raises Moved when mail has come or a slot has moved, Lost when the run is no longer ours."""
    ledger = walk.ledger
    run = ledger.run
    freed = await slots.held_by(ledger.store, run) if run.slots or run.queue else ()
    names = [] if outcome is RunStatus.COMPLETED else standing(list(ledger.effects.values()))
    commit = finish(
        run,
        outcome,
        mail=ledger.mail_read,
        state=state,
        result=result,
        reason=reason,
        standing=names,
        approvals=ledger.approvals.values(),
        slots=await slots.heirs(ledger.store, freed),
        now=ledger.now,
        told=told,
    )
    await ledger.land(commit)
