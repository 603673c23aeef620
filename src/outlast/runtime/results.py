"""What a run has produced, read and counted from its rows (OUT-5)."""

from typing import Final

from outlast.core.rows import RESULT, Result
from outlast.store.port import Store

PAGE: Final = 1_000


async def page(store: Store, tenant: str, run: str, after: int, limit: int) -> tuple[Result, ...]:
    """Results in the order of their first emission, from after an ordinal; at most PAGE of them."""
    rows = await store.in_order(RESULT, (tenant, run), after=after, limit=max(0, min(limit, PAGE)))
    return tuple(row for row in rows if isinstance(row, Result))


async def count(store: Store, tenant: str, run: str) -> int:
    """How many result rows there are."""
    return await store.count(RESULT, (tenant, run))
