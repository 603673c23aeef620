"""The table of permissions: closed by default, with operations for people only."""

import asyncio

import pytest

from outlast.core.approvals import EVERY_ROLE
from outlast.errors import Forbidden
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


def test_an_inconsistent_table_is_refused() -> None:
    head = '[includes]\nadmin = ["viewer"]\n[people]\noperations = [{people}]\n[operations]\nlist_runs = ["{role}"]\n'
    Permissions.parse(head.format(people="", role="viewer"))
    with pytest.raises(ValueError, match="unknown roles: viewr"):
        Permissions.parse(head.format(people="", role="viewr"))
    with pytest.raises(ValueError, match="unknown operations to people: decide"):
        Permissions.parse(head.format(people='"decide"', role="viewer"))


def test_the_local_operator_has_every_role() -> None:
    principal = asyncio.run(Anonymous("local:me").authenticate("", "127.0.0.1"))
    for operation in permissions().roles:
        permit(principal, operation)
