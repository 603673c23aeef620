"""The public keys of an issuer, fetched over HTTP (JWKS) often enough to forget revoked ones, and no oftener."""

import asyncio
import json
import logging
from collections.abc import Collection
from typing import Any, Final

import httpx
from jwt import PyJWK, PyJWTError

from outlast.core.clock import Clock
from outlast.errors import Unverifiable

REFRESH_MS: Final = 300_000
"""Keys older than this are fetched anew before they prove anything: a revoked one stops within five minutes …"""
LIFETIME_MS: Final = 900_000
"""… and, where the issuer cannot be reached, within fifteen: no older keys are believed at all."""
COOLDOWN_MS: Final = 10_000
"""Between two fetches, whatever is asked for and however the last one ended: a flood of unknown kids is one fetch."""
FETCH_S: Final = 5.0
BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100
KINDS: Final = frozenset({"RSA", "EC", "OKP"})  # no "oct": a shared secret is no public key

log: Final = logging.getLogger("outlast.service")


class IssuerKeys:
    """Keys by their id (kid). One fetch at a time; those who need it wait for it."""

    def __init__(self, url: str, algorithms: Collection[str], clock: Clock) -> None:
        self._url = url
        self._algorithms = frozenset(algorithms)
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at: int | None = None
        self._tried_at: int | None = None
        self._one = asyncio.Lock()

    async def find(self, kid: str) -> PyJWK | None:
        """The key of this id; None where the issuer has none. Raises Unverifiable: its keys cannot be had."""
        if self._age() >= REFRESH_MS or kid not in self._keys:
            await self._freshen()
        if self._age() >= LIFETIME_MS:
            raise Unverifiable(
                "credentials cannot be checked now",
                "the keys of the issuer cannot be fetched",
                "see that this server reaches the issuer; then try again",
            )
        return self._keys.get(kid)

    def _age(self) -> int:
        return LIFETIME_MS if self._fetched_at is None else self._clock.boot() - self._fetched_at

    async def _freshen(self) -> None:
        async with self._one:
            if self._tried_at is not None and self._clock.boot() - self._tried_at < COOLDOWN_MS:
                return  # somebody else has just fetched them, or tried to
            self._tried_at = self._clock.boot()
            try:
                async with asyncio.timeout(FETCH_S):
                    keys = self._read(await self._fetch())
            except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, RecursionError) as error:
                log.warning("the keys of %s cannot be fetched: %s", self._url, str(error) or type(error).__name__)
                return
            self._keys, self._fetched_at = keys, self._clock.boot()

    async def _fetch(self) -> bytes:
        async with httpx.AsyncClient(follow_redirects=False, timeout=FETCH_S) as client:
            async with client.stream("GET", self._url, headers={"Accept": "application/json"}) as answer:
                if answer.status_code != httpx.codes.OK:
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
