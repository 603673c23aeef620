"""Invalid decisions over HTTP: each has its own refusal, and nothing is paid (S5 to S11)."""

import threading
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from outlast.core.approvals import Actor
from outlast.core.machine import ApprovalStatus, Choice, Reason
from outlast.errors import Forbidden
from outlast.runtime.operations import Operations
from tests.security.flows import PAID
from tests.security.server import Service

YES = {"decision": "approve", "reason": "within budget"}
NO = {"decision": "reject", "reason": "too dear"}


def decide(
    service: Service, approval: str, tag: str | None, *, by: str = "ana", body: Any = YES, tenant: str = "acme",
    **headers: str,
) -> httpx2.Response:  # fmt: skip
    """Send a decision of this person."""
    given = {**({"If-Match": tag} if tag else {}), **headers}
    with service.client(by, tenant, **given) as client:
        return client.post(f"/v1/approvals/{approval}/decision", json=body)


def word(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("refusal", "")


def pending(service: Service, approval: str) -> bool:
    return service.do(service.operations().rows.approval(approval)).status.value == "pending"


@pytest.mark.req("GATE-2", "GATE-8")
def test_the_credential_identifies_the_approver(service: Service) -> None:
    _, approval, tag = service.approval("s5")
    for field in ("decided_by", "by", "claims", "roles", "actor", "tenant"):
        answer = decide(service, approval, tag, body={**YES, field: "root"})
        assert word(answer)[0] == 422 and field in answer.text, field
    assert pending(service, approval)
    forged = {"X-Forwarded-User": "root", "X-User": "root", "X-Remote-User": "root", "X-Outlast-Actor": "root"}
    answer = decide(service, approval, tag, **forged)
    assert answer.status_code == 200, answer.text
    row = service.do(service.operations().rows.approval(approval))
    assert (row.decided_by, row.claims) == ("ana", ("approver", "finance"))
    service.until(lambda: "s5" in PAID)


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("program", ["bot", "w1"])
def test_a_program_decides_nothing(service: Service, program: str) -> None:
    """With any role: decide, claim, reassign, answer attention, settle an effect."""
    run, approval, tag = service.approval(f"s6-{program}")
    asked = {
        f"/v1/approvals/{approval}/decision": YES, f"/v1/approvals/{approval}/claim": {},
        f"/v1/approvals/{approval}/reassign": {"to": "agent", "reason": "x"},
        f"/v1/attention/{run}/resolve": {"reason": "x", "choice": "cancel"},
        f"/v1/runs/{run}/extend": {"reason": "x", "by": "PT1H"},
        "/v1/effects/cnVuAHYAaw/resolve": {"reason": "x", "outcome": "give_up"},
    }  # fmt: skip
    with service.client(program, **{"If-Match": tag}) as client:
        for path, body in asked.items():
            assert word(client.post(path, json=body)) == (403, "not_a_person"), path
    assert pending(service, approval)


@pytest.mark.req("GATE-2")
def test_operations_refuse_decisions_of_programs_too(service: Service) -> None:
    run, approval, _ = service.approval("s6-deep")
    bot = Actor("bot", frozenset({"finance", "admin"}), ("admin", "finance"), person=False)
    ops = Operations(service.app.state.service.store, tenant="acme", actor=bot, workflows={})
    for call in (
        lambda: ops.approve(approval), lambda: ops.reject(approval, reason="x"), lambda: ops.claim_approval(approval),
        lambda: ops.reassign(approval, "agent", reason="x"),
        lambda: ops.answer(run, Choice.CANCEL, reason=Reason.EXCEPTION, text="x"),
        lambda: ops.extend(run, by=timedelta(hours=1), reason="x"),
        lambda: ops.resolve_effect(run, "k", "give_up", reason="x"),
    ):  # fmt: skip
        with pytest.raises(Forbidden) as caught:
            service.do(call())
        assert caught.value.refusal == "not_a_person"
    assert pending(service, approval)


@pytest.mark.req("GATE-2", "GATE-8")
def test_a_credential_decides_only_for_the_person_whom_it_names(service: Service) -> None:
    """Eve lacks the role of the request, and ana and root have it."""
    _, approval, tag = service.approval("s6-person")
    to = {"to": "person:eve", "reason": "she knows the customer"}
    with service.client("ana", **{"If-Match": tag}) as client:
        moved = client.post(f"/v1/approvals/{approval}/reassign", json=to)
        named = client.get("/v1/approvals?person=eve").json()["approvals"]
    assert (moved.status_code, moved.json()["who"]) == (200, "person:eve")
    assert approval in {each["approval"] for each in named}
    for name, refusal in {"ana": "role", "root": "role", "bot": "not_a_person"}.items():
        assert word(decide(service, approval, moved.headers["ETag"], by=name)) == (403, refusal), name
        with service.client(name) as client:
            mine = client.get("/v1/approvals?mine=true&limit=1000").json()["approvals"]
        assert approval not in {each["approval"] for each in mine}, name
    assert word(decide(service, approval, moved.headers["ETag"], by="eve", tenant="globex"))[0] == 404
    assert pending(service, approval)
    answer = decide(service, approval, moved.headers["ETag"], by="eve")
    assert answer.status_code == 200, answer.text
    assert answer.json()["approval"]["decided_by"] == "eve"
    service.until(lambda: "s6-person" in PAID)


@pytest.mark.req("GATE-2", "GATE-9")
def test_the_requester_and_callers_without_the_role_decide_nothing(service: Service) -> None:
    _, approval, tag = service.approval("s6-req")
    assert word(decide(service, approval, tag, by="req")) == (403, "requester")
    assert word(decide(service, approval, tag, by="req", body=NO)) == (403, "requester")
    assert word(decide(service, approval, tag, by="eve")) == (403, "role")
    assert word(decide(service, approval, tag, by="operator")) == (403, "role")
    assert pending(service, approval)


@pytest.mark.req("GATE-2", "RUN-13")
@pytest.mark.parametrize("depth", [1, 2, 8])
def test_the_requester_of_the_root_decides_nothing_at_any_depth(service: Service, depth: int) -> None:
    """Names go down to the leaf of a tree, and roles do not."""
    order = f"s6-depth-{depth}"
    root = service.start("nested", {"order": order, "below": depth})
    rows = service.operations().rows

    def asked() -> list[Any]:
        found, _ = service.do(rows.approvals(status=ApprovalStatus.PENDING))
        return [each for each in found if each.summary == f"Pay {order}"]

    service.until(lambda: asked())
    (approval,) = asked()
    leaf = service.do(rows.run(approval.run))
    assert (leaf.root, leaf.depth, leaf.requested_by, approval.requested_by) == (root, depth, "req", "req")
    with service.client("ana") as client:
        tag = client.get(f"/v1/approvals/{approval.id}").headers["ETag"]
    for body in (YES, NO):
        assert word(decide(service, approval.id, tag, by="req", body=body)) == (403, "requester")
    for name in ("eve", "operator"):
        assert word(decide(service, approval.id, tag, by=name)) == (403, "role")
    assert pending(service, approval.id) and order not in PAID
    assert decide(service, approval.id, tag).status_code == 200
    service.until(lambda: PAID.count(order) == 1)


@pytest.mark.req("GATE-2", "GATE-9")
def test_a_replayed_decision_counts_once_and_a_second_one_is_refused(service: Service) -> None:
    run, approval, tag = service.approval("s7")
    first = decide(service, approval, tag, **{"Idempotency-Key": "k-s7"})
    again = decide(service, approval, tag, **{"Idempotency-Key": "k-s7"})
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.headers["Idempotent-Replayed"] == "true" and again.content == first.content
    assert word(decide(service, approval, tag, body=NO, **{"Idempotency-Key": "k-s7"})) == (422, "other_request")
    assert word(decide(service, approval, tag, body=NO, by="ben", **{"Idempotency-Key": "k-s7"})) == (409, "decided")
    late = decide(service, approval, tag, body=NO)
    assert word(late) == (409, "decided") and late.json()["current"]["decided_by"] == "ana"
    service.until(lambda: PAID.count("s7") == 1)
    notes = service.do(service.operations().rows.full_history(run))
    assert sum("decision" in event.body.decode() and approval in event.body.decode() for event in notes) <= 2


@pytest.mark.req("GATE-2", "GATE-9")
def test_one_of_two_concurrent_decisions_counts(service: Service) -> None:
    _, approval, tag = service.approval("s7-race")
    answers: list[httpx2.Response] = []
    start = threading.Barrier(8)

    def one(by: str, body: Any) -> None:
        start.wait()
        answers.append(decide(service, approval, tag, by=by, body=body))

    threads = [threading.Thread(target=one, args=(by, body)) for by in ("ana", "ben") for body in (YES, NO, YES, NO)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    words = sorted(word(answer) for answer in answers)
    assert [status for status, _ in words].count(200) == 1, words
    assert {code for status, code in words if status != 200} <= {"decided", "moved", "stale"}, words
    assert all(status in (200, 409, 412) for status, _ in words)


@pytest.mark.req("GATE-2", "GATE-9")
def test_a_decision_applies_to_the_version_seen(service: Service) -> None:
    _, approval, tag = service.approval("s8")
    assert decide(service, approval, None).status_code == 428
    with service.client("ben") as client:
        moved = client.post(f"/v1/approvals/{approval}/claim", headers={"If-Match": tag})
    assert moved.status_code == 200 and moved.headers["ETag"] != tag
    stale = decide(service, approval, tag)
    assert stale.status_code == 412 and stale.json()["current"]["version"] == 2
    for wrong in ('"v999"', '"v0"', "*", "v1", '"v2", "v3"', '"v02"'):
        answer = decide(service, approval, wrong)
        assert answer.status_code in (412, 422, 428), (wrong, answer.text)
    assert pending(service, approval)
    with service.client("root") as client:
        given = client.post(f"/v1/approvals/{approval}/reassign", json={"to": "cfo", "reason": "x"})
    assert given.status_code == 200
    assert decide(service, approval, moved.headers["ETag"]).status_code in (403, 412)
    assert pending(service, approval)


@pytest.mark.req("GATE-2", "RUN-5")
def test_no_caller_decides_for_another_tenant(service: Service) -> None:
    _, approval, tag = service.approval("s3")
    random = decide(service, "ap_0123456789", tag, tenant="globex")
    crossed = decide(service, approval, tag, tenant="globex")
    assert word(crossed) == word(random) and crossed.status_code == 404
    assert crossed.json()["title"].replace(approval, "") == random.json()["title"].replace("ap_0123456789", "")
    assert pending(service, approval)


@pytest.mark.req("GATE-2", "GATE-3")
def test_a_decision_after_the_deadline_is_refused_before_any_worker_expired_it(service: Service) -> None:
    """The deadline counts by the clock of the store, before any worker acts on it."""
    _, approval, tag = service.approval("s11", within_ms=1_500)
    store, row = service.app.state.service.store, service.do(service.operations().rows.approval(approval))
    service.until(lambda: service.do(store.now()).business >= row.within_until)
    answer = decide(service, approval, tag)
    assert answer.status_code in (409, 412)
    seen = service.do(service.operations().rows.approval(approval))
    if answer.status_code == 412:  # the sweep was quicker, and moved it
        answer = decide(service, approval, f'"v{seen.version}"')
    assert word(answer) == (409, "expired")
    assert "s11" not in PAID


@pytest.mark.req("GATE-2")
def test_a_cancelled_run_accepts_no_decision(service: Service) -> None:
    run, approval, tag = service.approval("gone")
    with service.client("operator", **{"If-Match": "*"}) as client:
        state = client.get(f"/v1/runs/{run}")
        cancelled = client.post(
            f"/v1/runs/{run}/cancel", json={"reason": "x"}, headers={"If-Match": state.headers["ETag"]}
        )
    assert cancelled.status_code in (200, 202), cancelled.text
    service.until(lambda: service.do(service.operations().rows.run(run)).status.value == "cancelled")
    seen = service.do(service.operations().rows.approval(approval))
    for each in (tag, f'"v{seen.version}"'):
        assert decide(service, approval, each).status_code in (409, 410, 412)
    assert "gone" not in PAID


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE"])
def test_no_other_method_decides(service: Service, method: str) -> None:
    """A mail scanner that follows every link decides nothing (S9)."""
    _, approval, tag = service.approval(f"s9-{method.lower()}")
    with service.client("ana", **{"If-Match": tag}) as client:
        answer = client.request(method, f"/v1/approvals/{approval}/decision", params=YES)
    assert answer.status_code == 405
    assert pending(service, approval)


@pytest.mark.req("GATE-9")
@pytest.mark.parametrize(
    "body",
    [
        {"decision": "approved", "reason": "x"}, {"decision": "approve"}, {"decision": "approve", "reason": "  "},
        {"decision": ["approve"], "reason": "x"}, {"decision": "approve", "reason": "x", "alternative": 7},
        {"decision": "approve", "reason": "x", "alternative": -1}, {"decision": "again", "reason": "x"},
        {"decision": "approve", "reason": "x", "changes": {"cents": 1}}, [], "approve", None, 7,
        {"decision": "approve", "reason": "x" * 3000},
    ],
    ids=str,
)  # fmt: skip
def test_an_invalid_decision_is_refused(service: Service, body: Any) -> None:
    if not hasattr(service, "none"):
        service.none = service.approval("none")  # type: ignore[attr-defined]
    _, approval, tag = service.none  # type: ignore[attr-defined]
    answer = decide(service, approval, tag, body=body)
    assert 400 <= answer.status_code < 500 and answer.headers["Content-Type"] == "application/problem+json"
    assert pending(service, approval)


def test_a_quorum_needs_different_people(service: Service) -> None:
    """With a quorum of two, one person counts once, under any key."""
    _, approval, tag = service.approval("quorum", quorum=2)
    first = decide(service, approval, tag, **{"Idempotency-Key": "q1"})
    assert first.status_code == 200 and pending(service, approval)
    assert word(decide(service, approval, first.headers["ETag"], **{"Idempotency-Key": "q2"})) == (409, "voted")
    assert "quorum" not in PAID
    second = decide(service, approval, first.headers["ETag"], by="ben")
    assert second.status_code == 200
    service.until(lambda: "quorum" in PAID)
