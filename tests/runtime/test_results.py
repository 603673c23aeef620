"""Counts are counts of rows, pages follow the order of emission, and fsck misses no row (OUT-5, I17, I18)."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow
from outlast.core.approvals import EVERY_ROLE, Actor
from outlast.core.commit import Commit, Put
from outlast.core.rows.run_rows import RESULT, Result
from outlast.errors import NotFound
from outlast.runtime import InProcessRuntime, open_store
from outlast.runtime.operations import Operations
from outlast.store.queries import ByOrdinal, LastOrdinals, Query
from outlast.upkeep.fsck import Fsck, FsckReport

pytestmark = pytest.mark.req("OUT-5")


class Harvest(BaseModel):
    n: int


class Round(BaseModel):
    n: int = 0


harvest = Workflow("runtime-harvest", state=Harvest)


@harvest.node(start=True)
async def take(ctx: Context[Harvest]) -> None:
    for i in range(ctx.state.n):
        await ctx.emit({"i": i}, key=f"{999 - i:03d}", kind="lead")


async def played(path: Path, n: int) -> None:
    store = await open_store(f"sqlite:{path}")
    try:
        async with InProcessRuntime(store, [harvest]) as runtime:
            await runtime.operations.start_run("runtime-harvest", {"n": n}, run_id="r1")
            await runtime.finished("r1")
    finally:
        await store.close()


ACTOR = Actor("ana", EVERY_ROLE)


def test_every_status_counts_the_rows_with_one_query_for_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run at version 1 was never claimed: it has no results, and none are counted."""

    async def body() -> None:
        store = await open_store(f"sqlite:{tmp_path / 's.db'}")
        async with InProcessRuntime(store, [harvest]) as runtime:
            for run, n in (("r1", 70), ("r2", 0), ("r3", 3)):
                await runtime.operations.start_run("runtime-harvest", {"n": n}, run_id=run)
                assert (await runtime.finished(run)).results == n
            ops = runtime.operations
            assert (await ops.run("r1")).results == 70
        await ops.start_run("runtime-harvest", {"n": 9}, run_id="r4")
        asked: list[int] = []
        query = store.query

        async def counted(asking: Query[Any]) -> Any:
            if isinstance(asking, LastOrdinals):
                asked.append(len(asking.prefixes))
            return await query(asking)

        monkeypatch.setattr(store, "query", counted)
        listed = (await ops.runs()).runs
        assert {each.run: each.results for each in listed} == {"r1": 70, "r2": 0, "r3": 3, "r4": 0}
        assert asked == [3]
        await store.close()

    asyncio.run(body())


def test_a_row_emitted_while_a_page_is_read_is_on_the_next_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last page counted a row that it did not show, and said that it was the last."""

    async def body() -> None:
        await played(tmp_path / "s.db", 3)
        store = await open_store(f"sqlite:{tmp_path / 's.db'}")
        ops = Operations(store, tenant="default", actor=ACTOR, workflows={})
        await ops.store.commit(Commit((Put(RESULT, Result("default", "r1", "late", 1, 4, "lead", b"{}", 1), 0),)))
        query = store.query

        async def before_the_last(asking: Query[Any]) -> Any:
            if not isinstance(asking, ByOrdinal):
                return await query(asking)
            monkeypatch.setattr(store, "query", query)
            return (await query(asking))[:3]

        monkeypatch.setattr(store, "query", before_the_last)
        page = await ops.results("r1")
        assert (len(page.results), page.count, page.next_cursor) == (3, 4, "3")
        page = await ops.results("r1", after=3)
        assert ([row.key for row in page.results], page.count, page.next_cursor) == (["late"], 4, "")
        assert (await ops.results("r1", limit=4)).next_cursor == "", "no empty page follows a full one"
        await store.close()

    asyncio.run(body())


def test_the_count_is_the_number_of_rows_that_are_fetched(tmp_path: Path) -> None:
    async def body() -> None:
        await played(tmp_path / "s.db", 120)
        store = await open_store(f"sqlite:{tmp_path / 's.db'}")
        ops = Operations(store, tenant="default", actor=ACTOR, workflows={})
        found: list[int] = []
        while page := await ops.rows.results("r1", after=found[-1] if found else 0, limit=50):
            found += [row.ordinal for row in page]
        assert found == list(range(1, 121)) and await ops.rows.count_results("r1") == 120
        assert [row.key for row in await ops.rows.results("r1", limit=2)] == ["999", "998"], "by emission, not by key"
        with pytest.raises(NotFound):
            await ops.rows.results("no such run")
        with pytest.raises(NotFound):
            await Operations(store, tenant="other", actor=ACTOR, workflows={}).rows.count_results("r1")
        await store.close()

    asyncio.run(body())


rounds = Workflow("runtime-rounds", state=Round)


@rounds.node(start=True, max_visits=100)
async def turn(ctx: Context[Round]) -> Literal["turn"] | None:
    ctx.state.n += 1
    await ctx.emit({"n": ctx.state.n}, key=f"{ctx.state.n}")
    return "turn" if ctx.state.n < 30 else None


@pytest.mark.req("CKP-4")
def test_visits_are_numbered_without_waiting_for_their_commits(tmp_path: Path) -> None:
    """A visit begins while the chunk and the checkpoint of the one before it are still under way."""

    async def body() -> None:
        store = await open_store(f"sqlite:{tmp_path / 's.db'}")
        try:
            async with InProcessRuntime(store, [rounds]) as runtime:
                await runtime.operations.start_run("runtime-rounds", {}, run_id="r1")
                await runtime.finished("r1")
                found = await runtime.operations.rows.results("r1")
                assert [(row.ordinal, row.key) for row in found] == [(n, str(n)) for n in range(1, 31)]
        finally:
            await store.close()

    asyncio.run(body())


async def looked(path: Path) -> FsckReport:
    store = await open_store(f"sqlite:{path}")
    try:
        return await Fsck(store).look()
    finally:
        await store.close()


@pytest.mark.req("TEST-4", "CKP-5")
@pytest.mark.parametrize(
    "spoilt",
    [
        "DELETE FROM result WHERE ordinal = 60",
        "DELETE FROM result WHERE ordinal = 120",
        "UPDATE result SET ordinal = 500 WHERE ordinal = 1",
        "UPDATE result SET data = x'7b' WHERE ordinal = 3",
    ],
)
def test_a_missing_or_spoilt_result_is_found(tmp_path: Path, spoilt: str) -> None:
    path = tmp_path / "s.db"
    asyncio.run(played(path, 120))
    assert asyncio.run(looked(path)).findings == ()
    with sqlite3.connect(path) as db:
        db.execute(spoilt)
    db.close()
    assert {f.check for f in asyncio.run(looked(path)).findings} == {"results_counted"}
