"""Page of two runs side by side: choosing the other run, large and hostile values, widths, and axe."""

import html
import json
import re
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Page
from pydantic import BaseModel

from outlast import Context, Workflow, activity
from outlast.ui.routes.comparison_page import fitting
from tests.service.conftest import ALL, Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_axe import complaints
from tests.ui.test_run_pages import PAGE_MAX

pytestmark = pytest.mark.req("RUN-10")
UGLY = "\u202e<b>&\"'\x00" * 40
"""Characters whose HTML is long."""


class Plan(BaseModel):
    rounds: int = 1
    text: str = ""
    rows: list[str] = []
    fails: bool = False
    n: int = 0


plans = Workflow("plan", state=Plan)


@activity(key="plan-line/{n}", no_undo="a line stays")
async def keep_line(n: int, text: str, rows: list[str]) -> str:
    return text


@plans.node(start=True, max_visits=2_000)
async def write(ctx: Context[Plan]) -> Literal["write"] | None:
    ctx.state.n += 1
    await ctx.do(keep_line, ctx.state.n, ctx.state.text, ctx.state.rows)
    if ctx.state.fails and ctx.state.n == ctx.state.rounds:
        raise ValueError(f"page {ctx.state.n} is torn")
    return "write" if ctx.state.n < ctx.state.rounds else None


torn = Workflow("torn-plan", state=Plan)


@torn.node(start=True)
async def tear(ctx: Context[Plan]) -> None:
    raise ValueError("the plan is torn")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Running(f"sqlite:{tmp_path_factory.mktemp('ui') / 'outlast.db'}", [*ALL, plans, torn]) as running:
        yield running


def ended(service: Service, **given: object) -> str:
    run = service.start("plan", **given)
    service.ended(run)
    return run


@pytest.fixture(scope="module")
def pairs(service: Service) -> dict[str, tuple[str, str]]:
    """Two runs by what is between them."""
    one = ended(service, rounds=2, text="a")
    ugly = [ended(service, rounds=30, text=f"{UGLY}{n}", rows=[f"{UGLY}{n}{i}" for i in range(40)]) for n in range(2)]
    return {
        "equal": (one, one),  # two runs may differ in time on a busy machine
        "parted": (one, ended(service, rounds=3, text="b")),
        "ugly": (ugly[0], ugly[1]),
    }


def page_of(service: Service, run: str, other: str, after: str = "") -> HtmlPage:
    found = service.get(f"/ui/runs/{run}/compare?other={other}{after}")
    assert found.status_code == 200, found.text
    assert len(found.content) <= PAGE_MAX, len(found.content)
    return HtmlPage(found.text)


def test_the_page_offers_runs_of_the_workflow_and_a_form(service: Service, pairs: dict[str, tuple[str, str]]) -> None:
    run, other = pairs["parted"]
    page = service.get(f"/ui/runs/{run}/compare").text
    assert f'href="/ui/runs/{run}/compare?other={other}"' in page and f'id="with-{run}"' not in page
    assert 'name="other"' in page and f'href="/ui/runs/{run}/compare"' in service.get(f"/ui/runs/{run}").text


def test_two_runs_are_side_by_side(service: Service, pairs: dict[str, tuple[str, str]]) -> None:
    run, other = pairs["parted"]
    text = page_of(service, run, other).text
    parting = r"They part at difference \d: call keep_line plan-line/1, other arguments, another answer\."
    assert re.search(parting, text), text
    assert f"outlast runs compare {run} {other}" in text
    assert "only in the other run" in text, "its third visit"
    equal = page_of(service, *pairs["equal"]).text
    assert "They are equal in all that is compared." in equal and "None." in equal
    assert service.get(f"/ui/runs/{run}/compare?other=nobody").status_code == 404
    stranger = service.start("job", rounds=1)
    refused = service.get(f"/ui/runs/{run}/compare?other={stranger}")
    assert refused.status_code == 422 and "only runs of one workflow can be compared" in html.unescape(refused.text)


def test_both_stories_are_aligned_by_node_and_visit(service: Service, pairs: dict[str, tuple[str, str]]) -> None:
    run, other = pairs["parted"]
    page = service.get(f"/ui/runs/{run}/compare?other={other}&every=yes").text
    assert "write, 1st visit" in page and "write, 2nd visit" in page
    assert 'class="same visit"' in page and 'class="differs"' in page
    assert f"outlast runs compare {run} {other} --all" in html.unescape(page)
    parts = re.search(r'id="parting"><a href="([^"]*)"', page)
    assert parts is not None and "every=yes" in parts[1]


def test_two_stories_fit_the_pages_and_each_row_is_on_one(service: Service, pairs: dict[str, tuple[str, str]]) -> None:
    for run, other in (pairs["ugly"], pairs["equal"]):
        found: list[int] = []
        after: str | None = ""
        while after is not None:
            text = service.get(f"/ui/runs/{run}/compare?other={other}&every=yes{after}").text
            assert len(text.encode()) <= PAGE_MAX
            found += map(int, re.findall(r'id="difference-(\d+)"', text))
            later = re.search(r'rel="next" href="[^"]*after=(\d+)"', text)
            after = f"&after={later[1]}" if later else None
        assert found == list(range(1, len(found) + 1)) and len(found) > 3


def test_ugly_values_fit_the_pages_and_each_difference_is_on_one(
    service: Service, pairs: dict[str, tuple[str, str]]
) -> None:
    run, other = pairs["ugly"]
    total = service.get(f"/v1/runs/{run}/compare/{other}").json()["total"]
    seen: list[int] = []
    while len(seen) < total:
        text = service.get(f"/ui/runs/{run}/compare?other={other}&after={len(seen)}").text
        assert len(text.encode()) <= PAGE_MAX and "<b>&" not in text
        shown = [n for n in range(1, total + 1) if f'id="difference-{n}"' in text]
        assert shown and shown[0] == len(seen) + 1
        seen += shown
    assert seen == list(range(1, total + 1)), "no difference is left out"


def test_a_value_that_fits_no_page_is_counted(service: Service, pairs: dict[str, tuple[str, str]]) -> None:
    found = service.get(f"/v1/runs/{pairs['ugly'][0]}/compare/{pairs['ugly'][1]}").json()
    from outlast.models.comparison import RunComparison

    differences = RunComparison.model_validate_json(json.dumps(found)).differences
    (first, *_) = fitting(differences, pairs["ugly"])
    assert len(first.changes) + first.left_out == len(first.each.changes) + first.each.more_changes
    assert first.left_out > 0


def test_no_rule_is_violated_at_three_widths(
    service: Service, pairs: dict[str, tuple[str, str]], open_page: Callable[..., Page]
) -> None:
    page, found = open_page(reduced_motion="reduce"), []
    for run, other in pairs.values():
        for address in (f"/ui/runs/{run}/compare?other={other}", f"/ui/runs/{run}/compare"):
            page.goto(service.url + address)
            found += complaints(page, address)
    assert not found, "\n".join(found)


def test_a_failed_run_is_compared_with_the_last_completed_one_by_one_click(service: Service, page: Page) -> None:
    plain = ended(service, rounds=1, text="before")
    newest = ended(service, rounds=3, text="newest")
    run = service.start("plan", rounds=3, text="newest", fails=True)
    service.flagged(run)
    assert 'id="compare-completed"' not in service.get(f"/ui/runs/{plain}").text
    page.goto(f"{service.url}/ui/runs/{run}")
    page.click("#compare-completed")
    assert page.url.endswith(f"/ui/runs/{run}/compare?other={newest}")
    assert "ValueError: page 3 is torn" in page.inner_text("#parting")
    page.click("text=write, 3rd visit · ValueError: page 3 is torn")
    assert "ValueError: page 3 is torn" in page.inner_text("#region-tab")


def test_a_workflow_without_a_completed_run_says_so(service: Service) -> None:
    run = service.start("torn-plan", rounds=1)
    service.flagged(run)
    answer = service.get(f"/ui/runs/{run}/compare?last_completed=yes")
    assert answer.status_code == 200 and "No run of torn-plan has completed." in answer.text
