"""Requests that one tenant may have in progress in a service process, so that others are answered, too (S35)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from outlast.core.limits import KIB
from outlast.errors import Busy

AT_ONCE: Final = 32
"""Concurrent requests of one tenant. Enough for them to share commits, and few enough for other tenants' latency."""
WAITING: Final = 1_000
"""Requests of one tenant that may wait for a slot."""
WAITING_SHARE: Final = 4
"""Waiting requests may hold at most one in this many connections."""
BODIES_BYTES: Final = 64 * KIB * KIB
"""Total size of the bodies of one tenant's requests, waiting ones included."""
RETRY_AFTER_S: Final = 1


@dataclass
class _Tenant:
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    here: int = 0
    bytes: int = 0


class TenantLimits:
    """Request slots per tenant in one service process. Keeps no state for an idle tenant."""

    def __init__(self, waiting: int = WAITING) -> None:
        self._most = waiting
        self._tenants: dict[str, _Tenant] = {}

    @asynccontextmanager
    async def of(self, tenant: str, body: Callable[[], Awaitable[int]] | None = None) -> AsyncIterator[None]:
        """Hold one of this tenant's slots during the block; wait for one if none is free.

        `body` reads the body and returns its size. The request counts before its body is read. Raises Busy at once if
        this tenant has too many requests or too large bodies in progress.
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
            "too many requests of this tenant are in progress",
            f"the limit is {AT_ONCE} in progress and {self._waiting:,} waiting, with {BODIES_BYTES:,} bytes together; "
            "this request changed nothing",
            "send it again later, with fewer requests at a time",
            retry_after_s=RETRY_AFTER_S,
        )
