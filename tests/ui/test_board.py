"""The board and the effects without scripts: each reason is answered in place, and an uncertain effect is settled."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from outlast.core.machine import Reason
from outlast.models.approvals import ApprovalSummary
from outlast.models.attention import AttentionList, RunAttention
from outlast.models.effects import EffectRecord, LateEvidence
from outlast.ui.rendering import environment
from outlast.ui.routes import board as board_routes
from outlast.ui.routes.board import NEXT, OF_ONE_REASON, by_deadline
from outlast.ui.routes.effect_pages import StatedBefore, since_then
from tests.service.conftest import Running, Service
from tests.ui.html_page import HtmlForm, HtmlPage

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def press(service: Service, form: HtmlForm, button: tuple[str, str] | None) -> tuple[int, HtmlPage]:
    """Submit a form and follow its redirect."""
    answer = service.client.post(form.action, content=form.body(button), headers=FORM)
    status = answer.status_code
    if status == 303:
        answer = service.get(answer.headers["location"])
    assert answer.status_code < 500, answer.text
    return status, HtmlPage(answer.text)


def stopped(service: Service, order: str) -> str:
    """Start a run whose call is uncertain, or whose node raises, and wait until it needs a person."""
    run = service.start("call", order=order)
    service.flagged(run)
    return run


def board(service: Service) -> HtmlPage:
    answer = service.get("/ui/")
    assert answer.status_code == 200, answer.text
    return HtmlPage(answer.text)


def test_an_uncertain_effect_is_settled_on_its_page(service: Service) -> None:
    run = stopped(service, "o1")
    page = HtmlPage(service.get("/ui/effects").text)
    (link,) = [each["href"] for each in page.links if "o1" in str(each.get("href")) or _of(each, run, service)]
    detail = HtmlPage(service.get(link).text)
    assert "service-ring/o1" in detail.text and "Settle it" in detail.text
    assert "Did not happen: ring is called again, unless the run was asked to end" in detail.text
    form = detail.form("settle").set(reason="looked it up")
    status, again = press(service, form, ("outcome", "happened"))
    assert status == 422 and ("reason", "looked it up") in again.form("settle").fields
    status, done = press(
        service, again.form("settle").set(external_id="ext-1", response="it rang"), ("outcome", "happened")
    )
    assert status == 303 and "ext-1" in done.text and "by local:ana" in done.text
    assert press(service, form.set(external_id="ext-2"), ("outcome", "happened"))[0] in (409, 412)


@pytest.mark.req("EFF-2")
def test_an_answer_is_corrected_on_its_page_until_the_run_uses_it(tmp_path: Path) -> None:
    """A service without the code of the run: the page says who has answered, and takes another answer."""
    url = f"sqlite:{tmp_path / 'o.db'}"
    with Running(url) as serving:
        run = stopped(serving, "o9")
        (effect,) = serving.get(f"/v1/runs/{run}/effects").json()["effects"]
    with Running(url, (), worker=False) as quiet:
        page = HtmlPage(quiet.get(f"/ui/effects/{effect['id']}").text)
        assert "--happened ID --response JSON" in page.text
        form = page.form("settle").set(reason="looked", external_id="ext-1")
        status, again = press(quiet, form, ("outcome", "happened"))
        assert status == 422 and "The answer is required if it happened." in again.text
        assert "what the activity returns, a string, as JSON or text" in again.text
        assert "(the whole)" not in again.text and "--response JSON:" not in again.text, "those are words of commands"
        status, done = press(quiet, again.form("settle").set(response="it rang"), ("outcome", "happened"))
        assert status == 303 and "Correct the answer" in done.text and "has answered" in done.text
        assert "happened (ext-1)" in done.text and "Nothing has used the answer yet." in done.text
        form = done.form("settle").set(reason="wrong number", external_id="ext-2", response="it rang twice")
        status, done = press(quiet, form, ("outcome", "happened"))
        assert status == 303 and "ext-2" in done.text
        status, done = press(quiet, done.form("settle").set(reason="no"), ("outcome", "give_up"))
        assert status == 303 and "given up, outcome unknown (stated by local:ana)" in done.text
    with Running(url) as serving:
        serving.until(f"/v1/runs/{run}", lambda body: [each["reason"] for each in body["attention"]] == ["exception"])
        assert "Correct the answer" not in serving.get(f"/ui/effects/{effect['id']}").text


@pytest.mark.req("EFF-2")
def test_a_call_that_was_given_up_is_unknown_and_not_corrected_after_the_end(tmp_path: Path) -> None:
    """It was shown as refused, though the money may have moved, and as an answer that nothing has used yet."""
    with Running(f"sqlite:{tmp_path / 'o.db'}") as own:
        run, other = stopped(own, "o4"), stopped(own, "o5")
        (effect,) = own.get(f"/v1/runs/{run}/effects").json()["effects"]
        assert own.post(f"/v1/runs/{run}/cancel", {"reason": "bank outage"}).status_code < 300
        own.flagged(run)
        form = HtmlPage(own.get(f"/ui/effects/{effect['id']}").text).form("settle").set(reason="the bank cannot say")
        status, done = press(own, form, ("outcome", "give_up"))
        assert status == 303 and "give up: nothing is called, the outcome stays unknown" in done.text
        own.ended(run)
        (effect,) = own.get(f"/v1/runs/{run}/effects").json()["effects"]
        assert (effect["status"], effect["unknown"], effect["correctable"]) == ("refused", True, False)
        (unknown,) = own.get("/v1/effects?unknown=true").json()["effects"]
        assert unknown["id"] == effect["id"], "and not the uncertain one"
        assert own.get(f"/v1/effects?unknown=true&run={other}").json()["effects"] == []
        assert own.get("/v1/effects?unknown=true&status=refused").status_code == 422
        listed = own.get("/ui/effects?unknown=true").text
        assert listed.count('<tr id="effect-') == 1 and "1 in this list." in HtmlPage(listed).text
        page = HtmlPage(own.get(f"/ui/effects/{effect['id']}").text)
        assert "Correct the answer" not in page.text and "The run has ended: cancelled" in page.text
        (following,) = [each["href"] for each in page.links if "/ui/effects/" in each["href"]]
        assert following.endswith(own.get(f"/v1/runs/{other}/effects").json()["effects"][0]["id"]), "and not to itself"
        for address in (f"/ui/effects?run={run}&every=true", f"/ui/runs/{run}/effects", f"/ui/runs/{run}"):
            text = HtmlPage(own.get(address).text).text
            assert "given up, outcome unknown" in text and "refused given_up" not in text, address
        for address in (f"/ui/runs/{run}/people", f"/ui/runs/{run}"):
            text = HtmlPage(own.get(address).text).text
            assert "service-ring/o4: give up" in text and "service-ring/o4 service-ring/o4" not in text, address


def test_that_an_answer_is_needed_is_said_before_the_press(tmp_path: Path) -> None:
    with Running(f"sqlite:{tmp_path / 'o.db'}") as own:
        run = stopped(own, "o7")
        (effect,) = own.get(f"/v1/runs/{run}/effects").json()["effects"]
        assert (
            "Needs the answer of the receiver : a string" in HtmlPage(own.get(f"/ui/effects/{effect['id']}").text).text
        )


@pytest.mark.parametrize(
    ("verb", "uncertain", "shown"),
    [
        ("did_not_happen", True, 'class="warn" id="done" role="status">Uncertain again: '),
        ("did_not_happen", False, 'class="done no" id="done" role="status">Recorded'),
        ("happened", False, 'class="done" id="done" role="status">Recorded'),
    ],
)
def test_only_an_answer_that_calls_nothing_is_green(verb: str, uncertain: bool, shown: str) -> None:
    """The strip was green while the repeated call was uncertain again."""
    page = environment().get_template("effect.html")
    answers = [SAID._replace(verb=verb)]
    context = {"feedback": "Recorded", "answers": answers, "uncertain": uncertain, "since_then": "called again"}
    assert shown in "".join(page.blocks["done"](page.new_context(context)))


FOUND = EffectRecord.model_construct(
    effect="pay", version=5, status="uncertain", reopened=False, correctable=False, settled_at=None, outcome="UNCERTAIN"
)
SAID = StatedBefore(datetime(2026, 1, 2, tzinfo=UTC), "local:ana", "did not happen", "", "did_not_happen", 4)
LATER = SAID.at + timedelta(milliseconds=400)


@pytest.mark.parametrize(
    ("changes", "said", "over", "words"),
    [
        ({"reopened": True, "status": "refused"}, SAID, "", "pay is called again when a worker takes the run up."),
        ({"version": 7}, SAID, "", "pay was called again 400 ms later: uncertain again."),
        (
            {"version": 7, "status": "done", "settled_at": LATER, "outcome": "executed"}, SAID, "",
            "pay was called again 400 ms later: executed.",
        ),
        ({"version": 7}, SAID, "cancelled", "The run has ended: cancelled. The answer cannot be changed."),
        ({"correctable": True}, SAID._replace(verb="happened"), "", "Nothing has used the answer yet."),
        ({"version": 6}, SAID._replace(verb="happened"), "", "The run has used the answer."),
    ],
)  # fmt: skip
def test_an_answered_effect_says_what_became_of_the_answer(
    changes: dict[str, Any], said: StatedBefore, over: str, words: str
) -> None:
    assert since_then(FOUND.model_copy(update=changes), said, LATER, over) == words


def _of(link: dict[str, str], run: str, service: Service) -> bool:
    effects = service.get(f"/v1/effects?run={run}").json()["effects"]
    return any(link.get("href", "").endswith(f"/ui/effects/{each['id']}") for each in effects)


def test_a_reason_is_answered_on_the_board(service: Service) -> None:
    run = stopped(service, "broken")
    form = next(each for each in board(service).forms if f"/{run}/" in each.action)
    status, page = press(service, form.set(text="stop it"), ("choice", "fail"))
    assert status == 303 and page.text.startswith("Attention ·")
    service.ended(run)
    assert not [each for each in board(service).forms if f"/{run}/" in each.action]


def assigning(page: HtmlPage, run: str) -> HtmlForm:
    """Return the form that assigns the item of a run."""
    return next(each for each in page.forms if f" {run} " in dict(each.fields).get("item", ""))


@pytest.mark.req("GATE-8")
def test_an_item_is_assigned_where_it_is_shown_and_until_it_is_answered(service: Service) -> None:
    run = stopped(service, "broken")
    status, page = press(service, assigning(board(service), run), ("who", "me"))
    assert status == 303 and page.text.startswith("Attention ·") and "yours assigned to ana by local:ana" in page.text
    assert ("who", "me") not in assigning(page, run).buttons
    listed = HtmlPage(service.get("/ui/attention/exception").text)
    status, listed = press(service, assigning(listed, run).set(to="ben", note="he called"), None)
    assert status == 303 and "assigned to ben by local:ana" in listed.text and ": he called" in listed.text
    shown = HtmlPage(service.get(f"/ui/runs/{run}").text)
    assert "assigned to ben by local:ana" in shown.text and f"attention assign {run} NAME" in shown.text
    status, shown = press(service, assigning(shown, run), ("who", "unassign"))
    assert status == 303 and "assigned to" not in shown.text
    press(service, assigning(shown, run).set(to="cleo"), None)
    (item,) = service.get("/v1/attention?assigned_to=cleo").json()["attention"]
    assert (item["run"], item["assigned_by"], item["assigned_note"]) == (run, "local:ana", "")
    assert service.get("/v1/attention?assigned_to=me").json()["attention"] == []
    form = next(each for each in board(service).forms if f"/{run}/" in each.action)
    stale = assigning(board(service), run)
    assert press(service, form.set(text="not needed"), ("choice", "fail"))[0] == 303, "another person answers"
    service.ended(run)
    assert "cleo" not in board(service).text
    status, page = press(service, stale.set(to="dan"), None)
    assert status == 410 and "has ended" in page.text


def test_a_refused_assignment_keeps_the_typed_text(service: Service) -> None:
    run = stopped(service, "broken")
    try:
        for where in ("/ui/", "/ui/attention/exception", f"/ui/runs/{run}"):
            form = assigning(HtmlPage(service.get(where).text), run)
            for name, why in (("", "a person is required"), ("none", "cannot name a person")):
                status, page = press(service, form.set(to=name, note="my words"), None)
                again = dict(assigning(page, run).fields)
                assert status == 422 and (again["to"], again["note"]) == (name, "my words") and why in page.text, where
    finally:
        service.post(f"/v1/runs/{run}/cancel", {"reason": "seen"})
        service.ended(run)


def test_the_board_has_those_of_the_caller_first_and_stays_small(service: Service) -> None:
    runs = [stopped(service, "broken") for _ in range(12)]
    listed = service.get("/v1/attention?reason=exception&limit=8").json()["attention"]
    first, last = listed[0]["run"], listed[-1]["run"]
    assert service.post("/v1/attention/assign", {"run": last, "to": "me"}).status_code == 200
    text = service.get("/ui/").text
    assert text.index(f'id="answer-{last}-exception-"') < text.index(f'id="answer-{first}-exception-"')
    assert len(text.encode()) <= 60 * 1024
    for run in runs:
        service.post(f"/v1/runs/{run}/cancel", {"reason": "seen"})
        service.ended(run)


@pytest.mark.req("EFF-2")
def test_an_answer_about_an_effect_is_for_the_run_that_was_shown(service: Service) -> None:
    run = stopped(service, "shown")
    said = [
        board(service).text,
        HtmlPage(service.get(f"/ui/runs/{run}").text).text,
        HtmlPage(service.get("/ui/attention/effect_uncertain").text).text.replace("the activity", "ring"),
    ]
    for text in said:
        assert "Did not happen: ring is called again, unless the run was asked to end" in text, text
    explained = service.get(f"/v1/runs/{run}/explain").json()["facts"]
    assert explained["if answered did_not_happen"] == "ring is called again, unless the run was asked to end"
    shown = next(each for each in board(service).forms if f"/{run}/" in each.action)
    older = shown.set(text="looked it up", external_id="ext-7", response='"it rang"', version="1")
    status, page = press(service, older, ("choice", "happened"))
    assert status == 409 and "has changed" in page.text
    assert service.get(f"/v1/runs/{run}/effects").json()["effects"][0]["status"] == "uncertain"
    status, _ = press(service, older.set(version=dict(shown.fields)["version"]), ("choice", "happened"))
    assert status == 303
    (settled,) = service.get(f"/v1/runs/{run}/effects").json()["effects"]
    assert (settled["external_id"], settled["response"]) == ("ext-7", "it rang")


def test_a_refused_answer_keeps_the_typed_text(service: Service) -> None:
    run = stopped(service, "broken")
    form = next(each for each in board(service).forms if f"/{run}/" in each.action)
    wrong = HtmlForm(form.id, form.action, form.method, form.set(text="my words").fields, [("choice", "retry")])
    status, page = press(service, wrong, ("choice", "retry"))
    again = next(each for each in page.forms if f"/{run}/" in each.action)
    assert status == 409 and ("text", "my words") in again.fields
    press(service, again, ("choice", "fail"))


RUN_LINK = re.compile(r'type="checkbox"[^>]* value="(\S+) ')


def ticked(service: Service, form: HtmlForm, runs: list[str]) -> HtmlForm:
    """Return the form with the boxes of these runs ticked."""
    version = {run: service.get(f"/v1/runs/{run}").json()["version"] for run in runs}
    items = [("item", f"{run} {version[run]} ") for run in runs]
    return HtmlForm(form.id, form.action, form.method, [*form.fields, *items], form.buttons)


def test_one_answer_for_all_of_a_reason_has_an_outcome_for_each(service: Service) -> None:
    runs = [stopped(service, "broken") for _ in range(3)]
    listed = HtmlPage(service.get("/ui/attention/exception").text).form("many")
    assert not [value for name, value in listed.fields if name == "item"], "no box is ticked beforehand"
    listed = ticked(service, listed, runs)
    service.post(f"/v1/runs/{runs[0]}/cancel", {"reason": "meanwhile"})
    service.ended(runs[0])
    status, page = press(service, listed.set(text="no line today"), ("choice", "fail"))
    assert status == 200 and "2 of 3 answered" in page.text and "refused" in page.text
    for run in runs[1:]:
        service.ended(run)
    empty = listed.put({"text": "x"})
    none = HtmlForm("", empty.action, "post", [f for f in empty.fields if f[0] != "item"], [("choice", "fail")])
    assert press(service, none, ("choice", "fail"))[0] == 422


def test_the_runs_after_the_first_page_of_a_reason_can_be_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page ended at the first ones, without a link to the next."""
    monkeypatch.setattr(board_routes, "AT_MOST", 2)
    with Running(f"sqlite:{tmp_path / 'outlast.db'}") as service:
        runs = [stopped(service, "broken") for _ in range(5)]
        address, seen = "/ui/attention/exception", list[list[str]]()
        while address:
            page = HtmlPage(service.get(address).text)
            form = ticked(service, page.form("many"), RUN_LINK.findall(page.source))
            seen.append([value.split(" ")[0] for name, value in form.fields if name == "item"])
            last, address = form, next((each["href"] for each in page.links if each.get("rel") == "next"), "")
        assert [len(each) for each in seen] == [2, 2, 1] and sorted(run for each in seen for run in each) == sorted(
            runs
        )
        status, answered = press(service, last.set(text="no line"), ("choice", "fail"))
        assert status == 200 and "1 of 1 answered" in answered.text
        assert not [run for run in seen[0] if run in answered.text], "it is followed by the page that was shown"
        service.ended(seen[-1][0])


class Pages:
    """Pages of runs with these numbers of items, by a cursor that counts runs."""

    def __init__(self, *items: int) -> None:
        self.items = items

    async def attention(self, *, reason: Reason, limit: int, cursor: str) -> AttentionList:
        begin = int(cursor or 0)
        end = min(begin + limit, len(self.items))
        found = [
            RunAttention.model_construct(run=f"r{run}", key=str(n))
            for run in range(begin, end) for n in range(self.items[run])
        ]  # fmt: skip
        return AttentionList.model_construct(attention=found, next_cursor=str(end) if end < len(self.items) else "")


@pytest.mark.parametrize("items", [(1, 1, 1, 1), (3, 1), (2, 2, 2), (1, 3, 3), (4,), (1, 4, 1), (4, 4)])
def test_a_page_of_a_reason_has_whole_runs_and_the_next_one_leaves_none_out(
    monkeypatch: pytest.MonkeyPatch, items: tuple[int, ...]
) -> None:
    """A run has an item for each effect."""
    monkeypatch.setattr(board_routes, "AT_MOST", 3)

    async def go() -> list[list[str]]:
        pages, after = list[list[str]](), ""
        while True:
            found, shown = await board_routes._first_items(cast(Any, Pages(*items)), Reason.EXCEPTION, after)
            pages.append([f"{each.run} {each.key}" for each in shown])
            if not (after := found.next_cursor):
                return pages

    pages = asyncio.run(go())
    assert [each for page in pages for each in page] == [
        f"r{run} {n}" for run, of in enumerate(items) for n in range(of)
    ]
    for page in pages:
        assert len(page) <= 3 or len({each.split(" ")[0] for each in page}) == 1


def test_approvals_due_are_on_the_board(service: Service) -> None:
    service.asked()
    page = board(service)
    assert "pending approval" in page.text and len(page.ids) == len(set(page.ids))


def test_effects_are_filtered_by_links(service: Service) -> None:
    for query in ("", "?every=true", "?status=done", "?status=refused", "?activity=nothing&every=true"):
        assert service.get(f"/ui/effects{query}").status_code == 200
    assert service.get("/ui/effects/bm9uc2Vuc2U").status_code == 404
    assert service.get("/ui/attention/nothing").status_code == 422


def test_a_pause_is_ended_where_it_is_shown(service: Service) -> None:
    for what, name in (("activity", "ring"), ("workflow", "wish")):
        paused = {"what": what, "name": name, "reason": "the exchange is down"}
        assert service.post("/v1/pauses", paused).status_code == 201
    page = board(service)
    assert "outlast resume activity ring" in page.text and "outlast resume workflow wish" in page.text
    (form,) = [each for each in page.forms if ("paused", "activity ring") in each.fields]
    status, after = press(service, form, None)
    assert status == 303 and "activity ring" not in after.text and "workflow wish" in after.text
    assert press(service, form, None)[0] == 404, "it was ended already"
    shown = HtmlPage(service.get("/ui/workflows/wish").text)
    assert "the exchange is down" in shown.text
    assert "the exchange is down" not in service.get("/ui/workflows/order").text
    status, after = press(service, shown.form("resume-1"), None)
    assert status == 303 and "Start a run" in after.text and "the exchange is down" not in after.text
    assert service.get("/v1/pauses").json()["pauses"] == []


def test_overdue_approvals_do_not_hide_those_due_today() -> None:
    now = datetime(2026, 11, 24, 12, tzinfo=UTC)
    offsets = [timedelta(hours=n) for n in range(-30, 50)]
    rows = [ApprovalSummary.model_construct(approval=f"ap_{at}", within_until=now + at) for at in offsets]
    found = by_deadline(rows, now)
    assert [each.within_until for each in found.overdue] == [now + at for at in offsets[:OF_ONE_REASON]]
    assert found.today[0].within_until == now + timedelta(hours=1) and len(found.today) == OF_ONE_REASON
    assert found.later == []
    distant = rows[-20:]
    assert by_deadline(distant, now).later == distant[:NEXT]
    assert by_deadline([rows[0]], now) == ([rows[0]], [], [])


def test_the_board_shows_the_next_approvals_if_none_is_due_today(service: Service) -> None:
    approval, _ = service.asked()
    page = service.get("/ui/").text
    assert "Next approvals" in page
    assert f'href="/ui/approvals/{approval}"' in page.partition('<ul id="next">')[2].partition("</ul>")[0]


def test_a_key_of_any_text_is_one_part_of_an_id() -> None:
    as_id = environment().filters["as_id"]
    made = [as_id(key) for key in ("call/o1", 'a "b', 'a "c', "a b")]
    assert made[0] == "call/o1" and len(set(made)) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9_.:/-]+", each) for each in made)


def test_a_large_late_answer_is_cut_in_a_card() -> None:
    late = LateEvidence.model_construct(status="done", detail="", response="9" * 100_000)
    item = RunAttention.model_construct(
        run="r1", workflow="w", forked_from="", parent="", reason="effect_uncertain", key="k", detail="", since=None,
        until=None, version=1, if_ignored="stays as it is", evidence=[late], choices=[], assigned_to="", holds_up=0,
    )  # fmt: skip
    names: dict[str, Any] = {"root": "", "form_token": "", "nonce": "", "may": lambda _: False, "when": str, "me": ""}
    card = environment().from_string(
        '{% import "parts.html" as parts with context %}{% import "attention_parts.html" as own with context %}'
        '{{ own.answer(item, {}, "board") }}'
    )
    shown = card.render(item=item, **names)
    assert "A late answer" in shown and "999 …" in shown and len(shown) < 3_000


def test_a_cut_text_says_so_and_leads_to_the_whole() -> None:
    cut = environment().from_string('{% import "parts.html" as parts with context %}{{ parts.cut(text, 5, "/w") }}')
    names = {"root": "", "here": "", "form_token": "", "nonce": ""}
    assert cut.render(text="12345", **names) == "12345"
    assert cut.render(text="1234567", **names) == '12345<a href="/w"> … 2 more characters</a>'
    assert 'class="odd"' in cut.render(text="a\u202eb", **names)
