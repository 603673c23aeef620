"""One answer for all without scripts: preview, number typed, job, refused runs, pause and cancel."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from outlast.core import bulk_answers
from outlast.models.causes import CauseDetail, CountedValue, FirstSeen
from outlast.operations.run_query import beyond_flagged
from outlast.ui.routes.bulk_pages import deploy_text
from tests.service.conftest import Running, Service
from tests.ui.html_page import HtmlForm, HtmlPage
from tests.ui.test_board import press, stopped


def page(service: Service, address: str) -> HtmlPage:
    answer = service.get(address)
    assert answer.status_code == 200, answer.text
    return HtmlPage(answer.text)


@pytest.fixture
def own(tmp_path: Path) -> "Service":  # type: ignore[misc]
    """Provide a service with three runs that raised."""
    with Running(f"sqlite:{tmp_path / 'outlast.db'}") as service:
        for _ in range(3):
            stopped(service, "broken")
        yield service  # type: ignore[misc]


def test_a_job_over_http_needs_a_reason_or_a_query(own: Service) -> None:
    listed = own.get("/v1/bulk-answers?choice=cancel&query=workflow:call")
    assert (listed.status_code, listed.json()["runs"]) == (200, 3)
    for none in ({}, {"attention": None}):
        asked = {**none, "choice": "cancel", "reason": "the line is gone"}
        assert own.post("/v1/bulk-answers", asked).status_code == 422
        job = own.post("/v1/bulk-answers", {**asked, "query": "workflow:call customer:none"})
        assert job.status_code in (404, 422), job.text
    job = own.post("/v1/bulk-answers", {"attention": None, "query": "workflow:call", **asked})
    assert own.ended(job.json()["run"])
    own.until("/v1/runs?workflow=call&status=cancelled", lambda body: body["runs"])  # once a worker has read it


ALL = "/ui/answers?reason=exception&choice=fail"


def started(service: Service, form: HtmlForm, **typed: str) -> tuple[int, HtmlPage]:
    return press(service, form.set(text="the line is gone", **typed), None)


def test_all_runs_of_a_reason_are_answered_from_their_list(own: Service) -> None:
    listed = page(own, "/ui/attention/exception")
    assert not [value for name, value in listed.form("many").fields if name == "item"], "nothing is ticked beforehand"
    (link,) = [each["href"] for each in listed.links if "choice=fail" in each.get("href", "")]
    shown = page(own, link)
    assert "Fail 3 runs" in shown.text and "Some of them" in shown.text and "Their causes" not in shown.text
    assert started(own, shown.form("answer-all"))[0] == 303
    (at,) = [run["run"] for run in own.get("/v1/runs?workflow=outlast.bulk").json()["runs"]]
    own.ended(at)
    after = page(own, f"/ui/answers/{at}")
    assert "3 of 3 answered" in after.text and "the line is gone" in after.text and "Cancel this job" not in after.text
    own.until(f"/v1/bulk-answers/{at}", lambda body: body["result"]["recovered"] == 3)  # once the runs have read it
    last = own.get(f"/ui/answers/{at}").text
    assert 'class="result good"' in last and "3 of 3 ended." in HtmlPage(last).text and 'id="left"' not in last
    (act,) = own.get("/v1/audit").json()["entries"]
    assert (act["kind"], act["run"], act["reason"]) == ("job", at, "the line is gone"), "one act, and not its answers"
    assert act["what"] == "started a job: fail for 3 runs"


def test_a_job_that_did_not_help_says_so(own: Service) -> None:
    """The runs are flagged again at once: 3 of 3 answered, none recovered, and nothing is green."""
    shown = page(own, "/ui/answers?reason=exception&choice=continue")
    assert started(own, shown.form("answer-all"))[0] == 303
    (at,) = [run["run"] for run in own.get("/v1/runs?workflow=outlast.bulk").json()["runs"]]
    own.ended(at)
    own.until(f"/v1/bulk-answers/{at}", lambda body: body["result"]["again"] == 3)  # once the runs have read it
    answer = own.get(f"/ui/answers/{at}").text
    after = HtmlPage(answer).text
    assert "3 of 3 answered" in after and "Now 3 runs of this filter need a person" in after
    assert "0 of 3 recovered: 3 need a person again, 3 of them for the same reason." in after
    assert 'class="result bad"' in answer and 'class="state good"' not in answer and "<progress" not in answer
    run = page(own, f"/ui/runs/{at}")
    assert "continue for 3 runs" in run.text and "is_last" not in run.text
    assert [each for each in run.links if each.get("id") == "job" and each["href"] == f"/ui/answers/{at}"]
    cause = own.get("/v1/causes").json()["causes"][0]["cause"]
    asked = page(own, f"/ui/answers?reason=exception&choice=continue&cause={cause}").form("answer-all")
    assert started(own, asked)[0] == 303
    (second,) = {run["run"] for run in own.get("/v1/runs?workflow=outlast.bulk").json()["runs"]} - {at}
    own.until(f"/v1/bulk-answers/{second}", lambda body: body["ended"] and body["result"]["again"] == 3)
    same = "0 of 3 recovered: 3 need a person again, 3 of them for the same cause"
    assert same in page(own, f"/ui/causes/{cause}").text
    job = own.get(f"/v1/bulk-answers/{at}").json()
    assert job["result"] == {
        "runs": 3, "recovered": 0, "again": 3, "same": 3, "failed": 0, "unfinished": 0, "at_least": False,
    }  # fmt: skip


def test_a_preview_names_the_cause_the_version_and_a_trial(own: Service) -> None:
    for _ in range(3):
        stopped(own, "broken")
    (cause,) = own.get("/v1/causes").json()["causes"]
    answer = own.get(f"/ui/answers?reason=exception&choice=continue&cause={cause['cause']}").text
    shown = HtmlPage(answer)
    assert f"for {cause['text']} at call" in shown.text and f"<b>{cause['cause']}" not in answer
    assert "Version 1 is still the newest: the code is the same as when they failed" in shown.text
    (first,) = [each["href"] for each in shown.links if each.get("id") == "first"]
    listed = page(own, first)
    assert len([name for name, _ in listed.form("many").fields if name == "run"]) == 5
    few = page(own, "/ui/answers?reason=exception&choice=continue&contains=nothing")
    assert not [each for each in few.links if each.get("id") == "first"]


def _known(at: int, *versions: tuple[int, int]) -> CauseDetail:
    """Return a cause of runs of version 2 that were last flagged at an instant. `versions`: with their first sights."""
    when = datetime.fromtimestamp(at, UTC)
    return CauseDetail.model_construct(
        runs=3,
        version=2,
        last=when,
        versions=[CountedValue(value="2", runs=3)],
        deploys=[FirstSeen(version=n, at=datetime.fromtimestamp(seen, UTC)) for n, seen in versions],
    )


def test_a_newer_version_does_not_reach_runs_that_are_continued() -> None:
    assert "Version 3 was deployed since then" in deploy_text(_known(100, (2, 50), (3, 150)))
    assert "this executes version 2 again" in deploy_text(_known(100, (2, 50), (3, 150)))
    assert "before the last of them failed" in deploy_text(_known(100, (2, 50), (3, 60)))
    assert "Version 2 is still the newest" in deploy_text(_known(100, (1, 10), (2, 50)))


def test_a_preview_of_a_cancellation_says_what_is_undone(own: Service) -> None:
    shown = page(own, "/ui/answers?query=workflow%3Acall")
    assert shown.text.count("No effect is undone.") == 3 and "what happens to their effects" in shown.text
    assert "what happens" not in page(own, "/ui/answers?reason=exception&choice=continue").text


def test_a_cancellation_of_flagged_runs_says_which_others_are_left(own: Service) -> None:
    assert beyond_flagged("workflow:call is:flagged reason:exception") == "workflow:call"
    assert beyond_flagged("workflow:call") == beyond_flagged("is:flagged") == ""
    own.asked()
    listed = page(own, "/ui/runs?q=since%3A2h")
    (waiting,) = [each["href"] for each in listed.links if each.get("id") == "total-wait"]
    assert "wait for an approval 1" in listed.text and own.get(waiting).text.count('<tr id="run-') == 1
    form = page(own, "/ui/answers?query=since%3A2h+is%3Aflagged").form("answer-all")
    assert started(own, form)[0] == 303
    (at,) = [run["run"] for run in own.get("/v1/runs?workflow=outlast.bulk").json()["runs"]]
    own.until(f"/v1/bulk-answers/{at}", lambda body: body["ended"] and body["result"]["recovered"] == 3)
    after = page(own, f"/ui/answers/{at}")
    assert "3 of 3 ended." in after.text
    assert "1 other run of since:2h is unfinished: 1 waits for an approval . Runs of this query" in after.text
    (there,) = [each["href"] for each in after.links if "approval" in each["href"] and "/ui/runs" in each["href"]]
    assert own.get(there).text.count('<tr id="run-') == 1


def test_a_cancellation_names_the_uncertain_effects_that_hold_it_up(own: Service) -> None:
    stopped(own, "o1")
    shown = page(own, "/ui/answers?query=workflow:call")
    assert "1 uncertain effect of these runs must be settled first" in shown.text
    assert started(own, shown.form("answer-all"))[0] == 303
    (at,) = [run["run"] for run in own.get("/v1/runs?workflow=outlast.bulk").json()["runs"]]
    own.ended(at)
    own.until("/v1/runs?workflow=call&status=cancelled", lambda body: len(body["runs"]) == 3)
    asked = own.get("/v1/runs?status=waiting&workflow=call").json()["runs"][0]["run"]
    assert "the run ends once its uncertain effect is settled" in page(own, f"/ui/runs/{asked}").text
    after = page(own, f"/ui/answers/{at}")
    assert (
        "Now 1 run that matches has not ended" in after.text
        and "3 of 4 ended: 1 needs a person." in after.text
        and "1 uncertain effect must be settled first" in after.text
    )
    (there,) = [each["href"] for each in after.links if "effect_uncertain" in each.get("href", "")]
    assert own.get(there).text.count('<tr id="run-') == 1


def test_the_number_is_typed_above_the_limit(own: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_answers, "CONFIRM_ABOVE", 2)
    form = page(own, ALL).form("answer-all")
    for typed in ("", "2"):
        status, refused = started(own, form, confirm=typed)
        assert status == 409 and "No job was started" in refused.text
        assert ("text", "the line is gone") in refused.form("answer-all").fields, "typed text is kept"
    assert own.get("/v1/runs?workflow=outlast.bulk").json()["runs"] == []
    assert started(own, form, confirm="3")[0] == 303


def test_a_filter_is_shown_and_kept(own: Service) -> None:
    assert "No run fits now" in page(own, f"{ALL}&contains=nothing").text
    shown = page(own, f"{ALL}&workflow=call&version=1")
    assert "--workflow call --version 1 --reason" in shown.text and "Fail 3 runs" in shown.text
    assert {("workflow", "call"), ("version", "1")} <= {*shown.form("answer-all").fields}
    hostile = own.get(f"{ALL}&contains=%3Cscript%3Ealert(1)%3C/script%3E").text
    assert "<script>alert(1)" not in hostile


def test_an_uncertain_effect_has_no_answer_for_all_that_settles_it(own: Service) -> None:
    shown = own.get("/ui/answers?reason=effect_uncertain")
    assert "A job cannot say whether they happened" in shown.text
    assert "happened</option>" not in shown.text and "did not happen</option>" not in shown.text
    for choice in ("happened", "did_not_happen"):
        assert own.get(f"/ui/answers?reason=effect_uncertain&choice={choice}").status_code == 409


def test_the_unfinished_runs_of_a_query_are_cancelled(own: Service) -> None:
    shown = page(own, "/ui/answers?query=workflow%3Acall")
    assert "Cancel 3 runs" in shown.text and "outlast runs cancel --all workflow:call" in shown.text
    assert page(own, "/ui/answers?query=status%3Afailed").text.count("No run fits now") == 1
    assert own.get("/ui/answers?query=colour%3Ared").status_code == 422
    assert started(own, shown.form("answer-all"))[0] == 303
    (at,) = [run["run"] for run in own.get("/v1/runs?workflow=outlast.bulk").json()["runs"]]
    own.ended(at)
    after = page(own, f"/ui/answers/{at}")
    assert "3 of 3 answered" in after.text and "not ended, found by workflow:call" in after.text


def test_a_job_is_paused_resumed_and_cancelled(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'outlast.db'}"
    with Running(url) as service:
        stopped(service, "broken")
    with Running(url, worker=False) as service:
        assert started(service, page(service, ALL).form("answer-all"))[0] == 303
        (at,) = [run["run"] for run in service.get("/v1/runs?workflow=outlast.bulk").json()["runs"]]
        job = page(service, f"/ui/answers/{at}")
        assert "0 of 1 answered" in job.text and "No live worker serves jobs" in job.text
        stop = job.form("stop")
        pause = HtmlForm(stop.id, f"/ui/answers/{at}/pause", "post", stop.set(reason="wait").fields)
        assert press(service, pause, None)[0] == 303
        held = page(service, f"/ui/answers/{at}")
        assert "Pause all jobs" not in held.text and press(service, held.form("resume-1"), None)[0] == 303
        assert press(service, held.form("stop"), None)[0] == 422, "a reason is required"
        assert press(service, held.form("stop").set(reason="the wrong runs"), None)[0] == 303
        assert service.get("/ui/answers/nothing").status_code == 404
    with Running(url) as service:
        service.ended(at)
        assert "Cancel this job" not in page(service, f"/ui/answers/{at}").text
        assert len(service.get("/v1/attention?reason=exception").json()["attention"]) == 1
