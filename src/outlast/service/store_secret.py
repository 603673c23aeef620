"""Secret of a store, shared by its services, and the keys derived from it."""

import hmac
from contextlib import suppress
from hashlib import sha256
from typing import Final

from outlast.clocks import new_credential
from outlast.core.commit import Commit, Put
from outlast.core.rows.store_rows import META, STORE, Meta
from outlast.errors import Stale
from outlast.store.port import Store

ROW: Final = (STORE, "service_secret")
"""Key of the meta row with the secret, which the first service creates. It is absent from exports."""


class StoreSecret:
    """Random secret in the store. Each purpose has its own key, so that a text made for one is invalid for another."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._secret = b""
        self._keys: dict[str, bytes] = {}

    @property
    def is_ready(self) -> bool:
        """True once the secret was read."""
        return bool(self._secret)

    async def ready(self) -> None:
        """Read the secret once, and create it if the store has none."""
        if not self._secret:
            row = await self._store.load(META, ROW)
            while row is None:
                with suppress(Stale):  # another process created it
                    await self._store.commit(
                        Commit((Put(META, Meta(*ROW, 1, new_credential()), 0),), label="service secret")
                    )
                row = await self._store.load(META, ROW)
            self._secret = row.value.encode()

    def key(self, purpose: str) -> bytes:
        """Return the key of 32 bytes for a purpose. `ready` has returned before."""
        assert self._secret, "the secret is read first"
        if purpose not in self._keys:
            self._keys[purpose] = hmac.digest(self._secret, purpose.encode(), sha256)
        return self._keys[purpose]
