"""Pages of one run: its sentence, its tabs, and the actions on it, without JavaScript."""

import html
import json
import re
from shlex import quote
from typing import Any

import httpx2
import pytest

from outlast.models.runs import RunSummary
from outlast.ui import run_words
from outlast.ui.routes.run_actions import ACTIONS, RunAction, shown_for
from tests.ui.conftest import Service
from tests.ui.html_page import HtmlPage

TABS = ("", "/overview", "/effects", "/results", "/events", "/data", "/checkpoints", "/people", "/actions")
PAGE_MAX = 60_000
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def fields(text: str, form: str) -> dict[str, str]:
    """Return the hidden fields of a form of a page."""
    inside = text.partition(f'id="{form}"')[2].partition("</form>")[0]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', inside)
    return {name: html.unescape(value) for name, value in found}


def send(service: Service, page: str, form: str, path: str, **given: str) -> httpx2.Response:
    """Submit a form of a page as a browser without JavaScript does, without following the answer."""
    text = service.get(page).text
    origin = {"Origin": service.url, "Sec-Fetch-Site": "same-origin"}
    return service.client.post(path, data={**fields(text, form), **given}, headers=origin)


def flagged(service: Service) -> str:
    """Start a run whose node raises, and wait until it needs a person."""
    run = service.start("call", order="broken")
    service.flagged(run)
    return run


def answer_of(service: Service, run: str) -> str:
    """Return the id of the form that answers the run's only item."""
    (item,) = service.get(f"/v1/runs/{run}").json()["attention"]
    return f"answer-{item['reason']}-{item['key']}"


@pytest.mark.req("RUN-9")
def test_the_first_tab_says_what_explain_says(service: Service) -> None:
    _, run = waiting(service)
    said = service.get(f"/v1/runs/{run}/explain").json()
    page = service.get(f"/ui/runs/{run}")
    assert page.status_code == 200
    text = html.unescape(page.text)
    assert re.sub(r"another \S+", "", said["sentence"]) in re.sub(r"another \S+", "", text)
    for command in said["unblock"]:
        assert command in text


def test_the_data_tab_leads_to_the_state_of_a_run_that_goes_on(service: Service) -> None:
    _, run = waiting(service)
    page = service.get(f"/ui/runs/{run}/data")
    assert f'href="/ui/runs/{run}/state"' in page.text and f"outlast runs show {run} --state" in page.text
    assert service.get(f"/ui/runs/{run}/state.json").json() == service.get(f"/v1/runs/{run}/state").json()["state"]


def test_the_data_tab_shows_the_outcome_of_an_ended_run(service: Service) -> None:
    run = service.start("job", rounds=1)
    service.ended(run)
    outcome = service.get(f"/ui/runs/{run}/outcome").json()
    page = service.get(f"/ui/runs/{run}/data").text
    assert outcome and 'id="outcome"' in page and "It has not ended" not in page


def test_each_checkpoint_has_a_page_of_its_state(service: Service) -> None:
    run = service.start("job", rounds=3)
    service.ended(run)
    saved = [each["seq"] for each in service.get(f"/v1/runs/{run}/checkpoints").json()["checkpoints"]]
    states = [service.get(f"/v1/runs/{run}/state?checkpoint={seq}").json() for seq in saved]
    assert len({json.dumps(each["state"]) for each in states}) == len(saved) > 1
    assert [each["seq"] for each in states] == saved
    for seq, told in zip(saved, states, strict=True):
        page = service.get(f"/ui/runs/{run}/state?checkpoint={seq}")
        assert f"State at checkpoint {seq}" in page.text and f"--state --checkpoint {seq}" in page.text
        assert service.get(f"/ui/runs/{run}/state.json?checkpoint={seq}").json() == told["state"]
        for listed in ("", "/checkpoints"):
            assert f'href="/ui/runs/{run}/state?checkpoint={seq}"' in service.get(f"/ui/runs/{run}{listed}").text
    first, second = (service.get(f"/ui/runs/{run}/state?checkpoint={seq}").text for seq in saved[:2])
    assert "Changed since event 1" in first and f"Changed since checkpoint {saved[0]}" in second
    (name,) = (name for name, value in states[1]["state"].items() if states[0]["state"].get(name) != value)
    old, new = (f"<code>{states[n]['state'][name]}</code>" for n in (0, 1))
    assert f"<code>{name}</code>" in second and f"<del>{old}</del>" in second and f"<ins>{new}</ins>" in second
    assert "Changed since" not in service.get(f"/ui/runs/{run}/state?checkpoint=1").text, "nothing was before the start"
    last = service.get(f"/v1/runs/{run}/state").json()
    assert service.get(f"/v1/runs/{run}/state?checkpoint={last['seq']}").json() == last
    refused = service.get(f"/v1/runs/{run}/state?checkpoint=2")
    assert refused.status_code == 404 and "event 2" in refused.json()["title"]


def waiting(service: Service) -> tuple[str, str]:
    approval, _ = service.asked()
    run = str(service.get(f"/v1/approvals/{approval}").json()["run"])
    service.waits(run)
    return approval, run


@pytest.mark.req("GATE-2")
def test_an_approval_is_decided_on_the_page_of_its_run(service: Service) -> None:
    approval, run = waiting(service)
    text = service.get(f"/ui/runs/{run}").text
    assert text.index(f'id="arguments-of-{approval}"') < text.index(f'id="approve-{approval}"')
    assert f'href="/ui/approvals/{approval}"' in text
    form, path = HtmlPage(text).form(f"decide-{approval}"), f"/ui/approvals/{approval}/decision"
    press = lambda verb, reason: service.client.post(  # noqa: E731
        path, content=form.set(reason=reason).body(("decision", verb)), headers=FORM
    )
    assert form.action == path
    refused = press("reject", "")
    assert refused.status_code == 422 and "Reason is required" in HtmlPage(refused.text).text
    decided = press("approve", "in budget")
    assert (decided.status_code, decided.headers["location"]) == (303, f"/ui/runs/{run}")
    assert service.ended(run)["status"] == "completed"
    late = press("reject", "my text")
    assert late.status_code == 409 and "my text" in late.text, "a later decision keeps the typed text"


def test_only_a_caller_who_may_decide_sees_the_decision_on_the_page_of_a_run(service: Service) -> None:
    approval, run = waiting(service)
    tag = service.get(f"/v1/approvals/{approval}").headers["ETag"]
    given = {"to": "person:bo", "reason": "hers"}
    service.post(f"/v1/approvals/{approval}/reassign", given, If_Match=tag).raise_for_status()
    assert f'id="decide-{approval}"' not in service.get(f"/ui/runs/{run}").text
    service.waits(run)  # the message of the reassignment made it due, and an execution shows no wait
    text = service.get(f"/ui/runs/{run}").text
    assert f'id="decide-{approval}"' not in text
    assert f'href="/ui/approvals/{approval}"' in text


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_is_a_page(service: Service, tab: str) -> None:
    _, run = waiting(service)
    page = service.get(f"/ui/runs/{run}{tab}")
    assert page.status_code == 200, page.text
    assert len(page.content) < PAGE_MAX
    assert "style=" not in page.text


@pytest.mark.parametrize(
    ("page", "current", "below"),
    [
        ("", "story", ""), ("/overview", "overview", ""), ("/compare", "compare", ""), ("/actions", "actions", ""),
        ("/data", "data", "data"), ("/results", "data", "results"), ("/checkpoints", "data", "checkpoints"),
        ("/state", "data", "checkpoints"), ("/effects", "records", "effects"), ("/events", "records", "events"),
        ("/people", "records", "people"), ("/fork", "", ""),
    ],
)  # fmt: skip
def test_a_page_names_its_tab_and_its_place_in_a_group(service: Service, page: str, current: str, below: str) -> None:
    run = flagged(service)
    text = service.get(f"/ui/runs/{run}{page}").text
    tabs, sub = (text.partition(f'id="{name}"')[2].partition("</nav>")[0] for name in ("tabs", "subtabs"))
    assert re.findall(r'aria-current="\w+" id="tabs?-(\w+)"', tabs) == ([current] if current else [])
    assert re.findall(r'aria-current="page" id="tab-(\w+)"', sub) == ([below] if below else [])
    links = re.findall(rf'href="(/ui/runs/{run}[^"]*)"[^>]*id="tabs?-', tabs + sub)
    assert len(links) == (10 if below else 7) and all(service.get(each).status_code == 200 for each in links)


@pytest.mark.parametrize("page", ["/fork", "/fork?from=1", "/signals/said"])
def test_the_page_of_a_form_has_the_header_without_its_action(service: Service, page: str) -> None:
    run = flagged(service)
    assert 'id="primary"' in service.get(f"/ui/runs/{run}").text
    text = service.get(f"/ui/runs/{run}{page}").text
    assert 'id="sentence"' in text and f"/ui/runs/{run}/head?plain=yes" in text
    refreshed = service.get(f"/ui/runs/{run}/head?plain=yes&region=head").text
    assert 'id="sentence"' in refreshed and 'id="primary"' not in text + refreshed


def test_an_unknown_run_is_a_page_that_says_so(service: Service) -> None:
    page = service.get("/ui/runs/none_such")
    assert page.status_code == 404
    assert "no run none_such" in page.text


def test_the_reason_of_an_answer_is_kept_if_the_run_has_changed(service: Service) -> None:
    run = flagged(service)
    path = f"/ui/runs/{run}/answer"
    typed = {"choice": "continue", "text": "the line is up", "version": "1"}
    refused = send(service, f"/ui/runs/{run}", answer_of(service, run), path, **typed)
    assert refused.status_code == 409
    assert "the line is up" in refused.text


def test_an_answer_ends_attention(service: Service) -> None:
    run = flagged(service)
    form, path = answer_of(service, run), f"/ui/runs/{run}/answer"
    answer = send(service, f"/ui/runs/{run}", form, path, choice="fail", text="no such order")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/runs/{run}")
    assert service.ended(run)["status"] == "failed"
    assert "no such order" in service.get(f"/ui/runs/{run}/people").text


@pytest.mark.parametrize("action", ACTIONS, ids=[each.name for each in ACTIONS])
def test_each_declared_action_has_a_form_with_its_texts_and_fields(service: Service, action: RunAction) -> None:
    run = service.start("wish", text="?")
    service.waits(run)
    summary = service.get(f"/v1/runs/{run}").json()
    page = service.get(f"/ui/runs/{run}/actions").text
    if action.name == "detach":  # of a child alone: test_run_tree.py
        assert "detach-form" not in page
        return
    shown, form = HtmlPage(page).text, HtmlPage(page).form(f"{action.name}-form")
    texts = shown_for(action, RunSummary.model_validate({name: summary[name] for name in RunSummary.model_fields}))
    assert form.action == f"/ui/runs/{run}/{action.name}"
    for text in (action.title, texts.consequence, action.button, *(each.label for each in action.fields)):
        assert text in shown
    assert "{" not in "".join((texts.consequence, *texts.command))
    names = {name for name, _ in form.fields}
    assert {each.name for each in action.fields} <= names
    assert (("reason" in names), ("version" in names)) == (action.reason != "none", action.versioned)


def test_a_cancel_says_what_it_undoes_and_is_done_once(service: Service) -> None:
    _, run = waiting(service)
    form = HtmlPage(service.get(f"/ui/runs/{run}/actions").text).form("cancel-form").set(reason="a mistake")
    statuses = [service.client.post(form.action, content=form.body(), headers=FORM).status_code for _ in range(2)]
    assert statuses[0] == 303 and statuses[1] in (303, 409, 410), "the run may have ended before the second"
    assert service.ended(run)["status"] == "cancelled"
    page = service.get(f"/ui/runs/{run}").text
    assert "a mistake" in page
    assert "/ui/live?of" not in page, "an ended run needs no stream"


def test_a_cancel_without_a_reason_keeps_the_page(service: Service) -> None:
    _, run = waiting(service)
    answer = send(service, f"/ui/runs/{run}/actions", "cancel-form", f"/ui/runs/{run}/cancel", reason=" ")
    assert answer.status_code == 422
    assert 'id="cancel-error"' in answer.text


def test_events_and_results_have_pages_and_their_whole_values(service: Service) -> None:
    run = service.start("job", rounds=70)
    service.ended(run)
    first = service.get(f"/ui/runs/{run}/events").text
    assert 'id="event-50"' in first
    assert "after=50" in first
    later = service.get(f"/ui/runs/{run}/events?after=50").text
    assert 'id="event-51"' in later
    whole = service.get(f"/ui/runs/{run}/events/7")
    assert whole.json()["subject"] == run
    assert whole.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_large_request_of_an_effect_is_fetched_on_demand(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    run = service.start("call", order="A-1234")
    service.flagged(run)
    (effect,) = service.get(f"/v1/runs/{run}/effects").json()["effects"]
    address = f"/ui/effects/{effect['id']}"
    for most, folded in ((run_words.FOLDED, False), (10, True)):
        monkeypatch.setattr(run_words, "FOLDED", most)
        page = service.get(address).text
        assert ("<td" in page.partition('id="arguments"')[2].partition("Digest")[0]) is not folded
        assert (f'href="{address}/request"' in page) is folded
    whole = service.get(f"{address}/request")
    assert whole.json() == {"order": "A-1234"} and whole.headers["x-content-type-options"] == "nosniff"
    assert service.get(f"{address}/answer").json() is None


def test_an_export_is_the_document_of_the_command(service: Service) -> None:
    run = service.start("order", number="7")
    service.ended(run)
    answer = service.get(f"/ui/runs/{run}/export")
    assert answer.headers["content-disposition"] == f'attachment; filename="{run}.json"'
    document: dict[str, Any] = answer.json()
    assert document["seal"]


def test_an_unchanged_tab_is_not_sent_again(service: Service) -> None:
    _, run = waiting(service)
    first = service.get(f"/ui/runs/{run}?region=tab")
    again = service.get(f"/ui/runs/{run}?region=tab", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code) == (200, 304)
    assert "<html" not in first.text


def test_events_are_filtered_by_type(service: Service) -> None:
    run = service.start("order", number="filter")
    service.ended(run)
    kinds = [each["type"] for each in service.get(f"/v1/runs/{run}/events").json()["events"]]
    for type_, wanted in (
        ("dev.outlast.workflow.started", [kinds[0]]),
        ("dev.outlast.run.*", [each for each in kinds if each.startswith("dev.outlast.run.")]),
        ("dev.outlast.run.moved", []),
    ):
        found = service.get(f"/v1/runs/{run}/events?type={type_}").json()
        assert [each["type"] for each in found["events"]] == wanted and found["ended"] and not found["next_cursor"]
        page = service.get(f"/ui/runs/{run}/events?type={type_}").text
        assert page.count('<tr id="event-') == len(wanted) and f"--type {quote(type_)}" in html.unescape(page)
    first = service.get(f"/v1/runs/{run}/events?type=dev.outlast.*&limit=2").json()
    rest = service.get(f"/v1/runs/{run}/events?type=dev.outlast.*&after={first['next_cursor']}").json()
    assert [each["type"] for each in (*first["events"], *rest["events"])] == kinds
    for refused in (f"/v1/runs/{run}/events?type=started", f"/ui/runs/{run}/events?type=started"):
        assert service.get(refused).status_code == 422
    stream = {"Accept": "text/event-stream"}
    assert service.get(f"/v1/runs/{run}/events?type=dev.outlast.*", headers=stream).status_code == 422
    for address in re.findall(r'href="([^"]*type=[^"]+)"', service.get(f"/ui/runs/{run}/events").text):
        assert service.get(html.unescape(address)).status_code == 200, address
