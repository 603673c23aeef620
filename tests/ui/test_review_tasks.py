"""Tasks of the five people of the review, each within its number of clicks."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page

from tests.ui.conftest import Running, Service
from tests.ui.review.flows import ALL
from tests.ui.review.store import Filled, filled
from tests.ui.review.tasks import TASKS, Hand, Task


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Filled]]:
    with Running(f"sqlite:{tmp_path_factory.mktemp('review') / 'outlast.db'}", ALL) as service:
        yield service, filled(service, "small")


@pytest.mark.req("OBS-5")
@pytest.mark.parametrize(("task", "most"), TASKS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_task_takes_few_clicks(
    place: tuple[Service, Filled], open_page: Callable[..., Page], task: Task, most: int
) -> None:
    service, found = place
    hand = Hand(open_page(width=1440), service)
    hand.begin()
    task(hand, found)
    assert hand.clicks <= most
