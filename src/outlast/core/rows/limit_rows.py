"""Rows of what limits the runs of a tenant: slots, pauses, budgets and what is counted for them. See `all_kinds.py`."""

from typing import Final, NamedTuple

from outlast.core.rows.row_kind import Kind
from outlast.core.usage import CallUsage, TenantBudget


class Slot(NamedTuple):
    """Slot of a concurrency limit, keyed ('*', i) for the global limit, and the run that holds it ('' = free)."""

    tenant: str
    i: int
    version: int
    holder_tenant: str
    holder: str


class Pause(NamedTuple):
    """Pause of new intents (S-23), keyed `activity/NAME`, `provider/NAME`, `workflow/NAME` or `tenant`."""

    tenant: str
    key: str
    version: int
    up: int  # 1 while in force
    by: str
    reason: str
    since: int
    kind: str = "operator"  # set by an 'operator', or by the 'breaker' of a failing provider
    again_at: int = 0  # real; breaker only: from here on one run may try a call
    trips: int = 0  # breaker only: consecutive times it opened


SLOT: Final = Kind("slot", Slot, 2, True, True)
PAUSE: Final = Kind("pause", Pause, 2, True, True)
CALL_USAGE: Final = Kind("call_usage", CallUsage, 4, False, False)
TENANT_BUDGET: Final = Kind("tenant_budget", TenantBudget, 2, True, True)
