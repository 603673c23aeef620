"""5,265 runs, of which 2,088 raised and 67 have an uncertain effect: each page agrees with the rows."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.machine import EffectStatus, Reason
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import RUN
from outlast.runtime.stores import open_store
from tests.conformance.subject import T0, effect_row, run_row
from tests.service.conftest import Running, Service
from tests.ui.html_page import HtmlPage

RUNS, EXCEPTIONS, UNCERTAIN = 5_265, 2_088, 67
TENANT = "default"


def reason_of(n: int) -> Reason | None:
    """Return the reason of run n: uncertain ones are spread below the newest 1,000 exceptions."""
    if n < UNCERTAIN * 16:
        return Reason.EFFECT_UNCERTAIN if n % 16 == 0 else (Reason.EXCEPTION if n % 16 < 9 else None)
    left = EXCEPTIONS - sum(1 for each in range(UNCERTAIN * 16) if 0 < each % 16 < 9)
    return Reason.EXCEPTION if n >= RUNS - left else None


async def fill(url: str) -> None:
    """Write the rows."""
    store, writes = await open_store(url), list[Any]()
    for n in range(RUNS):
        reason, run = reason_of(n), f"run-{n:04}"
        entry = [Attention(reason, T0 + n, "KeyError: 'eu'", "pay/1", 1)] if reason is not None else []
        row = run_row(
            run, TENANT, created_at=T0 + n, correlation_id=f"order-{n:04}", attention_text=ATTENTION.encode(entry)
        )
        writes.append(Put(RUN, row, 0))
        if reason is Reason.EFFECT_UNCERTAIN:
            writes.append(Put(EFFECT, effect_row(run, "pay/1", TENANT)._replace(status=EffectStatus.UNCERTAIN), 0))
    for i in range(0, len(writes), 90):
        await store.commit(Commit(tuple(writes[i : i + 90])))
    await store.close()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Service over the filled store, without a worker."""
    url = f"sqlite:{tmp_path_factory.mktemp('many') / 'outlast.db'}"
    asyncio.run(fill(url))
    with Running(url, worker=False) as running:
        yield running


def listed(service: Service, path: str, name: str) -> list[Any]:
    """Return the items of every page of a list."""
    found, cursor, more = list[Any](), "", True
    while more:
        page = service.get(f"{path}&cursor={cursor}" if cursor else path).json()
        found += page[name]
        cursor = page["next_cursor"]
        more = bool(cursor)
    return found


def test_the_rows_are_those_that_are_named() -> None:
    reasons = [reason_of(n) for n in range(RUNS)]
    assert (reasons.count(Reason.EXCEPTION), reasons.count(Reason.EFFECT_UNCERTAIN)) == (EXCEPTIONS, UNCERTAIN)
    assert Reason.EFFECT_UNCERTAIN not in reasons[-1_000:]


def test_the_summary_and_the_board_count_each_reason(full: Service) -> None:
    summary = full.get("/v1/summary").json()
    counts = {each["reason"]: each["count"] for each in summary["reasons"]}
    assert counts == {"exception": EXCEPTIONS, "effect_uncertain": UNCERTAIN}
    assert (summary["attention_runs"], summary["uncertain"], summary["at_least"]) == (2_155, UNCERTAIN, [])
    text = full.get("/ui/").text
    assert set(re.findall(r'<h2 id="reason-([a-z_]+)"', text)) == set(counts)
    shown = dict(re.findall(r'id="reason-([a-z_]+)".*?<span class="count">([\d,+]+)</span>', text))
    assert shown == {"exception": "2,088", "effect_uncertain": "67"}
    assert "67 uncertain effects" in HtmlPage(text).text
    assert ">2,155<" in text, "the header counts the runs that need a person"


def test_each_list_has_the_rows_that_the_count_says(full: Service) -> None:
    uncertain = [f"run-{n:04}" for n in reversed(range(RUNS)) if reason_of(n) is Reason.EFFECT_UNCERTAIN]
    items = listed(full, "/v1/attention?reason=effect_uncertain&limit=50", "attention")
    assert [each["run"] for each in items] == uncertain
    assert len(listed(full, "/v1/attention?reason=exception&limit=500", "attention")) == EXCEPTIONS
    first = [full.get(f"/v1/attention?reason=effect_uncertain&limit={n}").json()["attention"] for n in (1, 8, 50, 75)]
    assert [len(each) for each in first] == [1, 8, 50, UNCERTAIN]
    page = full.get("/ui/attention/effect_uncertain").text
    assert re.findall(r'name="item" value="(run-\d+) ', page) == uncertain
    assert "of the first" not in HtmlPage(page).text
    assert "of the first 75" in HtmlPage(full.get("/ui/attention/exception").text).text
    assert len(listed(full, "/v1/effects?status=uncertain&limit=50", "effects")) == UNCERTAIN
    assert len(listed(full, "/v1/runs?limit=1000", "runs")) == RUNS


@pytest.mark.parametrize("n", [0, 1, 264, 2_000, RUNS - 1])
def test_the_search_finds_every_run_on_its_first_page(full: Service, n: int) -> None:
    for asked in (f"run-{n:04}", f"order-{n:04}"):
        text = full.get(f"/ui/runs?q={asked}").text
        assert f"run-{n:04}" in re.findall(r'<tr id="run-([^"]+)"', text)
    text = full.get(f"/ui/runs?q=run-{n:04}").text
    assert 'rel="next"' not in text, "no link leads to a page without runs"


def test_an_empty_search_says_that_no_run_matches(full: Service) -> None:
    text = HtmlPage(full.get("/ui/runs?q=nothing-like-it").text).text
    assert "No run matches these filters." in text
    assert "Older runs are left" not in text
