"""Expiry on DynamoDB: `ttl` is written when a run has ended, and an item that has expired counts as absent (CKP-7)."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from outlast.clocks import SystemClock
from outlast.core.commit import Commit, Put
from outlast.core.durations import DAY, FORGET_EVERY, LEDGER_KEPT, MINUTE, RUNS_KEPT, SECOND, Liveness
from outlast.core.generation import LEDGERS, ledgers_of
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, USAGE, Effect, Usage
from outlast.core.rows.run_rows import EVENT, RUN, TOKEN, Run
from outlast.core.rows.store_rows import META, WORKER, WRITER
from outlast.engine.store_maintenance import Retention, ledger_purged
from outlast.runtime.stores import open_store
from outlast.store.dynamodb.items import Item, partition
from outlast.store.dynamodb.maintenance import Housekeeper
from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from outlast.store.port import Maintenance, OnFile, Store, maintenance
from outlast.upkeep.fsck import Fsck
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
from tests.dynamodb.test_fsck import change, rows_of
from tests.mutants import remove
from tests.upkeep.test_fsck import played

__all__ = ["played"]
LARGE = b"x" * 400_000  # more than an item holds
PERIODS = {"runs_kept": RUNS_KEPT, "ledger_kept": LEDGER_KEPT}

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
    """Play a run that has a private effect with a large answer, one that the tenant shares, and a start key."""
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


async def delete(env: str, places: Iterable[tuple[str, str]]) -> None:
    """Delete items as DynamoDB does when they have expired: table with sort key, and partition key."""
    async with server.client() as client:
        for name, pk in places:
            table, _, sk = name.partition(" ")
            await client.delete_item(TableName=f"{env}-{table}", Key={"pk": {"S": pk}, "sk": {"S": sk}})


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
@pytest.mark.parametrize("ahead", [False, True], ids=["at the end of the period", "ahead"])
@pytest.mark.parametrize("removed", [False, True], ids=["with the rule", "without it"])
def test_nothing_of_a_live_run_expires(
    env: str, url: str, monkeypatch: pytest.MonkeyPatch, *, removed: bool, ahead: bool
) -> None:
    """The index still shows the end of a run whose id a new run has. Without the rule, its effect is forgotten."""
    if removed:
        remove("live_runs_expire", monkeypatch)

    async def story(a: DynamoStore, b: DynamoStore, clock: HandClock) -> None:
        for n in (1, 2):
            await worked(a, f"run-{n}", ended_at=T0 + n)
        clock.time = T0 + DAY
        assert await (a.expire(clock.time, 1, **PERIODS) if ahead else a.purge_ledgers(clock.time, 1)) == 1, "by index"
        assert await b.purge(clock.time, 10) == 2
        await b.commit(start(run_row("run-2")))
        await b.commit(Commit((Put(EFFECT, effect_row("run-2"), 0),)))
        if ahead:
            await a.expire(clock.time, 10, **PERIODS)
        else:
            await a.purge_ledgers(clock.time, 10)
        expired = expiring((await stored(env))[partition(TENANT, "run-2")])
        assert bool(expired) == removed
        assert (await b.load(EFFECT, effect_row("run-2")[:4]) is None) == removed
        assert (await b.load(RUN, (TENANT, "run-2")) is None) == (removed and ahead)

    play(url, story)


@pytest.mark.req("CKP-7")
def test_an_ended_run_is_marked_with_its_ends_of_retention(env: str, url: str) -> None:
    async def story(a: DynamoStore, b: DynamoStore, clock: HandClock) -> None:
        await worked(a, "over", ended_at=T0 + 1_001)
        await worked(a, "live")
        clock.time = T0 + DAY
        assert await b.expire(T0 + 1_001, 10, **PERIODS) == 0, "none ended before"
        assert await b.expire(clock.time, 10, **PERIODS) == 1
        assert (await a.expire(clock.time, 10, **PERIODS), await b.expire(clock.time, 10, **PERIODS)) == (0, 0)
        found = await stored(env)
        mine = found.pop(partition(TENANT, "over"))
        ends = expiring(mine)
        ledger, run = (-(-(T0 + 1_001 + kept) // SECOND) for kept in (LEDGER_KEPT, RUNS_KEPT))
        assert {name: end for name, end in ends.items() if name.startswith("checkpoints ")} != {}
        effects = {name for name in mine if name.startswith("idempotency ") and "invite" in name}
        assert ends == {name: ledger if name in effects else run for name in ends} and len(effects) > 1
        assert mine["runs run"]["kept_until"] == {"N": str(run)}, "the purge finds the rest by this item"
        assert mine.keys() - ends.keys() == {"runs run"}
        assert {pk: expiring(items) for pk, items in found.items() if expiring(items)} == {}
        clock.time = T0 + 1_000 + RUNS_KEPT
        assert (await the_run(b, "over")).ended_at == T0 + 1_001 and await a.rows(EVENT, (TENANT, "over")) != ()
        clock.time = run * SECOND
        assert await b.load(RUN, (TENANT, "over")) is None and await a.rows(EVENT, (TENANT, "over")) == ()
        assert await b.purge(clock.time, 10) == 1
        assert partition(TENANT, "over") not in await stored(env)
        assert await a.load(TOKEN, token_row("over")[:3]) is not None

    play(url, story)


@pytest.mark.req("CKP-7")
@pytest.mark.parametrize("removed", [False, True], ids=["with the rule", "without it"])
def test_a_mark_meets_no_later_run_of_the_same_id(
    env: str, url: str, monkeypatch: pytest.MonkeyPatch, *, removed: bool
) -> None:
    """Between the look at a run and its marks the run is purged, and its id is used again."""
    if removed:
        remove("marks_without_receipt", monkeypatch)

    async def story(a: DynamoStore, b: DynamoStore, clock: HandClock) -> None:
        await worked(a, "run-1", ended_at=T0 + 1)
        clock.time = T0 + DAY
        kept = Housekeeper._mark

        async def late(self: Housekeeper, at: Any, item: Item, attribute: str, until: int) -> bool:
            if attribute == "ttl" and at.table == "checkpoints" and self is a._housekeeper:
                monkeypatch.setattr(Housekeeper, "_mark", kept)
                others = asyncio.run_coroutine_threadsafe(again(), loop)
                await asyncio.wrap_future(others)
            return await kept(self, at, item, attribute, until)

        async def again() -> None:
            assert await b.purge(clock.time, 10) == 1
            await b.commit(start(run_row("run-1")))

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(Housekeeper, "_mark", late)
        assert await a.expire(clock.time, 10, **PERIODS) == 1
        assert Housekeeper._mark is kept, "the run was purged meanwhile"
        assert (expiring((await stored(env))[partition(TENANT, "run-1")]) != {}) == removed
        assert (await the_run(b, "run-1")).ended_at == 0

    play(url, story)


@pytest.mark.req("CKP-7")
def test_another_period_of_ledgers_waits_for_the_marked_ones(url: str) -> None:
    """Readers know one period. So runs that end after a change are marked once the marked ledgers have expired."""

    async def story(a: DynamoStore, b: DynamoStore, clock: HandClock) -> None:
        await worked(a, "run-1", ended_at=T0 + 1)
        assert await a.expire(T0 + 2, 1, runs_kept=0, ledger_kept=0) == 0
        assert await a.expire(T0 + 2, 1, **PERIODS) == 1
        await worked(a, "run-2", ended_at=T0 + 3)
        longer = PERIODS | {"ledger_kept": 2 * LEDGER_KEPT}
        assert await b.expire(T0 + 9, 1, **longer) == 0
        clock.time = T0 + LEDGER_KEPT + DAY
        one, two = await the_run(a, "run-1"), await the_run(a, "run-2")
        assert (await ledger_purged(b, one), await ledger_purged(b, two)) == (True, False)
        assert await b.expire(T0 + 9, 1, **longer) == 1
        assert (await ledger_purged(b, one), await ledger_purged(b, two)) == (True, False)
        clock.time = T0 + 2 * LEDGER_KEPT + DAY
        assert await ledger_purged(b, two)

    play(url, story)


@pytest.mark.req("CKP-7")
def test_a_worker_marks_ended_runs_in_its_daily_purge(env: str, url: str) -> None:
    async def story(a: DynamoStore, b: DynamoStore, clock: HandClock) -> None:
        chores = Retention(a, clock, "w-1", Liveness(runs_kept=RUNS_KEPT, ledger_kept=LEDGER_KEPT))
        await chores.look()
        clock.time += DAY
        await worked(b, "over", ended_at=clock.time - FORGET_EVERY - 1)
        await worked(b, "fresh", ended_at=clock.time - MINUTE)
        await worked(b, "live")
        for _ in range(4):
            await chores.look()
        found = await stored(env)
        marked = {run: bool(expiring(found[partition(TENANT, run)])) for run in ("over", "fresh", "live")}
        assert marked == {"over": True, "fresh": False, "live": False}
        assert ledgers_of(await b.load(META, LEDGERS)).kept == LEDGER_KEPT

    play(url, story)


async def answers(store: Store) -> dict[str, Any]:
    """Return all rows of runs as readers see them, and what `fsck` finds."""
    kinds = [kind for kind in KINDS if kind not in (META, WORKER, WRITER)]
    found: dict[str, Any] = {kind.name: sorted(map(repr, await store.rows(kind, ()))) for kind in kinds}
    runs = await store.rows(RUN, ())
    keys: list[tuple[str, str]] = [run[:2] for run in runs]
    found["run_rows"] = [rows and rows._replace(now=None) for rows in await store.run_rows(keys)]  # type: ignore[arg-type]
    found["purged"] = {run.run: await ledger_purged(store, run) for run in runs}
    for kind in (RUN, APPROVAL, EFFECT):
        page = await store.page(kind, "default", {})
        found[f"page of {kind.name}"] = sorted(map(repr, page.rows))
    found["findings"] = (await Fsck(store, chain=True).look()).findings
    return found


async def purged(path: Path, before: int, *, whole: bool) -> dict[str, Any]:
    """Return the answers of a file after a purge of its ledgers, or of its runs."""
    store = await open_store(f"sqlite:{path}", use="recover")
    try:
        assert isinstance(store, OnFile) and isinstance(store, Maintenance)
        await store.adopt_file()
        await maintenance(store).purge_ledgers(before, 10)
        if whole:
            await maintenance(store).purge(before, 10)
        return await answers(store)
    finally:
        await store.close()


@pytest.mark.req("CKP-7", "RT-5")
def test_expired_items_are_not_noticed(played: Path, tmp_path: Path, env: str, url: str) -> None:
    """With all, half or none of the expired items still there, a store answers as a file that was purged."""
    rows = rows_of(played)
    ended_ = [row for (name, _), row in rows.items() if name == "run" and isinstance(row, Run) and row.ended_at]
    assert len(ended_) == 2

    async def live() -> None:
        clock = HandClock(SystemClock().wall())
        store = await open_dynamodb(url, writer="expiry", clock=clock)
        try:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(change(store, {}, rows), store._loop))
            assert await store.expire(clock.time, 10, **PERIODS) == 2
            last = max(run.ended_at for run in ended_)
            for kept, whole in ((LEDGER_KEPT, False), (RUNS_KEPT, True)):
                clock.time = last + kept - MINUTE
                early = await answers(store)
                assert early["findings"] == () and len(early["run"]) == sum(name == RUN.name for name, _ in rows)
                copy = Path(shutil.copy(played, tmp_path / f"{kept}.db"))
                expected = await purged(copy, last + 1, whole=whole)
                assert expected["findings"] == ()
                clock.time = last + kept + SECOND
                assert await answers(store) == expected
                for every in (2, 1):
                    found = await stored(env)
                    over = [
                        (name, pk) for pk, items in found.items()
                        for name, end in expiring(items).items() if end * SECOND <= clock.time
                    ]  # fmt: skip
                    assert over
                    await delete(env, over[::every])
                    assert await answers(store) == expected, f"{every}: {len(over)}"
        finally:
            await store.close()

    asyncio.run(live())


@pytest.mark.req("CKP-7", "RUN-13")
def test_the_runs_of_a_tree_expire_with_their_ledgers_only(env: str, url: str) -> None:
    """DynamoDB deletes no run of a tree by itself, because the tree may live on. The purge takes all of them as one."""

    async def story(a: DynamoStore, b: DynamoStore, clock: HandClock) -> None:
        for run, above in (("root", {}), ("child", {"root": "root", "depth": 1})):
            row = run_row(run)._replace(**above)  # type: ignore[arg-type]
            await a.commit(start(row))
            await a.commit(Commit((Put(RUN, ended(row)._replace(ended_at=T0 + 1), row.version),)))
        clock.time = T0 + DAY
        assert await b.expire(clock.time, 10, **PERIODS) == 2
        found = await stored(env)
        marked = [item for run in ("root", "child") for item in found[partition(TENANT, run)].values()]
        assert not [item for item in marked if "kept_until" in item or "ttl" in item]
        assert await b.purge(clock.time, 10) == 2

    play(url, story)
