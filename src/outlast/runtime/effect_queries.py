"""The ledger as people read it: every call of a tenant across its runs, and what is known of one (EFF-7)."""

from collections.abc import Iterable
from typing import NamedTuple

from outlast.core.machine import EffectStatus, Reason
from outlast.core.overlay import attention_of
from outlast.core.rows import EFFECT, EVIDENCE, Effect, Evidence, Run
from outlast.store.pages import cursor_of
from outlast.store.port import Store

EffectName = tuple[str, int, str]
"""Run, visit and key, as an attention entry names an effect."""


class EffectEvidence(NamedTuple):
    """An effect that nobody is sure of, and what replaced workers were told of it too late."""

    effect: Effect
    evidence: tuple[Evidence, ...]


async def page(
    store: Store,
    tenant: str,
    *,
    status: EffectStatus | None,
    activity: str,
    run: str,
    since_real: int,
    cursor: str,
    limit: int,
) -> tuple[tuple[Effect, ...], str]:
    """Effects, the latest first intent first, and the cursor of the next page ('' at the end)."""
    if run:
        rows = [e for e in await store.rows(EFFECT, (tenant, run)) if isinstance(e, Effect)]
        rows = [e for e in rows if activity in ("", e.activity) and status in (None, e.status)]
        rows.sort(key=lambda e: (e.first_at, e.ordinal), reverse=True)
        return tuple(e for e in rows if e.first_at >= since_real)[:limit], ""
    where: dict[str, str | int] = {"activity": activity} if activity else {}
    if status is not None:
        where["status"] = status.value
    found = await store.page(EFFECT, tenant, where, cursor=cursor, limit=limit)
    effects = [e for e in found.rows if isinstance(e, Effect)]
    recent = tuple(e for e in effects if e.first_at >= since_real)
    at_the_end = len(recent) < len(effects) or not found.cursor
    return recent, "" if at_the_end else cursor_of(EFFECT, effects[-1])


async def evidence_of(store: Store, effect: Effect) -> tuple[Evidence, ...]:
    """What replaced workers were told of an effect too late."""
    rows = await store.rows(EVIDENCE, (effect.tenant, effect.by_run or effect.run, effect.visit, effect.key))
    return tuple(r for r in rows if isinstance(r, Evidence))


async def doubts_of(store: Store, runs: Iterable[Run]) -> dict[EffectName, EffectEvidence]:
    """The effects for which these runs call a person, by their names; those settled meanwhile are not among them."""
    found: dict[EffectName, EffectEvidence] = {}
    for run in runs:
        for entry in attention_of(run):
            if entry.reason is not Reason.EFFECT_UNCERTAIN:
                continue
            effect = await _named(store, run, entry.visit, entry.key)
            if effect is not None and effect.status is EffectStatus.UNCERTAIN:
                found[run.run, entry.visit, entry.key] = EffectEvidence(effect, await evidence_of(store, effect))
    return found


async def _named(store: Store, run: Run, visit: int, key: str) -> Effect | None:
    """The row: the run's own, or, of scope `tenant`, everybody's."""
    for owner in (run.run,) if visit else (run.run, ""):
        row = await store.load(EFFECT, (run.tenant, owner, visit, key))
        if isinstance(row, Effect):
            return row
    return None
