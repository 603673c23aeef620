"""Authenticator of a service: tokens of an issuer, our own tokens, and the lock-out of guessing addresses."""

import hashlib
import math
from collections.abc import Callable
from typing import Final

from outlast.core.clock_port import Clock
from outlast.core.limits import NAME
from outlast.errors import InvalidInput, TooManyFailures, Unauthenticated
from outlast.runtime.settings import AuthSettings
from outlast.service.identity.issuer_sign_in import IssuerSignIn
from outlast.service.identity.lockout import GOOD_EVERY_MS, GOOD_MS, MOST, WITHIN_MS, FailedCredentials, SlotTables
from outlast.service.identity.permissions import Principal
from outlast.service.identity.signed_tokens import (
    TOKEN_BYTES_MAX,
    BadCredential,
    IssuerKeys,
    SignedTokens,
    is_safe,
    refused,
)
from outlast.service.identity.static_tokens import PREFIX, StaticTokens, read_lines

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Allowed algorithms: those with public keys, so neither shared secrets nor `none`."""
LEEWAY_MAX_S: Final = 60


class Credentials:
    """Authenticator that reads the header Authorization. Create it with `authenticator`."""

    def __init__(
        self,
        static: StaticTokens,
        signed: SignedTokens | None,
        failures: FailedCredentials,
        sign_in: IssuerSignIn | None = None,
    ) -> None:
        self.sign_in = sign_in
        self._static = static
        self._signed = signed
        self._failures = failures

    async def authenticate(self, authorization: str, client: str) -> Principal:
        """Return the caller. Raises Unauthenticated, TooManyFailures, Unverifiable.

        A lock-out of the address spares two callers: one whose token an issuer signed, because a signature cannot be
        guessed, and one whose token of ours was good within GOOD_MS.
        """
        if not authorization:
            raise Unauthenticated(
                "a credential is required", "the request has none", "send Authorization: Bearer …", refusal="missing"
            )
        scheme, _, token = authorization.partition(" ")
        try:
            if scheme.lower() != "bearer":
                raise refused("invalid")
            return await self._read(token, lambda: self._check(client))
        except BadCredential as error:
            if error.guess:
                self._check(client)
                self._failures.note(client)
            raise

    async def resume(self, credential: str) -> Principal:
        """Return the caller of a session. Raises Unauthenticated, Unverifiable.

        This service accepted the credential once and sealed it, so it cannot be made up. It therefore never counts as
        a guess, and a lock-out of the address spares it.
        """
        return await self._read(credential, lambda: None)

    async def _read(self, token: str, check: Callable[[], None]) -> Principal:
        """Return the caller of a token. `check` raises if a static token that was not good lately may not be tried."""
        if len(token) > TOKEN_BYTES_MAX:
            raise refused("too_large", guess=False)
        if not token or not _is_plain(token):
            raise refused("invalid")
        if token.startswith(PREFIX):
            return self._own(token, check)
        if self._signed is None:
            raise refused("invalid")
        return await self._signed.read(token)

    def _own(self, token: str, check: Callable[[], None]) -> Principal:
        digest = hashlib.sha256(token.encode()).digest()
        ago_ms = self._failures.good_ago(digest)
        if ago_ms >= GOOD_MS:
            check()
        principal = self._static.read(digest)
        if ago_ms >= GOOD_EVERY_MS:
            self._failures.good(digest)
        return principal

    def _check(self, client: str) -> None:
        """Raise TooManyFailures if this address is locked out."""
        if left_ms := self._failures.locked_ms(client):
            raise TooManyFailures(
                "too many invalid credentials from this address",
                f"{MOST} within {WITHIN_MS // 1000} s",
                "correct the credential, and wait",
                retry_after_s=math.ceil(left_ms / 1000),
            )


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token


def authenticator(settings: AuthSettings, clock: Clock, *, shared: int | None = None) -> Credentials:
    """Return the authenticator that these settings describe.

    `shared` is a descriptor of `shared_file` if several processes count failures together. Raises InvalidInput that
    lists all problems of the settings.
    """
    check_auth_settings(settings)
    signed = sign_in = None
    if settings.signed:
        signed = SignedTokens(settings, IssuerKeys(settings.jwks_url, settings.algorithms, clock))
        sign_in = IssuerSignIn(settings, signed, clock) if settings.client_id else None
    static = StaticTokens(read_lines(settings.tokens.get_secret_value()), clock)
    return Credentials(static, signed, FailedCredentials(clock, SlotTables(shared)), sign_in)


def check_auth_settings(settings: AuthSettings) -> None:
    """Raise InvalidInput that lists all missing and insecure settings."""
    problems: list[tuple[str, str]] = []
    if settings.signed:
        needed = ("issuer", "audience", "jwks_url", *(() if settings.tenant else ("tenant_claim",)), "roles_claim",
                  "name_claim")  # fmt: skip
        problems += [(f"auth.{name}", "missing") for name in needed if not getattr(settings, name)]
        if settings.tenant and not NAME.fullmatch(settings.tenant):
            problems.append(("auth.tenant", "cannot name a tenant"))
        if not settings.algorithms:
            problems.append(("auth.algorithms", "is empty"))
        problems += [
            ("auth.algorithms", f"{name!r} is not one of {', '.join(sorted(ALGORITHMS))}")
            for name in settings.algorithms
            if name not in ALGORITHMS
        ]
        if settings.jwks_url and not is_safe(settings.jwks_url):
            problems.append(
                (
                    "auth.jwks_url",
                    "must be https, or an attacker could replace the keys",
                )
            )
        if settings.client_id and not is_safe(settings.issuer):
            problems.append(("auth.issuer", "must be https for the sign-in by auth.client_id"))
        if settings.client_id and "openid" not in settings.scopes:
            problems.append(("auth.scopes", "must contain openid"))
        if not 0 <= settings.leeway_s <= LEEWAY_MAX_S:
            problems.append(("auth.leeway_s", f"from 0 to {LEEWAY_MAX_S} seconds"))
    if problems:
        raise InvalidInput("the settings of authentication are invalid", problems=problems, fix="see security.md")
