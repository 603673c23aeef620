"""The fuzz of `test_hostile_rows` on PostgreSQL and DynamoDB, with the values that these can hold."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from outlast.core.commit import Mapping
from outlast.core.run_transition import rearmed
from outlast.runtime.stores import open_store
from outlast.store.dynamodb.items import lane_of
from outlast.store.port import maintenance
from tests.runtime.hostile_rows import BAD, SHAPES, Case, cases, played
from tests.runtime.spoilt_stores import STORES, change_bad_runs
from tests.runtime.test_hostile_rows import OF_WORKERS, World, faults, read_otherwise, served_otherwise
from tests.slices import drawn

READ = {"postgres": 2, "dynamodb": 1}
TAKEN = {"postgres": 2, "dynamodb": 1}
"""Cases of the default run, by store."""
LISTS, OF_RUN = ("runs ls", "doctor"), ("explain",)
"""Commands that are tried: each opens the store, and `test_hostile_rows` tries all."""


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Return all cases, by the columns and values of a file."""
    return cases(played(tmp_path_factory.mktemp("rows") / "named.db"))


@pytest.fixture(scope="module", params=STORES)
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of a kind of store."""
    return str(request.param)


@pytest.fixture(scope="module")
def world(name: str) -> Iterator[World]:
    """Return the answers of the readers of a store."""
    with ExitStack() as stack:
        made = World(stack.enter_context(STORES[name].played()), LISTS, OF_RUN)
        stack.callback(made.site.close)
        yield made


def test_no_spoilt_row_changes_a_list_or_blames_outlast(name: str, world: World, named: list[Case]) -> None:
    wrong: list[str] = []
    for n, case in enumerate(drawn(named, READ[name], f"rows that are read on {name}")):
        with STORES[name].spoilt(world.url, case) as changed:
            if changed:
                wrong += faults(case, partial(read_otherwise, world, f"{BAD}-{SHAPES[n % len(SHAPES)]}"))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "case",
    [
        Case("run", "status", "blob"),
        Case("run", "visit", "text"),
        Case("approval", "status", "unknown"),
        Case("effect", "args", "bytes"),
    ],
)
def test_an_unreadable_row_is_replaced_in_lists(name: str, world: World, case: Case) -> None:
    """A list of a DynamoDB store raised for the first row with an unknown status or a value of another type."""
    with STORES[name].spoilt(world.url, case) as changed:
        if changed or name == "dynamodb":  # PostgreSQL has types, so it holds no blob in place of a text
            assert changed and not faults(case, partial(read_otherwise, world, f"{BAD}-ask"))


def _taken(name: str, case: Case, caplog: pytest.LogCaptureFixture) -> list[str]:
    store = STORES[name]
    with store.played() as url:
        if case.column != "due_at":
            store.due_again(url)
        with store.spoilt(url, case) as changed:
            return faults(case, partial(served_otherwise, url, caplog)) if changed else []


def test_no_spoilt_due_run_stops_a_worker(name: str, named: list[Case], caplog: pytest.LogCaptureFixture) -> None:
    asked = [case for case in named if case.table in OF_WORKERS]
    drawn_now = drawn(asked, TAKEN[name], f"rows that are taken on {name}")
    assert not [each for case in drawn_now for each in _taken(name, case, caplog)]


@pytest.mark.parametrize("name", STORES, indirect=True)
def test_refused_runs_hide_no_other(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """More runs than a worker has slots, which no commit may move, filled each page that a take of DynamoDB read."""
    assert _taken(name, Case("run", "waiting_for", "one more"), caplog) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"bodies": {"S": "1 attention:5 w/0/1"}},
        {"bodies": {"S": "x"}},
        {"visit": {"N": "1.5"}},
        {"mapping": {"S": "x"}},
    ],
)
def test_a_due_run_that_dynamodb_cannot_join_stops_no_worker(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A take raised, or took its run for one that another writer was changing, in each of its looks."""
    with STORES["dynamodb"].played() as url:
        STORES["dynamodb"].due_again(url)
        change_bad_runs(url, lambda _: changes)
        assert not [*served_otherwise(url, caplog)]
    assert any("cannot be read, and no worker takes it" in record.getMessage() for record in caplog.records)


async def _change_mapping(url: str) -> None:
    store = await open_store(url)
    try:
        now = await store.now()
        await maintenance(store).set_mapping(Mapping(0, now.real, now.business, 1.0), rearmed)
    finally:
        await store.close()


@pytest.mark.parametrize("name", STORES, indirect=True)
@pytest.mark.parametrize("left", [False, True], ids=["changed", "left by the change"])
def test_unreadable_timers_stop_no_change_of_the_clock(name: str, left: bool, caplog: pytest.LogCaptureFixture) -> None:
    """On DynamoDB the change raised for that run, and each take raised that found it with an older mapping."""
    with STORES[name].played() as url, STORES[name].spoilt(url, Case("run", "timers", "cut")) as changed:
        assert changed
        asyncio.run(_change_mapping(url))
        if left and name == "dynamodb":
            change_bad_runs(url, lambda item: {"mapping": {"N": "0"}, "due_lane": {"S": lane_of(item["lane"]["S"], 0)}})
        assert not [*served_otherwise(url, caplog)]
