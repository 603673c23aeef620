"""A file that an older version wrote, with runs alive in it, goes on under this one."""

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from outlast.core.rows import (
    APPROVAL,
    CURSOR,
    DELIVERY,
    EVENT,
    HOLD,
    KINDS,
    REQUEST,
    RESULT,
    RUN,
    SUBSCRIPTION,
    TOPOLOGY,
    UNTOLD,
    USAGE,
    VALUE,
    Approval,
    Kind,
    Row,
    Run,
)
from outlast.engine import commands
from outlast.flow import Context, Workflow, role
from outlast.store import database
from outlast.store.database import OFF, Database
from outlast.store.migrations import MIGRATIONS
from outlast.store.sqlite import open_without_sync
from tests.engine.world import Go, Receiver, State, World, one_node, write

NEW_SINCE_1 = {
    ("run", "crash_count"),
    ("run", "ending"),
    ("run", "restored"),
    ("run", "group_max"),
    ("worker", "died_holding"),
    ("approval", "again"),
    ("approval", "quorum"),
    ("approval", "votes"),
    ("approval", "not_requester"),
    ("approval", "editable"),
    ("approval", "claimed_by"),
    ("effect", "interrupted"),
    ("effect", "undoes"),
    ("effect", "by_run"),
    ("effect", "shared"),
    ("effect", "keep_ms"),
    ("effect", "redone"),
}
KINDS_SINCE_1 = (HOLD, USAGE, TOPOLOGY, VALUE, RESULT, REQUEST, SUBSCRIPTION, CURSOR, DELIVERY, UNTOLD)
DAY = 24 * 3_600_000


class Old(NamedTuple):
    """A run of each kind, as schema 1 left it."""

    asking: Workflow[State]
    listening: Workflow[State]
    world: World


def lived(old: Old) -> None:
    """An approval asked for, a wait without end, a run in attention, one that waits for a slot."""

    async def live() -> None:
        world = old.world
        world.worker(old.asking, old.listening)
        await world.start(old.asking, "asks")
        await world.start(old.listening, "listens")
        world.add_slots("t", 1)
        await world.start(old.listening, "holds")
        await world.start(old.listening, "sleeps")
        await world.off_duty()
        assert [world.status(r) for r in ("asks", "listens", "holds", "sleeps")] == ["waiting"] * 3 + ["queued"]

    asyncio.run(old.world.live(live))


def written_by_schema_1(path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its statements only; its columns; runs without a clock for their ceiling."""
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", MIGRATIONS[:1])
        patch.setattr(database, "SCHEMA", 1)
        Database(path, synchronous=OFF).migrate()
    db = sqlite3.connect(path)
    for kind in KINDS:
        if kind in KINDS_SINCE_1:
            continue
        names = [name for name in kind.row._fields if (kind.name, name) not in NEW_SINCE_1]
        marks = ", ".join("?" * len(names))
        for row in world.core.shelf.under(kind, ()):
            values = [_as_schema_1(kind, row, name) for name in names]
            db.execute(f"INSERT INTO {kind.name} ({', '.join(names)}) VALUES ({marks})", values)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    db.commit()
    db.close()


def _as_schema_1(kind: Kind, row: Row, name: str) -> Any:
    if kind is RUN and name == "timers" and '"ceiling"' in row.timers:  # type: ignore[union-attr]
        return ""
    if kind is RUN and name == "due_at" and "approval" not in row.waiting_for:  # type: ignore[union-attr]
        return None
    return getattr(row, name)


@pytest.fixture
def old() -> Old:
    order = write(Receiver())

    async def asks(ctx: Context[State]) -> None:
        plan = order.plan("a")
        await ctx.approval(plan, summary="a", by=role("boss"), within=timedelta(hours=96))

    async def listens(ctx: Context[State]) -> None:
        ctx.state.said = [(await ctx.receive("go", Go)).word]

    return Old(one_node(asks, name="asking"), one_node(listens, name="listening"), World())


@pytest.mark.req("RUN-8", "GATE-4", "CKP-1")
def test_schema_1_to_2_with_live_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: Old) -> None:
    """Every row is as it was, the new columns have their first values, and no sleeping run misses its ceiling."""
    lived(old)
    path = tmp_path / "old.db"
    written_by_schema_1(path, old.world, monkeypatch)

    async def read() -> dict[str, Run]:
        store = await open_without_sync(path, writer="new", clock=old.world.time)
        try:
            runs = {str(row[1]): row for row in (await store.page(RUN, "t", {}, limit=50)).rows}
            (approval,) = await store.rows(APPROVAL, ("t", "asks"))
            assert isinstance(approval, Approval) and approval == old.world.approvals("asks")[0]
            for run in runs:
                assert await store.rows(EVENT, ("t", run)) == tuple(old.world.events(run))
            assert await store.next_due((old.asking.lane, old.listening.lane)) == 0
            await commands.signal(store, tenant="t", run="holds", name="go", payload={"word": "x"}, actor="me")
            return {run: row for run, row in runs.items() if isinstance(row, Run)}
        finally:
            await store.close()

    runs = asyncio.run(read())
    assert len(runs) == 4
    for run, row in runs.items():
        before = old.world.run(run)
        assert row == before._replace(crash_count=0, due_at=0, timers=row.timers)


@pytest.mark.req("GATE-4")
@pytest.mark.parametrize("run", ["listens", "sleeps"])
def test_a_run_that_slept_through_the_update_is_flagged_in_time(old: Old, run: str) -> None:
    """Made due, it is looked at once, and gives itself back with its ceiling armed."""
    lived(old)
    world = old.world

    async def live() -> None:
        world.core.shelf.put(RUN, ("t", run), world.run(run)._replace(timers="", due_at=0))
        created = world.run(run).created_at
        world.worker(old.asking, old.listening)
        await world.settle()
        assert (world.run(run).due_at or 0) >= created + 7 * DAY
        await world.nights(old.asking, old.listening, until=created + 7 * DAY)
        assert world.reasons(run) == ["total_timeout"]

    asyncio.run(world.live(live))
