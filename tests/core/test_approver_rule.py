"""Rules over roles and persons as values, and decisions of named persons as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.approvals import (
    EVERY_ROLE,
    NO_ROLE,
    Actor,
    Demand,
    approvers_were_entitled,
    satisfies,
    votes_of,
    waits_for,
)
from outlast.core.approver_rule import Person, Rule
from outlast.core.rows.effect_rows import Approval
from outlast.errors import Conflict, DefinitionError, Forbidden, InvalidInput
from outlast.flow import NeedsApproval, person, role
from outlast.flow.approval_rule import rule_of
from tests.core.test_approvals import ASKED, decide

LEAD, ANA, BO = role("lead"), person("ana"), person("bo")
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=12).filter(
    lambda name: not name.lower().startswith("local:") and name.isprintable()
)
SETS = st.frozensets(
    st.one_of(st.sampled_from(["lead", "boss", "a"]), st.builds(Person, NAMES)), min_size=1, max_size=3
).filter(lambda terms: sum(isinstance(term, Person) for term in terms) < 2)


@given(st.builds(Rule, st.frozensets(SETS, min_size=1, max_size=3)))
def test_a_rule_with_any_names_is_read_back_from_its_text(rule: Rule) -> None:
    assert Rule.parse(str(rule)) == rule


@pytest.mark.req("GATE-2", "GATE-10")
@pytest.mark.parametrize(
    ("rule", "roles", "name", "allowed"),
    [
        (ANA, (), "ana", True),
        (ANA, (), "local:ana", True),
        (ANA, EVERY_ROLE, "bo", False),
        (ANA, ("ana", "person:ana"), "bo", False),
        (ANA, EVERY_ROLE, "", False),
        (ANA, EVERY_ROLE, "Ana", False),
        (role("ana"), (), "ana", False),
        (LEAD | BO, (), "bo", True),
        (LEAD | BO, ("lead",), "eve", True),
        (LEAD & BO, ("lead",), "bo", True),
        (LEAD & BO, (), "bo", False),
        (LEAD & BO, ("lead",), "eve", False),
    ],
)
def test_a_person_is_matched_by_name_and_a_role_by_roles(
    rule: Rule, roles: list[str], name: str, allowed: bool
) -> None:
    assert rule.allows(roles, name) is allowed


def test_a_list_of_rules_lets_any_of_them_decide() -> None:
    assert rule_of("x", [LEAD, BO]) == LEAD | BO == NeedsApproval("rule", [LEAD, BO]).by
    assert rule_of("x", BO) == BO
    for wrong in ([], "lead", ["lead"]):
        with pytest.raises(DefinitionError):
            rule_of("x", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", " ana", "a\x00b", "local:ana", "x" * 201])
def test_a_name_that_no_caller_has_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot name a person"):
        person(name)


@pytest.mark.parametrize("text", ["person:", 'person:"ana', "person:ana bo", "person:ana & person:bo", 'person:""'])
def test_text_that_names_no_person_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Rule.parse(text)


def test_one_approver_cannot_be_two_persons() -> None:
    with pytest.raises(DefinitionError, match="person:ana & person:bo"):
        ANA & BO
    assert (LEAD | ANA) & BO == LEAD & BO


# --- decisions ---------------------------------------------------------------------------------
FOR_ANA = ASKED._replace(who=str(ANA))
PLAIN_ANA = Actor("ana", frozenset({"approver"}), ("approver",))


@pytest.mark.req("GATE-2", "GATE-10")
def test_a_named_person_decides_without_a_role_of_the_rule() -> None:
    row = decide(FOR_ANA, PLAIN_ANA)
    assert (row.decided_by, row.claims) == ("ana", ("approver",))
    assert approvers_were_entitled(row)
    assert not approvers_were_entitled(row._replace(who=str(BO)))


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize(
    ("actor", "refusal"),
    [
        (Actor("bo", frozenset({"boss", "admin", "approver"}), ("admin", "approver", "boss")), "role"),
        (Actor("local:bo"), "role"),
        (Actor("ana", person=False), "not_a_person"),
    ],
)
def test_another_name_or_a_program_does_not_decide_for_a_person(actor: Actor, refusal: str) -> None:
    assert not waits_for(FOR_ANA, actor)
    with pytest.raises(Forbidden) as raised:
        decide(FOR_ANA, actor)
    assert raised.value.refusal == refusal


@pytest.mark.req("GATE-2")
def test_a_person_without_roles_does_not_satisfy_a_rule_over_roles() -> None:
    """An empty list of roles in a vote means every role."""
    row = decide(FOR_ANA, Actor("ana", frozenset()))
    assert row.claims == (NO_ROLE,)
    assert approvers_were_entitled(row)
    assert not satisfies(row, Demand("large", LEAD, 1, False))
    assert satisfies(row, Demand("large", LEAD | ANA, 1, False))


@pytest.mark.req("GATE-8")
def test_a_quorum_of_persons_takes_each_person_once_whatever_the_entrance() -> None:
    two = ASKED._replace(who=str(LEAD | ANA), quorum=2)
    voted = decide(two, PLAIN_ANA)
    assert len(votes_of(voted)) == 1 and not waits_for(voted, PLAIN_ANA)
    with pytest.raises(Conflict) as raised:
        decide(voted, Actor("local:ana"))
    assert raised.value.refusal == "voted"
    assert decide(voted, Actor("eve", frozenset({"lead"}), ("lead",))).decided_by == "eve"
    with pytest.raises(Forbidden):
        decide(voted, Actor("eve", frozenset({"sales"}), ("sales",)))


@pytest.mark.req("GATE-8")
@pytest.mark.parametrize("requester", ["ana", "local:ana"])
def test_the_requester_is_excluded_under_each_name(requester: str) -> None:
    row = FOR_ANA._replace(not_requester=1, requested_by=requester)
    assert not waits_for(row, PLAIN_ANA)
    with pytest.raises(Forbidden) as raised:
        decide(row, PLAIN_ANA)
    assert raised.value.refusal == "requester"


def waiting(row: Approval, *names: str) -> list[str]:
    return [name for name in names if waits_for(row, Actor(name, frozenset({"approver"}), ("approver",)))]


def test_an_approval_waits_for_those_who_may_decide_it_now() -> None:
    assert waiting(FOR_ANA, "ana", "bo") == ["ana"]
    assert waiting(decide(FOR_ANA, PLAIN_ANA), "ana", "bo") == []
