"""Callers, and the table of operations that their roles permit, closed by default.

An operation of `/v1` names its roles in its declaration. permissions.toml has the roles, and the few operations that
are not declared. `tests/security/matrix.csv` shows the whole table.
"""

import tomllib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from outlast.core.approvals import EVERY_ROLE, Actor
from outlast.errors import Forbidden, Unauthenticated
from outlast.operations import OPERATIONS
from outlast.operations.declaration import Operation
from outlast.service.identity.listen import is_loopback


@dataclass(frozen=True)
class Principal:
    """Authenticated caller. `person` is False for programs, which never decide (S6)."""

    tenant: str
    name: str
    roles: Container[str]
    claims: tuple[str, ...]
    """Sorted names of the roles, for the record; () for the local operator, who has all roles."""
    person: bool
    until_ms: int = 0
    """Expiry of the credential in milliseconds since 1970; 0 if it does not expire."""

    def actor(self) -> Actor:
        """Return the actor to which `Operations` is bound."""
        return Actor(self.name, self.roles, self.claims, person=self.person)


class Authenticator(Protocol):
    """Protocol that turns the header Authorization into a caller."""

    async def authenticate(self, authorization: str, client: str) -> Principal:
        """Return the caller. `authorization` is the header, or ''; `client` is the address of the peer.

        Raises Unauthenticated (401), TooManyFailures (429), Unverifiable (503, the issuer's keys are unavailable).
        """


class Anonymous:
    """Authenticator for loopback without credentials: every caller is the local operator (S34)."""

    def __init__(self, name: str, *, tenant: str = "default") -> None:
        self._principal = Principal(tenant, name, EVERY_ROLE, (), person=True)

    async def authenticate(self, authorization: str, client: str) -> Principal:
        """Return the local operator. Raises Unauthenticated if the peer is another machine."""
        if not is_loopback(client):
            raise Unauthenticated(
                "without authentication this service only answers this machine",
                f"the request comes from {client or 'nowhere'}",
                "set up authentication: outlast token new NAME viewer",
                refusal="not_local",
            )
        return self._principal


@dataclass(frozen=True)
class Permissions:
    """Table of permissions: the roles that may use each operation, including inherited ones."""

    roles: Mapping[str, frozenset[str]]
    people_only: frozenset[str]
    installation: frozenset[str] = frozenset()
    """Roles of the installation, which do not belong to a tenant."""

    @classmethod
    def parse(cls, text: str, declared: Iterable[Operation[Any, Any]] = ()) -> "Permissions":
        """Parse permissions.toml, and add the declared operations. Raises ValueError if both are inconsistent."""
        given: dict[str, Any] = tomllib.loads(text)
        includes: dict[str, list[str]] = given["includes"]
        known = {name for names in includes.values() for name in names} | set(includes)
        rights = _rights_of(declared)
        by_hand: dict[str, list[str]] = given["operations"]
        if twice := rights.keys() & by_hand.keys():
            raise ValueError(f"permissions.toml lists declared operations: {', '.join(sorted(twice))}")
        operations = {**by_hand, **{name: roles for name, (roles, _) in rights.items()}}
        if unknown := {name for names in operations.values() for name in names} - known:
            raise ValueError(f"operations name unknown roles: {', '.join(sorted(unknown))}")
        installation = frozenset(given.get("installation", {}).get("roles", ()))
        held = {role: _included(role, includes) for role in known}
        if mixed := {role for role in known - installation if held[role] & installation}:
            raise ValueError(
                f"permissions.toml includes roles of the installation in roles of tenants: {', '.join(sorted(mixed))}"
            )
        roles = {name: frozenset(r for r in known if held[r] & set(least)) for name, least in operations.items()}
        return cls(roles, frozenset(name for name, (_, people_only) in rights.items() if people_only), installation)

    def permit(self, principal: Principal, operation_id: str) -> None:
        """Raise Forbidden if the caller may not use the operation: `not_listed`, `not_a_person`, `role`."""
        allowed = self.roles.get(operation_id, frozenset())
        if not allowed:
            raise Forbidden(
                f"no role permits {operation_id}",
                "the table of permissions does not list it, and unlisted operations are refused",
                refusal="not_listed",
            )
        if operation_id in self.people_only and not principal.person:
            raise Forbidden(
                f"{principal.name} may not {operation_id.replace('_', ' ')}",
                "the credential belongs to a program, and only people decide",
                "let a person do it with a personal credential",
                refusal="not_a_person",
            )
        if not any(role in principal.roles for role in allowed):
            raise Forbidden(
                f"{principal.name} may not {operation_id.replace('_', ' ')}",
                f"it requires {'one of the roles' if len(allowed) > 1 else 'the role'} {', '.join(sorted(allowed))}"
                f"{', of the installation and not of a tenant' if allowed <= self.installation else ''}",
                "ask the operator of this installation for a credential with it",
                refusal="role",
            )


def _rights_of(declared: Iterable[Operation[Any, Any]]) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Return the roles of each operation, and True if it is for people only. Raises ValueError if two differ."""
    found: dict[str, tuple[tuple[str, ...], bool]] = {}
    for each in declared:
        rights = (each.roles, each.people_only)
        if found.setdefault(each.id, rights) != rights:
            raise ValueError(f"{each.id} is declared twice, with different rights")
    return found


def _included(role: str, includes: Mapping[str, list[str]]) -> frozenset[str]:
    """Return the role and all roles that it includes."""
    found, ahead = {role}, [role]
    while ahead:
        new = [name for name in includes.get(ahead.pop(), ()) if name not in found]
        found.update(new)
        ahead += new
    return frozenset(found)


@cache
def permissions() -> Permissions:
    """Return the table of the package."""
    return Permissions.parse(files(__package__).joinpath("permissions.toml").read_text(encoding="utf-8"), OPERATIONS)


def permit(principal: Principal, operation_id: str) -> None:
    """Raise Forbidden if the table of the package does not permit the operation to the caller."""
    permissions().permit(principal, operation_id)


def is_permitted(principal: Principal, operation_id: str) -> bool:
    """Return True if the table of the package permits the operation to the caller."""
    try:
        permit(principal, operation_id)
    except Forbidden:
        return False
    return True
