"""The table of permissions: closed by default, with operations for people only."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from outlast.core.approvals import EVERY_ROLE
from outlast.errors import Forbidden
from outlast.operations.declaration import Operation
from outlast.operations.run_operations import LIST_RUNS
from outlast.service.identity import Anonymous, Permissions, Principal, permissions, permit


def caller(*roles: str, person: bool = True) -> Principal:
    return Principal("acme", "ana", frozenset(roles), tuple(sorted(roles)), person)


@pytest.mark.req("GATE-2")
def test_unlisted_operations_are_refused_to_all() -> None:
    for principal in (caller("admin"), Principal("default", "local:me", EVERY_ROLE, (), True)):
        with pytest.raises(Forbidden) as caught:
            permit(principal, "launch_rocket")
        assert caught.value.refusal == "not_listed"


@pytest.mark.req("GATE-2")
def test_a_role_has_the_rights_of_included_roles_only() -> None:
    permit(caller("operator"), "start_run")
    permit(caller("approver"), "get_run")
    for roles, operation in [(("viewer",), "start_run"), (("admin",), "decide_approval"), ((), "list_runs")]:
        with pytest.raises(Forbidden) as caught:
            permit(caller(*roles), operation)
        assert caught.value.refusal == "role"


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("operation", sorted(permissions().people_only))
def test_a_program_decides_nothing_with_any_role(operation: str) -> None:
    permit(caller(*permissions().roles[operation]), operation)
    with pytest.raises(Forbidden) as caught:
        permit(Principal("acme", "bot", EVERY_ROLE, (), person=False), operation)
    assert caught.value.refusal == "not_a_person"


TABLE = '[includes]\nadmin = ["viewer"]\n[operations]\nget_openapi = ["{role}"]\n'


def declared(*roles: str, people_only: bool = False) -> Operation[Any, Any]:
    return replace(LIST_RUNS, roles=roles, people_only=people_only)


def test_a_declared_operation_has_the_roles_of_its_declaration_and_those_that_include_them() -> None:
    found = Permissions.parse(TABLE.format(role="admin"), [declared("viewer", people_only=True)])
    assert found.roles == {"get_openapi": {"admin"}, "list_runs": {"viewer", "admin"}}
    assert found.people_only == {"list_runs"}


def test_inconsistent_rights_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown roles: viewr"):
        Permissions.parse(TABLE.format(role="viewr"))
    table = TABLE.format(role="viewer")
    with pytest.raises(ValueError, match="unknown roles: viewr"):
        Permissions.parse(table, [declared("viewr")])
    with pytest.raises(ValueError, match="list_runs is declared twice, with different rights"):
        Permissions.parse(table, [declared("viewer"), declared("admin")])
    with pytest.raises(ValueError, match="list_runs is declared twice, with different rights"):
        Permissions.parse(table, [declared("viewer"), declared("viewer", people_only=True)])
    with pytest.raises(ValueError, match=r"permissions\.toml lists declared operations: list_runs"):
        Permissions.parse(table + 'list_runs = ["viewer"]\n', [declared("viewer")])


def test_the_local_operator_has_every_role() -> None:
    principal = asyncio.run(Anonymous("local:me").authenticate("", "127.0.0.1"))
    for operation in permissions().roles:
        permit(principal, operation)
