"""Pages of metrics: each number is that of `/v1`, each count equals its list, and charts have their numbers."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from html import unescape
from urllib.parse import unquote

import pytest
from playwright.sync_api import Page, expect

from outlast import Context, activity, workflow
from outlast.core.distributions import BOUNDS, histogram
from outlast.models.measurements import HistogramPart
from outlast.ui.histogram_drawing import HEIGHT, axis_of, histogram_path
from tests.ui.conftest import Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_axe import complaints

PAGES = ("", "/durations", "/decisions", "/workers")
ENDED = 7
BYTES_MAX = 60_000


@activity(key="metric-page/{n}", no_undo="it changes nothing")
async def metric_call(n: int) -> int:
    return n


@workflow
async def measured_work(ctx: Context, n: int) -> int:
    await ctx.do(metric_call, n)
    if n == 1:
        await ctx.sleep("400ms")
    if n == 2:
        raise ValueError("it is broken")
    return n


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Running(f"sqlite:{tmp_path_factory.mktemp('metrics') / 'outlast.db'}", (measured_work,)) as running:
        for n in range(ENDED + 1):
            run = running.start("measured_work", n=n)
            (running.flagged if n == 2 else running.ended)(run)
        yield running


@pytest.mark.req("OBS-5")
def test_each_total_and_each_bar_equals_its_list(service: Service) -> None:
    page = service.get("/ui/metrics?time=1h").text
    links = dict(re.findall(r'href="/ui/runs\?q=([^"]*)" id="total-(\w+)"', page))
    assert set(links.values()) == {"failed", "flagged", "cancelled", "completed"}
    counts = {"completed": ENDED, "flagged": 1, "failed": 0, "cancelled": 0}
    for query, name in links.items():
        shown = re.search(rf'id="total-{name}">{name} <b>(\d+)</b>', page)
        listed = service.get(f"/ui/runs?q={query}").text.count('<tr id="run-')
        assert shown is not None and int(shown[1]) == listed == counts[name], unquote(query)
    bars = re.findall(r'href="/ui/runs\?q=((?:ended|flagged)[^"]*)"><title>[^:]*:[^:]*: ([^<]*)</title>', page)
    assert bars
    for query, title in bars:
        listed = service.get(f"/ui/runs?q={query}").text.count('<tr id="run-')
        assert listed == sum(map(int, re.findall(r"(\d+) \w", title))), title


def test_the_numbers_of_a_page_are_those_of_the_api(service: Service) -> None:
    found = service.get("/v1/metrics/durations").json()
    assert (found["runs"], found["ended"], found["sampled"], found["at_least"]) == (ENDED, ENDED, ENDED, False)
    assert found["duration"]["longest_ms"] >= 300 <= found["waits"]["longest_ms"]
    assert found["first_step"]["count"] == ENDED and found["people"]["longest_ms"] == 0
    (node,) = found["nodes"]
    assert node["visit"]["count"] == ENDED and node["calls"]["longest_ms"] <= node["visit"]["longest_ms"]
    for name in ("duration", "first_step", "waits"):
        assert sum(part["count"] for part in found[name]["histogram"]) == ENDED
    page = service.get("/ui/metrics/durations").text
    (slowest,) = re.findall(r'<a href="([^"]+)" id="slowest">', page)
    listed = re.findall(r'<tr id="run-([^"]+)"', service.get(unescape(slowest)).text)
    took = [service.get(f"/v1/runs/{run}").json() for run in listed]
    spans = [datetime.fromisoformat(each["ended_at"]) - datetime.fromisoformat(each["created_at"]) for each in took]
    assert len(spans) == ENDED and spans == sorted(spans, reverse=True)
    text = HtmlPage(page).text
    assert f"All {ENDED} runs that ended in this time." in text
    assert "no run ended in this time" not in text.lower()
    other = service.get("/ui/metrics/durations?workflow=other").text
    assert "No run ended in this time." in other
    decisions = service.get("/v1/metrics/decisions?workflow=measured_work&version=1").json()
    assert (decisions["decided"]["count"], decisions["open"]["count"]) == (0, 0)
    assert "No approval was decided in this time" in service.get("/ui/metrics/decisions").text
    workers = HtmlPage(service.get("/ui/metrics/workers").text).text
    assert re.search(r"\d+ of \d+ slots are in use now", workers)


def test_wrong_filters_are_refused(service: Service) -> None:
    for page in PAGES[:3]:
        answer = service.get(f"/ui/metrics{page}?version=1")
        assert answer.status_code == 422 and "a version without a workflow" in answer.text
        assert service.get(f"/ui/metrics{page}?time=2h").status_code == 422
    assert service.get("/v1/metrics/durations?version=1").status_code == 422
    refused = service.get("/v1/metrics/decisions?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z")
    assert refused.status_code == 422 and "since is not before until" in refused.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_the_pages_fit_and_are_accessible(
    service: Service, open_page: Callable[..., Page], width: int, scheme: str
) -> None:
    page = open_page(width=width, scheme=scheme)
    for path in PAGES:
        page.goto(f"{service.url}/ui/metrics{path}")
        assert list(complaints(page, path)) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert len(service.get(f"/ui/metrics{path}").content) <= BYTES_MAX


def test_a_chart_has_its_numbers_without_javascript(service: Service, open_page: Callable[..., Page]) -> None:
    page = open_page(width=1440, java_script_enabled=False)
    page.goto(f"{service.url}/ui/")
    page.click("nav a:has-text('Metrics')")
    page.click("#numbers summary")
    expect(page.locator("#numbers tbody")).to_contain_text(str(ENDED))
    page.click("#tab-durations")
    page.click("#numbers-duration summary")
    expect(page.locator("#numbers-duration tbody")).to_contain_text("ms")
    page.select_option("#workflow", "measured_work")
    page.click("#time-7d")
    expect(page.locator("#time-7d")).to_have_attribute("aria-current", "true")
    for name in ("decisions", "workers"):
        page.click(f"#tab-{name}")
        expect(page.locator(f"#tab-{name}")).to_have_attribute("aria-current", "page")
    page.click("#tab-usage")
    expect(page.locator("h1")).to_have_text("Usage")


def test_histograms_share_an_axis_and_show_the_least_count() -> None:
    def parts(*values: int) -> list[HistogramPart]:
        found = histogram(values)
        return [HistogramPart(from_ms=each.low, to_ms=each.high or None, count=each.count) for each in found]

    short, long = parts(*[3] * 1_000, 7), parts(BOUNDS[-1] + 1)
    axis = axis_of([short, long])
    assert (axis.low_ms, axis.high_ms, axis.width) == (2, None, len(BOUNDS) - 2)
    assert histogram_path(short, axis) == f"M0 {HEIGHT}v-20h.9v20zM1 {HEIGHT}v-1h.9v1z"
    assert histogram_path(long, axis) == f"M{axis.width - 1} {HEIGHT}v-20h.9v20z"
    assert axis_of([]).width == 1 and not histogram_path([], axis_of([]))
