"""Decisions over HTTP: for the version shown, once, with a status and refusal for each error."""

from typing import Any

import pytest

from outlast.core.machine import ApprovalStatus, RunStatus
from tests.service.conftest import Service


@pytest.mark.req("GATE-2")
def test_a_decision_names_what_was_shown(service: Service) -> None:
    approval, tag = service.asked()
    missing = service.post(f"/v1/approvals/{approval}/decision", {"decision": "approve", "reason": "yes"})
    assert (missing.status_code, missing.json()["refusal"]) == (428, "if_match_missing")
    claimed = service.post(f"/v1/approvals/{approval}/claim")
    assert claimed.json()["claimed_by"] == "local:ana" and claimed.headers["etag"] != tag
    stale = service.decide(approval, tag)
    assert (stale.status_code, stale.json()["refusal"]) == (412, "stale")
    assert stale.json()["current"]["claimed_by"] == "local:ana", "the answer has the present state"
    good = service.decide(approval, stale.headers["etag"])
    body = good.json()
    assert (good.status_code, body["approval"]["status"]) == (200, ApprovalStatus.APPROVED)
    assert body["served"] and body["run"]["run"] == body["approval"]["run"]
    assert service.ended(body["run"]["run"])["outcome"] == "receipt-A-17-4200"


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("decision", ["approve", "reject", "again"])
def test_a_decision_requires_the_version_that_was_shown(service: Service, decision: str) -> None:
    approval, tag = service.asked()
    service.post(f"/v1/approvals/{approval}/claim")
    stale = service.decide(approval, tag, decision)
    assert (stale.status_code, stale.json()["refusal"]) == (412, "stale")
    assert service.get(f"/v1/approvals/{approval}").json()["status"] == ApprovalStatus.PENDING


@pytest.mark.req("GATE-2")
def test_an_invalid_if_match_decides_nothing(service: Service) -> None:
    """`*` and unknown versions are refused."""
    approval, _ = service.asked()
    for tag in ("*", "v1", '"v0"', '"v01"', '"v"', '"1"', '"v1", "v2"', '"v1" x', '"v1', "0", '"v-1"', f'"v{10**16}"'):
        for decision in ("approve", "reject"):
            answer = service.decide(approval, tag, decision)
            assert (answer.status_code, answer.json()["refusal"]) == (422, "bad_header"), tag
    assert service.get(f"/v1/approvals/{approval}").json()["status"] == ApprovalStatus.PENDING


@pytest.mark.req("GATE-2")
def test_the_second_approver_learns_who_decided(service: Service) -> None:
    approval, tag = service.asked()
    assert service.decide(approval, tag, "reject").status_code == 200
    second = service.decide(approval, tag)
    assert (second.status_code, second.json()["refusal"]) == (409, "decided")
    assert "local:ana" in second.json()["detail"]
    assert second.json()["current"]["decided_by"] == "local:ana"


def test_a_replayed_decision_is_the_same_answer_and_one_decision(service: Service) -> None:
    approval, tag = service.asked()
    first = service.decide(approval, tag, idempotency_key="d-1")
    again = service.decide(approval, tag, idempotency_key="d-1")
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["Idempotent-Replayed"] == "true" and again.headers["etag"] == first.headers["etag"]
    other = service.decide(approval, tag, "reject", idempotency_key="d-1")
    assert (other.status_code, other.json()["refusal"]) == (422, "other_request")


def test_the_body_cannot_name_the_approver(service: Service) -> None:
    approval, tag = service.asked()
    body = {"decision": "approve", "reason": "yes", "decided_by": "boss"}
    answer = service.post(f"/v1/approvals/{approval}/decision", body, if_match=tag)
    assert answer.status_code == 422 and answer.json()["problems"][0]["path"] == "body.decided_by"
    assert service.get(f"/v1/approvals/{approval}").json()["status"] == ApprovalStatus.PENDING


def test_an_ended_run_accepts_no_decision(service: Service) -> None:
    run = service.start()
    approval, tag = service.asked(run)
    assert service.post(f"/v1/runs/{run}/cancel", {"reason": "changed my mind"}).status_code == 200
    service.ended(run)
    late = service.decide(approval, tag)
    assert (late.status_code, late.json()["refusal"]) == (410, "ended")


def test_an_approval_has_the_information_for_a_decision(service: Service) -> None:
    approval, tag = service.asked()
    body = service.get(f"/v1/approvals/{approval}").json()
    assert body["plans"][0]["arguments"] == {"order_id": "A-17", "cents": 4200} and body["you_may_decide"]
    assert body["schema"]["properties"]["changes"]["properties"]["cents"]["type"] == "integer"
    assert body["schema"]["properties"]["decision"]["enum"] == ["approve", "reject", "again"]
    changed = {"decision": "approve", "reason": "less", "changes": {"cents": 100}}
    answer = service.post(f"/v1/approvals/{approval}/decision", changed, if_match=tag)
    assert answer.status_code == 200, answer.text
    run = answer.json()["run"]["run"]
    assert service.ended(run)["outcome"] == "receipt-A-17-100"
    assert [plan["changed_by"] for plan in answer.json()["approval"]["plans"]][-1:] == ["local:ana"]
    later = service.get(f"/v1/approvals/{approval}").json()
    assert [change["by"] for change in later["changed_since_asked"]][:1] == ["local:ana"]


def test_a_decision_cannot_change_fixed_arguments(service: Service) -> None:
    approval, tag = service.asked()
    body = {"decision": "approve", "reason": "x", "changes": {"order_id": "B"}}
    answer = service.post(f"/v1/approvals/{approval}/decision", body, if_match=tag)
    assert (answer.status_code, answer.json()["refusal"]) == (409, "not_editable")


def test_a_reassigned_approval_is_in_the_inbox_of_the_new_role(service: Service) -> None:
    approval, tag = service.asked()
    mine = service.get("/v1/approvals?mine=true&limit=1000").json()["approvals"]
    assert approval in {each["approval"] for each in mine}
    moved = service.post(
        f"/v1/approvals/{approval}/reassign", {"to": "legal & senior", "reason": "theirs"}, if_match=tag
    )
    assert moved.status_code == 200 and moved.json()["who"] == "legal & senior"
    by_role = service.get("/v1/approvals?role=senior").json()["approvals"]
    assert approval in {each["approval"] for each in by_role}
    assert approval not in {each["approval"] for each in service.get("/v1/approvals?overdue=true").json()["approvals"]}
    bad = service.post(f"/v1/approvals/{approval}/reassign", {"to": "&&", "reason": "x"})
    assert bad.status_code == 422


@pytest.mark.req("GATE-2")
def test_an_approval_that_changes_meanwhile_is_not_decided(service: Service) -> None:
    """Another caller claims it between the read and the commit."""
    approval, tag = service.asked()
    store, ops = service.state.store, service.state.operations(_me(service))
    commit, moved = store.commit, []

    async def later(given: Any) -> Any:
        if "decide" in given.label and not moved:
            moved.append(given.label)
            await ops.claim_approval(approval)
        return await commit(given)

    store.commit = later  # type: ignore[method-assign]  # the store's own, a moment later
    try:
        answer = service.decide(approval, tag)
    finally:
        store.commit = commit  # type: ignore[method-assign]
    assert moved and (answer.status_code, answer.json()["refusal"]) == (412, "stale")
    assert answer.json()["current"]["claimed_by"] == "local:ana"
    assert service.get(f"/v1/approvals/{approval}").json()["status"] == ApprovalStatus.PENDING


@pytest.mark.parametrize("verb", ["claim", "reassign"])
def test_a_stale_approval_is_neither_claimed_nor_reassigned(service: Service, verb: str) -> None:
    approval, tag = service.asked()
    service.post(f"/v1/approvals/{approval}/claim")
    body = {"to": "legal", "reason": "theirs"} if verb == "reassign" else None
    stale = service.post(f"/v1/approvals/{approval}/{verb}", body, if_match=tag)
    assert (stale.status_code, stale.json()["refusal"]) == (412, "stale")
    assert stale.json()["current"]["who"] == "finance"
    assert service.post(f"/v1/approvals/{approval}/{verb}", body, if_match=stale.headers["etag"]).status_code == 200


def _me(service: Service) -> Any:
    return service.call(service.state.authenticator.authenticate("", "127.0.0.1"))


@pytest.mark.req("GATE-2")
def test_a_decision_can_ask_for_another_round(service: Service) -> None:
    approval, tag = service.asked()
    answer = service.decide(approval, tag, "again")
    assert answer.json()["approval"]["status"] == ApprovalStatus.AGAIN
    assert service.ended(answer.json()["run"]["run"])["status"] == RunStatus.CANCELLED
