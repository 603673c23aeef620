"""The authenticator of a service: tokens of an issuer, tokens of ours, and a lock for those who guess."""

import hashlib
from collections import OrderedDict
from typing import Final

from outlast.core.clock import Clock
from outlast.errors import Unauthenticated
from outlast.runtime.settings import AuthSettings
from outlast.service.identity.failures import Failures
from outlast.service.identity.keys import IssuerKeys
from outlast.service.identity.principal import Principal
from outlast.service.identity.settings import check
from outlast.service.identity.signed import EXPIRED, TOKEN_BYTES_MAX, SignedTokens, refused
from outlast.service.identity.static import PREFIX, StaticTokens, read_lines

KNOWN_MAX: Final = 10_000
KNOWN_MS: Final = 600_000


class Credentials:
    """Reads the Authorization header. Made by `authenticator`."""

    def __init__(self, static: StaticTokens, signed: SignedTokens | None, clock: Clock) -> None:
        self._static = static
        self._signed = signed
        self._clock = clock
        self._failures = Failures(clock)
        self._known: OrderedDict[bytes, int] = OrderedDict()  # hashes of what proved somebody, and when

    async def authenticate(self, authorization: str, client: str) -> Principal:
        """The caller. Raises Unauthenticated, TooManyFailures, Unverifiable.

        An address that is locked out is not looked at, but for a credential that has just been good: whoever guesses
        behind the same proxy locks out nobody who is at work there.
        """
        if not authorization:
            raise Unauthenticated(
                "this takes a credential", "the request carries none", "send Authorization: Bearer …", refusal="missing"
            )
        scheme, _, token = authorization.partition(" ")
        readable = scheme.lower() == "bearer" and 0 < len(token) <= TOKEN_BYTES_MAX and _is_plain(token)
        digest = hashlib.sha256(token.encode()).digest() if readable else b""
        if self._clock.boot() - self._known.get(digest, -KNOWN_MS) >= KNOWN_MS:
            self._failures.check(client)
        try:
            if not readable:
                raise refused("too_large" if len(token) > TOKEN_BYTES_MAX else "invalid")
            principal = await self._read(token)
        except Unauthenticated as error:
            self._known.pop(digest, None)
            if error.refusal != EXPIRED:  # it was good once: no guess
                self._failures.note(client)
            raise
        self._known[digest] = self._clock.boot()
        self._known.move_to_end(digest)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return principal

    async def _read(self, token: str) -> Principal:
        if token.startswith(PREFIX):
            return self._static.read(token)
        if self._signed is None:
            raise refused("invalid")
        return await self._signed.read(token)


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token


def authenticator(settings: AuthSettings, clock: Clock) -> Credentials:
    """The authenticator that these settings describe. Raises InvalidInput that names everything wrong with them."""
    check(settings)
    signed = None
    if settings.signed:
        signed = SignedTokens(settings, IssuerKeys(settings.jwks_url, settings.algorithms, clock))
    return Credentials(StaticTokens(read_lines(settings.tokens.get_secret_value()), clock), signed, clock)
