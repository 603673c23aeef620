"""The public keys of an issuer, fetched over HTTP (JWKS) in the background."""

import asyncio
import json
import logging
from collections.abc import Collection
from typing import Any, Final

import httpx2
from jwt import PyJWK, PyJWTError

from outlast.core.clock import Clock
from outlast.errors import Unverifiable

REFRESH_MS: Final = 240_000
"""Period of the fetch in the background: a revoked key stops within five minutes, the time of a fetch included."""
LIFETIME_MS: Final = 900_000
"""Age from which a key proves nothing: if the issuer cannot be reached, a revoked key stops within 15 minutes."""
COOLDOWN_MS: Final = 10_000
"""Shortest time between two fetches, so that a flood of unknown key ids costs the issuer one request."""
FETCH_S: Final = 5.0
BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100
KINDS: Final = frozenset({"RSA", "EC", "OKP"})  # no "oct": a shared secret is no public key

log: Final = logging.getLogger("outlast.service")


class IssuerKeys:
    """The public keys of one issuer by key id (kid), kept fresh by fetches in the background."""

    def __init__(self, url: str, algorithms: Collection[str], clock: Clock) -> None:
        self._url = url
        self._algorithms = frozenset(algorithms)
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at: int | None = None
        self._tried_at: int | None = None
        self._used_at = 0
        self._fetching: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    async def find(self, kid: str) -> PyJWK | None:
        """Return the key with this id, or None if the issuer has none.

        A known key is returned without waiting, because an issuer that hangs must not delay tokens that can be
        verified. Raises Unverifiable if no key is young enough to be believed.
        """
        self._used_at = self._clock.boot()
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        if kid not in self._keys or self._age() >= LIFETIME_MS:
            if fetching := self._begin_fetch():
                await asyncio.shield(fetching)  # a caller that disconnects must not cancel the fetch of the others
        elif self._age() >= REFRESH_MS:
            self._begin_fetch()
        if self._age() >= LIFETIME_MS:
            raise Unverifiable(
                "credentials cannot be checked now",
                "the keys of the issuer cannot be fetched",
                "see that this server reaches the issuer; then try again",
            )
        return self._keys.get(kid)

    def _age(self) -> int:
        return LIFETIME_MS if self._fetched_at is None else self._clock.boot() - self._fetched_at

    async def _refresh(self) -> None:
        """Fetch once per REFRESH_MS while tokens are read, so that a revoked key also stops when tokens are rare."""
        while self._clock.boot() - self._used_at < LIFETIME_MS:
            await self._clock.sleep(REFRESH_MS)
            self._begin_fetch()

    def _begin_fetch(self) -> "asyncio.Task[None] | None":
        """Return the fetch under way, which may be a new one; None within COOLDOWN_MS of the last one."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        now = self._clock.boot()
        if self._tried_at is not None and now - self._tried_at < COOLDOWN_MS:
            return None
        self._tried_at = now
        self._fetching = asyncio.create_task(self._replace())
        return self._fetching

    async def _replace(self) -> None:
        """Replace the keys by those of the issuer; keep them and log a warning if the fetch fails."""
        try:
            async with asyncio.timeout(FETCH_S):
                keys = self._read(await self._fetch())
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, RecursionError) as error:
            log.warning("the keys of %s cannot be fetched: %s", self._url, str(error) or type(error).__name__)
            return
        self._keys, self._fetched_at = keys, self._clock.boot()

    async def _fetch(self) -> bytes:
        async with httpx2.AsyncClient(follow_redirects=False, timeout=FETCH_S) as client:
            async with client.stream("GET", self._url, headers={"Accept": "application/json"}) as answer:
                if answer.status_code != httpx2.codes.OK:
                    raise ValueError(f"status {answer.status_code}")
                body = b""
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > BYTES_MAX:
                        raise ValueError(f"more than {BYTES_MAX} bytes")
                return body

    def _read(self, body: bytes) -> dict[str, PyJWK]:
        """The keys that can be used. Raises ValueError where the document is none, or holds no such key."""
        document: Any = json.loads(body)
        entries = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(entries, list) or len(entries) > KEYS_MAX:
            raise ValueError("no JSON Web Key Set")
        found: dict[str, PyJWK] = {}
        for entry in entries:
            if key := self._usable(entry):
                found.setdefault(str(key.key_id), key)
        if not found:
            raise ValueError("no key in it can be used")
        return found

    def _usable(self, entry: Any) -> PyJWK | None:
        if not isinstance(entry, dict) or entry.get("kty") not in KINDS or not isinstance(entry.get("kid"), str):
            return None
        uses = entry.get("key_ops", ["verify"])
        if entry.get("use", "sig") != "sig" or not isinstance(uses, list) or "verify" not in uses:
            return None
        try:
            key = PyJWK(entry)
        except (PyJWTError, TypeError, ValueError) as error:
            log.warning("a key of %s cannot be used: %s", self._url, type(error).__name__)
            return None
        return key if key.algorithm_name in self._algorithms else None
