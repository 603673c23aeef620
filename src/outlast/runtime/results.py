"""What a run has produced, read and counted from its rows (OUT-5)."""

from typing import Final

from outlast.core.rows import Row
from outlast.store.port import Store

PAGE: Final = 1_000


async def page(store: Store, tenant: str, run: str, after: int, limit: int) -> tuple[Row, ...]:
    """Results in the order of their first emission, from after an ordinal."""
    raise NotImplementedError


async def count(store: Store, tenant: str, run: str) -> int:
    """How many result rows there are."""
    raise NotImplementedError
