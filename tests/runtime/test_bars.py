"""Each bar of `GET /v1/bars` is the length of the list of the same time, also after answers and a purge."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.clocks import SystemClock
from outlast.core.approvals import Actor
from outlast.core.causes import CauseName, causes_text
from outlast.core.commit import Commit, Put
from outlast.core.machine import ENDED, RunStatus
from outlast.core.rows.run_rows import FLAGGING, RUN, Flagging, Run
from outlast.core.run_filters import Interval, interval_text
from outlast.errors import InvalidInput
from outlast.models.causes import Bars
from outlast.operations.run_query import parse_query, query_terms, query_text
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.store.sqlite.store import open_without_sync
from tests.conformance.subject import T0, run_row

TENANT = "default"
CAUSES = ("0" * 12, "1" * 12)
ENDS = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)
SPAN, PARTS = 40, 8


class Lived(NamedTuple):
    """A run: its workflow and version, its end, the causes and instants of its flaggings, and whether it is purged."""

    workflow: int
    version: int
    end: tuple[int, int] | None
    flaggings: list[tuple[int, int]]
    answered: bool
    purged: bool

    def rows(self, run: str) -> tuple[Run, list[Flagging]]:
        """Return the row of the run and those of its flaggings."""
        name, lane = f"w{self.workflow}", f"w{self.workflow}@{self.version}"
        row = run_row(run, TENANT, workflow=name, lane=lane, created_at=T0 + 7 * int(run[-1]))
        flags = [
            Flagging(TENANT, run, seq, T0 + at, causes_text([CauseName("exception", CAUSES[which])]), name, lane)
            for seq, (at, which) in enumerate(sorted(self.flaggings), 2)
        ]
        if self.end is not None:
            at, which = self.end
            causes = causes_text([CauseName("failed", CAUSES[which % 2])]) if ENDS[which] is RunStatus.FAILED else ""
            row = row._replace(status=ENDS[which], owner=ENDED, due_at=None, ended_at=T0 + at, causes=causes)
        elif flags and not self.answered:
            row = row._replace(causes=flags[-1].causes, flagged_at=flags[-1].at)
        return row, flags


LIVES = st.lists(
    st.builds(
        Lived,
        workflow=st.integers(0, 1),
        version=st.integers(1, 2),
        end=st.none() | st.tuples(st.integers(0, SPAN + 5), st.integers(0, 2)),
        flaggings=st.lists(st.tuples(st.integers(0, SPAN + 5), st.integers(0, 1)), max_size=4),
        answered=st.booleans(),
        purged=st.booleans(),
    ),
    max_size=9,
)


async def _put(store: Any, lives: list[Lived]) -> None:
    for n, life in enumerate(lives):
        row, flags = life.rows(f"run-{n:04}")
        await store.commit(Commit((Put(RUN, row, 0),)))
        for each in flags:
            await store.commit(Commit((Put(FLAGGING, each, 0),)))


async def _purge(store: Any, lives: list[Lived]) -> None:
    keys = [(TENANT, f"run-{n:04}") for n, life in enumerate(lives) if life.purged and life.end]
    if keys:
        await store.purge_runs([row for row in await store.load_many(RUN, keys) if row is not None])


async def _agree(ops: Operations, **of: Any) -> int:
    """Check that each bar has as many runs as its list, and return the sum of the bars."""
    at = datetime.fromtimestamp(T0 / 1000, UTC)
    found: Bars = await ops.bars(since=at, until=at + timedelta(milliseconds=SPAN), bars=PARTS, **of)
    width = SPAN // PARTS
    total = 0
    for n, bar in enumerate(found.bars):
        time = interval_text(Interval(T0 + n * width, T0 + (n + 1) * width))
        wanted = {name: value for name, value in of.items() if value and name != "outcome"}
        counts = {"completed": bar.completed, "failed": bar.failed, "cancelled": bar.cancelled}
        for outcome, count in counts.items():
            if of.get("outcome") in (None, outcome):
                listed = await _all(ops, ended=time, status=outcome, **wanted)
                assert len(listed) == count, (outcome, time, listed, count)
        if of.get("outcome") is None:
            assert len(await _all(ops, ended=time, **wanted)) == sum(counts.values())
            listed = await _all(ops, flagged=time, **wanted)
            assert len(listed) == bar.flagged, (time, listed, bar)
        total += sum(counts.values()) + bar.flagged
    return total


async def _starts_agree(ops: Operations, **of: Any) -> None:
    at = datetime.fromtimestamp(T0 / 1000, UTC)
    found = await ops.bars(since=at, until=at + timedelta(milliseconds=SPAN), bars=PARTS, of="starts", **of)
    width = SPAN // PARTS
    for n, bar in enumerate(found.bars):
        time = interval_text(Interval(T0 + n * width, T0 + (n + 1) * width))
        assert len(await _all(ops, started=time, **of)) == bar.started
        assert bar.completed + bar.failed + bar.cancelled + bar.flagged == 0


async def _all(ops: Operations, **of: Any) -> list[str]:
    found, cursor, more = list[str](), "", True
    while more:
        page = await ops.runs(cursor=cursor, limit=2, **of)
        found += [run.run for run in page.runs]
        cursor = page.next_cursor
        more = bool(cursor)
    assert len(found) == len(set(found))
    return found


async def _check(store: Any, lives: list[Lived]) -> None:
    ops = Operations(store, tenant=TENANT, actor=Actor("ana"), workflows={})
    await _put(store, lives)
    for purged in (False, True):
        await (_purge(store, lives) if purged else asyncio.sleep(0))
        left = [life for life in lives if not (purged and life.purged and life.end)]
        ends = sum(life.end is not None and life.end[0] < SPAN for life in left)
        parts = SPAN // PARTS
        flags = sum(len({at // parts for at, _ in life.flaggings if at < SPAN}) for life in left)
        assert await _agree(ops) == ends + flags
        await _agree(ops, workflow="w1")
        await _starts_agree(ops)
        await _starts_agree(ops, workflow="w1", version=2)
        await _agree(ops, workflow="w0", version=2)
        await _agree(ops, cause=CAUSES[0])
        await _agree(ops, workflow="w0", cause=CAUSES[1])
        await _agree(ops, outcome="failed", cause=CAUSES[1])


@pytest.mark.req("OBS-5")
@given(lives=LIVES)
@settings(deadline=None, max_examples=40)
def test_each_bar_is_the_length_of_its_list(lives: list[Lived]) -> None:
    async def live() -> None:
        store = await open_store("memory:")
        try:
            await _check(store, lives)
        finally:
            await store.close()

    asyncio.run(live())


@given(lives=LIVES)
@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bars_and_lists_of_sqlite_agree(tmp_path: Path, lives: list[Lived]) -> None:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"

    async def live() -> None:
        store = await open_without_sync(path, writer="w", clock=SystemClock())
        try:
            await _check(store, lives)
        finally:
            await store.close()

    asyncio.run(live())


def test_terms_of_time_are_read_and_written() -> None:
    time = interval_text(Interval(T0, T0 + 5))
    for name in ("ended", "flagged"):
        found = parse_query(f"{name}:{time} workflow:refund")
        assert getattr(found, name) == time
        assert parse_query(query_text(query_terms(found))) == found
        with pytest.raises(InvalidInput, match=name):
            parse_query(f"{name}:yesterday")
