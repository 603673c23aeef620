"""Daily budgets of tenants, as a worker knows them."""

from typing import Any

from outlast.core.rows.limit_rows import TENANT_BUDGET
from outlast.core.usage import EACH_DAY, NO_LIMITS, TenantBudget
from outlast.errors import DefinitionError
from outlast.flow.workflow import Workflow
from outlast.store.port import Store


def blind_budget(workflow: Workflow[Any]) -> DefinitionError | None:
    """Return the error of a money budget that cannot count, because a model has no price; None without one."""
    if workflow.budget is None or workflow.budget.money is None:
        return None
    unpriced = workflow.models_without_price()
    if not unpriced:
        return None
    return DefinitionError(
        f"{workflow.title} has a budget of money and asks {', '.join(unpriced)}",
        "the price of this model is not known, so its requests would cost nothing",
        'give the model a price, e.g. price=Price("1.25", "10") or OUTLAST_MODEL_PRICE=1.25/10; or limit tokens',
        where=workflow.where,
    )


class BudgetCache:
    """Tenants with a daily budget, as a worker last read them. A budget is read again before it stops a run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.tenants: frozenset[str] = frozenset()  # empty: only workflows with a budget are checked

    async def refresh(self) -> None:
        """Read all tenants with a daily budget. Raises StoreError."""
        rows = await self._store.rows(TENANT_BUDGET, ())
        self.tenants = frozenset([row.tenant for row in rows if row.limits != NO_LIMITS])

    async def of(self, tenant: str) -> TenantBudget | None:
        """Return the daily budget of a tenant, read now; None if it has none. Raises StoreError."""
        return await self._store.load(TENANT_BUDGET, (tenant, EACH_DAY)) if tenant in self.tenants else None
