"""Ending a run: one commit ends it, frees its slots and withdraws its approvals."""

from typing import Any

from outlast.core.compensation import names, standing
from outlast.core.machine import RunStatus
from outlast.core.moves import Told
from outlast.core.verbs import finish
from outlast.engine import slots
from outlast.engine.ledger import RunSession


async def end(
    ledger: RunSession,
    outcome: RunStatus,
    *,
    state: bytes | None,
    result: Any,
    reason: str,
    told: tuple[Told, ...],
    results: dict[str, int] | None = None,
) -> None:
    """One commit. `state`: None = as it was written last; `results`: what its last visit produced, counted. Raises
    Moved when mail has come or a slot has moved, Lost when the run is no longer ours."""
    run = ledger.run
    freed, others = await slots.held_and_not(ledger.store, run) if run.slots or run.queue else ((), ())
    stands = [] if outcome is RunStatus.COMPLETED else names(standing(run, ledger.effects.values()))
    snapshot, values = (ledger.last.snapshot or b"{}", ()) if state is None else await ledger.to_keep(state)
    commit = finish(
        run,
        outcome,
        inbox_seq=ledger.inbox_read,
        state=snapshot,
        result=result,
        reason=reason,
        standing=stands,
        approvals=ledger.approvals.values(),
        slots=await slots.heirs(ledger.store, freed),
        now=ledger.now,
        told=told,
        seen=others if run.queue else (),
        results=results,
    )
    await ledger.land(await ledger.with_values(commit, values))
