"""The page of a run with maps: a line and a bar of counts, the failed children, and room for them at each width."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from outlast import Context, Fail, workflow
from tests.service.flows import Said
from tests.ui.conftest import Running, Service
from tests.ui.test_axe import complaints
from tests.ui.test_hostile import HOSTILE, STRANGERS

pytestmark = pytest.mark.req("RUN-14")
INPUTS = 40
WIDTHS = (360, 768, 1280)


@workflow
async def digs_for_something_whose_name_is_very_long_indeed(ctx: Context, text: str) -> str:
    if text.startswith("bad"):
        raise Fail(text * 20)
    return (await ctx.receive("said", Said)).text if text.startswith("waits") else text


@workflow
async def mines(ctx: Context, text: str) -> int:
    names = [f"bad {text}"[:150], "bad " + "x" * 140, *(f"bad-{n}" for n in range(6)), "waits", "waits аda"]
    names += [f"ore-{n}" for n in range(INPUTS - len(names))]
    dig = digs_for_something_whose_name_is_very_long_indeed
    done = await ctx.map(dig, {name: dig.arguments(name) for name in names}, at_most=5, key="m" * 60)
    return len(done.completed)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose runs have maps."""
    url = f"sqlite:{tmp_path_factory.mktemp('maps') / 'outlast.db'}"
    with Running(url, [mines, digs_for_something_whose_name_is_very_long_indeed]) as running:
        yield running


def test_the_page_of_a_run_draws_its_map_at_each_width(service: Service, open_page: Callable[..., Page]) -> None:
    run = service.start("mines", text=HOSTILE)
    service.until(f"/v1/runs/{run}", lambda body: [each["failed"] + each["completed"] for each in body["maps"]] == [38])
    page = open_page(reduced_motion="reduce")
    page.goto(f"{service.url}/ui/runs/{run}/overview")
    expect(page.locator("#map-1 .counts rect")).to_have_count(3)
    expect(page.locator("#map-1")).to_contain_text(f"30 of {INPUTS} completed, 8 failed, 2 run")
    expect(page.locator("#map-1 p a.id")).to_have_count(5)
    expect(page.locator("#tree li")).to_have_count(2)
    assert page.evaluate(STRANGERS) == 0
    assert [*complaints(page, "map")] == []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    failed = page.locator("#map-1 p a.id").first
    name = failed.text_content()
    failed.click()
    expect(page.locator("#child-of a")).to_have_text(run)
    assert name is not None and name in page.url
    page.goto(f"{service.url}/ui/runs?parent={run}&status=failed")
    expect(page.locator("table a.id, td a")).not_to_have_count(0)
