"""Cursors of lists: the position in the store, signed for one tenant, one list and its filters."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from outlast.core.codec import canonical
from outlast.errors import InvalidInput
from outlast.service.store_secret import StoreSecret

SEAL_BYTES: Final = 16
# The next page may have another size. A page of the UI adds `region` and `top` when it refreshes itself.
UNBOUND: Final = ("cursor", "limit", "region", "top")


class Cursors:
    """Signer of cursors, by the secret that all replicas share."""

    def __init__(self, secret: StoreSecret) -> None:
        self._secret = secret

    async def open(self, request: Request, tenant: str, cursor: str) -> str:
        """Return the position in a cursor. Raises InvalidInput if the cursor was not issued for this list."""
        if not cursor:
            return ""
        await self._secret.ready()
        try:
            raw = urlsafe_b64decode(cursor.encode("ascii"))
        except ValueError:  # includes UnicodeEncodeError and binascii.Error
            raise _not_ours() from None
        place = raw[SEAL_BYTES:]
        if not hmac.compare_digest(raw[:SEAL_BYTES], self._signature(request, tenant, place)):
            raise _not_ours()
        return place.decode()

    async def seal(self, request: Request, response: Response, tenant: str, place: str) -> str:
        """Return the cursor of the next page and set the header `Link`. Return '' at the end of the list."""
        if not place:
            return ""
        await self._secret.ready()
        cursor = urlsafe_b64encode(self._signature(request, tenant, place.encode()) + place.encode()).decode()
        link_to_next(request, response, cursor=cursor)
        return cursor

    def _signature(self, request: Request, tenant: str, place: bytes) -> bytes:
        where = sorted(
            (name, value) for name, value in request.query_params.multi_items() if value and name not in UNBOUND
        )
        bound = canonical([tenant, request.url.path, [list(pair) for pair in where]])
        return hmac.digest(self._secret.key("cursors"), bound + b"\0" + place, sha256)[:SEAL_BYTES]


def link_to_next(request: Request, response: Response, **more: str) -> None:
    """Set the header `Link` to the next page: this URL with these query parameters."""
    url = request.url.include_query_params(**more)
    response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'


def _not_ours() -> InvalidInput:
    return InvalidInput(
        "this cursor does not belong to this list",
        "it was changed, or issued for another list or filter",
        "start again without a cursor",
    )
