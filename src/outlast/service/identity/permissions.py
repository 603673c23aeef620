"""Whether a caller may do an operation: one table, permissions.toml, closed by default."""

import tomllib
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Protocol

from outlast.errors import Forbidden, Unauthenticated
from outlast.flow.approval_rule import EVERY_ROLE
from outlast.runtime.port import Actor
from outlast.service.identity.listen import is_loopback

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


@dataclass(frozen=True)
class Permissions:
    """operation id → the roles that may do it, those included through others among them."""

    roles: Mapping[str, frozenset[str]]
    people_only: frozenset[str]
    installation: frozenset[str] = frozenset()
    """Roles of the installation, which no tenant gives."""

    @classmethod
    def parse(cls, text: str) -> "Permissions":
        """The table as permissions.toml writes it. Raises ValueError for one that contradicts itself."""
        given: dict[str, Any] = tomllib.loads(text)
        includes: dict[str, list[str]] = given["includes"]
        known = {name for names in includes.values() for name in names} | set(includes)
        operations: dict[str, list[str]] = given["operations"]
        people = frozenset(given["people"]["operations"])
        if unknown := {name for names in operations.values() for name in names} - known:
            raise ValueError(f"permissions.toml names roles that it does not know: {', '.join(sorted(unknown))}")
        if astray := people - set(operations):
            raise ValueError(f"permissions.toml keeps for people what it does not list: {', '.join(sorted(astray))}")
        installation = frozenset(given.get("installation", {}).get("roles", ()))
        held = {role: _held(role, includes) for role in known}
        if mixed := {role for role in known - installation if held[role] & installation}:
            raise ValueError(f"permissions.toml gives roles of the installation to tenants: {', '.join(sorted(mixed))}")
        roles = {name: frozenset(r for r in known if held[r] & set(least)) for name, least in operations.items()}
        return cls(roles, people, installation)

    def permit(self, principal: Principal, operation_id: str) -> None:
        """Return where the caller may do it. Raises Forbidden: `not_listed`, `not_a_person`, `role`."""
        allowed = self.roles.get(operation_id, frozenset())
        if not allowed:
            raise Forbidden(
                f"nobody may do {operation_id}",
                "it is not in the table of permissions, and what is not listed is refused",
                refusal="not_listed",
            )
        if operation_id in self.people_only and not principal.person:
            raise Forbidden(
                f"{principal.name} may not {operation_id.replace('_', ' ')}",
                "the credential belongs to a program, and only people decide, whatever roles it holds",
                "let a person do it, with a credential of his or her own",
                refusal="not_a_person",
            )
        if not any(role in principal.roles for role in allowed):
            raise Forbidden(
                f"{principal.name} may not {operation_id.replace('_', ' ')}",
                f"it takes {'one of the roles' if len(allowed) > 1 else 'the role'} {', '.join(sorted(allowed))}"
                f"{', of the installation and not of a tenant' if allowed <= self.installation else ''}",
                "ask the operator of this installation for a credential that has it",
                refusal="role",
            )


def _held(role: str, includes: Mapping[str, list[str]]) -> frozenset[str]:
    """The role, and every role whose rights it holds."""
    found, ahead = {role}, [role]
    while ahead:
        new = [name for name in includes.get(ahead.pop(), ()) if name not in found]
        found.update(new)
        ahead += new
    return frozenset(found)


@cache
def permissions() -> Permissions:
    """The table that comes with the package."""
    return Permissions.parse(files(__package__).joinpath("permissions.toml").read_text(encoding="utf-8"))


def permit(principal: Principal, operation_id: str) -> None:
    """Return where the caller may do it, by the table that comes with the package. Raises Forbidden."""
    permissions().permit(principal, operation_id)
