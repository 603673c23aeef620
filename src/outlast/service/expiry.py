"""A stream ends with the credential that opened it: at its expiry, or soon after it is withdrawn."""

import asyncio
from typing import Final

from starlette.requests import Request

from outlast.core.budget import SECOND
from outlast.errors import Forbidden, TooManyFailures, Unauthenticated, Unverifiable
from outlast.service.house import House
from outlast.service.identity import Principal, permit

RECHECK_S: Final = 30.0
"""How long a stream may outlive what is withdrawn before its expiry: a credential, a role, an issuer's key."""


async def expired(house: House, request: Request) -> None:
    """Return once the credential of this request does not allow it any more."""
    principal: Principal = request.state.principal
    while await _allowed(house, request, principal):
        left_ms = principal.until_ms - house.clock.wall() if principal.until_ms else RECHECK_S * SECOND
        await asyncio.sleep(max(0.0, min(RECHECK_S, left_ms / SECOND)))


async def _allowed(house: House, request: Request, principal: Principal) -> bool:
    if principal.until_ms and house.clock.wall() >= principal.until_ms:
        return False
    client = request.client.host if request.client else ""
    try:
        now = await house.authenticator.authenticate(request.headers.get("authorization", ""), client)
        permit(now, request.scope["route"].operation_id)
    except (Unauthenticated, Forbidden):
        return False
    except (Unverifiable, TooManyFailures):
        return True  # nobody says that it is withdrawn; its expiry is known
    return (now.tenant, now.name) == (principal.tenant, principal.name)
