"""A store with live runs goes on after a migration. The next schema is synthetic, since there is only one so far."""

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.core.rows.run_rows import EVENT, RUN, Run
from outlast.engine import commands
from outlast.errors import StoreUnusable
from outlast.flow import Context, Workflow, role
from outlast.store.migrations import MIGRATIONS, NEWEST, SCHEMA, newer, unreleased
from outlast.store.queries import NextDue
from outlast.store.sqlite import database
from outlast.store.sqlite.database import OFF, Database
from outlast.store.sqlite.store import open_without_sync
from tests.engine.world import Go, Receiver, State, World, one_node, write

NEXT: Final = (
    "ALTER TABLE run ADD COLUMN synthetic {integer} NOT NULL DEFAULT 7",
    "CREATE TABLE synthetic (tenant TEXT NOT NULL, body {blob} NOT NULL, PRIMARY KEY (tenant)){clustered}",
    "CREATE INDEX synthetic_run ON run (synthetic, tenant, run)",
    "UPDATE run SET due_at = 0 WHERE owner = '' AND ceiling_at > 0",
)
DAY = 24 * 3_600_000


class Lived(NamedTuple):
    """A world in which runs of two workflows wait."""

    asking: Workflow[State]
    listening: Workflow[State]
    world: World


@pytest.fixture
def lived() -> Lived:
    """Start an approval, a wait without end, a run that holds the only slot, and one that waits for it."""
    order = write(Receiver())

    async def asks(ctx: Context[State]) -> None:
        plan = order.plan("a")
        await ctx.approval(plan, summary="a", by=role("boss"), within=timedelta(hours=96))

    async def listens(ctx: Context[State]) -> None:
        ctx.state.said = [(await ctx.receive("go", Go)).word]

    found = Lived(one_node(asks, name="asking"), one_node(listens, name="listening"), World())
    world = found.world

    async def live() -> None:
        world.worker(found.asking, found.listening)
        await world.start(found.asking, "asks")
        await world.start(found.listening, "listens")
        world.add_slots("t", 1)
        await world.start(found.listening, "holds")
        await world.start(found.listening, "sleeps")
        await world.off_duty()
        assert [world.status(r) for r in ("asks", "listens", "holds", "sleeps")] == ["waiting"] * 3 + ["queued"]

    asyncio.run(world.live(live))
    return found


def write_rows(path: Path, world: World) -> None:
    """Write the rows of a world into a file of the present schema."""
    Database(path, synchronous=OFF).migrate()
    db = sqlite3.connect(path)
    for kind in KINDS:
        names = kind.columns
        insert = f"INSERT INTO {kind.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        db.executemany(insert, world.core.rows.under(kind, ()))
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
    db.commit()
    db.close()


def add_next_schema(patch: pytest.MonkeyPatch) -> None:
    """Make this process one of the next version."""
    patch.setattr(database, "MIGRATIONS", (*MIGRATIONS, NEXT))
    patch.setattr(database, "SCHEMA", SCHEMA + 1)


@pytest.mark.req("RUN-8", "GATE-4", "CKP-1")
def test_live_runs_go_on_under_the_next_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lived: Lived) -> None:
    """Every row is as before, apart from the changes of the migration. The store takes new work."""
    path = tmp_path / "old.db"
    write_rows(path, lived.world)
    add_next_schema(monkeypatch)

    async def read() -> dict[str, Run]:
        store = await open_without_sync(path, writer="new", clock=lived.world.time)
        try:
            runs = {str(row[1]): row for row in (await store.page(RUN, "t", {}, limit=50)).rows}
            (approval,) = await store.rows(APPROVAL, ("t", "asks"))
            assert isinstance(approval, Approval) and approval == lived.world.approvals("asks")[0]
            for run in runs:
                assert await store.rows(EVENT, ("t", run)) == tuple(lived.world.events(run))
            assert await store.query(NextDue((lived.asking.lane, lived.listening.lane))) == 0
            await commands.signal(store, tenant="t", run="holds", name="go", payload={"word": "x"}, actor="me")
            return {run: row for run, row in runs.items() if isinstance(row, Run)}
        finally:
            await store.close()

    runs = asyncio.run(read())
    assert len(runs) == 4
    for run, row in runs.items():
        assert row == lived.world.run(run)._replace(due_at=0)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA + 1,)
    assert db.execute("SELECT DISTINCT synthetic FROM run").fetchall() == [(7,)]
    db.close()


def test_a_store_of_the_next_schema_is_refused_by_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lived: Lived
) -> None:
    path = tmp_path / "new.db"
    with monkeypatch.context() as patch:
        add_next_schema(patch)
        Database(path, synchronous=OFF).migrate()
    with pytest.raises(StoreUnusable, match="newer version"):
        asyncio.run(open_without_sync(path, writer="old", clock=lived.world.time))


def test_a_migration_that_fails_leaves_the_schema_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lived: Lived
) -> None:
    path = tmp_path / "s.db"
    write_rows(path, lived.world)
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", (*MIGRATIONS, (*NEXT, "NO SQL AT ALL")))
        patch.setattr(database, "SCHEMA", SCHEMA + 1)
        with pytest.raises(StoreUnusable):
            Database(path, synchronous=OFF).migrate()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
    assert "synthetic" not in [column[1] for column in db.execute("PRAGMA table_info(run)")]
    db.close()


@pytest.mark.req("GATE-4")
@pytest.mark.parametrize("run", ["listens", "sleeps"])
def test_a_run_made_due_without_a_timer_is_flagged_in_time(lived: Lived, run: str) -> None:
    """A migration made it due: its next holder finds nothing new and arms the timer of its ceiling."""
    world = lived.world

    async def live() -> None:
        world.core.rows.put(RUN, ("t", run), world.run(run)._replace(timers_text="", due_at=0))
        created = world.run(run).created_at
        world.worker(lived.asking, lived.listening)
        await world.settle()
        assert (world.run(run).due_at or 0) >= created + 7 * DAY
        await world.nights(lived.asking, lived.listening, until=created + 7 * DAY)
        assert world.reasons(run) == ["total_timeout"]

    asyncio.run(world.live(live))


def test_a_store_of_before_the_first_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    Database(path, synchronous=OFF).migrate()
    db = sqlite3.connect(path)
    db.execute(f"ALTER TABLE {NEWEST[0]} RENAME COLUMN {NEWEST[1]} TO old")
    db.commit()
    db.close()
    with pytest.raises(StoreUnusable, match="before the first release: its version is not recorded"):
        Database(path, synchronous=OFF).migrate()


WORKER_ROW = "INSERT INTO worker VALUES ('*', ?, 1, 'closed', 0, '[]', '', ?, 0, ?, 0)"


def test_the_refusal_names_the_version_that_wrote_a_store(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    Database(path, synchronous=OFF).migrate()
    db = sqlite3.connect(path)
    db.execute(WORKER_ROW, ("w1", 1_000, '{"version": "0.0.8"}'))
    db.execute(WORKER_ROW, ("w2", 1_790_000_000_000, '{"version": "0.0.9"}'))
    db.execute("PRAGMA user_version = 99")
    db.commit()
    with pytest.raises(StoreUnusable, match="newer version") as error:
        Database(path, synchronous=OFF).migrate()
    assert error.value.fix == "update Outlast to 0.0.9 or later" and "2026-09-21" in error.value.why
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.execute(f"ALTER TABLE {NEWEST[0]} RENAME COLUMN {NEWEST[1]} TO old")
    db.commit()
    with pytest.raises(StoreUnusable, match=r"release: Outlast 0\.0\.9, as of 2026-09-21T\S+Z") as error:
        Database(path, synchronous=OFF).migrate()
    assert "git rev-list -1 --before=2026-09-21T" in error.value.fix
    db.execute("ALTER TABLE worker RENAME COLUMN health TO facts")
    db.commit()
    db.close()
    with pytest.raises(StoreUnusable, match="its version is not recorded"):
        Database(path, synchronous=OFF).migrate()


@pytest.mark.parametrize("row", [(10**30, ""), ("x", "{}"), (0, "{"), (0, "[]"), (None, None)])
def test_rows_of_another_version_that_cannot_be_read_change_no_message(row: tuple[Any, Any]) -> None:
    for error in (unreleased("s", row), newer("s", 99, row)):
        assert isinstance(error, StoreUnusable)
    assert (
        unreleased("s", row).what.endswith("its version is not recorded")
        and newer("s", 99, row).fix == "update Outlast"
    )
