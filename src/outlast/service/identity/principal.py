"""Who a request comes from, as one verified credential says it."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Final, Protocol

from outlast.errors import Unauthenticated
from outlast.flow.people import EVERY_ROLE
from outlast.runtime.port import Actor
from outlast.service.identity.settings import is_loopback

NAME_CHARS_MAX: Final = 200
LOCAL: Final = "local:"  # what the command line calls whoever sits at the machine


@dataclass(frozen=True)
class Principal:
    """A verified caller. `person` is False for the credentials of agents and workers, which never decide (S6)."""

    tenant: str
    name: str
    roles: Container[str]
    claims: tuple[str, ...]
    """The roles by name, sorted, for the record; () for the local operator, who holds them all."""
    person: bool
    until_ms: int = 0
    """Since 1970: from then on the credential proves nothing; 0: it has no end."""

    def actor(self) -> Actor:
        """The same caller as `Operations` is bound to it."""
        return Actor(self.name, self.roles, self.claims, person=self.person)


class Authenticator(Protocol):
    """Turns the Authorization header of a request into the caller it proves."""

    async def authenticate(self, authorization: str, client: str) -> Principal:
        """The caller. `authorization`: the header's value, '' without one; `client`: the peer's address.

        Raises Unauthenticated (401), TooManyFailures (429), Unverifiable (503: the issuer's keys cannot be had).
        """


class Anonymous:
    """No authentication: everybody who reaches the socket is the local operator. For loopback only (S34)."""

    def __init__(self, name: str, *, tenant: str = "default") -> None:
        self._principal = Principal(tenant, name, EVERY_ROLE, (), person=True)

    async def authenticate(self, authorization: str, client: str) -> Principal:
        """The local operator, whatever the header says. Raises Unauthenticated: the peer is not this machine."""
        if not is_loopback(client):
            raise Unauthenticated(
                "this service has no authentication, so it is for this machine only",
                f"the request comes from {client or 'nowhere'}",
                "set up authentication: outlast token new NAME viewer",
                refusal="not_local",
            )
        return self._principal


def refusal_of_name(name: object) -> str:
    """Why this cannot name a caller in the record of who did what; '' where it can."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
        return f"is no text of 1 to {NAME_CHARS_MAX} characters"
    if not name.isprintable() or name != name.strip():
        return "holds characters that cannot be seen"
    if name.lower().startswith(LOCAL):
        return f"begins with {LOCAL}, which is for the command line"
    return ""
