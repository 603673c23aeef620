"""Decisions of people and the cover of an approval, as pure functions: values in, a commit or a refusal out."""

import json
from typing import Any

import pytest

from outlast.core.approvals import (
    NOT_COUNTED,
    Actor,
    ChangedCall,
    Demand,
    PersonDecision,
    covers,
    person_acknowledges,
    person_decides,
    person_reassigns,
    rounds_of,
)
from outlast.core.approver_rule import Rule
from outlast.core.codec import digest
from outlast.core.commit import Instant, Put
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.approval_columns import PLANS, OfferedCall
from outlast.core.rows.effect_rows import Approval
from outlast.errors import Conflict, Forbidden, InvalidInput, NotFound, OutlastError


def call(arguments: str, key: str = "order/a") -> OfferedCall:
    return OfferedCall("order", key, digest("t", "r", "order", key, arguments.encode()), arguments)


FIRST, OTHER = call('{"amount":100}'), call('{"amount":90}', "order/b")
ASKED = Approval(
    tenant="t", run="r", id="ap", version=3, status=ApprovalStatus.PENDING, visit=1, wait="ok",
    plans_text=PLANS.encode([FIRST, OTHER]), summary="Order", risk="", again=0, who="boss", requested_by="me",
    asked_at=1, within_until=100, valid_ms=50, decided_at=0, decided_by="", claims_text="", reason="", chosen="",
    valid_until=0, consumed_by="",
)  # fmt: skip
NOW = Instant(10, 10, 0)
ANA = Actor("ana", frozenset({"boss"}), ("boss",))


def decide(row: Approval = ASKED, actor: Actor = ANA, verb: Any = "approve", **choice: Any) -> Approval:
    now, remake = choice.pop("now", NOW), choice.pop("remake", None)
    move = person_decides(row, actor, PersonDecision(verb, "fine", **choice), now, remake)
    (put,) = [write for write in move.commit.writes if isinstance(write, Put)]
    assert put == Put(put.kind, move.row, row.version) and move.commit.whens, "the row that the commit writes"
    return move.row


APPROVED = decide()


@pytest.mark.req("GATE-2", "GATE-9")
def test_an_approval_covers_the_approved_call_while_it_is_valid_and_unused() -> None:
    assert covers(APPROVED, FIRST.digest, NOW.business) and covers(APPROVED, FIRST.digest, APPROVED.valid_until - 1)


@pytest.mark.req("GATE-2", "GATE-9")
@pytest.mark.parametrize(
    ("row", "plan", "now"),
    [
        pytest.param(APPROVED, OTHER.digest, NOW.business, id="another call"),
        pytest.param(APPROVED._replace(consumed_by="1:order/a"), FIRST.digest, NOW.business, id="used"),
        pytest.param(APPROVED, FIRST.digest, APPROVED.valid_until, id="lapsed"),
        *(
            pytest.param(APPROVED._replace(status=status), FIRST.digest, NOW.business, id=status.value)
            for status in ApprovalStatus
            if status is not ApprovalStatus.APPROVED
        ),
    ],
)
def test_each_condition_of_the_cover_refuses_alone(row: Approval, plan: str, now: int) -> None:
    assert not covers(row, plan, now)


def test_a_decision_returns_the_row_that_its_commit_writes() -> None:
    assert (APPROVED.status, APPROVED.chosen, APPROVED.decided_by) == (ApprovalStatus.APPROVED, FIRST.digest, "ana")
    assert (APPROVED.version, APPROVED.valid_until) == (4, 60)
    assert decide(alternative=1).chosen == OTHER.digest
    assert decide(verb="reject").chosen == ""


VOTED = decide(ASKED._replace(quorum=2))
REFUSED: dict[str, tuple[type[OutlastError], str, dict[str, Any]]] = {
    "a program": (Forbidden, "not_a_person", {"actor": Actor("bot", person=False)}),
    "another role": (Forbidden, "role", {"actor": Actor("eve", frozenset({"sales"}))}),
    "the requester": (Forbidden, "requester", {"row": ASKED._replace(not_requester=1, requested_by="ana")}),
    "an old version": (Conflict, "moved", {"version": 2}),
    "too late": (Conflict, "expired", {"now": Instant(100, 100, 0)}),
    "decided": (Conflict, "decided", {"row": APPROVED}),
    "withdrawn": (Conflict, "withdrawn", {"row": ASKED._replace(status=ApprovalStatus.WITHDRAWN)}),
    "expired": (Conflict, "expired", {"row": ASKED._replace(status=ApprovalStatus.EXPIRED)}),
    "a second vote": (Conflict, "voted", {"row": VOTED}),
    "a vote for another plan": (
        Conflict,
        "other_vote",
        {"row": VOTED, "actor": Actor("ben", frozenset({"boss"})), "alternative": 1},
    ),
    "no such alternative": (NotFound, "", {"alternative": 2}),
    "no further round": (Conflict, "no_further_round", {"verb": "again"}),
    "an altered plan": (
        Conflict,
        "altered",
        {"row": ASKED._replace(plans_text=PLANS.encode([FIRST._replace(arguments_text='{"amount":999}')]))},
    ),
    "a fixed argument": (Conflict, "not_editable", {"changes": {"amount": 5}, "remake": lambda call, _: call}),
}


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_rule(name: str) -> None:
    error, refusal, given = REFUSED[name]
    with pytest.raises(error) as raised:
        decide(**given)
    assert raised.value.refusal == refusal


EDITABLE = ASKED._replace(editable_text='["amount"]')


def remade(offered: OfferedCall, changes: Any) -> ChangedCall:
    return ChangedCall(call(json.dumps(changes, separators=(",", ":"))) if changes else offered)


@pytest.mark.req("GATE-9")
def test_a_changed_call_is_stored_beside_the_offered_ones_with_its_change() -> None:
    row = decide(EDITABLE, changes={"amount": 5}, remake=remade)
    changed = row.plans[-1]
    assert (changed.digest, changed.arguments_text) == (row.chosen, '{"amount":5}')
    assert changed.change is not None and (changed.change.of, changed.change.by, changed.change.at) == (0, "ana", 10)


@pytest.mark.req("GATE-9")
@pytest.mark.parametrize(
    ("remake", "refusal"),
    [
        (lambda offered, changes: ChangedCall(call('{"amount":7}')), "drift"),
        (lambda offered, changes: ChangedCall(offered), "unchanged"),
        (lambda offered, changes: remade(offered, changes)._replace(denied="limit: never"), "policy_denied"),
        (
            lambda offered, changes: remade(offered, changes)._replace(
                demand=Demand("large", Rule.parse("boss"), 2, not_requester=False)
            ),
            "policy_asks",
        ),
    ],
)
def test_a_changed_call_is_refused_by_code_and_policy(remake: Any, refusal: str) -> None:
    with pytest.raises(Conflict) as raised:
        decide(EDITABLE, changes={"amount": 5}, remake=remake)
    assert raised.value.refusal == refusal


def test_the_authors_code_is_not_called_for_a_person_without_the_right() -> None:
    def never(offered: OfferedCall, changes: Any) -> ChangedCall:
        raise AssertionError("called")

    with pytest.raises(Forbidden):
        decide(EDITABLE, Actor("eve", frozenset({"sales"})), changes={"amount": 5}, remake=never)


@pytest.mark.req("GATE-8")
def test_an_acknowledgement_and_a_reassignment_check_the_right_and_the_version() -> None:
    eve, root = Actor("eve", frozenset({"sales"})), Actor("root", frozenset({"admin"}))
    cfo = Rule.parse("cfo")
    assert person_acknowledges(ASKED, ANA, NOW).row.claimed_by == "ana"
    assert person_reassigns(ASKED, root, cfo, "on leave", NOW).row.who == "cfo"
    for act, error in [
        (lambda: person_acknowledges(ASKED, eve, NOW), Forbidden),
        (lambda: person_acknowledges(ASKED, ANA, NOW, version=2), Conflict),
        (lambda: person_reassigns(ASKED, eve, cfo, "x", NOW), Forbidden),
        (lambda: person_reassigns(ASKED, ANA, cfo, " ", NOW), InvalidInput),
        (lambda: person_reassigns(APPROVED, ANA, cfo, "x", NOW), Conflict),
    ]:
        with pytest.raises(error):
            act()


def test_rounds_are_those_left_and_those_used() -> None:
    used = ASKED._replace(id="ap_0", status=ApprovalStatus.AGAIN, asked_at=ASKED.asked_at - 1)
    asked = ASKED._replace(again=1)
    assert rounds_of(asked, [asked]) == (1, 1)
    assert rounds_of(asked, [used, asked]) == (1, 2)
    assert rounds_of(ASKED._replace(again=3), [used, used._replace(status=ApprovalStatus.REJECTED)]) == (3, 4)
    for offered in (NOT_COUNTED, 0):
        assert rounds_of(ASKED._replace(again=offered), [used]) is None
