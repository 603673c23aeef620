"""Checks of rows that belong to no single run: slots, workers, tokens, the store's settings."""

from collections.abc import Iterator, Set
from typing import Final

from outlast.core.rows import EFFECT, RUN, SLOT, TOKEN, USAGE, WORKER, Effect, Run, Slot, Token, Usage, Worker, is_over
from outlast.runtime.fsck.finding import Broken, broken

SAFE: Final[dict[str, frozenset[str]]] = {
    "journal_mode": frozenset({"wal"}),
    "synchronous": frozenset({"full", "extra"}),
}


def slot_held(slot: Slot, holder: Run | None) -> Broken:
    """A slot in use is held by an unfinished run (I32)."""
    if not slot.holder:
        if slot.holder_tenant:
            yield broken(SLOT, slot, f"it is free, and names the tenant {slot.holder_tenant}")
        return
    if holder is None:
        yield broken(SLOT, slot, f"held by {slot.holder}, which there is not")
    elif is_over(holder):
        yield broken(SLOT, slot, f"held by {slot.holder}, which has ended {holder.status}")


def slot_named(run: Run, slots: dict[tuple[str, int], Slot]) -> Broken:
    """A run that was admitted holds exactly the slots that its row names (I32)."""
    for name in run.slots.split():
        tenant, _, i = name.rpartition("/")
        slot = slots.get((tenant, int(i))) if i.isdigit() else None
        if slot is None or (slot.holder_tenant, slot.holder) != (run.tenant, run.run):
            yield broken(
                RUN, run, f"it names the slot {name}, which {slot.holder or 'nobody' if slot else 'nobody'} holds"
            )


def owner_known(run: Run, workers: Set[str]) -> Broken:
    """A run is owned by a worker that there is: none is taken over because a row was deleted (I12)."""
    if run.owner and not is_over(run) and run.owner not in workers:
        yield broken(RUN, run, f"owned by {run.owner}, which no worker's row names")


def worker_lease(worker: Worker) -> Broken:
    """A worker's lease ends after it was last renewed (S-2)."""
    if worker.lease_until < worker.renewed_at:
        yield broken(WORKER, worker, f"its lease ended at {worker.lease_until}, before its renewal {worker.renewed_at}")


def settings_safe(facts: dict[str, str | int], schema: int) -> Iterator[str]:
    """The store keeps what it acknowledges, and has this version's schema (RUN-1)."""
    for name, good in SAFE.items():
        if name in facts and str(facts[name]) not in good:
            yield f"{name} is {facts[name]}; it has to be {' or '.join(sorted(good))}"
    if facts.get("schema", schema) != schema:
        yield f"schema {facts['schema']}; this version writes {schema}"


def usage_of(usage: Usage, known: bool) -> Broken:
    """A run used an effect of scope `tenant` that there is (S-18)."""
    if not known:
        yield broken(USAGE, usage, f"{usage.run} used {usage.key}, which the ledger does not know")


def usage_known(effect: Effect, owner: Run | None, usage: Usage | None) -> Broken:
    """An effect of scope `tenant` is counted among those its own run used, while that run is there (S-18)."""
    if effect.by_run and owner is not None and usage is None:
        yield broken(EFFECT, effect, f"{effect.by_run} made it, and no row says that it used it")


def token_target(token: Token, gone: bool) -> Broken:
    """A token names a run that there is, or one that was purged whole (CKP-7)."""
    if not gone:
        yield broken(TOKEN, token, f"of {token.run or token.target}: its events are there, its row is not")
