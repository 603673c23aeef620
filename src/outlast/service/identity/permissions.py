"""Whether a caller may do an operation: one table, permissions.toml, closed by default."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from outlast.errors import Forbidden
from outlast.service.identity.principal import Principal


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
