"""Expiry on DynamoDB: `ttl` is written when a run has ended, and an item that has expired counts as absent (CKP-7)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.durations import DAY, LEDGER_KEPT
from outlast.core.effect_rows import EFFECT, USAGE, Effect, Usage
from outlast.core.rows import RUN, TOKEN, Run
from outlast.store.dynamodb.items import Item, partition
from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from tests.conformance.subject import (
    T0,
    TENANT,
    HandClock,
    done,
    effect_row,
    ended,
    fence,
    held,
    puts,
    run_row,
    start,
    the_run,
    token_row,
)
from tests.dynamodb import server
from tests.mutants import remove

LARGE = b"x" * 400_000  # more than an item holds

Story = Callable[[DynamoStore, DynamoStore, HandClock], Awaitable[None]]


def play(url: str, story: Story) -> None:
    async def live() -> None:
        clock = HandClock()
        a, b = [await open_dynamodb(url, writer=writer, clock=clock) for writer in ("writer-a", "writer-b")]
        try:
            await story(a, b, clock)
        finally:
            await a.close()
            await b.close()

    asyncio.run(live())


async def worked(store: DynamoStore, run: str, *, ended_at: int = 0) -> Run:
    """Play a run that has an effect of its own with a large answer, one that the tenant shares, and a start key."""
    mine = await held(store, run)
    own = done(effect_row(run), LARGE)._replace(version=1)
    shared = done(effect_row("", f"pay/{run}", visit=0))._replace(version=1, by_run=run)
    used = Put(USAGE, Usage(TENANT, run, shared.key, T0), 0)
    await store.commit(
        Commit((Put(EFFECT, own, 0), Put(EFFECT, shared, 0), used, *puts(token_row(run, run))), fence(mine))
    )
    if ended_at:
        await store.commit(Commit((Put(RUN, ended(mine)._replace(ended_at=ended_at), mine.version),)))
    return mine


async def stored(env: str) -> dict[str, dict[str, Item]]:
    """Return all items of the tables with rows, expired ones included, by partition key, then by table and sort key."""
    found: dict[str, dict[str, Item]] = {}
    async with server.client() as client:
        for table in ("checkpoints", "idempotency", "runs"):
            async for page in client.get_paginator("scan").paginate(TableName=f"{env}-{table}", ConsistentRead=True):
                for item in page["Items"]:
                    found.setdefault(item["pk"]["S"], {})[f"{table} {item['sk']['S']}"] = item
    return found


def expiring(items: dict[str, Item]) -> dict[str, int]:
    return {name: int(item["ttl"]["N"]) for name, item in items.items() if "ttl" in item}


@pytest.mark.req("CKP-7")
def test_the_ledger_of_an_ended_run_expires_and_nothing_else(env: str, url: str) -> None:
    """The emulator deletes nothing by itself, so all expired items can still be read."""

    async def story(a: DynamoStore, b: DynamoStore, clock: HandClock) -> None:
        await worked(a, "over", ended_at=T0 + 1_000)
        live = await worked(a, "live")
        clock.time = T0 + LEDGER_KEPT + DAY
        assert await b.purge_ledgers(clock.time - LEDGER_KEPT, 10) == 1
        found = await stored(env)
        expired = expiring(found.pop(partition(TENANT, "over")))
        assert len(expired) > 1, "the effect and the items of its answer"
        assert all(name.startswith("idempotency ") and "invite" in name for name in expired)
        assert set(expired.values()) == {(T0 + 1_000 + LEDGER_KEPT) // 1_000}
        assert {pk: expiring(items) for pk, items in found.items() if expiring(items)} == {}
        rows, others = await a.run_rows(((TENANT, "over"), (TENANT, "live")))
        assert rows is not None and others is not None and others.run == live
        assert (rows.effects, [e.key for e in rows.shared]) == ((), ["pay/over"])
        assert await a.rows(EFFECT, (TENANT, "over")) == () and await a.load(EFFECT, effect_row("over")[:4]) is None
        page = await a.page(EFFECT, TENANT, {})
        assert sorted(row.key for row in page.rows if isinstance(row, Effect)) == ["invite/1", "pay/live", "pay/over"]
        assert await a.load(TOKEN, token_row("over")[:3]) is not None
        assert await b.purge(clock.time, 10) == 1
        left = (await stored(env)).get(partition(TENANT, "over"), {})
        assert left == {}, "the purge of a run also deletes what has expired and is still there"

    play(url, story)


@pytest.mark.req("CKP-7")
@pytest.mark.parametrize("removed", [False, True], ids=["with the rule", "without it"])
def test_nothing_of_a_live_run_expires(env: str, url: str, monkeypatch: pytest.MonkeyPatch, *, removed: bool) -> None:
    """The index still shows the end of a run whose id a new run has. Without the rule, its effect is forgotten."""
    if removed:
        remove("live_ledgers_expire", monkeypatch)

    async def story(a: DynamoStore, b: DynamoStore, clock: HandClock) -> None:
        for n in (1, 2):
            await worked(a, f"run-{n}", ended_at=T0 + n)
        clock.time = T0 + DAY
        assert await a.purge_ledgers(clock.time, 1) == 1, "it has read the index"
        assert await b.purge(clock.time, 10) == 2
        await b.commit(start(run_row("run-2")))
        await b.commit(Commit((Put(EFFECT, effect_row("run-2"), 0),)))
        await a.purge_ledgers(clock.time, 10)
        expired = expiring((await stored(env))[partition(TENANT, "run-2")])
        assert bool(expired) == removed
        assert (await b.load(EFFECT, effect_row("run-2")[:4]) is None) == removed
        assert (await the_run(b, "run-2")).ended_at == 0

    play(url, story)
