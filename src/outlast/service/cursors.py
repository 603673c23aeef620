"""Cursors that only a service can make: the store's place, sealed for one tenant, one list and its filters."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from hashlib import sha256
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from outlast.core.codec import canonical
from outlast.core.commit import Commit, Put
from outlast.core.rows import META, STORE, Meta
from outlast.errors import InvalidInput, Stale
from outlast.runtime.clocks import new_credential
from outlast.store.port import Store

SEAL_BYTES: Final = 16
KEY: Final = (STORE, "cursor_key")
"""Of the meta row with the secret, which the first service makes."""
UNBOUND: Final = ("cursor", "limit")  # a page may be read on with another size


class Cursors:
    """Seals and opens cursors with a secret of the store, which each replica of a service reads and no export has."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = b""

    async def open(self, request: Request, tenant: str, cursor: str) -> str:
        """The place it stands for. Raises InvalidInput for one that was not given for this list."""
        if not cursor:
            return ""
        await self._ready()
        try:
            raw = urlsafe_b64decode(cursor.encode("ascii"))
        except ValueError:  # UnicodeEncodeError and binascii's error are of this kind
            raise _not_ours() from None
        place = raw[SEAL_BYTES:]
        if not hmac.compare_digest(raw[:SEAL_BYTES], self._seal(request, tenant, place)):
            raise _not_ours()
        return place.decode()

    async def further(self, request: Request, response: Response, tenant: str, place: str) -> str:
        """The cursor of the next page ('' at the end), which the header `Link` names too."""
        if not place:
            return ""
        await self._ready()
        cursor = urlsafe_b64encode(self._seal(request, tenant, place.encode()) + place.encode()).decode()
        link_to_next(request, response, cursor=cursor)
        return cursor

    def _seal(self, request: Request, tenant: str, place: bytes) -> bytes:
        where = sorted((name, value) for name, value in request.query_params.multi_items() if name not in UNBOUND)
        bound = canonical([tenant, request.url.path, [list(pair) for pair in where]])
        return hmac.digest(self._key, bound + b"\0" + place, sha256)[:SEAL_BYTES]

    async def _ready(self) -> None:
        if not self._key:
            row = await self._store.load(META, KEY)
            while not isinstance(row, Meta):
                with suppress(Stale):  # another process made one
                    await self._store.commit(
                        Commit((Put(META, Meta(*KEY, 1, new_credential()), 0),), label="cursor key")
                    )
                row = await self._store.load(META, KEY)
            self._key = row.value.encode()


def link_to_next(request: Request, response: Response, **more: str) -> None:
    """Name the next page in the header `Link`: this address with these parameters."""
    url = request.url.include_query_params(**more)
    response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'


def _not_ours() -> InvalidInput:
    return InvalidInput(
        "this cursor is not one that this list gave", "it was changed, or belongs to another list or filter",
        "begin again without a cursor",
    )  # fmt: skip
