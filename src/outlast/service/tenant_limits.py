"""How many requests of one tenant are carried out at once: its others wait in turn, those of other tenants do not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from outlast.core.limits import KIB
from outlast.errors import Busy

AT_ONCE: Final = 32
"""Enough to share commits; a request of another tenant comes after so many at most, not after all that were sent."""
WAITING: Final = 1_000
WAITING_SHARE: Final = 4
"""And one in so many of the connections at most, since each that waits holds one."""
BODIES_BYTES: Final = 64 * KIB * KIB
"""Of all bodies of one tenant that wait or are carried out."""
RETRY_AFTER_S: Final = 1


@dataclass
class _Tenant:
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    here: int = 0
    bytes: int = 0


class TenantLimits:
    """Of one service process. Nothing is kept of a tenant that asks nothing."""

    def __init__(self, waiting: int = WAITING) -> None:
        self._most = waiting
        self._tenants: dict[str, _Tenant] = {}

    @asynccontextmanager
    async def of(self, tenant: str, body: Callable[[], Awaitable[int]] | None = None) -> AsyncIterator[None]:
        """Wait for this tenant's turn. `body` reads a body and returns its size; a request counts from before that.

        Raises Busy at once if too many requests or too large bodies of this tenant are under way already.
        """
        known = self._tenants.setdefault(tenant, _Tenant())
        if known.here >= AT_ONCE + self._waiting:
            raise self._busy()
        known.here += 1
        size = 0
        try:
            if body is not None:
                size = await body()
                if known.here > 1 and known.bytes + size > BODIES_BYTES:
                    size = 0
                    raise self._busy()
                known.bytes += size
            async with known.free:
                yield
        finally:
            known.here -= 1
            known.bytes -= size
            if not known.here:
                self._tenants.pop(tenant, None)

    @property
    def _waiting(self) -> int:
        return min(self._most, WAITING)

    def _busy(self) -> Busy:
        return Busy(
            "too many requests of this tenant are under way",
            f"{AT_ONCE} are carried out at once, and {self._waiting:,} wait, of {BODIES_BYTES:,} bytes together; "
            "nothing of this one was done",
            "send it again later, and fewer at once",
            retry_after_s=RETRY_AFTER_S,
        )
