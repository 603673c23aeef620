"""A store with many runs that wait for a decision, and the facts that a client needs of each."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from bench.load.works import refunds
from bench.serving import opened, served
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.core.rows.run_rows import EVENT, RUN
from outlast.engine import commands
from outlast.service.conditional import etag
from outlast.store.port import Store
from outlast.store.queries import CountBy

TENANT = "bench"
STARTS = 200  # at the same time
PAGE = 1_000
LOOK_S = 0.1


class Target(NamedTuple):
    """A waiting run, and the values that a decision about it contains."""

    run: str
    approval: str
    etag: str


async def prepare(url: str, count: int) -> list[Target]:
    """Start refunds and execute them up to their approval. Returns them in order."""
    runs = [f"refund-{n:06d}" for n in range(count)]
    async with opened(url) as store:
        async with served(store, refunds):
            for at in range(0, count, STARTS):
                await asyncio.gather(*(_start(store, run, at + n) for n, run in enumerate(runs[at : at + STARTS])))
            await until(store, "waiting", count)
        found = {row.run: row async for row in _approvals(store)}
    return [Target(run, found[run].id, etag(found[run].version)) for run in runs]


async def _start(store: Store, run: str, n: int) -> None:
    state = {"order_id": f"A-{n}", "cents": 4_200}
    await commands.start(store, refunds, state, tenant=TENANT, actor="bench", run=run)


async def _approvals(store: Store) -> AsyncIterator[Approval]:
    cursor = ""
    while True:
        page = await store.page(APPROVAL, TENANT, {}, cursor=cursor, limit=PAGE)
        for row in page.rows:
            yield row
        if not (cursor := page.cursor):
            return


async def until(store: Store, status: str, count: int) -> None:
    """Return when this many runs have the status."""
    while (await store.query(CountBy(RUN, TENANT, "status"))).get(status, 0) < count:  # noqa: ASYNC110 - perhaps elsewhere
        await asyncio.sleep(LOOK_S)


async def all_ended(store: Store) -> None:
    """Return when every decided run has ended."""
    while True:
        decided, runs = (
            await store.query(CountBy(APPROVAL, TENANT, "status")),
            await store.query(CountBy(RUN, TENANT, "status")),
        )
        if decided.get("approved", 0) == runs.get("completed", 0):
            return
        await asyncio.sleep(LOOK_S)


async def last_events(store: Store, targets: list[Target]) -> dict[str, int]:
    """Return the number of the last event of each run."""
    rows = await store.load_many(RUN, [(TENANT, target.run) for target in targets])
    return {row.run: row.seq for row in rows}


async def decision_to_next(store: Store, targets: list[Target]) -> list[float]:
    """Return ms from each stored decision to the event with which the next node began."""
    found: list[float] = []
    for target in targets:
        (approval,) = await store.rows(APPROVAL, (TENANT, target.run))
        if not approval.decided_at:
            continue
        events = await store.rows(EVENT, (TENANT, target.run))
        began = next((e.at for e in events if e.node == "pay"), None)
        assert began is not None, f"{target.run} was decided, and has not gone on"
        found.append(float(began - approval.decided_at))
    return found
