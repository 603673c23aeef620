"""The authenticator of a service: tokens of an issuer, tokens of ours, and a lock for those who guess."""

import hashlib
import math

from outlast.core.clock import Clock
from outlast.errors import TooManyFailures, Unauthenticated
from outlast.runtime.settings import AuthSettings
from outlast.service.identity.listen import check
from outlast.service.identity.lockout import GOOD_EVERY_MS, GOOD_MS, MOST, WITHIN_MS, Failures, SlotTables
from outlast.service.identity.permissions import Principal
from outlast.service.identity.signed_tokens import TOKEN_BYTES_MAX, BadCredential, IssuerKeys, SignedTokens, refused
from outlast.service.identity.static_tokens import PREFIX, StaticTokens, read_lines


class Credentials:
    """Reads the Authorization header. Made by `authenticator`."""

    def __init__(self, static: StaticTokens, signed: SignedTokens | None, failures: Failures) -> None:
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
                "this takes a credential", "the request carries none", "send Authorization: Bearer …", refusal="missing"
            )
        scheme, _, token = authorization.partition(" ")
        try:
            if len(token) > TOKEN_BYTES_MAX:
                raise refused("too_large", guess=False)
            if scheme.lower() != "bearer" or not token or not _is_plain(token):
                raise refused("invalid")
            if token.startswith(PREFIX):
                return self._own(token, client)
            if self._signed is None:
                raise refused("invalid")
            return await self._signed.read(token)
        except BadCredential as error:
            if error.guess:
                self._check(client)
                self._failures.note(client)
            raise

    def _own(self, token: str, client: str) -> Principal:
        digest = hashlib.sha256(token.encode()).digest()
        ago_ms = self._failures.good_ago(digest)
        if ago_ms >= GOOD_MS:
            self._check(client)
        principal = self._static.read(digest)
        if ago_ms >= GOOD_EVERY_MS:
            self._failures.good(digest)
        return principal

    def _check(self, client: str) -> None:
        """Raise TooManyFailures if this address is locked out."""
        if left_ms := self._failures.locked_ms(client):
            raise TooManyFailures(
                "too many credentials from this address proved nothing",
                f"{MOST} within {WITHIN_MS // 1000} s",
                "mend the caller, and wait",
                retry_after_s=math.ceil(left_ms / 1000),
            )


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token


def authenticator(settings: AuthSettings, clock: Clock, *, shared: int | None = None) -> Credentials:
    """Return the authenticator that these settings describe. Raises InvalidInput that names everything wrong with them.

    `shared`: a descriptor of `shared_file`, if several processes count failures together.
    """
    check(settings)
    signed = None
    if settings.signed:
        signed = SignedTokens(settings, IssuerKeys(settings.jwks_url, settings.algorithms, clock))
    static = StaticTokens(read_lines(settings.tokens.get_secret_value()), clock)
    return Credentials(static, signed, Failures(clock, SlotTables(shared)))
