"""Reads of a DynamoDB store while others write: no row and no run is returned as it never was."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.limits import ITEM_BYTES
from outlast.core.machine import WaitStatus
from outlast.core.rows.effect_rows import APPROVAL, WAIT, Wait
from outlast.core.rows.run_rows import EVENT, RUN
from outlast.core.rows.store_rows import REQUEST, Request
from outlast.errors import Unavailable
from outlast.store.dynamodb import plans, reads
from outlast.store.dynamodb.connection import Away, Conflicted, Throttled
from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from outlast.store.queries import Census, Newest, NextDue
from tests.conformance.subject import (
    LANE,
    T0,
    TENANT,
    HandClock,
    append_message,
    approval_row,
    event_row,
    held,
    message_row,
    moved,
    run_row,
    start,
)
from tests.mutants import remove

LARGE = ITEM_BYTES + 200_000


def between(store: DynamoStore, before: Callable[[str], bool], act: Callable[[], Awaitable[object]]) -> list[str]:
    """Do something once before a request of the store's reads that `before` chooses. Return the requests so far."""
    items, seen, done = store._reads.items, [], []
    call = items.call

    async def with_act(operation: str, **request: Any) -> dict[str, Any]:
        if not done and before(operation):
            done.append(operation)
            await act()
        seen.append(operation)
        return await call(operation, **request)

    items.call = with_act  # type: ignore[method-assign]
    return seen


def answer(version: int) -> Request:
    """Return a stored answer that fills more than one item."""
    body = b"%d" % version * LARGE
    return Request(TENANT, "key", version, "ann", "start", "d", 200, "{}", body, T0)


def other(store: DynamoStore, *commits: Commit) -> Callable[[], Awaitable[object]]:
    """Return a function that lands commits from the thread of another store."""

    async def land() -> None:
        for commit in commits:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_land(store, commit), store._loop))

    return land


async def _land(store: DynamoStore, commit: Commit) -> None:
    await store._lander.land(commit)


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[DynamoStore, DynamoStore]]:
    """Open two stores, as two processes do."""
    clock = HandClock()
    stores = [await open_dynamodb(url, writer=name, clock=clock) for name in ("a", "b")]
    try:
        yield stores[0], stores[1]
    finally:
        for store in stores:
            await store.close()


def test_item_and_bodies_are_of_one_write(url: str) -> None:
    """A row is replaced between the read of its item and that of its bodies: it is read again."""
    _read_a_row_that_is_replaced(url)


def _read_a_row_that_is_replaced(url: str) -> None:
    async def live() -> None:
        async with two(url) as (a, b):
            await b.commit(Commit((Put(REQUEST, answer(1), 0),)))
            replace = other(b, Commit((Put(REQUEST, answer(2), 1),)))
            seen = between(a, lambda operation: operation == "BatchGetItem", replace)
            assert await a.load(REQUEST, (TENANT, "key")) == answer(2)
            assert seen == ["GetItem", "BatchGetItem", "GetItem", "BatchGetItem"]

    asyncio.run(live())


@pytest.mark.req("RUN-3")
def test_a_run_is_read_as_of_one_moment(url: str) -> None:
    """A run moves after its row was read and before its other rows: all are read again."""
    _read_a_run_that_moves(url)


def _read_a_run_that_moves(url: str) -> None:
    async def live() -> None:
        async with two(url) as (a, b):
            mine = await held(b)
            after = moved(mine, node="award", seq=2)
            move = Commit((Put(RUN, after, mine.version), Put(EVENT, event_row(seq=2, snapshot=b'{"new":1}'), 0)))
            between(a, lambda operation: operation == "Query", other(b, move))
            (rows,) = await a.run_rows([mine[:2]])
            assert rows is not None
            assert (rows.run, rows.last.seq) == (after, 2)

    asyncio.run(live())


@pytest.mark.parametrize(
    ("removed", "read"),
    [("run_read_once", _read_a_run_that_moves), ("bodies_of_any_write", _read_a_row_that_is_replaced)],
)
def test_a_removed_safeguard_is_noticed(
    removed: str, read: Callable[[str], None], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(removed, monkeypatch)
    with pytest.raises(AssertionError):
        read(url)


@pytest.mark.parametrize("page", [None, 1, 3])
def test_all_rows_of_a_long_run_are_read(page: int | None, url: str) -> None:
    """It has more items and more events since its snapshot than its first requests read."""

    async def live() -> None:
        async with two(url) as (a, b):
            run = await held(b)
            wait = Wait(TENANT, run.run, 1, "bid", 1, WaitStatus.OPEN, "receive", "bid", 0, 0, "", T0)
            await b.commit(Commit((Put(APPROVAL, approval_row(), 0),)))
            for _ in range(reads.FEW):
                await b.commit(append_message(message_row(run.run)))
            await b.commit(Commit((Put(WAIT, wait, 0),)))
            for seq in range(2, reads.LATEST + 3):
                run = moved(run, seq=seq)
                await b.commit(
                    Commit((Put(RUN, run, run.version - 1), Put(EVENT, event_row(seq=seq, snapshot=None), 0)))
                )
            a._reads.items.page_limit = page
            (rows,) = await a.run_rows([run[:2]])
            assert rows is not None
            assert (len(rows.messages), len(rows.waits), len(rows.approvals)) == (reads.FEW, 1, 1)
            assert (rows.last.seq, rows.run.seq) == (1, run.seq)

    asyncio.run(live())


def test_reads_at_the_same_time_share_requests(url: str) -> None:
    """A caller that gives up, or a request that fails, takes no other with it."""

    async def live() -> None:
        async with two(url) as (a, _):
            names = [f"run-{i}" for i in range(250)]
            await asyncio.gather(*(a.commit(start(run_row(name))) for name in names[::2]))
            asked: list[str] = []
            call, fails = a._reads.items.call, 1

            async def failing(operation: str, **request: Any) -> dict[str, Any]:
                nonlocal fails
                asked.append(operation)
                if fails:
                    fails -= 1
                    raise Unavailable("the store cannot be read")
                return await call(operation, **request)

            a._reads.items.call = failing  # type: ignore[method-assign]
            with pytest.raises(Unavailable):
                await a.load(RUN, (TENANT, "run-0"))

            async def of_all() -> list[Any]:
                given_up = asyncio.ensure_future(a._reads.load(RUN, [(TENANT, "run-0")]))
                reading = asyncio.gather(*(a._reads.load(RUN, [(TENANT, name)]) for name in names))
                await asyncio.sleep(0)
                given_up.cancel()
                return await reading

            found = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(of_all(), a._loop))
            assert [row is not None for (row,) in found] == [i % 2 == 0 for i in range(250)]
            assert asked == ["GetItem", *["BatchGetItem"] * 3]

    asyncio.run(live())


def test_a_run_that_changes_all_the_time_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second read of a run is bounded."""
    monkeypatch.setattr(reads, "SAME_TRIES", 3)

    async def live() -> None:
        async with two(url) as (a, b):
            run = await held(b)
            items = a._reads.items
            call = items.call
            n = 0

            async def changing(operation: str, **request: Any) -> dict[str, Any]:
                nonlocal n
                found = await call(operation, **request)
                if operation == "GetItem" and "Item" in found and "inbox_seq" in found["Item"]:
                    n += 1
                    found["Item"]["inbox_seq"] = {"N": str(n)}
                return found

            items.call = changing  # type: ignore[method-assign]
            with pytest.raises(Unavailable, match="busy"):
                await a.run_rows([run[:2]])
            assert n == 4

    asyncio.run(live())


def test_an_outdated_index_entry_is_judged_by_its_item(url: str) -> None:
    """An index that lags shows a run that is no longer due or owned. Only the item counts."""

    async def live() -> None:
        async with two(url) as (a, b):
            await b.commit(start(run_row("first", due_at=T0 + 1)))
            await b.commit(start(run_row("second", due_at=T0 + 5)))
            first = await b.load(RUN, (TENANT, "first"))
            assert first is not None
            items = a._reads.items
            call = items.call

            async def lagging(operation: str, **request: Any) -> dict[str, Any]:
                found = await call(operation, **request)
                if request.get("IndexName") == "due" and "ExclusiveStartKey" not in request:
                    later = Commit((Put(RUN, moved(first, due_at=T0 + 9), 1),))
                    await other(b, later)()
                return found

            items.call = lagging  # type: ignore[method-assign]
            assert await a.query(NextDue((LANE,))) == T0 + 5

    asyncio.run(live())


def test_keys_left_unprocessed_are_read_again(url: str) -> None:
    """DynamoDB answers a part of a batch when the answer would be too large."""

    async def live() -> None:
        async with two(url) as (store, _):
            runs = [f"run-{i}" for i in range(9)]
            await asyncio.gather(*(store.commit(start(run_row(run))) for run in runs))
            connection = store._connection
            call = connection.call
            asked = 0

            async def half(operation: str, **request: Any) -> dict[str, Any]:
                nonlocal asked
                if operation != "BatchGetItem":
                    return await call(operation, **request)
                asked += 1
                ((table, keys),) = request["RequestItems"].items()
                now, later = keys["Keys"][:2], keys["Keys"][2:]
                found = await call(operation, RequestItems={table: {**keys, "Keys": now}})
                return found | {"UnprocessedKeys": {table: {**keys, "Keys": later}} if later else {}}

            connection.call = half  # type: ignore[method-assign]
            found = await store.load_many(RUN, [(TENANT, run) for run in runs])
            assert [row.run for row in found if row] == runs and asked == 5
            connection.call = call  # type: ignore[method-assign]

    asyncio.run(live())


@pytest.mark.parametrize("error", [Throttled("slow"), Conflicted("busy"), Away("gone", sent=True)])
def test_a_read_without_an_answer_is_repeated(error: Exception, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read changes nothing, so it is repeated, and refused in the end."""

    async def live() -> None:
        async with two(url) as (store, _):
            await store.commit(start(run_row()))
            connection = store._connection
            call = connection.call
            failing = 3

            async def fails(operation: str, **request: Any) -> dict[str, Any]:
                nonlocal failing
                failing -= 1
                if failing >= 0:
                    raise error
                return await call(operation, **request)

            connection.call = fails  # type: ignore[method-assign]
            assert await store.load(RUN, (TENANT, "run-1")) == run_row()
            failing = 1_000
            monkeypatch.setitem(reads.ItemReader.call.__kwdefaults__, "within_s", 0.0)
            with pytest.raises(Unavailable, match=str(error)):
                await store.load(RUN, (TENANT, "run-1"))
            connection.call = call  # type: ignore[method-assign]

    asyncio.run(live())


def test_counts_are_sums_over_pages(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count holds one page of rows at a time."""

    async def live() -> None:
        async with two(url) as (store, _):
            await asyncio.gather(*(store.commit(start(run_row(f"run-{i}"))) for i in range(5)))
            store._reads.items.page_limit = 2
            assert await store.query(Census(RUN, ("tenant", "status"))) == {(TENANT, "queued"): 5}

    asyncio.run(live())


@pytest.mark.parametrize("hidden", [1, 2, 3])
def test_an_approval_is_found_by_its_id_although_the_index_lags(
    hidden: int, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person answers a moment after the question. An unknown id takes as long to be refused."""
    monkeypatch.setattr(plans, "LOOK_AGAIN_S", 0)

    async def live() -> None:
        async with two(url) as (store, _):
            await store.commit(Commit((Put(APPROVAL, approval_row(), 0),)))
            items = store._reads.items
            call = items.call
            looks = 0

            async def lagging(operation: str, **request: Any) -> dict[str, Any]:
                nonlocal looks
                looks += request.get("IndexName") == "listed"
                return {"Items": []} if looks <= hidden else await call(operation, **request)

            items.call = lagging  # type: ignore[method-assign]
            page = await store.query(Newest(APPROVAL, TENANT, (("id", "ap-1"),), limit=1))
            assert page.rows == ((approval_row(),) if hidden < plans.LOOKS else ())

    asyncio.run(live())


def test_a_row_that_is_deleted_while_it_is_read_is_absent(url: str) -> None:
    """Its item was read, its bodies are gone."""

    async def live() -> None:
        async with two(url) as (a, b):
            await b.commit(Commit((Put(REQUEST, answer(1), 0),)))

            async def delete() -> None:
                work = b._housekeeper._delete_rows(REQUEST, [answer(1)])
                assert await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, b._loop)) == 1

            between(a, lambda operation: operation == "BatchGetItem", delete)
            assert await a.load(REQUEST, (TENANT, "key")) is None

    asyncio.run(live())


def test_a_read_in_progress_ends_with_the_store(url: str) -> None:
    """Closing the store leaves no caller waiting."""

    async def live() -> None:
        store = await open_dynamodb(url, writer="a", clock=HandClock())
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def never(operation: str, **request: Any) -> dict[str, Any]:
            loop.call_soon_threadsafe(begun.set)
            return await asyncio.Event().wait() and {}

        store._reads.items.call = never  # type: ignore[method-assign]
        reading = asyncio.create_task(store.load(RUN, (TENANT, "run-1")))
        await begun.wait()
        await store.close()
        with pytest.raises(Unavailable, match="closed"):
            await reading

    asyncio.run(live())
