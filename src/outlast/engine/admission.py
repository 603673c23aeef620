"""Slots of concurrency limits: which runs hold one, and which queued run gets the next (S-6, RUN-6).

Theory of operation. A slot is a row that names its holder, and the row of that run names the slot. Both are written
in one commit. Faults, and why none loses a slot or gives one to two runs:

1. *Two workers hand on one slot.* Each commit replaces the version that it read, so one of them is refused and looks
   again.
2. *A run gets a slot and ends elsewhere in the same moment.* The slot then names a run that does not name it.
   `repair` finds such slots at each heartbeat of any worker.
3. *A newer run takes a free slot before an older one.* `left_to_older` hands the slot to the first of the queue, and
   the newer one queues. A parent whose child ends is not in the queue yet, so the end of the child counts it in.
4. *The oldest run has no worker.* Only runs of lanes that a living worker serves are heirs, or the slot would rest
   with a run that no worker executes.
5. *Slots are raised by two operators at once.* Rows are numbered, so equal numbers collide and the loser counts
   again.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from outlast.core.acts import KeyedAct, with_token
from outlast.core.commit import Commit, Put, in_portions
from outlast.core.conclude import Admitting, Again, Queueing, StoreReads
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_rows import RUN, Run, is_due, is_over, queue_order
from outlast.core.rows.store_rows import STORE, WORKER, lanes_served
from outlast.core.run_transition import SlotChange, hand_over
from outlast.errors import Conflict, Stale, StoreError
from outlast.store.landed_acts import done_before
from outlast.store.port import Store
from outlast.store.queries import Queued

QUEUED_LOOK: Final = 1_000  # number of the oldest queued runs whose limits a worker repairs
RAISES_MAX: Final = 50  # lost races in a row after which a raise of a limit gives up


async def slots_of(store: Store, tenant: str) -> tuple[Slot, ...]:
    """Return the slot rows of one limit ('*': the global one); () if there is no limit."""
    return await store.rows(SLOT, (tenant,))


async def limits_of(store: Store, tenant: str) -> tuple[tuple[Slot, ...], ...]:
    """Return the limits of a tenant's runs, each with its slot rows."""
    limits = (await slots_of(store, STORE), await slots_of(store, tenant))
    return tuple(slots for slots in limits if slots)


def pick(run: Run, limit: Sequence[Slot]) -> Slot | None:
    """Return the slot of a limit that the run holds, else the first free one, else None."""
    mine = next((s for s in limit if (s.holder_tenant, s.holder) == (run.tenant, run.run)), None)
    return mine or next((s for s in limit if not s.holder), None)


async def heirs(store: Store, slots: Sequence[Slot], returning: Run | None = None) -> tuple[SlotChange, ...]:
    """Return each slot with the first queued run of a served lane that waits for its limit.

    A run that already holds a slot of that limit is left out. `returning`: the parent of a child that ends. It needs a
    slot to go on, and is not in the queue yet.
    """
    changes: list[SlotChange] = []
    given: set[tuple[str, str, str]] = set()
    for slot in slots:
        rows = await slots_of(store, slot.tenant)
        taken = {(s.holder_tenant, s.holder) for s in rows if s.holder}
        taken |= {(tenant, run) for limit, tenant, run in given if limit == slot.tenant}
        heir = await _first(store, slot.tenant, taken, len(rows) + len(slots) + 1, returning)
        if heir is not None:
            given.add((slot.tenant, heir.tenant, heir.run))
        changes.append(SlotChange(slot, heir))
    return tuple(changes)


async def _first(store: Store, tenant: str, taken: set[tuple[str, str]], n: int, returning: Run | None) -> Run | None:
    """Return the first run that waits for a limit, is not `taken`, and whose lane a worker serves."""
    beside = () if returning is None else (returning,)
    if not (queued := await store.query(Queued(tenant, n))) and not beside:
        return None
    lanes = lanes_served(await store.rows(WORKER, (STORE,)), (await store.now()).real)

    def fitting(runs: Iterable[Run]) -> list[Run]:
        return [run for run in runs if (run.tenant, run.run) not in taken and run.lane in lanes]

    while not (found := fitting(queued)) and len(queued) >= n:
        n *= 10
        queued = await store.query(Queued(tenant, n))
    return min((*found[:1], *fitting(beside)), key=queue_order, default=None)


async def limits_wanted(store: Store) -> tuple[str, ...]:
    """Return the limits that queued runs wait for, the global one first."""
    return tuple(dict.fromkeys([STORE, *(run.queue for run in await store.query(Queued(STORE, QUEUED_LOOK)))]))


async def needs_slot(store: Store, run: Run, *, keeps: bool) -> bool:
    """Return True if a run must be admitted before its node is executed.

    `keeps`: its workflow keeps slots while it waits; otherwise it needs a slot each time.
    """
    if run.queue:
        return True
    return not keeps and not run.slots and bool(await limits_of(store, run.tenant))


async def admit(store: Store, run: Run, *, keeps: bool) -> Admitting | Queueing | Again | None:
    """Find a slot of each limit for a run, before its node is executed; None if it needs none."""
    if not await needs_slot(store, run, keeps=keeps):
        return None
    limits = await limits_of(store, run.tenant)
    picked = [pick(run, limit) for limit in limits]
    taken = tuple(slot for slot in picked if slot is not None)
    for slot in taken:
        if await left_to_older(store, slot, run):
            return Again("the slot went to an older run")
    if len(taken) < len(picked):
        return Queueing(tuple(slot for limit in limits for slot in limit))
    return Admitting(taken)


async def read_slots(store: Store, run: Run, returning: Run | None = None) -> StoreReads:
    """Return the slots of a run that waits or ends, each with its heir, and the other slots of its limits.

    `returning`: as in `heirs`.
    """
    if not run.slots and not run.queue:
        return StoreReads()
    mine, others = await held_and_not(store, run)
    return StoreReads(await heirs(store, mine, returning), others)


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


async def held_and_not(store: Store, run: Run) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """Return the slot rows of the run's limits that name it, and the others."""
    rows = [slot for limit in await limits_of(store, run.tenant) for slot in limit]
    mine = [s for s in rows if (s.holder_tenant, s.holder) == (run.tenant, run.run)]
    return tuple(mine), tuple(s for s in rows if s not in mine)


def _names(run: Run, slot: Slot) -> bool:
    return (slot.tenant, slot.i) in run.slots


def _will_look(run: Run, real: int) -> bool:
    """True if the run will look at the slots again: it is queued, or a parent that has just got one and returns."""
    return bool(run.queue or (not run.slots and (run.owner or is_due(run, real))))


async def repair(store: Store, tenants: Sequence[str]) -> int:
    """Hand free slots, and slots of ended runs, to queued runs. Returns how many were handed on."""
    done, now = 0, await store.now()
    for tenant in tenants:
        for slot in await slots_of(store, tenant):
            if slot.holder:
                row = await store.load(RUN, (slot.holder_tenant, slot.holder))
                if row is not None and not is_over(row) and (_names(row, slot) or _will_look(row, now.real)):
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


async def set_slots(store: Store, tenant: str, n: int, act: KeyedAct | None = None) -> tuple[Slot, ...]:
    """Raise the limit of a tenant ('*': of all) to `n` slots, and return its slot rows.

    Admitted runs keep their slots. An `act` that has landed is not repeated. Raises Conflict if the limit would fall.
    """
    for _ in range(RAISES_MAX):
        have = len(await slots_of(store, tenant))
        if await done_before(store, act):
            break
        if n < have:
            raise Conflict(
                f"the limit of {tenant} cannot fall from {have} to {n}",
                "slots may be in use, so a limit can be raised and not lowered",
                f"leave it, or raise it above {have}",
            )
        try:
            await _add_slots(store, tenant, range(have, n), act)
        except Stale:
            continue  # another caller raised the limit too; the rows of both count
        break
    else:
        raise Conflict(f"the limit of {tenant} is being raised by others", "", "send it again")
    await repair(store, (tenant,))
    return await slots_of(store, tenant)


async def _add_slots(store: Store, tenant: str, numbers: range, act: KeyedAct | None) -> None:
    """Write these slots. The identity of the act lands with the last of them, so that a repetition adds the rest."""
    portions = in_portions(Put(SLOT, Slot(tenant, i, 1, "", ""), 0) for i in numbers)
    commits = [Commit(portion, label=f"slots of {tenant}") for portion in portions] or [Commit((), label="no slots")]
    commits[-1] = with_token(commits[-1], act, tenant, await store.now())
    for commit in commits:
        if commit.writes:
            await store.commit(commit)
