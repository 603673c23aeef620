"""A store for the pages of the web UI: runs that wait for approvals, runs that need a person, and one large run."""

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple

from bench import bulk
from bench.engines import Place
from bench.load.large_run import LAPS, NODES, tours
from bench.load.page_works import audits, payouts
from bench.load.place import prepare, until
from bench.load.receiver import subscribe
from bench.serving import TENANT, opened, served
from outlast.core.durations import MINUTE
from outlast.core.machine import DeliveryStatus
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.core.rows.outbox_rows import DELIVERY, SUBSCRIPTION, Delivery
from outlast.engine import commands

EXECUTED: Final = 10
"""Runs waiting for an approval that a worker executed. The others are copies that no worker executes."""
WAITING, UNCERTAIN, BROKEN, LARGE = "refund-000000", "payout-000000", "audit-000000", "tour-000000"
"""Executed runs: that wait for an approval, have an uncertain effect, failed with an exception, and the large one."""
GONE: Final = "http://127.0.0.1:9/"


class Counts(NamedTuple):
    """Number of runs of each kind, and of deliveries."""

    runs: int
    """All runs."""
    flagged: int
    """Runs that need a person: half of them have an uncertain effect, half failed with an exception."""
    overdue: int
    """Approvals whose deadline has passed, among the pending ones."""
    deliveries: int
    """Deliveries to a webhook that were not accepted at once. Half are given up."""
    visits: int
    """Visits of nodes in the large run."""

    @classmethod
    def of(cls, runs: int) -> "Counts":
        """Return the counts beside this many runs."""
        part = max(2, runs // 100)
        return cls(runs, part, part, 2 * part, min(int(NODES * LAPS), max(20, runs // 20)))


def fill(place: Place, counts: Counts) -> None:
    """Fill an empty store. Each kind of run was executed once by a real worker."""
    now = asyncio.run(_execute(place.url, counts.visits))
    half = max(1, counts.flagged // 2)
    waiting = counts.runs - EXECUTED - 2 * half - 1
    _copy(place, UNCERTAIN, "uncertain", half - 1)
    _copy(place, BROKEN, "broken", half - 1)
    _copy(place, WAITING, "overdue", counts.overdue, overdue=now)
    _copy(place, WAITING, "copy", waiting - counts.overdue)
    if counts.deliveries:
        bulk.insert(place, {DELIVERY: asyncio.run(_deliveries(place.url, counts.deliveries, now))})


def _copy(place: Place, run: str, prefix: str, count: int, *, overdue: int = 0) -> None:
    """Copy a run. `overdue`: instant before which its approvals were due; its row stays due later, so it is not run."""
    rows = bulk.copies(asyncio.run(bulk.rows_of(place, run)), run, bulk.names(prefix, 0, max(0, count)))
    if overdue:
        rows[APPROVAL] = _late(rows[APPROVAL], overdue)
    bulk.insert(place, rows)


def _late(rows: Iterator[Row], now: int) -> Iterator[Row]:
    for n, row in enumerate(rows):
        assert isinstance(row, Approval)
        yield row._replace(within_until=now - n * MINUTE)


async def _execute(url: str, visits: int) -> int:
    """Execute one run of each kind, and return the store's time."""
    await prepare(url, EXECUTED)
    async with opened(url) as store:
        for count, (workflow, run, state) in enumerate(
            (
                (payouts, UNCERTAIN, {"order_id": "A-1", "cents": 4_200}),
                (audits, BROKEN, {"order_id": "A-1", "cents": 4_200}),
                (tours, LARGE, {"visits": visits}),
            ),
            EXECUTED + 1,
        ):
            async with served(store, workflow):
                await commands.start(store, workflow, state, tenant=TENANT, actor="bench", run=run)
                await until(store, "waiting", count)
        return (await store.now()).business


async def _deliveries(url: str, count: int, now: int) -> Iterator[Row]:
    await subscribe(url, TENANT, GONE)
    async with opened(url) as store:
        (subscription,) = await store.rows(SUBSCRIPTION, (TENANT,))
    return (_delivery(subscription.subscription, n, now) for n in range(count))


def _delivery(subscription: str, n: int, now: int) -> Delivery:
    """Return a delivery that needed several attempts. Every other one was given up."""
    at = now - n * MINUTE
    return Delivery(
        TENANT, f"copy{n:08d}", subscription, 3, 9, DeliveryStatus.DEAD if n % 2 else DeliveryStatus.DELIVERED,
        event=f"copy{n:08d}/3", type="dev.outlast.run.parked", attempts=8, first_at=at - 60 * MINUTE, last_at=at,
        due_at=0, code=503 if n % 2 else 200, answer="unavailable" if n % 2 else "", error="", took_ms=120, by="",
    )  # fmt: skip
