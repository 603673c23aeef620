"""Setting a limit: how many slot rows there are, and that queued runs get the new ones (S-6)."""

from outlast.core.commit import Commit, Put
from outlast.core.rows import SLOT, Slot
from outlast.engine.slots import repair, slots_of
from outlast.errors import Conflict, InvalidInput
from outlast.store.port import Store

SLOTS_MAX = 10_000


async def set_slots(store: Store, tenant: str, n: int) -> None:
    """Make the limit of a tenant ('*': of all) `n` slots. Runs admitted beforehand keep what they hold.

    Raises InvalidInput for a number out of bounds, Conflict for lowering a limit: it can only be raised.
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
