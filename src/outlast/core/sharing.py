"""The moves of an effect that a tenant's runs share: used by another run, waited for, about to be undone (S-18).

The row belongs to one run (`by_run`): only its holder intends, records, refuses, doubts and settles it, and each of
these names the row's version. So do the moves here, and that is all that keeps an undo and a use apart.

CONTRACT for compensation: the commit that intends the undo of an effect with `by_run` holds `taken_back(effect)`. A
run that used the answer meanwhile makes it Stale ("version"). Where `effect.shared` is USED nothing is intended:
undoing it is a person's decision (`undo_failed`).
"""

from outlast.core.commit import Commit, Expect, Instant, Put
from outlast.core.machine import EffectStatus, effect_target
from outlast.core.rows import EFFECT, TAKEN_BACK, USAGE, USED, Effect, Run, Usage, check_effect, key_of
from outlast.core.run_transition import fence


def use(run: Run, effect: Effect, *, noted: bool, now: Instant) -> Commit:
    """Another run takes the recorded answer, and from here on it cannot be taken back without a person.

    `noted`: the usage row of this run stands already. Stale ("version") where the effect has moved on meanwhile.
    """
    assert effect.by_run != run.run and effect.shared != TAKEN_BACK
    row = effect._replace(version=effect.version + 1, status=effect_target("use", effect.status), shared=USED)
    check_effect(row)
    puts = (Put(EFFECT, row, effect.version), *(() if noted else (_noted(run, effect.key, now),)))
    return Commit(puts, fence(run), label=f"{run.run} use {effect.key}")


def wait_for(run: Run, effect: Effect, now: Instant) -> Commit:
    """Note that this run waits for another run's effect; Stale where it has moved on, so no wake-up is missed."""
    assert effect.by_run != run.run
    expect = Expect(EFFECT, key_of(EFFECT, effect), effect.version)
    return Commit((_noted(run, effect.key, now),), fence(run), (expect,), label=f"{run.run} wait_for {effect.key}")


def taken_back(effect: Effect) -> Put:
    """Part of the commit that intends the undo of a shared effect: nobody may use its answer any more.

    Of one that another run has used, only where a person decided it (`undo_failed`).
    """
    assert effect.by_run and effect.shared != TAKEN_BACK
    row = effect._replace(
        version=effect.version + 1, status=effect_target("take_back", effect.status), shared=TAKEN_BACK
    )
    check_effect(row)
    return Put(EFFECT, row, effect.version)


def is_usable(effect: Effect) -> bool:
    """May another run take its answer?"""
    return effect.status is EffectStatus.DONE and effect.shared != TAKEN_BACK


def _noted(run: Run, key: str, now: Instant) -> Put:
    return Put(USAGE, Usage(run.tenant, run.run, key, now.business), 0)


def goes_on(previous: Effect | None, run: Run) -> Effect | None:
    """The row as an attempt by this run continues it; None where the work is new to it: undone, or another run's."""
    if previous is None or previous.status is EffectStatus.UNDONE or previous.by_run not in ("", run.run):
        return None
    return previous


def settled_shared(commit: Commit) -> Effect | None:
    """The shared effect that this commit settles or undoes: others may wait for it."""
    for write in commit.writes:
        row = write.row if isinstance(write, Put) else None
        if isinstance(row, Effect) and row.by_run and row.settled_at:
            return row if row.shared == 0 or row.status is EffectStatus.UNDONE else None
    return None
