"""What a restore from a backup leaves of a run: the lost time is not believed, and a person lets it go on (I42)."""

import json
from collections.abc import Sequence
from typing import Final

from outlast.core.attention import joined
from outlast.core.budget import ATTEMPT_TIMEOUT, SETTLE_MARGIN, START_BUDGET
from outlast.core.commit import WRITES_MAX, Commit, Instant, Mapping, Put
from outlast.core.events import EventType
from outlast.core.machine import EffectStatus, Reason, effect_target
from outlast.core.overlay import Attention, WaitingFor, dump_attention, stale_timer
from outlast.core.people import REOPENED
from outlast.core.rows import EFFECT, Effect, Run, check_effect, is_over
from outlast.core.run_transition import give_back

RESTORED: Final = Reason.RESTORED.value
"""The code of an effect that may have happened, or happened again, in the time that was lost."""
WHY: Final = "it may have happened before the restore, in the time that was lost"
DOUBTED_MAX: Final = WRITES_MAX - 10
QUIET: Final = START_BUDGET + ATTEMPT_TIMEOUT + SETTLE_MARGIN


def is_doubtful(effect: Effect) -> bool:
    """May another attempt of it have been made in the time that was lost? An answer that stands is believed."""
    code = json.loads(effect.error)["code"] if effect.error else ""
    return (
        effect.status is EffectStatus.INTENDED
        or (effect.status is EffectStatus.UNCERTAIN and code != RESTORED)
        or (effect.status is EffectStatus.REFUSED and code == REOPENED)
    )


def cast_doubt(
    run: Run, effects: Sequence[Effect], *, generation: int, actor: str, now: Instant, mapping: Mapping
) -> Commit:
    """Take an unfinished run from whoever held it in the lost time, and call a person; its open effects are uncertain.

    `effects`: those of its own that are doubtful, at most DOUBTED_MAX. From here on every key that its ledger does not
    know is treated as one that may have happened (`Run.restored`). Nobody who held it can write: the claim has risen.
    """
    assert not is_over(run) and generation > run.restored
    assert len(effects) <= DOUBTED_MAX and all(is_doubtful(effect) for effect in effects)
    said = f"the store was restored from a backup: generation {generation}"
    called = [
        Attention(Reason.RESTORED, now.business, said, seen=run.inbox_seq),
        *(Attention(Reason.EFFECT_UNCERTAIN, now.business, f"{e.activity}: {WHY}", e.key, e.visit) for e in effects),
    ]
    left = joined(run, called)
    waiting = [WaitingFor("attention", f"a person: {a.reason.value} {a.key}".rstrip(), since=a.since) for a in called]
    names = [f"{e.visit}:{e.key}" for e in effects]
    data: dict[str, object] = {"by": actor, "generation": generation, "doubted": names}
    put = give_back(
        run._replace(restored=generation),
        "restore",
        EventType.RESTORED,
        now,
        data,
        waiting,
        [c for c in stale_timer(left) if c.at > now.business],
        mapping,
        attention=dump_attention(left),
    )
    doubted = [_doubted(effect, now) for effect in effects]
    return Commit((*put, *(Put(EFFECT, e, e.version - 1) for e in doubted)), label=f"{run.run} restore")


def _doubted(effect: Effect, now: Instant) -> Effect:
    row = effect._replace(
        version=effect.version + 1,
        status=effect_target("mistrust", effect.status),
        response=None,
        error=json.dumps({"code": RESTORED, "detail": WHY}),
        settle_after=max(effect.settle_after, now.real + QUIET),
        settled_at=0,
        settled_by="",
    )
    check_effect(row)
    return row
