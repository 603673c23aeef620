"""The page of usage: its sums equal those of `/v1/usage`, and yesterday's cost by model is two clicks away."""

from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest
from playwright.sync_api import Page, expect

from outlast import Context, activity, this_call, workflow
from outlast.models.service import UsageList
from outlast.ui.routes.usage_page import totals
from tests.ui.conftest import Running, Service
from tests.ui.test_axe import complaints

MODELS = {"fast-1": (900, "0.02"), "large-2": (100, "1.5"), '<b>"x"</b>': (7, "0")}


@activity(key="usage-page/{model}", once_per="run", no_undo="it is paid")
async def think_of(model: str) -> str:
    tokens, money = MODELS[model]
    this_call().used(model=model, tokens=tokens, money=money)
    return model


@workflow
async def thinks_of_all(ctx: Context) -> int:
    for model in MODELS:
        await ctx.do(think_of, model)
    return len(MODELS)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Running(f"sqlite:{tmp_path_factory.mktemp('usage') / 'outlast.db'}", (thinks_of_all,)) as running:
        for _ in range(2):
            run = running.post("/v1/workflows/thinks_of_all/runs", {}).json()["run"]
            running.ended(run)
        yield running


@pytest.mark.req("OBS-5")
def test_the_sums_of_the_page_are_those_of_the_api(service: Service) -> None:
    body = service.get("/v1/usage?days=2").json()
    assert body["every"] and {each["day"] for each in body["usage"]} == {body["until"]}
    of_model = {each["model"]: each for each in body["usage"]}
    assert {name: (each["tokens"], each["calls"]) for name, each in of_model.items()} == {
        name: (2 * tokens, 2) for name, (tokens, _) in MODELS.items()
    }
    assert Decimal(of_model["large-2"]["money"]) == 3
    page = service.get("/ui/usage").text
    assert "2,014" in page and "3.04" in page and "<b>" not in page.partition("<main")[2]
    assert service.get("/v1/usage?days=0").status_code == 422
    assert service.get("/ui/usage?day=yesterday").status_code == 422


def test_the_cost_of_a_day_by_model_is_two_clicks_away(service: Service, open_page: Callable[..., Page]) -> None:
    page = open_page(width=1440)
    page.goto(f"{service.url}/ui/")
    page.click("nav a:has-text('Usage')")
    page.click("#days a")
    until = service.get("/v1/usage").json()["until"]
    expect(page.locator("#by-model")).to_have_text(f"{until} by model")
    first = page.locator("#by-model + table tbody tr").first
    assert "large-2" in first.inner_text() and "3" in first.inner_text()


@pytest.mark.parametrize("width", [360, 1440])
def test_the_page_fits_and_is_accessible(service: Service, open_page: Callable[..., Page], width: int) -> None:
    page = open_page(width=width)
    page.goto(f"{service.url}/ui/usage")
    assert list(complaints(page, "usage")) == []


def test_shares_are_of_the_money_or_without_any_of_the_tokens(service: Service) -> None:
    lines = UsageList.model_validate(service.get("/v1/usage").json()).usage
    shares = {each.name: each.share for each in totals(lines, lambda each: each.model)}
    assert shares == {"large-2": 100, "fast-1": 1, '<b>"x"</b>': 0}
    free = [each.model_copy(update={"money": "0"}) for each in lines]
    assert [each.share for each in totals(free, lambda each: each.model)] == [100, 11, 0]
