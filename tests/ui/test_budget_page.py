"""The page of budgets: its numbers are those of `/v1`, and the run with the least left of its budget comes first."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from outlast import Budget, Context, activity, this_call, workflow
from tests.ui.conftest import Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_axe import complaints

pytestmark = pytest.mark.req("OBS-5")
ALLOWED = 1_000


@activity(key="budget-page/{name}/{n}", once_per="run", no_undo="it is paid")
async def buy_words(name: str, n: int, tokens: int) -> str:
    this_call().used(model="words-1", tokens=tokens, money="0.25")
    return name


@workflow(budget=Budget(tokens=ALLOWED, money=50, children=4))
async def buys_words(ctx: Context, name: str, tokens: int, below: int = 0) -> str:
    await ctx.do(buy_words, name, 1, tokens)
    if below:
        spender = spends_below
        await ctx.start(spender, spender.arguments(name, below), key="spender", no_undo="it is paid")
    await ctx.sleep("30d")
    return await ctx.do(buy_words, name, 2, tokens)


@workflow
async def spends_below(ctx: Context, name: str, tokens: int) -> str:
    await ctx.do(buy_words, name, 3, tokens)
    await ctx.sleep("30d")
    return name


@workflow(budget=Budget(calls=1))
async def buys_twice(ctx: Context, name: str) -> str:
    for n in (4, 5):
        await ctx.do(buy_words, name, n, 7)
    return name


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    url = f"sqlite:{tmp_path_factory.mktemp('budgets') / 'outlast.db'}"
    with Running(url, (buys_words, spends_below, buys_twice)) as running:
        yield running


@pytest.fixture(scope="module")
def runs(service: Service) -> dict[str, str]:
    """Runs by name: `half` in itself, `most` by its tree, `some` after a raise, and `none` with nothing left."""
    runs = {
        "half": service.start("buys_words", name="half", tokens=500),
        "most": service.start("buys_words", name="most", tokens=100, below=899),
        "some": service.start("buys_words", name="some", tokens=900),
        "none": service.start("buys_twice", name="none"),
    }
    service.flagged(runs["none"])
    raised = {"tokens": 700, "reason": "worth it"}
    assert service.post(f"/v1/runs/{runs['some']}/raise", raised).status_code == 200
    service.until("/v1/usage", lambda body: sum(each["tokens"] for each in body["usage"]) == 500 + 999 + 900 + 7)
    return runs


def nearest(service: Service) -> Any:
    return service.get("/v1/budgets/runs").json()


def test_the_least_is_left_of_the_first_run(service: Service, runs: dict[str, str]) -> None:
    """A root counts its tree, a raise counts, a child whose workflow has no budget is not listed."""
    body = nearest(service)
    assert (body["read"], body["every"]) == (4, True)
    assert [each["run"] for each in body["runs"]] == [runs[name] for name in ("none", "most", "some", "half")]
    assert [each["shares"][0]["percent"] for each in body["runs"]] == [100.0, 99.9, 52.9, 50.0]
    most = {each["name"]: (each["used"], each["limit"], each["percent"]) for each in body["runs"][1]["shares"]}
    assert most == {"tokens": ("999", "1,000", 99.9), "children": ("1", "4", 25.0), "money": ("0.5", "50", 1.0)}
    assert body["runs"][2]["shares"][0]["limit"] == "1,700"
    assert len(service.get("/v1/budgets/runs?limit=1").json()["runs"]) == 1


def test_the_page_has_the_runs_of_the_api_in_its_order(service: Service, runs: dict[str, str]) -> None:
    text = service.get("/ui/budgets").text
    listed = re.findall(r'<tr id="run-([^"]+)"', text)
    assert listed == [each["run"] for each in nearest(service)["runs"]]
    assert "4 of 4 unfinished runs with a budget" in text and "999 of 1,000 tokens" in text
    header = service.get(f"/ui/runs/{runs['most']}").text
    assert "999 of 1,000 tokens" in header, "the header of the run has the same number"


def test_the_daily_budget_says_what_is_left_and_when_it_resets(service: Service, runs: dict[str, str]) -> None:
    empty = service.get("/ui/budgets").text
    assert "has no daily budget" in empty and "outlast budgets set --tokens 1M --money 50" in empty
    limits = {"tokens": 9_624, "money": "50", "reason": "<b>the plan</b>"}
    (set_,) = service.post("/v1/budgets", limits).json()["budgets"]
    assert [(each["name"], each["percent"]) for each in set_["shares"]] == [("tokens", 25.0), ("money", 2.5)]
    assert set_["resets_at"].endswith("T00:00:00.000Z")
    page = HtmlPage(service.get("/ui/budgets").text)
    text = page.text
    assert "2,406" in text and "9,624" in text and "25.0 %" in text and "<b>the plan</b>" in text
    assert "1 run waits for a budget" in text and "Nothing is reserved" in text
    day = service.get("/v1/usage").json()["until"]
    row = re.search(rf'<tr id="day-{day}">.*?</tr>', service.get("/ui/budgets").text)
    assert row is not None and "25.0 %" in row[0] and f"/ui/usage?day={day}" in row[0]


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (900, "light"), (1440, "dark")])
def test_the_page_fits_and_is_accessible(
    service: Service, runs: dict[str, str], open_page: Callable[..., Page], width: int, scheme: str
) -> None:
    page = open_page(width=width, scheme=scheme)
    page.goto(f"{service.url}/ui/budgets")
    assert list(complaints(page, "budgets")) == []
    assert len(service.get("/ui/budgets").content) < 60 * 1024
