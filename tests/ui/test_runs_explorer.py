"""The page of runs: one text of words and terms, totals and bars whose numbers are those of the lists behind them."""

import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any, get_args

import pytest
from playwright.sync_api import Page

from outlast.core.rows.limit_rows import Pause
from outlast.core.rows.store_rows import Topology
from outlast.core.run_filters import Interval, RunOrder
from outlast.insight.cause_reads import BARS
from outlast.insight.run_tally import TallyBar, bars_of, marks_in
from outlast.models import milliseconds
from outlast.ui.bars_drawing import HEIGHT, TOUCH, draw_bars
from tests.ui.conftest import Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.review.flows import ALL
from tests.ui.review.store import filled
from tests.ui.test_run_pages import PAGE_MAX
from tests.ui.test_runs_list import rows

ROW_BYTES_MAX = 600


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Running(f"sqlite:{tmp_path_factory.mktemp('explorer') / 'outlast.db'}", ALL) as service:
        filled(service, "small")
        yield service


def listed(service: Service, address: str) -> int:
    """Return the number of runs of a list, over its pages."""
    found, text = 0, ""
    while True:
        text = service.get(address).text
        found += len(rows(text))
        further = re.search(r'<a[^>]*href="([^"]+)"[^>]*rel="next"|rel="next"[^>]*href="([^"]+)"', text)
        if further is None:
            return found
        address = unescape(further[1] or further[2])


@pytest.mark.parametrize("address", ["/ui/runs", "/ui/runs?q=workflow:order-fulfilment", "/ui/runs?q=is:flagged"])
@pytest.mark.parametrize("bars", ["", "starts"])
def test_each_total_and_each_bar_is_the_length_of_the_list_behind_it(place: Service, address: str, bars: str) -> None:
    text = place.get(f"{address}{'&' if '?' in address else '?'}bars={bars}").text
    totals = re.findall(r'<a href="([^"]+)"[^>]* id="total-[^"]+">([^<]+)<b>([0-9,]+)</b>', text)
    assert len(totals) > 1
    for href, name, count in totals:
        assert listed(place, unescape(href)) == int(count.replace(",", "")), name
    drawn = re.findall(r'<a href="([^"]+)"><title>([^<]+)</title>', text)
    assert drawn
    for href, title in drawn:
        counted = sum(int(n.replace(",", "")) for n in re.findall(r"([0-9,]+) [a-z]+", title.split(": ", 1)[1]))
        assert listed(place, unescape(href)) == counted, title


def test_each_term_of_the_query_is_a_chip_that_removes_it(place: Service) -> None:
    text = place.get("/ui/runs?q=workflow%3Aorder-fulfilment+is%3Aflagged+order+20").text
    chips = re.findall(r'<li><a href="([^"]+)" id="chip-\d">(.*?) <span aria', text)
    assert [re.sub("<[^>]+>", "", name) for _, name in chips] == ["workflow:order-fulfilment", "is:flagged", "order 20"]
    assert unescape(chips[1][0]) == "/ui/runs?q=workflow%3Aorder-fulfilment%20order%2020"
    assert "outlast runs ls " in text and 0 < len(rows(text)) < 50


def test_filters_in_the_address_are_terms_of_the_query(place: Service) -> None:
    text = place.get("/ui/runs?status=waiting&attention=yes").text
    assert 'value="status:waiting is:flagged"' in text


@pytest.mark.parametrize(
    ("query", "why"),
    [("colour:red", "no workflow declares the attribute"), ("status:none", "status is one of"), ("is:late", "flagged")],
)
def test_a_query_that_cannot_be_read_keeps_its_text_and_says_why(place: Service, query: str, why: str) -> None:
    answer = place.get(f"/ui/runs?q={query}")
    assert answer.status_code == 422
    assert why in unescape(answer.text) and f'value="{query}"' in answer.text
    assert "<h1" in answer.text and not rows(answer.text)


def test_all_on_the_page_are_ticked_by_a_link(place: Service) -> None:
    text = place.get("/ui/runs?ticked=page").text
    assert len(re.findall(r'type="checkbox" name="run"[^>]* checked', text)) == len(rows(text)) == 50
    assert " checked" not in place.get("/ui/runs").text


def test_numbers_beyond_the_rows_that_are_read_are_exact_or_lower_bounds(
    place: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(place.state.store), "count_max", 20, raising=False)
    orders = "workflow:order-fulfilment"
    for query, exact in (
        ("", {"completed", "need a person"}),
        ("is:flagged", {"all"}),
        (orders, {"completed", "need a person"}),
    ):
        text = place.get(f"/ui/runs?q={query}").text
        totals = re.findall(r'<a href="([^"]+)"[^>]* id="total-[^"]+">([^<]+) <b>([0-9,]+)( or more)?</b>', text)
        assert exact == {name for _, name, _, more in totals if not more}
        for href, name, count, more in totals:
            counted, number = listed(place, unescape(href)), int(count.replace(",", ""))
            assert number <= counted if more else number == counted, name
        drawn = re.findall(r'<a href="([^"]+)"><title>([^<]+)</title>', text)
        assert drawn and "Older runs are not counted" not in text
        for href, title in drawn:
            counted = sum(int(n.replace(",", "")) for n in re.findall(r"([0-9,]+) [a-z]+", title.split(": ", 1)[1]))
            assert listed(place, unescape(href)) == counted, title
    text = place.get("/ui/runs?q=order").text
    assert "Older runs are not counted" in text and "all <b>20 or more" in text


def test_a_run_that_needs_a_person_has_stopped_in_the_list_the_graph_and_the_timeline(place: Service) -> None:
    (found,) = place.get("/v1/runs?reason=exception&q=declined&limit=1").json()["runs"]
    text = place.get("/ui/runs?q=is:flagged declined").text
    (row,) = re.findall(rf'<tr id="run-{found["run"]}">.*?</tr>', text, re.DOTALL)
    assert re.search(r">\d+ ms</td>", row), row
    overview = place.get(f"/ui/runs/{found['run']}/overview").text
    assert re.search(r'class="node current person"[^>]*><title>charge: raised \w+', overview)
    line = place.get(f"/ui/runs/{found['run']}/timeline").text
    assert 'class="b wait open attention"' in line and "Traceback" not in line
    outcome = place.get(f"/ui/runs/{found['run']}/data").text.partition("It has not ended: ")[2]
    assert "needs a person" in outcome[:200], outcome[:200]


def test_the_page_of_a_workflow_counts_the_last_day_of_its_versions_with_their_lists(place: Service) -> None:
    text = place.get("/ui/workflows/order-fulfilment").text
    listed_rows = re.findall(r'<tr id="version-order-fulfilment-(\d+)">(.*?)</tr>', text, re.DOTALL)
    assert [version for version, _ in listed_rows] == ["2", "1"], "the newest first"
    numbers = re.findall(r'<td class="n"[^>]*><a href="([^"]+)">([0-9,]+)</a>', text)
    assert len(numbers) >= 3
    for href, count in numbers:
        assert listed(place, unescape(href)) == int(count.replace(",", "")), href


def test_deploys_and_pauses_are_marks_with_a_list(place: Service) -> None:
    assert place.post(
        "/v1/pauses", {"what": "workflow", "name": "order-fulfilment", "reason": "<b>closed</b>"}
    ).is_success
    text = place.get("/ui/runs?q=workflow:order-fulfilment").text
    (marks,) = re.findall(r'<details class="marks".*?</details>', text, re.DOTALL)
    assert (
        "order-fulfilment@" in marks and "workflow order-fulfilment paused by" in marks and "&lt;b&gt;closed" in marks
    )
    assert "refund@1 deployed" not in marks
    assert re.findall(r'<path class="(?:deploy|pause)" d="M[0-9.]+ 0v40"><title>', text)


def test_marks_are_those_of_the_workflows_and_the_time() -> None:
    deploys = [
        Topology("#", lane, 1, "", "{}", at)
        for lane, at in (("order@1", 50), ("order@2", 150), ("loan@1", 160), ("temporal:order@3", 170))
    ]
    pauses = [
        Pause("t", "workflow/order", 1, 1, "ana", "late", 180),
        Pause("t", "workflow/loan", 1, 1, "ana", "late", 181),
        Pause("t", "activity/pay", 2, 0, "bo", "over", 190),
    ]
    found = marks_in(Interval(100, 200), {"order"}, deploys, pauses)
    assert [(each.at, each.name, each.by) for each in found] == [
        (150, "order@2", ""), (170, "temporal:order@3", ""), (180, "workflow order", "ana"), (190, "activity pay", ""),
    ]  # fmt: skip
    drawing = draw_bars([TallyBar(Interval(100, 200), {"failed": 1})], found)
    assert drawing is not None
    (line,) = drawing.marks
    assert (line.path, line.kind) == (
        "M5 0v40",
        "deploy",
    ) and "order@2 deployed, temporal:order@3 deployed" in line.title
    assert [each.reason for each in drawing.listed] == ["", "", "late", "over"]


def test_a_bar_with_ends_and_flags_has_a_link_for_each() -> None:
    drawing = draw_bars([TallyBar(Interval(0, 1_000), {"failed": 3, "flagged": 1})], by_kind=True)
    assert drawing is not None
    ends, flags = drawing.links
    assert (ends.field, flags.field) == ("ended", "flagged") and flags.y == 0
    assert ends.title.endswith(": 3 failed") and flags.title.endswith(": 1 flagged")
    assert ends.y == flags.height and ends.height + flags.height == HEIGHT and min(ends.height, flags.height) >= TOUCH


def test_all_that_match_lead_to_the_page_of_one_job(place: Service) -> None:
    text = place.get("/ui/runs?q=is:flagged&ticked=page").text
    (of_ticked,) = re.findall(r'<p class="all" id="all".*?</p>', text, re.DOTALL)
    assert "Cancel the 50 ticked …" in HtmlPage(of_ticked).text and text.count('id="many-cancel"') == 1
    (all_of,) = re.findall(r'<p class="all" id="all-of-them".*?</p>', text, re.DOTALL)
    counted = re.search(r"All ([0-9,]+) that match:", all_of)
    assert counted is not None and f"Cancel all {counted[1]} …" in HtmlPage(all_of).text
    links = [unescape(each) for each in re.findall(r'href="([^"]+)"', all_of)]
    assert links[0] == "/ui/answers?choice=cancel&query=is%3Aflagged"
    shown = HtmlPage(place.get(links[0]).text)
    assert f"Cancel {counted[1]} runs" in shown.text and f"Type {counted[1].replace(',', '')} to confirm" in shown.text
    assert "outlast runs cancel --all is:flagged" in shown.text
    assert ("query", "is:flagged") in shown.form("answer-all").fields
    assert any("reason=exception" in each for each in links[1:])
    text = place.get("/ui/runs?ticked=page").text
    assert "To choose all that match, write a query first." in text and "/ui/answers" not in text
    text = place.get("/ui/runs?q=workflow%3Arefund&ticked=page").text
    assert f"All {len(rows(text))} that match are ticked." in text


def test_the_first_rows_are_ticked_by_a_number(place: Service) -> None:
    text = place.get("/ui/runs?q=is:flagged&ticked=5").text
    boxes = re.findall(r'type="checkbox" name="run"[^>]*>', text)
    assert [" checked" in each for each in boxes] == [True] * 5 + [False] * (len(boxes) - 5)
    assert "Continue 5 …" in HtmlPage(text).text
    assert place.get("/ui/runs?ticked=many").status_code == 422


@pytest.mark.parametrize(
    "query",
    ["", "is:flagged", "workflow:refund", "status:completed", "workflow:payout", "workflow:incident", "sort:cost"],
)
def test_rows_and_page_are_small(place: Service, query: str) -> None:
    text = place.get(f"/ui/runs?q={query}").text
    sizes = [len(each.encode()) for each in re.findall(r'<tr id="run-.*?</tr>', text, re.DOTALL)]
    assert max(sizes) <= ROW_BYTES_MAX
    assert len(text.encode()) < PAGE_MAX


@pytest.mark.parametrize("order", get_args(RunOrder))
def test_a_sorted_list_has_each_run_once_over_its_pages(place: Service, order: str) -> None:
    found: list[dict[str, Any]] = []
    cursor = ""
    while not found or cursor:
        page = place.get(f"/v1/runs?workflow=order-fulfilment&sort={order}&limit=30&cursor={cursor}").json()
        assert page["sorted_among"] is None
        found, cursor = found + page["runs"], page["next_cursor"]
    assert len({each["run"] for each in found}) == len(found) == listed(place, "/ui/runs?q=workflow:order-fulfilment")
    shown = place.get(f"/ui/runs?q=workflow:order-fulfilment+sort:{order}").text
    assert rows(shown) == [each["run"] for each in found[:50]]
    assert place.get("/v1/runs?sort=took&cursor=WzFd").status_code == 422
    if order.startswith("ended"):
        ends = [each["ended_at"] for each in found if each["ended_at"]]
        assert ends == sorted(ends, reverse=order == "ended")
        assert not any(each["ended_at"] for each in found[len(ends) :])


def test_a_list_that_is_sorted_among_the_newest_runs_says_so(place: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(place.state.store), "count_max", 20, raising=False)
    text = place.get("/ui/runs?q=sort:took").text
    assert "Sorted among the newest 20 runs that match." in text and len(rows(text)) == 20
    assert set(rows(text)) == set(rows(place.get("/ui/runs").text)[:20])
    assert place.get("/v1/runs?sort=took").json()["sorted_among"] == 20
    assert "Sorted among" not in place.get("/ui/runs").text


def test_a_head_of_a_column_leads_to_its_next_order(place: Service) -> None:
    def head(query: str, name: str) -> tuple[str, str]:
        text = place.get(f"/ui/runs?q={query}").text
        found = re.search(rf'<th scope="col"( aria-sort="[a-z]+")?[^>]*><a href="([^"]+)" id="sort-{name}"', text)
        assert found is not None
        return (found[1] or "").strip(), unescape(found[2])

    assert head("is:flagged", "started") == ('aria-sort="descending"', "/ui/runs?q=sort%3Astarted-asc%20is%3Aflagged")
    assert head("is:flagged", "took") == ("", "/ui/runs?q=sort%3Atook%20is%3Aflagged")
    assert head("sort:took", "took") == ('aria-sort="descending"', "/ui/runs?q=sort%3Atook-asc")
    assert head("sort:took-asc", "took") == ('aria-sort="ascending"', "/ui/runs")
    assert head("sort:took-asc", "started") == ("", "/ui/runs")
    job = place.get("/ui/runs?q=is:flagged+sort:cost&ticked=page").text
    assert "query=is%3Aflagged" in job and "query=sort" not in job


def test_many_rows_are_on_the_first_screen(place: Service, open_page: Callable[..., Page]) -> None:
    for width, height, least in ((1440, 900, 20), (360, 780, 3)):
        page = open_page(width=width)
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"{place.url}/ui/runs")
        ends = page.evaluate(
            "[...document.querySelectorAll('table.runs tbody tr')].map(row => row.getBoundingClientRect())"
            ".map(box => [box.top, box.bottom])"
        )
        assert sum(bottom <= height for _, bottom in ends) >= least
        assert width < 1000 or ends[0][0] < 300
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_bars_have_equal_widths_and_every_event() -> None:
    assert bars_of([], 5_000) == ([], True)
    bars, whole = bars_of([(1_000, "failed"), (1_999, "failed"), (60_000, "flagged")], 61_500)
    assert whole and len(bars) <= BARS
    assert {each.at.high - each.at.low for each in bars} == {10_000}
    assert [(each.at.low, each.counts) for each in bars if each.counts] == [
        (0, {"failed": 2}), (60_000, {"flagged": 1}),
    ]  # fmt: skip
    old, whole = bars_of([(0, "failed"), (10**14, "failed")], 10**14)
    assert not whole and len(old) == BARS and sum(each.total for each in old) == 1


def test_bars_are_one_path_for_each_outcome_and_a_link_for_each_bar_with_runs() -> None:
    drawing = draw_bars(
        [TallyBar(Interval(n * 1_000, (n + 1) * 1_000), {"failed": n, "completed": 1}) for n in range(3)]
    )
    assert drawing is not None
    assert [(each.name, each.total) for each in drawing.outcomes] == [("completed", 3), ("failed", 3)]
    assert len(drawing.links) == 3 and drawing.highest == 3
    assert drawing.links[2].interval == "1970-01-01T00:00:02Z/1970-01-01T00:00:03Z"
    assert draw_bars([TallyBar(Interval(0, 1_000), {})]) is None


def test_an_axis_has_ticks_at_equal_parts_of_its_time() -> None:
    drawing = draw_bars([TallyBar(Interval(n * 1_000, (n + 1) * 1_000), {"failed": n}) for n in range(8)])
    assert drawing is not None and drawing.bar_ms == 1_000
    assert [milliseconds(each) for each in drawing.ticks] == [0, 2_000, 4_000, 6_000, 8_000]
    assert drawing.grid == f"M20 0v{HEIGHT}M40 0v{HEIGHT}M60 0v{HEIGHT}"
