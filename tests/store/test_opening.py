"""Opening a SQLite store: durable settings, or a refusal in one clear sentence that leaves the file untouched."""

import asyncio
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.run_rows import RUN
from outlast.errors import StoreUnusable, Unavailable
from outlast.store.migrations import MIGRATIONS, SCHEMA
from outlast.store.sqlite.database import FULL, Database
from outlast.store.sqlite.store import open_sqlite
from tests.conformance.subject import HandClock, run_row, start, the_run
from tests.store.helpers import in_child, opened

NOBODY = 65_534


def refusal(path: Path) -> StoreUnusable:
    """Return the error of opening a store at this path."""
    with pytest.raises(StoreUnusable) as caught:
        asyncio.run(open_sqlite(path, writer="writer-1", clock=HandClock()))
    assert caught.value.what.count("\n") == 0
    assert caught.value.fix, "an error says what to do"
    return caught.value


class Lax(sqlite3.Connection):
    """A build of SQLite whose default loses acknowledged commits in a power cut."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        super().execute("PRAGMA synchronous = NORMAL")


class Stubborn(Lax):
    """A build of SQLite whose default cannot be changed."""

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:  # type: ignore[override]
        return super().execute("SELECT 1" if sql.startswith("PRAGMA synchronous =") else sql, *values)  # type: ignore[arg-type]


def test_full_is_set_and_read_back(tmp_path: Path) -> None:
    """NORMAL lost acknowledged commits in 216 of 309 simulated power cuts, so the store always sets FULL."""

    async def look() -> dict[str, str | int]:
        store = await open_sqlite(tmp_path / "s.db", writer="writer-1", clock=HandClock())
        facts = store.facts()
        assert store._session.db.execute("PRAGMA synchronous").fetchone()[0] == FULL
        await store.close()
        return facts

    facts = asyncio.run(look())
    assert (facts["synchronous"], facts["journal_mode"]) == ("full", "wal")
    database = Database(tmp_path / "s.db")
    database.connection = Lax
    assert database.writer().execute("PRAGMA synchronous").fetchone()[0] == FULL
    database.connection = Stubborn
    with pytest.raises(StoreUnusable, match="does not make commits durable"):
        database.writer()


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    """A store holds business data. No other user may read it, whatever the umask."""
    old = os.umask(0)
    try:

        async def look() -> dict[str, int]:
            async with opened(tmp_path / "s.db") as store:
                await store.commit(start(run_row()))
                return modes()

        def modes() -> dict[str, int]:
            return {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}

        found = asyncio.run(look())
        assert set(found) == {"s.db", "s.db-wal", "s.db-shm", "s.db.lock"}
        assert set(found.values()) == {0o600}
    finally:
        os.umask(old)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nowhere" / "s.db")
    assert "does not exist" in error.what
    assert error.fix.startswith("mkdir -p")
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path).what


@pytest.mark.parametrize("content", [b"not a database, but long enough to look at it", b"x" * 5000])
def test_a_file_that_is_no_database_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(content)
    assert "is not a SQLite database" in refusal(path).what
    assert path.read_bytes() == content and os.listdir(tmp_path) == ["s.db"]


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE customers (id)")
    other.commit()
    other.close()
    content = path.read_bytes()
    assert "belongs to another program" in refusal(path).what
    assert path.read_bytes() == content, "its journal mode was changed"
    assert os.listdir(tmp_path) == ["s.db"], "a lock file would say that a store was deleted here"
    path.unlink()

    async def make() -> None:
        async with opened(path):
            pass

    asyncio.run(make())


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    async def make() -> None:
        async with opened(tmp_path / "s.db"):
            pass

    asyncio.run(make())
    db = sqlite3.connect(tmp_path / "s.db")
    db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    db.close()
    error = refusal(tmp_path / "s.db")
    assert "newer version of Outlast" in error.what
    assert error.fix == "update Outlast"


def as_nobody(path: Path, expected: str) -> None:
    """Open as a user without rights, because nothing is read only for root."""
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    error = refusal(path)
    assert expected in f"{error}", error


def test_a_read_only_file_or_folder_is_refused(tmp_path: Path) -> None:
    async def make() -> None:
        async with opened(tmp_path / "s.db") as store:
            await store.commit(start(run_row()))

    asyncio.run(make())
    for path in tmp_path.iterdir():
        path.chmod(0o444)
    for path in tmp_path.parents:  # pytest's own are for their owner only
        if path.stat().st_uid == os.getuid() and path.stat().st_mode & 0o005 != 0o005:
            path.chmod(0o755)
    tmp_path.chmod(0o777)
    try:
        assert in_child(lambda: as_nobody(tmp_path / "s.db", "the file is read only")) == 0
        tmp_path.chmod(0o555)
        assert in_child(lambda: as_nobody(tmp_path / "s.db", "the folder is read only")) == 0
    finally:
        tmp_path.chmod(0o755)


def test_a_file_locked_by_another_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening fails with its sentence and a commit with Unavailable. Both work after the lock is released."""
    monkeypatch.setattr("outlast.store.sqlite.database.BUSY_MS", 20)

    async def meet() -> None:
        async with opened(tmp_path / "s.db") as store:
            tool = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
            tool.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable) as caught:
                await store.commit(start(run_row()))
            assert caught.value.landed is False
            with pytest.raises(StoreUnusable, match="locked by another program"):
                await open_sqlite(tmp_path / "s.db", writer="writer-2", clock=HandClock())
            tool.execute("ROLLBACK")
            tool.close()
            await store.commit(start(run_row()))
            assert await the_run(store) == run_row()

    asyncio.run(meet())


def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    """SQLite's locks do not pass to a child. The child gets an error, and the parent continues."""

    async def meet() -> None:
        async with opened(tmp_path / "s.db") as store:
            await store.commit(start(run_row()))

            async def child() -> None:
                for call in (store.commit(start(run_row("run-2"))), store.load(RUN, ("acme", "run-1"))):
                    with pytest.raises(Unavailable, match="forked"):
                        await call

            assert in_child(lambda: asyncio.run(child())) == 0
            await store.commit(start(run_row("run-2")))

    asyncio.run(meet())


def test_two_processes_may_create_the_file_at_once(tmp_path: Path) -> None:
    async def make() -> None:
        names = [f"writer-{i}" for i in range(6)]
        stores = await asyncio.gather(
            *(open_sqlite(tmp_path / "s.db", writer=name, clock=HandClock()) for name in names)
        )
        for store in stores:
            await store.close()

    asyncio.run(make())


def test_the_migrations_create_the_columns_of_the_rows(tmp_path: Path) -> None:
    """All migrations together create exactly the columns and keys of the rows."""
    assert len(MIGRATIONS) == SCHEMA
    database = Database(tmp_path / "s.db")
    database.migrate()
    db = database.connect()
    for kind in KINDS:
        columns = db.execute(f"PRAGMA table_info({kind.name})").fetchall()
        assert tuple(column[1] for column in columns) == kind.columns, kind.name
        key = sorted((column[5], column[1]) for column in columns if column[5])
        assert tuple(name for _, name in key) == kind.columns[: kind.key], kind.name
        nullable = {column[1] for column in columns if not column[3]}
        assert nullable == {name for name, hint in kind.row.__annotations__.items() if "None" in str(hint)}, kind.name
    db.close()


def test_an_old_sqlite_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path / "s.db")
    database.migrate()
    db = database.writer()
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    assert "3.51.3" in str(database.facts(db)["sqlite_advice"])
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 3))
    assert database.facts(db)["sqlite_advice"] == ""
    db.close()
