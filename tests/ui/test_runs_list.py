"""The list of runs: filters in the address, rows that keep their place, and actions on several runs."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pydantic import BaseModel

from outlast import Context, Workflow
from outlast.core.approvals import Actor
from outlast.runtime.operations import Operations
from tests.service.flows import Wish, hear
from tests.ui.conftest import Running, Service
from tests.ui.html_page import HtmlPage
from tests.ui.test_run_pages import PAGE_MAX, fields, flagged
from tests.ui.test_workflow_pages import submit


class Finds(BaseModel):
    count: int


async def find(ctx: Context[Finds]) -> None:
    for n in range(ctx.state.count):
        await ctx.emit(n, key=f"{n}")


def rows(text: str) -> list[str]:
    return re.findall(r'<tr id="run-([^"]+)"', text)


def test_filters_are_in_the_address_and_offer_each_value(service: Service) -> None:
    service.start("wish", text="a")
    run = service.start("order", number="1")
    service.ended(run)
    page = service.get("/ui/runs?status=completed&workflow=order")
    assert run in rows(page.text)
    assert {each["run"] for each in service.get("/v1/runs?status=completed&workflow=order").json()["runs"]} == set(
        rows(page.text)
    )
    for address in re.findall(r'href="(/ui/runs\?[^"]*)"', page.text):
        assert service.get(address.replace("&amp;", "&")).status_code == 200, address


@pytest.mark.parametrize("query", ["status=none", "waiting_for=x", "since=5y", "top=a%20b", "cursor=x", "colour=red"])
def test_a_bad_filter_is_a_page_that_says_so(service: Service, query: str) -> None:
    page = service.get(f"/ui/runs?{query}")
    assert page.status_code == 422
    assert "<h1" in page.text


def test_new_runs_are_announced_and_the_rows_stay(service: Service) -> None:
    service.start("wish", text="first")
    page = service.get("/ui/runs").text
    before = rows(page)
    address = re.search(r'id="region-runs"[^>]* hx-get="([^"]+)"', page)
    assert address is not None
    service.start("wish", text="second")
    service.start("wish", text="third")
    region = service.get(address[1].replace("&amp;", "&"))
    assert rows(region.text) == before
    assert "2 new runs" in region.text


@pytest.mark.req("OUT-5", "OUT-7")
def test_a_list_shows_the_count_of_results_with_each_status(tmp_path: Path) -> None:
    found = Workflow("found", state=Finds)
    found.node(start=True)(find)
    with Running(f"sqlite:{tmp_path / 'runs.db'}", [found]) as service:
        one, some, none = (service.start("found", count=count) for count in (1, 3, 0))
        for run in (one, some, none):
            service.ended(run)
        text = service.get("/ui/runs").text
        counts = dict(re.findall(r'href="/ui/runs/([^"]+)/results">([^<]+)<', text))
        assert counts == {one: "1 result", some: "3 results"} and none in rows(text)
        form = {**fields(text, "many"), "run": [some]}
        preview = service.client.post("/ui/many/cancel", data=form, headers={"Origin": service.url})
        assert f'/ui/runs/{some}/results">3 results<' in preview.text


def test_a_page_of_fifty_runs_is_small(service: Service) -> None:
    for n in range(55):
        service.start("wish", text=f"wish {n}")
    page = service.get("/ui/runs")
    assert len(rows(page.text)) == 50
    assert len(page.content) < PAGE_MAX
    assert 'rel="next"' in page.text


def test_many_runs_are_changed_after_a_preview(service: Service) -> None:
    runs = [flagged(service), service.start("wish", text="x"), "gone_run"]
    listed = service.get("/ui/runs").text
    origin = {"Origin": service.url, "Sec-Fetch-Site": "same-origin"}
    preview = service.client.post("/ui/many/cancel", data={**fields(listed, "many"), "run": runs}, headers=origin)
    assert preview.status_code == 200
    assert rows(preview.text) == runs
    assert "no run gone_run" in preview.text
    assert not service.get(f"/v1/runs/{runs[0]}").json()["asked"], "a preview changes nothing"
    given = {**fields(preview.text, "confirm"), "run": runs}
    refused = service.client.post("/ui/many/cancel", data={**given, "reason": ""}, headers=origin)
    assert refused.status_code == 422
    done = service.client.post("/ui/many/cancel", data={**given, "reason": "cleaned up"}, headers=origin)
    assert "2 of 3" in done.text
    for run in runs[:2]:
        assert service.ended(run)["status"] == "cancelled"


def test_a_run_that_moved_after_the_preview_is_not_continued(service: Service) -> None:
    run = flagged(service)
    origin = {"Origin": service.url, "Sec-Fetch-Site": "same-origin"}
    listed = fields(service.get("/ui/runs").text, "many")
    given = {
        **fields(
            service.client.post("/ui/many/continue", data={**listed, "run": [run]}, headers=origin).text, "confirm"
        ),
        "reason": "mended",
    }
    older = {**given, f"version {run}": str(int(given[f"version {run}"]) - 1)}
    assert "0 of 1" in service.client.post("/ui/many/continue", data=older, headers=origin).text
    unnamed = {name: value for name, value in given.items() if name != f"version {run}"}
    assert "the form names no version" in service.client.post("/ui/many/continue", data=unnamed, headers=origin).text
    assert "1 of 1" in service.client.post("/ui/many/continue", data=given, headers=origin).text


def test_stranded_runs_are_moved_from_the_page_of_workers_after_a_preview(service: Service) -> None:
    newer = Workflow("wish", version=2, state=Wish)
    newer.node(start=True)(hear)
    ops = Operations(service.state.store, tenant="default", actor=Actor("ana"), workflows={"wish": newer})
    runs = [service.call(ops.start_run("wish", {"text": text})).run for text in "ab"]
    page = service.get("/ui/workers")
    assert "2 runs" in page.text and "of wish version 2" in page.text
    preview = submit(service, page, "move-1", "/ui/many/move")
    assert sorted(rows(preview.text)) == sorted(runs) and "wish@2, node hear" in preview.text
    assert ("to", "1") in HtmlPage(preview.text).form("confirm").fields, "the served version"
    for given, why in (({"to": ""}, "a version is required"), ({}, "a reason is required")):
        assert why in submit(service, preview, "confirm", "/ui/many/move", **given).text
    assert not service.call(ops.rows.run(runs[0])).inbox_seq, "a preview asks for nothing"
    nowhere = submit(service, preview, "confirm", "/ui/many/move", to="7", reason="a typo")
    assert "0 of 2" in nowhere.text and "no live worker serves wish@7" in nowhere.text
    older = submit(service, preview, "confirm", "/ui/many/move", reason="x", **{f"version {runs[0]}": "99"})
    assert "1 of 2" in older.text and "has changed since you saw it" in older.text
    assert "0 of 2" not in submit(service, preview, "confirm", "/ui/many/move", reason="version 2 is withdrawn").text
    for found in service.call(ops.store.run_rows([("default", run) for run in runs])):
        assert found is not None and {each.answer.to for each in found.messages} == {(1, "")}
    again = service.client.post(
        "/ui/many/move", data={**fields(service.get("/ui/runs").text, "many"), "run": [*runs, flagged(service)]},
        headers={"Origin": service.url},
    )  # fmt: skip
    assert again.status_code == 422 and "choose runs of one workflow" in again.text


def test_more_than_a_hundred_runs_are_refused(service: Service) -> None:
    listed = service.get("/ui/runs").text
    given = {**fields(listed, "many"), "run": [f"run_{n}" for n in range(101)]}
    assert service.client.post("/ui/many/cancel", data=given, headers={"Origin": service.url}).status_code == 422


def test_a_chosen_run_stays_chosen_while_the_list_refreshes(service: Service, open_page: Callable[..., Page]) -> None:
    first = service.start("wish", text="chosen")
    page = open_page(width=360)
    page.goto(f"{service.url}/ui/runs")
    expect(page.locator("#live-state")).to_have_text("live")
    page.locator(f"input[value='{first}']").check()
    service.start("wish", text="another")
    expect(page.locator("#news")).to_contain_text("1 new run")
    expect(page.locator("tbody tr").first).to_have_id(f"run-{first}")
    expect(page.locator(f"input[value='{first}']")).to_be_checked()
