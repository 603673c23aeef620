"""Tokens signed by an issuer (JWT), verified strictly with PyJWT, and the issuer's public keys (JWKS)."""

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import jwt
from jwt import PyJWK, PyJWTError

from outlast.core.approver_rule import refusal_of_name
from outlast.core.clock_port import Clock
from outlast.core.keys import check_name
from outlast.core.limits import NAME
from outlast.errors import InvalidInput, Unauthenticated, Unverifiable
from outlast.runtime.settings import AuthSettings
from outlast.service.identity.listen import is_loopback
from outlast.service.identity.permissions import Principal, permissions
from outlast.service.strict_json import read_json

REFRESH_MS: Final = 240_000
"""Period of background fetches, so that a revoked key stops working within five minutes."""
LIFETIME_MS: Final = 900_000
"""Maximum age of a key. A revoked key stops working within 15 minutes even if the issuer cannot be reached."""
COOLDOWN_MS: Final = 10_000
"""Shortest time between two fetches, so that a flood of unknown key ids costs the issuer one request."""
FETCH_S: Final = 5.0
BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100
KINDS: Final = frozenset({"RSA", "EC", "OKP"})  # not "oct", because a shared secret is not a public key


async def read_answer(answer: httpx2.Response) -> bytes:
    """Read the body of an issuer's answer. Raises ValueError if it has more than BYTES_MAX."""
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > BYTES_MAX:
            raise ValueError(f"more than {BYTES_MAX} bytes")
    return body


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
        verified. Raises Unverifiable if the keys are too old.
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
                "check that this server reaches the issuer, then try again",
            )
        return self._keys.get(kid)

    def _age(self) -> int:
        return LIFETIME_MS if self._fetched_at is None else self._clock.boot() - self._fetched_at

    async def _refresh(self) -> None:
        """Fetch once per REFRESH_MS while tokens arrive, so that a revoked key stops working even if they are rare."""
        while self._clock.boot() - self._used_at < LIFETIME_MS:
            await self._clock.sleep(REFRESH_MS)
            self._begin_fetch()

    def _begin_fetch(self) -> "asyncio.Task[None] | None":
        """Return the fetch in progress, started if necessary, or None within COOLDOWN_MS of the last one."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        now = self._clock.boot()
        if self._tried_at is not None and now - self._tried_at < COOLDOWN_MS:
            return None
        self._tried_at = now
        self._fetching = asyncio.create_task(self._replace())
        return self._fetching

    async def _replace(self) -> None:
        """Replace the keys with those of the issuer. Keep them and log a warning if the fetch fails."""
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
                return await read_answer(answer)

    def _read(self, body: bytes) -> dict[str, PyJWK]:
        """Return the usable keys of a key set. Raises ValueError if it is invalid or has none."""
        document: Any = json.loads(body)
        entries = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(entries, list) or len(entries) > KEYS_MAX:
            raise ValueError("not a JSON Web Key Set")
        found: dict[str, PyJWK] = {}
        for entry in entries:
            if key := self._usable(entry):
                found.setdefault(str(key.key_id), key)
        if not found:
            raise ValueError("it has no usable key")
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


TOKEN_BYTES_MAX: Final = 8 * 1024
KID_CHARS_MAX: Final = 200
ROLES_MAX: Final = 256
PROGRAMS: Final = frozenset({"agent", "worker"})
"""Roles of programs. A token with one of them never belongs to a person."""
NEVER: Final = frozenset({"jwk", "jku", "x5u", "x5c", "crit", "b64", "zip"})
"""Headers with which a token would supply its own key or its own rules."""
TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt", "application/jwt"})
LATEST_S: Final = 253_402_300_799  # the end of the year 9999, the last instant that can be written
TIMES: Final = ("exp", "nbf", "iat")
EXPIRED: Final = "token_expired"
MISMATCH: Final = (
    jwt.InvalidAudienceError, jwt.InvalidIssuerError, jwt.MissingRequiredClaimError, jwt.ImmatureSignatureError,
    jwt.InvalidIssuedAtError, jwt.exceptions.InvalidSubjectError, jwt.exceptions.InvalidJTIError,
)  # fmt: skip
"""Errors of a token with a valid signature: made for another service, with another clock, or other settings."""

log = logging.getLogger("outlast.service")


class SignedTokens:
    """Verifier of the tokens of one issuer."""

    def __init__(self, settings: AuthSettings, keys: IssuerKeys) -> None:
        self._settings = settings
        self._keys = keys

    async def read(self, token: str) -> Principal:
        """Return the caller that the token proves. Raises Unauthenticated, Unverifiable."""
        return self._principal(await self.verified(token))

    async def verified(self, token: str, audience: str = "") -> dict[str, Any]:
        """Return the claims of a token made for `audience`, by default this service.

        Raises Unauthenticated, Unverifiable.
        """
        if len(token) > TOKEN_BYTES_MAX:
            raise refused("too_large", guess=False)
        header = _header(token)
        kid, algorithm = header.get("kid"), header.get("alg")
        if not isinstance(kid, str) or not 0 < len(kid) <= KID_CHARS_MAX or algorithm not in self._settings.algorithms:
            raise refused("invalid")
        key = await self._keys.find(kid)
        if key is None:
            raise refused("invalid", guess=False)  # not a guess, because the issuer may have just changed its keys
        return self._decoded(token, key, audience or self._settings.audience)

    def _decoded(self, token: str, key: jwt.PyJWK, audience: str) -> dict[str, Any]:
        settings = self._settings
        try:
            return _STRICT.decode(
                token,
                key,
                algorithms=settings.algorithms,
                issuer=settings.issuer,
                audience=audience,
                leeway=settings.leeway_s,
                options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
            )
        except jwt.ExpiredSignatureError:
            raise refused(EXPIRED, guess=False) from None
        except MISMATCH as error:  # details only for the operator, because the caller may be a stranger
            log.warning("a token signed by the issuer is refused: %s", error)
            raise refused("invalid", guess=False) from None
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise refused("invalid") from None

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        """Return the caller in the claims. Raises Unauthenticated if tenant, name or roles are unusable."""
        settings = self._settings
        tenant, name = _claim(claims, settings.tenant_claim), _claim(claims, settings.name_claim)
        if settings.tenant and tenant in (None, settings.tenant):  # a token of another tenant is refused, never adopted
            tenant = settings.tenant
        elif settings.tenant:
            raise _mismatch(f"{settings.tenant_claim} names another tenant")
        try:
            check_name("tenant", tenant)
        except InvalidInput:
            raise _mismatch(f"{settings.tenant_claim} is not a tenant name") from None
        if why := refusal_of_name(name):
            raise _mismatch(f"{settings.name_claim}: {why}")
        roles = self._roles(claims)
        until_ms = int(min(claims["exp"] + settings.leeway_s, LATEST_S) * 1000)
        return Principal(tenant, name, roles, tuple(sorted(roles)), self._is_person(claims, roles), until_ms)

    def _roles(self, claims: Mapping[str, Any]) -> frozenset[str]:
        """Return the roles of the tenant, and those of the installation, which only `installation_claim` gives."""
        settings, ours = self._settings, permissions().installation
        roles = _words(_claim(claims, settings.roles_claim))
        if len(roles) > ROLES_MAX:
            raise _mismatch(f"{settings.roles_claim} lists more than {ROLES_MAX} roles")
        given = _words(_claim(claims, settings.installation_claim)) if settings.installation_claim else frozenset()
        return roles - ours | given & ours

    def _is_person(self, claims: Mapping[str, Any], roles: frozenset[str]) -> bool:
        """Return True if the issuer says so, and no program acts for the person (`act`, RFC 8693).

        Raises Unauthenticated if the claim is neither true nor false: a text such as "No" could be read as either.
        """
        path = self._settings.person_claim
        value = _claim(claims, path) if path else None
        if value is not None and not isinstance(value, bool):
            log.warning("a token is refused: %s is neither true nor false (auth.person_claim)", path)
            raise _mismatch(f"{path} is neither true nor false, so it is unclear whether this is a person")
        return value is True and "act" not in claims and not roles & PROGRAMS


def is_safe(url: str) -> bool:
    """Return True if a URL of the issuer is https, or http on this machine, and has no password."""
    parts = urlsplit(url)
    if parts.username or parts.password or not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))


class BadCredential(Unauthenticated):
    """Invalid credential. `guess` is True if it may be made up, so that it counts towards a lock-out."""

    def __init__(self, what: str, why: str, fix: str, *, refusal: str, guess: bool) -> None:
        super().__init__(what, why, fix, refusal=refusal)
        self.guess = guess


def refused(refusal: str, why: str = "", *, guess: bool = True) -> BadCredential:
    """Return the error for an invalid credential, without details because the caller may be a stranger."""
    reasons = {EXPIRED: "it has expired", "too_large": f"at most {TOKEN_BYTES_MAX:,} bytes"}
    return BadCredential(
        "the credential is invalid",
        why or reasons.get(refusal, "this service does not accept it"),
        "send Authorization: Bearer … with a valid token",
        refusal=refusal,
        guess=guess,
    )


def _mismatch(why: str) -> BadCredential:
    """Return the error for a token with a valid signature and unusable claims."""
    return refused("claims", why, guess=False)


class _Strict(jwt.PyJWT):
    """PyJWT that refuses duplicate claims and times that are not numbers."""

    def _decode_payload(self, decoded: dict[str, Any]) -> dict[str, Any]:
        payload = _object(decoded["payload"])
        for name in TIMES:
            if name in payload and (isinstance(payload[name], bool) or not isinstance(payload[name], int | float)):
                raise jwt.DecodeError(f"{name} is not a number")
        return payload


_STRICT: Final = _Strict()


def _header(token: str) -> dict[str, Any]:
    """Return the unverified header. Raises Unauthenticated if it is malformed or supplies its own key."""
    try:
        first = token.split(".", 1)[0].encode("ascii")
        header = _object(base64.urlsafe_b64decode(first + b"=" * (-len(first) % 4)))
    except (ValueError, binascii.Error, jwt.DecodeError):
        raise refused("invalid") from None
    kind = header.get("typ", "JWT")
    if NEVER & set(header) or not isinstance(kind, str) or kind.lower() not in TYPES:
        raise refused("invalid")
    return header


def _object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object without duplicate names, because two readers could see different callers."""
    try:
        found = read_json(data)
    except (ValueError, RecursionError) as error:
        raise jwt.DecodeError("no JSON object") from error
    if not isinstance(found, dict):
        raise jwt.DecodeError("no JSON object")
    return found


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or None."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _words(value: Any) -> frozenset[str]:
    """Return the roles in a list, or in words between spaces, without those that cannot be the name of a role."""
    words = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(word for word in words if isinstance(word, str) and NAME.fullmatch(word))
