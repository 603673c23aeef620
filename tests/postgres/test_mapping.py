"""A change of the clock mapping finds every run that a concurrent batch parks (S-4)."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import pytest

from outlast.core import crash_points
from outlast.core.commit import Commit, Mapping
from outlast.core.rows.run_rows import Run
from outlast.store.postgres.session import PostgresSession
from outlast.store.postgres.store import PostgresStore
from tests.conformance import subject as make
from tests.mutants import remove
from tests.postgres import server
from tests.postgres.test_fast_path import opened, taken

HOUR = 3_600_000
PATIENCE_S = 60
ASLEEP = "it falls asleep"
WAITS = (
    "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE c.relname = 'run' AND NOT l.granted"
)


class Gate:
    """A point at which a batch stops until the test lets it continue."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.may_go_on = threading.Event()

    def stand(self) -> None:
        self.reached.set()
        assert self.may_go_on.wait(PATIENCE_S)


def due_in_business_time(run: Run, mapping: Mapping) -> int | None:
    return mapping.real(int(run.timers_text))


def falls_asleep(row: Run, at: int, due_at: int, **fence: Any) -> Commit:
    """Return the commit by which a holder parks a run until a business instant."""
    return make.put_run(row, owner="", due_at=due_at, timers_text=str(at))._replace(
        fence=make.fence(row, **fence), label=ASLEEP
    )


async def changed(store: PostgresStore, gate: Gate) -> Mapping:
    """Change the mapping while the batch is stopped. The batch continues when the change is done or waits."""
    now = await store.now()
    wanted = Mapping(0, now.real, now.business, 1_000.0)
    changing = asyncio.create_task(store.set_mapping(wanted, due_in_business_time))
    db = await asyncpg.connect(server.url())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not changing.done() and not await db.fetchval(WAITS):  # noqa: ASYNC110 - no event says it
                await asyncio.sleep(0.02)
    finally:
        await db.close()
        gate.may_go_on.set()
    return await changing


async def a_park_meets_it(url: str) -> bool:
    """Return True if a run parked between the reading of the mapping and COMMIT is due by the new mapping."""
    gate = Gate()

    def hook(place: str, labels: Sequence[str]) -> None:
        if place == "store.batch:inside" and ASLEEP in labels:
            gate.stand()

    async with opened(url, url) as (mine, other):
        row = await taken(mine)
        now = await mine.now()
        crash_points.hook = hook
        try:
            at = now.business + HOUR
            parking = asyncio.create_task(mine.commit(falls_asleep(row, at, now.real + HOUR, mapping=now.mapping)))
            await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
            mapping = await changed(other, gate)
            await parking
        finally:
            crash_points.hook = None
        return (await make.the_run(other)).due_at == mapping.real(at)


async def a_take_meets_it(url: str, patch: pytest.MonkeyPatch) -> bool:
    """Return True if a run parked by a take is due by the new mapping, which changes before the take reads the run."""
    gate, take = Gate(), PostgresSession._take

    async def slow(self: PostgresSession, *args: Any) -> object:
        if self._writer == "w0" and not gate.may_go_on.is_set():
            await asyncio.to_thread(gate.stand)
        return await take(self, *args)

    async with opened(url, url) as (mine, other):
        await mine.commit(make.start(make.run_row()))
        at = (await mine.now()).business + HOUR

        def sleep_again(run: Run, now: Any, mapping: Mapping) -> Commit:
            return make.put_run(run, due_at=mapping.real(at), timers_text=str(at))

        patch.setattr(PostgresSession, "_take", slow)
        taking = asyncio.create_task(mine.take((make.LANE,), 1, sleep_again))
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        mapping = await changed(other, gate)
        await taking
        return (await make.the_run(other)).due_at == mapping.real(at)


def test_a_run_parked_during_the_change_is_due_by_the_new_mapping(url: str) -> None:
    assert asyncio.run(a_park_meets_it(url))


def test_a_run_parked_by_a_take_during_the_change_is_due_by_the_new_mapping(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asyncio.run(a_take_meets_it(url, monkeypatch))


def test_without_the_lock_of_the_change_a_parked_run_keeps_its_old_due_at(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed safeguard: the lock of the change."""
    remove("mapping_change_without_lock", monkeypatch)
    assert not asyncio.run(a_park_meets_it(url))


def test_without_the_lock_of_the_batch_a_taken_run_keeps_its_old_due_at(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed safeguard: the lock of the batch."""
    remove("batch_without_lock", monkeypatch)
    assert not asyncio.run(a_take_meets_it(url, monkeypatch))


def test_two_concurrent_changes_are_applied_in_order(url: str) -> None:
    async def live() -> None:
        async with opened(url, url) as (mine, other):
            now = await mine.now()
            wanted = Mapping(0, now.real, now.business + HOUR, 1.0)

            async def change(store: PostgresStore, by: int) -> Mapping:
                return await store.set_mapping(wanted._replace(base_business=now.business + by), due_in_business_time)

            changes: list[Callable[[], Awaitable[Mapping]]] = [
                lambda store=store, n=n: change(store, HOUR) for n in range(10) for store in (mine, other)
            ]
            versions = [stored.version for stored in await asyncio.gather(*(each() for each in changes))]
            assert sorted(versions) == list(range(1, 21))
            assert (await mine.now()).mapping == 20

    asyncio.run(live())
