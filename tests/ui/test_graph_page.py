"""Graphs on pages: the current node is in view when the page opens, folds open, large graphs show neighbours."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect
from pydantic import BaseModel

from outlast import Context, Workflow
from tests.ui.conftest import Running, Service
from tests.ui.test_axe import complaints
from tests.ui.test_run_pages import PAGE_MAX

CURRENT = 37


class Stops(BaseModel):
    n: int = 0


class Onward(BaseModel):
    pass


def ladder(name: str, nodes: int, skip: int = 0) -> Workflow[Any]:
    """Return a chain whose node 37 waits. `skip`: each node has a second exit, to the node so far behind it."""
    made = Workflow(name, state=Stops)

    def rung(n: int) -> Callable[[Context[Stops]], Any]:
        exits = tuple(f"rung_{m}" for m in dict.fromkeys((n + 1, n + (skip or 1))) if m < nodes)

        async def node(ctx: Context[Stops]) -> Any:
            if n == CURRENT:
                await ctx.receive("onward", Onward)
            return exits[0] if exits else None

        node.__name__ = node.__qualname__ = f"rung_{n}"
        node.__annotations__ = {"ctx": Context[Stops], "return": Literal[exits] if exits else None}
        return node

    for n in range(nodes):
        made.node(start=n == 0)(rung(n))
    return made


LADDERS = {"ladder_60": ladder("ladder_60", 60), "ladder_75": ladder("ladder_75", 75),
           "ladder_mesh": ladder("ladder_mesh", 90, skip=7)}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, dict[str, str]]]:
    """A service with one waiting run of each graph."""
    with Running(f"sqlite:{tmp_path_factory.mktemp('graphs') / 'outlast.db'}", list(LADDERS.values())) as running:
        found = {name: running.start(name, n=0) for name in LADDERS}
        for run in found.values():
            running.waits(run)
        yield running, found


@pytest.mark.parametrize("width", [360, 900, 1440])
@pytest.mark.parametrize(
    ("name", "query"), [("ladder_60", ""), ("ladder_75", "?unfold=rung_1,rung_58"), ("ladder_mesh", "")]
)
def test_the_current_node_is_in_view(
    runs: tuple[Service, dict[str, str]], open_page: Callable[..., Page], name: str, query: str, width: int
) -> None:
    service, started = runs
    address = f"{service.url}/ui/runs/{started[name]}/overview{query}"
    page = open_page(width=width)
    page.set_viewport_size({"width": width, "height": 780 if width == 360 else 900})
    answer = page.goto(address)
    assert answer is not None and len(answer.body()) <= PAGE_MAX
    here = page.locator(".node.current")
    assert here.get_attribute("data-node") == f"rung_{CURRENT}"
    expect(here).to_be_in_viewport(ratio=0.9)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    still = open_page(width=width, java_script_enabled=False)
    still.goto(address)
    still.click("#to-here")
    expect(still.locator(".node.current")).to_be_in_viewport(ratio=0.9)


def test_a_fold_opens_and_closes(runs: tuple[Service, dict[str, str]], open_page: Callable[..., Page]) -> None:
    service, started = runs
    page = open_page(java_script_enabled=False)
    page.goto(f"{service.url}/ui/runs/{started['ladder_60']}/overview")
    assert page.locator("svg .node").count() == 7
    page.click("[data-fold=rung_1]")
    expect(page.locator("svg .node")).to_have_count(41)
    page.click("[data-fold=rung_39]")
    expect(page.locator("svg .node")).to_have_count(60)
    page.click("#fold-all")
    expect(page.locator("svg .node")).to_have_count(7)


def test_a_node_of_a_large_graph_shows_its_neighbours(
    runs: tuple[Service, dict[str, str]], open_page: Callable[..., Page]
) -> None:
    service, started = runs
    page = open_page(width=1440)
    page.goto(f"{service.url}/ui/runs/{started['ladder_mesh']}/overview")
    expect(page.get_by_text("24 of 90 nodes are drawn")).to_be_visible()
    assert not page.locator("svg [data-node=rung_70]").count()
    page.click("svg [data-node=rung_45]")
    expect(page.locator("svg [data-node=rung_52]")).to_be_attached()
    assert [*complaints(page, "graph")] == []
    page.goto(f"{service.url}/ui/workflows/ladder_mesh?near=rung_80")
    expect(page.locator("svg [data-node=rung_80]")).to_be_attached()
