"""A change of the clock mapping while the index of due runs lags: no wake-up is lost, and none is early (S-4).

The index hides runs from the sweep that moves due times. The next poll finds them by the mapping under which they wait.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast.core.commit import Mapping
from outlast.core.durations import HOUR
from outlast.core.rows.run_columns import TIMERS, Timer
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.run_transition import rearmed
from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from outlast.store.queries import NextDue
from tests.conformance.subject import LANE, T0, TENANT, HandClock, append_message, claim_by, message_row, run_row, start
from tests.mutants import remove

SOON = Mapping(0, T0, T0, 1_000.0)
"""A thousand times faster: what was due in 96 hours is due in six minutes."""
LATE = Mapping(0, T0, T0, 0.5)


def sleeping(run: str) -> Run:
    """Return a run with a timer in 96 hours of business time."""
    timers = TIMERS.encode((Timer("sleep", T0 + 96 * HOUR),))
    return run_row(run, due_at=T0 + 96 * HOUR, timers_text=timers)


@asynccontextmanager
async def world(url: str) -> AsyncIterator[tuple[DynamoStore, DynamoStore, HandClock]]:
    clock = HandClock()
    stores = [await open_dynamodb(url, writer=name, clock=clock) for name in ("a", "b")]
    try:
        yield stores[0], stores[1], clock
    finally:
        for store in stores:
            await store.close()


def hide(store: DynamoStore) -> None:
    """Have the index show nothing to the sweep of this store."""
    items = store._reads.items
    call = items.call

    async def lagging(operation: str, **request: Any) -> dict[str, Any]:
        found = await call(operation, **request)
        return {**found, "Items": []} if operation == "Scan" and request.get("IndexName") == "due" else found

    items.call = lagging  # type: ignore[method-assign]


async def taken(store: DynamoStore) -> list[str]:
    return [run.run for run in await store.take((LANE,), 5, claim_by("worker"))]


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("mapping", [SOON, LATE])
def test_no_wakeup_is_lost_or_early(mapping: Mapping, hidden: bool, url: str) -> None:
    _wakes(url, mapping, hidden=hidden)


def _wakes(url: str, mapping: Mapping, *, hidden: bool) -> None:
    async def live() -> None:
        async with world(url) as (a, b, clock):
            await a.commit(start(sleeping("asleep")))
            if hidden:
                hide(b)
            stored = await b.set_mapping(mapping, rearmed)
            due_at = stored.real(T0 + 96 * HOUR)
            row = await a.load(RUN, (TENANT, "asleep"))
            assert row is not None and row.due_at == (T0 + 96 * HOUR if hidden else due_at)
            next_due = await a.query(NextDue((LANE,)))
            assert next_due == (clock.time if hidden else due_at), "a worker looks again at once"
            assert await taken(a) == []  # the next poll
            clock.time = due_at - 1
            assert await taken(a) == []
            assert await a.query(NextDue((LANE,))) == due_at
            clock.time = due_at
            assert await taken(a) == ["asleep"]

    asyncio.run(live())


def test_an_older_mapping_is_looked_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remove("older_mappings_not_searched", monkeypatch)
    with pytest.raises(AssertionError):
        _wakes(url, SOON, hidden=True)


def test_a_message_during_the_change_wakes_the_run(url: str) -> None:
    """The sweep does not put off a run that a message has made due since the sweep read it."""

    async def live() -> None:
        async with world(url) as (a, b, clock):
            await a.commit(start(sleeping("asleep")))
            items = b._receipts.items
            call = items.call
            posted = False

            async def late(operation: str, **request: Any) -> dict[str, Any]:
                nonlocal posted
                if operation == "UpdateItem" and not posted:
                    posted = True
                    message = append_message(message_row("asleep"))
                    landing = asyncio.run_coroutine_threadsafe(a._lander.land(message), a._loop)
                    await asyncio.wrap_future(landing)
                return await call(operation, **request)

            items.call = late  # type: ignore[method-assign]
            await b.set_mapping(LATE, rearmed)
            row = await a.load(RUN, (TENANT, "asleep"))
            assert posted and row is not None and (row.due_at, row.inbox_seq) == (clock.time, 1)
            assert await taken(b) == ["asleep"]

    asyncio.run(live())
