"""The audit: who did what over all runs, the same on the page, over HTTP and for the command."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.service.conftest import Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_axe import complaints

pytestmark = pytest.mark.req("GATE-8")
REASON = "<b>it</b> was ordered \u202etwice"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Running(f"sqlite:{tmp_path_factory.mktemp('audit') / 'outlast.db'}") as running:
        yield running


@pytest.fixture(scope="module")
def runs(service: Service) -> dict[str, str]:
    """Act on four runs and on the tenant. Programs and the end of a run leave no act."""
    runs = {name: service.start() for name in ("decided", "cancelled")}
    service.decide(*service.asked(runs["decided"]))
    service.ended(runs["decided"])
    service.waits(runs["cancelled"])
    service.post(f"/v1/runs/{runs['cancelled']}/cancel", {"reason": REASON})
    service.ended(runs["cancelled"])
    runs["heard"] = service.start("wish", text="")
    service.post(f"/v1/runs/{runs['heard']}/signals/said", {"payload": {"text": "hi"}})
    service.ended(runs["heard"])
    fork = {"from": "pay", "approvers": "lead", "id": "audit-fork"}
    assert service.post(f"/v1/runs/{runs['decided']}/forks", fork).status_code == 201
    runs["fork"] = "audit-fork"
    service.post("/v1/pauses", {"what": "activity", "name": "ring", "reason": "the exchange is down"})
    service.post("/v1/pauses/resume", {"what": "activity", "name": "ring"})
    service.post("/v1/budgets", {"tokens": 1_000, "reason": "the plan"})
    return runs


def acts(service: Service, query: str = "") -> list[Any]:
    answer = service.get(f"/v1/audit?{query}")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["entries"])


def test_the_acts_of_people_are_listed_newest_first(service: Service, runs: dict[str, str]) -> None:
    found = acts(service)
    assert [each["at"] for each in found] == sorted((each["at"] for each in found), reverse=True)
    assert {each["by"] for each in found} == {"local:ana"}
    shown = {(each["kind"], each["what"], each["run"], each["reason"]) for each in found}
    assert {
        ("decision", "approved: Refund 4200", runs["decided"], "as agreed"),
        ("cancel", "cancelled the run", runs["cancelled"], REASON),
        ("signal", "said", runs["heard"], ""),
        ("resume", "resumed activity/ring", "", ""),
        ("budget", "set the daily budget to 1,000 tokens", "", "the plan"),
        ("fork", f"forked from run {runs['decided']}", runs["fork"], ""),
    } == shown


def test_filters_and_pages_have_each_act_once(service: Service, runs: dict[str, str]) -> None:
    every = acts(service)
    assert [each["kind"] for each in acts(service, "kind=cancel")] == ["cancel"]
    assert [each["kind"] for each in acts(service, "kind=budget")] == ["budget"]
    assert acts(service, "by=ana") == every and acts(service, "by=local%3Aana&since=PT1H") == every
    assert acts(service, "by=ben") == [] and acts(service, "since=PT0.001S") == []
    assert service.get("/v1/audit?kind=robbery").status_code == 422
    paged, cursor = list[Any](), ""
    while True:
        body = service.get(f"/v1/audit?limit=2&cursor={cursor}").json()
        paged += body["entries"]
        if not (cursor := body["next_cursor"]):
            break
    assert paged == every


def test_the_page_has_the_acts_of_the_api(service: Service, runs: dict[str, str]) -> None:
    answer = service.get("/ui/audit")
    page = HtmlPage(answer.text)
    assert answer.text.count("<tr><td>") == len(acts(service)) and "<b>it</b>" not in answer.text
    there = {each.get("href", "") for each in page.links}
    assert {f"/ui/runs/{run}" for run in runs.values()} <= there
    assert any(each.startswith("/ui/approvals/") for each in there)
    assert "No act matches" in service.get("/ui/audit?by=ben").text
    assert service.get("/ui/audit?kind=cancel").text.count("<tr><td>") == 1


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (900, "light"), (1440, "dark")])
def test_the_page_of_acts_fits_and_is_accessible(
    service: Service, runs: dict[str, str], open_page: Callable[..., Page], width: int, scheme: str
) -> None:
    page = open_page(width=width, scheme=scheme)
    page.goto(f"{service.url}/ui/audit")
    assert list(complaints(page, "audit")) == []
    assert len(service.get("/ui/audit").content) < 60 * 1024
