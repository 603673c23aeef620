"""Every route × role × own and other tenant, as in matrix.csv. A missing route fails (S1–S3)."""

import csv
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from outlast.models.effects import effect_id
from outlast.operations import OPERATIONS
from outlast.operations.declaration import sent
from outlast.service.secured_route import SecuredRoute
from tests.security import matrix
from tests.security.matrix import CALLERS, OPEN, routes
from tests.security.server import Service

TABLE = list(csv.DictReader(matrix.FILE.read_text(encoding="utf-8").splitlines()))
OURS = {"role", "not_listed", "not_a_person"}
"""Refusals of the table. Other 403 come from the rule of an approval."""
UNKNOWN_IDS = {"run": "run_000000000000", "approval": "ap_0000000000", "name": "nothing", "effect": "cnVuAHYAaw",
           "webhook": "wh_000000000000", "delivery": "dl_0", "worker": "w-0"}  # fmt: skip


def address(path: str, ids: dict[str, str] = UNKNOWN_IDS) -> str:
    """Return the path with these ids."""
    return re.sub(r"{(\w+)(:\w+)?}", lambda found: ids.get(found[1], "nothing"), path)


@pytest.mark.req("GATE-2")
def test_the_matrix_has_every_route_and_no_other(service: Service) -> None:
    found = [route for route in routes(service.app.routes) if not route.path.startswith("/ui/")]  # in test_pages.py
    assert all(isinstance(route, APIRoute) for route in found), "it would pass by the door"
    assert all(isinstance(route, SecuredRoute) for route in found if route.operation_id not in OPEN)
    there = {(method, route.path, route.operation_id) for route in found for method in route.methods}
    assert {(row["method"], row["path"], row["operation"]) for row in TABLE} == there


@pytest.mark.req("GATE-2")
def test_the_matrix_is_current() -> None:
    """A reviewer reads the rights of each role in this file, so a right that changed is a line that changed."""
    assert matrix.FILE.read_text(encoding="utf-8") == matrix.drawn(), "python -m tests.security.matrix"


def cells() -> Iterator[Any]:
    for row in TABLE:
        for caller in CALLERS:
            yield pytest.param(row, caller, id=f"{row['operation']}-{caller}")


@pytest.mark.req("GATE-2")
@pytest.mark.parametrize(("row", "caller"), list(cells()))
def test_a_cell_of_the_matrix(service: Service, row: dict[str, str], caller: str) -> None:
    """Send an invalid body, so that permitted requests change nothing."""
    with service.client("" if caller == "none" else caller) as client:
        writes = row["method"] != "GET"
        body = {"content": b"{", "headers": {"Content-Type": "application/json"}} if writes else {}
        answer = client.request(row["method"], address(row["path"]), **body)
    refusal = answer.json().get("refusal", "") if "json" in answer.headers["Content-Type"] else ""
    if row[caller] == "401":
        assert (answer.status_code, refusal) == (401, "missing") and answer.headers["WWW-Authenticate"] == "Bearer"
    elif row[caller] == "403":
        assert answer.status_code == 403 and refusal in OURS
    else:
        assert answer.status_code != 401 and refusal not in OURS and answer.status_code < 500, answer.text
        assert not writes or answer.status_code in (404, 412, 422, 428), answer.text


# --- other tenants --------------------------------------------------------------------------------
def without_ids(text: str, *ids: str) -> str:
    """Return the answer without requested ids and the request id."""
    for each in ids:
        text = text.replace(each, "ID")
    return re.sub(r"req_\w+", "REQ", text)


EXAMPLES = {each.id: sent(each, each.example) for each in OPERATIONS if each.changes}


@pytest.fixture(scope="module")
def theirs(service: Service) -> dict[str, str]:
    """Return ids of acme: a run, its approval, an effect."""
    run, approval, _ = service.approval("theirs")
    with service.client("admin") as client:
        added = client.post("/v1/webhooks", json={"url": "https://93.184.216.34/hook"})
    assert added.status_code == 201, added.text
    webhook = added.headers["Location"].rpartition("/")[2]
    return {"run": run, "approval": approval, "name": "said", "effect": effect_id(run, 1, "pay"), "webhook": webhook}


@pytest.mark.req("RUN-5", "GATE-2")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("row", [row for row in TABLE if re.search("{(run|approval|effect|webhook)}", row["path"])],
                         ids=lambda row: row["operation"])  # fmt: skip
def test_resources_of_another_tenant_do_not_exist(
    service: Service, theirs: dict[str, str], row: dict[str, str], accept: str
) -> None:
    ids = {**UNKNOWN_IDS, "name": "said"}
    if "{effect}" in row["path"]:
        ids["effect"] = effect_id(UNKNOWN_IDS["run"], 1, "pay")
    found = []
    for each in (theirs, ids):
        headers = {"Accept": accept, "If-Match": '"v1"'} if row["method"] == "POST" else {"Accept": accept}
        given = {"json": EXAMPLES[row["operation"]].body} if row["operation"] in EXAMPLES else {}
        operator = "root" if "approval" in row["path"] else "admin"
        with service.client(operator, "globex", **headers) as client:
            answer = client.request(row["method"], address(row["path"], each), **given)
        kept = {k: v for k, v in answer.headers.items() if k not in ("date", "x-request-id", "content-length")}
        found.append((answer.status_code, without_ids(answer.text, *each.values()), kept))
    assert found[0] == found[1]
    assert found[0][0] == 404, found[0]


@pytest.mark.req("RUN-5")
def test_an_item_of_another_tenant_is_not_assigned(service: Service, theirs: dict[str, str]) -> None:
    found = []
    for run in (theirs["run"], UNKNOWN_IDS["run"]):
        with service.client("admin", "globex") as client:
            answer = client.post("/v1/attention/assign", json={"run": run, "to": "me"})
        found.append((answer.status_code, without_ids(answer.text, run)))
    assert found[0] == found[1] and found[0][0] == 404


@pytest.mark.req("RUN-5")
def test_no_list_filter_cursor_or_tag_shows_another_tenant(service: Service, theirs: dict[str, str]) -> None:
    run, _, _ = service.approval("second")
    with service.client("admin") as own, service.client("admin", "globex") as other:
        page = own.get("/v1/runs", params={"limit": 1}).json()
        assert page["next_cursor"]
        for query in [{}, {"workflow": "payment"}, {"status": "waiting"}, {"waiting_for": "approval"}, {"q": run},
                      {"q": theirs["run"]}]:  # fmt: skip
            answer = other.get("/v1/runs", params=query)
            assert answer.status_code in (200, 422), answer.text
            assert theirs["run"] not in answer.text and run not in answer.text, query
        assert other.get("/v1/runs", params={"cursor": page["next_cursor"], "limit": 1}).status_code == 422
        for path in ("/v1/approvals", "/v1/attention", "/v1/versions", "/v1/workflows/payment"):
            answer = other.get(path)
            assert answer.status_code == 200 and theirs["approval"] not in answer.text, path
            assert theirs["run"] not in answer.text and "acme" not in answer.text, path
        tag = own.get(f"/v1/runs/{run}").headers["ETag"]
        assert other.get(f"/v1/runs/{run}", headers={"If-None-Match": tag}).status_code == 404


@pytest.mark.req("RUN-5")
def test_the_stored_answer_of_a_key_is_for_its_caller(service: Service) -> None:
    given = {"json": {"input": {}}, "headers": {"Idempotency-Key": "same"}}
    replayed = []
    for name, tenant in [("starter", "acme"), ("starter", "acme"), ("starter", "globex"), ("operator", "globex")]:
        with service.client(name, tenant) as client:
            answer = client.post("/v1/workflows/listener/runs", **given)
        replayed.append((answer.status_code, "Idempotent-Replayed" in answer.headers))
    assert replayed[0] == (201, False) and replayed[1][1], replayed
    assert not replayed[2][1] or replayed[2][0] != 201, replayed
