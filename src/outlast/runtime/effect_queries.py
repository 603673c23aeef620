"""Queries over the effects of a tenant's runs, and over the evidence of one effect (EFF-7)."""

from collections.abc import Iterable
from typing import NamedTuple

from outlast.core.machine import EffectStatus, Reason
from outlast.core.rows import EFFECT, EVIDENCE, Effect, Evidence, Run
from outlast.store.pages import cursor_of
from outlast.store.port import Store

EffectName = tuple[str, int, str]
"""Run, visit and key, as an attention entry names an effect."""


class EffectEvidence(NamedTuple):
    """An effect, and the late answers that replaced workers received for it."""

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
    """Return effects by first intent, newest first, and the cursor of the next page ('' at the end)."""
    if run:
        of_run = await store.rows(EFFECT, (tenant, run))
        rows = [e for e in of_run if activity in ("", e.activity) and status in (None, e.status)]
        rows.sort(key=lambda e: (e.first_at, e.ordinal), reverse=True)
        return tuple(e for e in rows if e.first_at >= since_real)[:limit], ""
    where: dict[str, str | int] = {"activity": activity} if activity else {}
    if status is not None:
        where["status"] = status.value
    found = await store.page(EFFECT, tenant, where, cursor=cursor, limit=limit)
    recent = tuple(e for e in found.rows if e.first_at >= since_real)
    at_the_end = len(recent) < len(found.rows) or not found.cursor
    return recent, "" if at_the_end else cursor_of(EFFECT, found.rows[-1])


async def evidence_of(store: Store, effect: Effect) -> tuple[Evidence, ...]:
    """Return the late answers that replaced workers received for an effect."""
    return await store.rows(EVIDENCE, (effect.tenant, effect.by_run or effect.run, effect.visit, effect.key))


async def uncertain_evidence(store: Store, runs: Iterable[Run]) -> dict[EffectName, EffectEvidence]:
    """Return the uncertain effects for which these runs need a person, by name; settled ones are left out."""
    found: dict[EffectName, EffectEvidence] = {}
    for run in runs:
        for entry in run.attention:
            if entry.reason is not Reason.EFFECT_UNCERTAIN:
                continue
            effect = await _named(store, run, entry.visit, entry.key)
            if effect is not None and effect.status is EffectStatus.UNCERTAIN:
                found[run.run, entry.visit, entry.key] = EffectEvidence(effect, await evidence_of(store, effect))
    return found


async def _named(store: Store, run: Run, visit: int, key: str) -> Effect | None:
    """Return the run's own effect, or the tenant's if visit is 0."""
    for owner in (run.run,) if visit else (run.run, ""):
        row = await store.load(EFFECT, (run.tenant, owner, visit, key))
        if row is not None:
            return row
    return None
