"""Runs over HTTP: start, list, show, change."""

import pytest

from outlast.core.machine import RunStatus
from tests.service.conftest import Service


@pytest.mark.req("RUN-4")
def test_a_repeated_key_is_executed_once(service: Service) -> None:
    body = {"input": {"order_id": "K-1", "cents": 5}}
    first = service.post("/v1/workflows/refund/runs", body, idempotency_key="k-1")
    again = service.post("/v1/workflows/refund/runs", body, idempotency_key="k-1")
    assert (first.status_code, "Idempotent-Replayed" in first.headers) == (201, False)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert again.content == first.content
    assert again.headers["location"] == first.headers["location"] == f"/v1/runs/{first.json()['run']}"
    other = service.post("/v1/workflows/refund/runs", {"input": {"order_id": "K-2", "cents": 5}}, idempotency_key="k-1")
    assert (other.status_code, other.json()["refusal"]) == (422, "other_request")
    spaced = service.client.post(
        "/v1/workflows/refund/runs", content=b'{ "input": {"cents": 5,  "order_id": "K-1"} }',
        headers={"Content-Type": "application/json", "Idempotency-Key": "k-1"},
    )  # fmt: skip
    assert spaced.headers["Idempotent-Replayed"] == "true", "the same JSON is the same body"


@pytest.mark.req("RUN-4")
def test_a_start_key_belongs_to_its_run_permanently(service: Service) -> None:
    """Even after the stored answer is gone, for another workflow or operation."""
    body = {"input": {"order_id": "F-1", "cents": 5}, "correlation_id": "c"}
    first = service.post("/v1/workflows/refund/runs", body, idempotency_key="forever")
    changed = {**body, "correlation_id": ""}
    refused = service.post("/v1/workflows/refund/runs", changed, idempotency_key="forever")
    assert refused.json()["refusal"] == "other_request"
    ops = service.state.operations(service.call(service.state.authenticator.authenticate("", "127.0.0.1")))
    started = service.call(ops.start_run("refund", body["input"], key="forever"))
    assert (started.run, started.created) == (first.json()["run"], False)


@pytest.mark.req("RUN-4")
def test_a_start_without_a_key_uses_the_one_that_the_workflow_derives(service: Service) -> None:
    path, body = "/v1/workflows/order/runs", {"input": {"number": "7"}}
    first, again = service.post(path, body), service.post(path, body)
    assert (first.status_code, first.json()["created"]) == (201, True)
    assert (again.status_code, again.json()["created"], again.headers["Idempotent-Replayed"]) == (200, False, "true")
    assert again.json()["run"] == first.json()["run"]
    assert service.ended(first.json()["run"])["shown"] == "PLACED"
    other = service.post(path, body, idempotency_key="mine")
    assert other.status_code == 201 and other.json()["run"] != first.json()["run"]


def test_a_refusal_frees_the_key(service: Service) -> None:
    path = "/v1/workflows/refund/runs"
    wrong = service.post(path, {"input": {"order_id": 1}}, idempotency_key="free")
    assert wrong.status_code == 422 and wrong.json()["code"] == "OUT-103"
    assert service.post(path, {"input": {"order_id": "x", "cents": 1}}, idempotency_key="free").status_code == 201


def test_invalid_input_lists_all_problems(service: Service) -> None:
    answer = service.post("/v1/workflows/refund/runs", {"input": {"cents": "many"}})
    assert answer.status_code == 422
    paths = {each["path"] for each in answer.json()["problems"]}
    assert {"order_id", "cents"} <= {path.rpartition(".")[2] for path in paths}


def test_a_run_is_followed_to_its_end(service: Service) -> None:
    run = service.start("job", rounds=4)
    body = service.ended(run)
    assert (body["status"], len(body["visits"]), body["outcome"]["done"]) == (RunStatus.COMPLETED, 4, 4)
    assert body["progress"]["checkpoints"] == 3
    assert service.get(f"/v1/runs/{run}/explain").json()["sentence"].startswith(body["explained"].partition(" ")[0])
    names = [each["node"] for each in service.get(f"/v1/runs/{run}/checkpoints").json()["checkpoints"]]
    assert names == ["work", "work", "work"]
    assert len(service.get(f"/v1/runs/{run}/timeline").json()["visits"]) == 4


@pytest.mark.req("CKP-1", "GATE-8")
def test_the_state_of_a_live_run_is_that_of_its_last_checkpoint(service: Service) -> None:
    """An operator reads it while the run waits, without its secrets. `matrix.csv` has the roles that may not."""
    run = service.start("vault", password="hunter2-hunter2")
    service.until(f"/v1/runs/{run}", lambda body: body["status"] == RunStatus.WAITING and body["node"] == "keep")
    shown = service.get(f"/v1/runs/{run}/state").json()
    assert (shown["completed"], shown["node"], shown["seq"]) == ("unlock", "keep", 3)
    assert shown["state"] == {"opened": 1, "password": "[redacted]", "kept": 0}, "what `keep` did since is not there"
    assert shown["redacted"] is True
    assert service.post(f"/v1/runs/{run}/signals/close", {"payload": {"text": "x"}}).status_code == 202
    service.ended(run)
    ended = service.get(f"/v1/runs/{run}/state").json()
    assert (ended["completed"], ended["state"]["kept"]) == ("", 1)
    assert service.get("/v1/runs/refu_none/state").status_code == 404


@pytest.mark.req("RUN-4")
def test_a_signal_with_a_key_is_delivered_once(service: Service) -> None:
    run = service.start("wish", text="?")
    path = f"/v1/runs/{run}/signals/said"
    first = service.post(path, {"payload": {"text": "hello"}}, idempotency_key="s-1")
    assert (first.status_code, first.json()["new"]) == (202, True)
    assert service.post(path, {"payload": {"text": "hello"}}, idempotency_key="s-1").headers["Idempotent-Replayed"]
    assert service.ended(run)["outcome"]["text"] == "hello"
    late = service.post(path, {"payload": {"text": "late"}})
    assert (late.status_code, late.json()["refusal"]) == (410, "ended")


def test_a_cancel_takes_a_reason_and_may_name_what_was_seen(service: Service) -> None:
    run = service.start("wish", text="?")
    seen = service.waits(run)
    assert service.post(f"/v1/runs/{run}/cancel", {}).status_code == 422
    assert service.post(f"/v1/runs/{run}/cancel", {"reason": " "}).status_code == 422
    stale = service.post(f"/v1/runs/{run}/cancel", {"reason": "no"}, if_match='"v1"')
    assert (stale.status_code, stale.json()["refusal"]) == (412, "stale")
    tag = f'"v{seen["version"]}"'
    assert service.post(f"/v1/runs/{run}/cancel", {"reason": "no"}, if_match=tag).status_code == 200
    assert service.ended(run)["status"] == RunStatus.CANCELLED


@pytest.mark.parametrize("path", ["/v1/runs/%2e%2e/events", "/v1/runs/..%2fetc", "/v1/runs/a%5cb", "/v1//runs"])
def test_path_traversal_is_refused(service: Service, path: str) -> None:
    answer = service.get(path)
    assert (answer.status_code, answer.json()["refusal"]) == (422, "bad_path")


def test_pages_continue_and_cursors_are_signed(service: Service) -> None:
    runs = {service.start("wish", text=str(n)) for n in range(5)}
    found: list[str] = []
    page = service.get("/v1/runs?workflow=wish&limit=2")
    while True:
        found += [each["run"] for each in page.json()["runs"]]
        cursor = page.json()["next_cursor"]
        if not cursor:
            break
        assert page.headers["link"].endswith('rel="next"')
        page = service.get(page.headers["link"].partition(">")[0][1:])
    assert runs <= set(found) and len(found) == len(set(found))
    cursor = service.get("/v1/runs?workflow=wish&limit=2").json()["next_cursor"]
    changed = cursor[:-6] + ("A" if cursor[-6] != "A" else "B") + cursor[-5:]
    for bad in (
        f"/v1/runs?workflow=wish&cursor={changed}",
        f"/v1/runs?workflow=job&cursor={cursor}",
        f"/v1/approvals?cursor={cursor}",
        "/v1/runs?cursor=x",
    ):
        assert service.get(bad).status_code == 422, bad
    assert service.get("/v1/runs?limit=1001").status_code == 422


def test_a_workflow_shows_the_schema_of_its_input(service: Service) -> None:
    body = service.get("/v1/workflows/refund").json()
    assert body["input_schema"]["required"] == ["order_id", "cents"]
    assert body["topology"]["nodes"]["review"]["to"] == ["pay"] and body["start"] == "review"
    assert service.get("/v1/workflows/none").json()["code"] == "OUT-401"
    names = [each["workflow"] for each in service.get("/v1/workflows").json()["workflows"]]
    assert names == ["call", "job", "order", "refund", "vault", "wish"]


def test_workers_versions_and_attention_are_listed(service: Service) -> None:
    (worker,) = service.get("/v1/workers").json()["workers"]
    assert worker["serving"] and "job@1" in worker["serves"]
    assert {each["lane"] for each in service.get("/v1/versions").json()["versions"]} >= {"job@1", "refund@1"}
    assert service.get("/v1/attention").json()["attention"] == []
