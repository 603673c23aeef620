"""Checks of a run's ledger: its effects, in what order they were begun, and how they were undone."""

import json
from collections import Counter
from itertools import pairwise

from outlast.core.codec import digest
from outlast.core.machine import OPEN_EFFECT, EffectStatus
from outlast.core.rows import EFFECT, RUN, Effect, check_effect, is_over
from outlast.errors import Corrupt, NotStorable
from outlast.runtime.fsck.finding import Broken, OneRun, broken


def named(effect: Effect) -> str:
    """How an approval and an undo name an effect of their run."""
    return f"{effect.visit}:{effect.key}"


def effect_row(one: OneRun) -> Broken:
    """An open effect is not settled, a settled one is; a done one has its response, a refused one says why (I4)."""
    for effect in one.effects:
        try:
            check_effect(effect)
        except Corrupt as error:
            yield broken(EFFECT, effect, error.what)
            continue
        if effect.status not in OPEN_EFFECT and not effect.settled_by:
            yield broken(EFFECT, effect, f"it is {effect.status}, and nobody settled it")
        elif effect.status is EffectStatus.REFUSED and not _says_why(effect):
            yield broken(EFFECT, effect, "it is refused without a reason")


def _says_why(effect: Effect) -> bool:
    try:
        return bool(json.loads(effect.error)["code"])
    except (ValueError, KeyError, TypeError):
        return False


def effect_digest(one: OneRun) -> Broken:
    """An effect's key is bound to exactly one request: the digest is that of activity, key and arguments (I3)."""
    if not one.chain:
        return
    for effect in one.effects:
        if effect.undoes and effect.not_after == effect.first_at:
            continue  # an undo that was withheld: no request was ever made of it
        try:
            same = effect.digest == _digest_of(effect, one)
        except NotStorable:
            same = False
        if not same:
            yield broken(EFFECT, effect, "activity, key and arguments do not give its digest")


def _digest_of(effect: Effect, one: OneRun) -> str:
    """The digest it must have; that of an undo binds it to the effect it undoes."""
    of = [e for e in one.effects if effect.undoes == f"{e.visit}:{e.key}"]
    return digest("undo", of[0].key, of[0].digest) if of else digest(effect.activity, effect.key, effect.args)


def effect_order(one: OneRun) -> Broken:
    """Every effect of a run has a number of its own, in the order in which they were begun (S-19)."""
    times = Counter(effect.ordinal for effect in one.effects)
    for effect in one.effects:
        if times[effect.ordinal] > 1:
            yield broken(
                EFFECT, effect, f"{times[effect.ordinal]} effects of this run have the number {effect.ordinal}"
            )


def effect_claim(one: OneRun) -> Broken:
    """An effect was begun in a visit and under a claim that the run has had (I11, S-15)."""
    for effect in one.effects:
        if not 0 <= effect.visit <= one.run.visit:
            yield broken(EFFECT, effect, f"of visit {effect.visit}; the run is in its visit {one.run.visit}")
        elif not 1 <= effect.epoch <= one.run.epoch:
            yield broken(EFFECT, effect, f"begun under claim {effect.epoch}; the run has had {one.run.epoch}")


def effect_open_at_end(one: OneRun) -> Broken:
    """A run ends when nothing of it is open: no outcome is left unknown (I35)."""
    if is_over(one.run):
        for effect in one.effects:
            if effect.status in OPEN_EFFECT:
                yield broken(EFFECT, effect, f"it is {effect.status}, and its run has ended {one.run.status}")


def effect_undone(one: OneRun) -> Broken:
    """An undone effect was undone once, and every undo is of an effect that there is (I34)."""
    effects = {named(effect): effect for effect in one.effects}
    undos = Counter(e.undoes for e in one.effects if e.undoes and e.status is EffectStatus.DONE)
    for effect in one.effects:
        if effect.status is EffectStatus.UNDONE and undos[named(effect)] != 1:
            yield broken(EFFECT, effect, f"it is undone; {undos[named(effect)]} undos of it were done")
        elif effect.undoes and effect.undoes not in effects:
            yield broken(EFFECT, effect, f"it undoes {effect.undoes}, which the ledger does not know")
        elif effect.undoes and effect.status is EffectStatus.DONE:
            target = effects[effect.undoes]
            if target.status is not EffectStatus.UNDONE:
                yield broken(EFFECT, target, f"its undo {effect.key} is done, and it is {target.status}")


def undo_order(one: OneRun) -> Broken:
    """Undo goes back from the latest effect to the first (S-19)."""
    effects = {named(effect): effect for effect in one.effects}
    undos = sorted((e for e in one.effects if e.undoes in effects), key=lambda e: e.ordinal)
    for before, after in pairwise(undos):
        if effects[before.undoes].ordinal < effects[after.undoes].ordinal:
            yield broken(EFFECT, after, f"it undoes {after.undoes} after {before.undoes}, which was begun earlier")


def run_restored(one: OneRun) -> Broken:
    """The generation that cast doubt on a run is one the store has had."""
    if one.generation is not None and not 0 <= one.run.restored <= one.generation:
        yield broken(RUN, one.run, f"restored in generation {one.run.restored}; the store is in {one.generation}")
