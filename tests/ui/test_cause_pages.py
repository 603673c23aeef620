"""The board by causes and the page of a cause, without scripts."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from outlast.ui.routes.cause_pages import HEIGHT, sparkline
from tests.service.conftest import Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_board import press, stopped


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Provide a service with three runs that raised alike, and one with an uncertain effect."""
    at: Path = tmp_path_factory.mktemp("causes")
    with Running(f"sqlite:{at / 'outlast.db'}") as service:
        for order in ("broken", "broken", "broken", "o1"):
            stopped(service, order)
        yield service


def page(service: Service, address: str) -> HtmlPage:
    answer = service.get(address)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) <= 60 * 1024
    return HtmlPage(answer.text)


def test_a_sparkline_has_a_column_for_each_number() -> None:
    assert sparkline([]) == sparkline([0, 0]) == ""
    assert sparkline([0, 1, 400]) == f"M1 {HEIGHT}v-1h.8v1zM2 {HEIGHT}v-{HEIGHT}h.8v{HEIGHT}z"


def test_the_board_shows_each_cause_once_with_uncertain_effects_first(own: Service) -> None:
    uncertain, raised = own.get("/v1/causes").json()["causes"]
    assert (uncertain["reason"], uncertain["runs"]) == ("effect_uncertain", 1)
    assert (raised["reason"], raised["runs"]) == ("exception", 3)
    text = own.get("/ui/").text
    first, second = (text.index(f'id="cause-{each["cause"]}"') for each in (uncertain, raised))
    assert first < second < text.index('id="reason-effect_uncertain"') < text.index('id="reason-exception"')
    row = text[second : text.index("</tr>", second)]
    assert ">3</a>" in row and "M47 20v-20h.8v20z" in row and "call@1" in row and "3 flagged in the last 24" in row
    assert "version 1 deployed" in row
    assert raised["example"] in unescape(re.sub("<[^>]+>", "", row))
    row = text[first : text.index("</tr>", first)]
    assert "Settle one by one" in row and "/ui/answers" not in row


def test_the_page_of_a_cause_lists_the_runs_that_it_counts(own: Service) -> None:
    raised = own.get("/v1/causes?reason=exception").json()["causes"][0]
    there = f"/ui/causes/{raised['cause']}"
    text = own.get(there).text
    listed = own.get(f"/v1/attention?cause={raised['cause']}").json()["attention"]
    assert len(listed) == raised["runs"] == 3 and all(f"/ui/runs/{each['run']}" in text for each in listed)
    assert text.count("Traceback (most recent call last)") <= 1 and '<pre id="message"' in text
    assert "Counted from 3 of 3 runs" in page(own, there).text and "broken ×3" in page(own, there).text
    assert raised["deployed"] and "version 1 deployed" in page(own, there).text
    assert own.get("/ui/causes/ffffffffffff").status_code == 404


def test_jobs_of_a_cause_are_on_its_page(own: Service) -> None:
    raised = own.get("/v1/causes?reason=exception").json()["causes"][0]
    there = f"/ui/causes/{raised['cause']}"
    asked = {"attention": "exception", "choice": "continue", "reason": "again", "cause": raised["cause"]}
    job = own.post("/v1/bulk-answers", asked).json()["run"]
    other = own.post("/v1/bulk-answers", {**asked, "cause": ""}).json()["run"]
    for each in (job, other):
        own.ended(each)
    shown = (
        own.until("/v1/causes", lambda body: sum(each["runs"] for each in body["causes"]) == 4) and own.get(there).text
    )
    (jobs,) = re.findall(r'<ul id="jobs">.*?</ul>', shown, re.DOTALL)
    assert job in jobs and other not in jobs and "3 of 3" in jobs and "ended" in jobs


def test_all_runs_of_a_cause_are_answered_from_its_page(own: Service) -> None:
    raised = own.get("/v1/causes?reason=exception").json()["causes"][0]
    shown = page(own, f"/ui/causes/{raised['cause']}")
    (link,) = [each["href"] for each in shown.links if "choice=fail" in each.get("href", "")]
    assert f"cause={raised['cause']}" in link
    runs = [each["run"] for each in own.get(f"/v1/attention?cause={raised['cause']}").json()["attention"]]
    form = page(own, link).form("answer-all")
    assert press(own, form.set(text="the line is gone"), None)[0] == 303
    job = own.get("/v1/runs?workflow=outlast.bulk").json()["runs"][0]["run"]
    own.ended(job)
    assert "3 of 3 answered" in page(own, f"/ui/answers/{job}").text
    past = own.get(f"/v1/causes/{raised['cause']}").json()
    assert (past["runs"], past["read"], past["versions"], past["fields"]) == (0, 0, [], [])
    same = ("reason", "workflow", "node", "name", "text", "version", "since")
    assert {name: past[name] for name in same} == {name: raised[name] for name in same}
    assert sum(past["bars"]) >= 3 and past["run"] in runs and "Traceback" in past["detail"]
    shown = page(own, f"/ui/causes/{raised['cause']}")
    assert "No run has this cause now" in shown.text and "What differs" not in shown.text and "jobs" in shown.ids
    assert "answers" not in shown.ids, "there is nothing to answer"
    (link,) = [each["href"] for each in shown.links if "flagged" in each.get("href", "")]
    assert all(f"/ui/runs/{run}" in own.get(link).text for run in runs)
    assert f"cause-{raised['cause']}" not in own.get("/ui/").text
    assert [each["reason"] for each in own.get("/v1/causes").json()["causes"]] == ["effect_uncertain"]


def test_a_settled_effect_leads_to_the_next_uncertain_one(own: Service) -> None:
    for order in ("o2", "o3"):
        stopped(own, order)
    ids = [each["id"] for each in own.get("/v1/effects?status=uncertain").json()["effects"]]
    listed = page(own, "/ui/effects")
    assert f"{len(ids)} uncertain effects" in listed.text and "UNCERTAIN" not in listed.text
    run = own.get("/v1/effects?status=uncertain").json()["effects"][0]["run"]
    causes = [each["href"] for each in page(own, f"/ui/runs/{run}").links if "/ui/causes/" in each["href"]]
    assert len(causes) == 1 and own.get(causes[0]).status_code == 200
    shown = page(own, f"/ui/effects/{ids[0]}")
    assert "Next uncertain effect" not in shown.text
    status, _ = press(own, shown.form("settle").set(reason="the bank cannot say"), ("outcome", "give_up"))
    assert status == 303
    (following,) = [each["href"] for each in page(own, f"/ui/effects/{ids[0]}").links if "/effects/" in each["href"]]
    assert following.removeprefix("/ui/effects/") in ids[1:]
