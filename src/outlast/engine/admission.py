"""Admission: a run takes a slot of each limit, and hands it on when it ends (S-6, RUN-6)."""

from collections.abc import Sequence

from outlast.core.commit import Commit, Put
from outlast.core.machine import LeaseStatus
from outlast.core.rows import RUN, SLOT, STORE, WORKER, Run, Slot, Worker, is_over
from outlast.core.run_transition import SlotChange, hand_over
from outlast.errors import Conflict, InvalidInput, Stale, StoreError
from outlast.store.port import Store

QUEUED_LOOK = 1_000  # number of the oldest queued runs whose limits a worker repairs


async def slots_of(store: Store, tenant: str) -> tuple[Slot, ...]:
    """Return the slot rows of one limit ('*': the global one); () if there is no limit."""
    return tuple(row for row in await store.rows(SLOT, (tenant,)) if isinstance(row, Slot))


async def limits_of(store: Store, tenant: str) -> tuple[tuple[Slot, ...], ...]:
    """Return the limits of a tenant's runs, each with its slot rows."""
    limits = (await slots_of(store, STORE), await slots_of(store, tenant))
    return tuple(slots for slots in limits if slots)


def pick(run: Run, limit: Sequence[Slot]) -> Slot | None:
    """Return the slot of a limit that the run holds, else the first free one, else None."""
    mine = next((s for s in limit if (s.holder_tenant, s.holder) == (run.tenant, run.run)), None)
    return mine or next((s for s in limit if not s.holder), None)


async def heirs(store: Store, slots: Sequence[Slot]) -> tuple[SlotChange, ...]:
    """Return each slot with the oldest queued run of a served lane that waits for its limit.

    A run that already holds a slot of that limit is left out.
    """
    changes: list[SlotChange] = []
    given: set[tuple[str, str, str]] = set()
    for slot in slots:
        rows = await slots_of(store, slot.tenant)
        taken = {(s.holder_tenant, s.holder) for s in rows if s.holder}
        taken |= {(tenant, run) for limit, tenant, run in given if limit == slot.tenant}
        heir = await _oldest(store, slot.tenant, taken, len(rows) + len(slots) + 1)
        if heir is not None:
            given.add((slot.tenant, heir.tenant, heir.run))
        changes.append(SlotChange(slot, heir))
    return tuple(changes)


async def _oldest(store: Store, tenant: str, taken: set[tuple[str, str]], n: int) -> Run | None:
    """Return the oldest run queued for a limit that is not `taken` and whose lane a worker serves."""
    if not (queued := await store.queued(tenant, n)):
        return None
    workers = [row for row in await store.rows(WORKER, (STORE,)) if isinstance(row, Worker)]
    lanes = {lane for row in workers if row.status is LeaseStatus.ALIVE for lane in row.lanes.split()}
    while True:
        heir = next((r for r in queued if (r.tenant, r.run) not in taken and r.lane in lanes), None)
        if heir is not None or len(queued) < n:
            return heir
        n *= 10
        queued = await store.queued(tenant, n)


async def limits_wanted(store: Store) -> tuple[str, ...]:
    """Return the limits that queued runs wait for, the global one first."""
    return tuple(dict.fromkeys([STORE, *(run.queue for run in await store.queued(STORE, QUEUED_LOOK))]))


async def needs_slot(store: Store, run: Run, *, keeps: bool) -> bool:
    """Return True if a run must be admitted before its node is executed.

    `keeps`: its workflow keeps slots while it waits; otherwise it needs a slot each time.
    """
    if run.queue:
        return True
    return not keeps and not run.slots and bool(await limits_of(store, run.tenant))


async def freed_slots(store: Store, run: Run, *, keeps: bool) -> tuple[SlotChange, ...]:
    """Return the slots that a run gives back when it waits, each with its heir; () if it `keeps` them (RUN-6)."""
    if keeps or not run.slots:
        return ()
    return await heirs(store, await held_by(store, run))


async def left_to_older(store: Store, slot: Slot, run: Run) -> bool:
    """Hand a free slot to an older queued run; True if it goes to one, so no newer run passes it (S-6)."""
    if slot.holder:
        return False
    (change,) = await heirs(store, [slot])
    if change.heir is None or (change.heir.tenant, change.heir.run) == (run.tenant, run.run):
        return False
    writes, expects = hand_over([change])
    try:
        await store.commit(Commit(writes, expects=expects, label=f"slot {slot.tenant}/{slot.i}"))
    except Stale:
        pass  # the slot has changed; the caller reads it again in both cases
    return True


async def held_by(store: Store, run: Run) -> tuple[Slot, ...]:
    """Return the slot rows that name this run, admitted or not."""
    mine, _ = await held_and_not(store, run)
    return mine


async def held_and_not(store: Store, run: Run) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """Return the slot rows of the run's limits that name it, and the others."""
    rows = [slot for limit in await limits_of(store, run.tenant) for slot in limit]
    mine = [s for s in rows if (s.holder_tenant, s.holder) == (run.tenant, run.run)]
    return tuple(mine), tuple(s for s in rows if s not in mine)


def _names(run: Run, slot: Slot) -> bool:
    return f"{slot.tenant}/{slot.i}" in run.slots.split()


async def repair(store: Store, tenants: Sequence[str]) -> int:
    """Hand free slots, and slots of ended runs, to queued runs. Returns how many were handed on."""
    done = 0
    for tenant in tenants:
        for slot in await slots_of(store, tenant):
            if slot.holder:
                row = await store.load(RUN, (slot.holder_tenant, slot.holder))
                if isinstance(row, Run) and not is_over(row) and (row.queue or _names(row, slot)):
                    continue  # a slot handed over while the run took another one is spare, and is handed on
            (change,) = await heirs(store, [slot])
            if change.heir is None and not slot.holder:
                break  # no run is queued for this limit
            writes, expects = hand_over([change])
            try:
                await store.commit(Commit(writes, expects=expects, label=f"slot {slot.tenant}/{slot.i}"))
                done += 1
            except StoreError:
                pass  # another worker changed it; the next heartbeat checks again
    return done


SLOTS_MAX = 10_000


async def set_slots(store: Store, tenant: str, n: int) -> None:
    """Set the limit of a tenant ('*': of all) to `n` slots.

    Admitted runs keep their slots.

    Raises InvalidInput for a number out of bounds, Conflict if the limit would fall.
    """
    if not 1 <= n <= SLOTS_MAX:
        raise InvalidInput(f"a limit of {n} slots", f"from 1 to {SLOTS_MAX}", "choose such a number")
    have = len(await slots_of(store, tenant))
    if n < have:
        raise Conflict(
            f"the limit of {tenant} cannot fall from {have} to {n}",
            "slots may be in use, so a limit can be raised and not lowered",
            f"leave it, or raise it above {have}",
        )
    for i in range(have, n):
        await store.commit(Commit((Put(SLOT, Slot(tenant, i, 1, "", ""), 0),), label=f"slot {tenant}/{i}"))
    await repair(store, (tenant,))
