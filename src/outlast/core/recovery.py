"""What a run that was taken over stands on: its checkpoint and history (CKP-6), and effects that were cut off."""

import json

from outlast.core.ledger import tries
from outlast.core.machine import EffectStatus, Reason
from outlast.core.restore import RESTORED, WHY
from outlast.core.rows import Effect, Event, Run


def contradiction(run: Run, checkpoint: Event, newest: Event | None) -> str:
    """Why a walk must not begin from this checkpoint, as a sentence; '' when everything fits.

    `checkpoint`: the newest event that carries a state; `newest`: the event that the row says is its last.
    """
    if newest is None:
        return f"the row says that its history ends with event {run.seq}, which is not there"
    if newest.hash != run.event_hash:
        return f"event {run.seq}, the last of its history, is not the one its row was written with"
    version = json.loads(newest.body)["data"]["version"]
    if version != run.version:
        return f"its row has version {run.version}, and the last event of its history tells of {version}"
    if checkpoint.seq > run.seq or (checkpoint.visit, checkpoint.node) != (run.visit, run.node):
        where = f"visit {checkpoint.visit} of {checkpoint.node}"
        return f"its last checkpoint leads into {where}, and its row stands in visit {run.visit} of {run.node}"
    return ""


def cut_off(run: Run, effect: Effect) -> tuple[str, str]:
    """Return code and detail of the doubt of an open effect whose call was cut off."""
    if run.restored and effect.attempts == 1:
        return RESTORED, WHY
    return "interrupted", "the process that called it died or was replaced before the answer was recorded"


def used_up(effect: Effect) -> tuple[str, str]:
    """Return code and detail of the doubt of an effect that perhaps happened and has no attempt left."""
    detail = f"after {effect.attempts} attempts nobody knows whether it happened"
    return Reason.RETRIES_EXHAUSTED.value, detail


def without_attempts(run: Run, effect: Effect, mode: str, attempts_max: int) -> tuple[str, str] | None:
    """Return code and detail of the doubt of an open effect that no attempt and no look-up can follow, else None."""
    if effect.status is not EffectStatus.INTENDED or effect.settle_after == 0:
        return None
    if mode == "resend":
        return used_up(effect) if tries(effect) >= attempts_max else None
    return cut_off(run, effect) if mode == "ask_person" else None
