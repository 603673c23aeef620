"""A store recognizes its file: backups, copies, moves, and files that vanish while open."""

import asyncio
import functools
import os
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from outlast.core.generation import FILE, StoreFile, compare_files, store_file_of
from outlast.core.rows.run_rows import RUN
from outlast.core.rows.store_rows import META
from outlast.errors import Conflict, Rejected, StoreReplaced, StoreUnusable
from outlast.runtime.stores import Use, open_store
from outlast.store.sqlite import backup
from outlast.store.sqlite.store import SqliteStore
from tests.conformance.subject import run_row, start
from tests.mutants import remove

P = ParamSpec("P")
HERE = StoreFile(7, 70, "/data/a.db", "host")


# --- the decision ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (HERE, "same"),
        (HERE._replace(path="/data/b.db"), "renamed"),  # mv, a renamed folder, a bind mount
        (HERE._replace(host="another-container"), "renamed"),
        (HERE._replace(born=0), "renamed"),  # a kernel or a mount that does not tell
        (HERE._replace(inode=0), "renamed"),
        (HERE._replace(inode=8), "copy"),
        (HERE._replace(born=71), "copy"),  # rm, then cp: the inode number is used again
        (HERE._replace(inode=8, path="/data/b.db"), "copy"),
    ],
)
def test_the_name_may_change_but_not_the_file(found: StoreFile, verdict: str) -> None:
    assert compare_files(HERE, found) == verdict


def test_a_backup_is_recognized_at_any_path() -> None:
    assert compare_files(HERE._replace(copied_at=1), HERE) == "backup"
    assert compare_files(None, HERE) == "renamed"
    assert store_file_of(HERE.row(None)) == HERE and store_file_of(None) is None


def live(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in a new event loop."""

    @functools.wraps(test)
    def in_loop(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return in_loop


# --- files --------------------------------------------------------------------------------------------
@asynccontextmanager
async def at(path: Path, use: Use = "write") -> AsyncIterator[SqliteStore]:
    store = await open_store(f"sqlite:{path}", use=use)
    assert isinstance(store, SqliteStore)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """Create a store with one run."""
    path = tmp_path / "outlast.db"

    async def make() -> None:
        async with at(path) as store:
            await store.commit(start(run_row()))

    asyncio.run(make())
    return path


async def opens(path: Path) -> None:
    async with at(path):
        pass


async def refused(path: Path) -> StoreUnusable:
    with pytest.raises(StoreUnusable) as caught:
        await opens(path)
    async with at(path, "read") as store:
        assert await store.rows(RUN, ()), "a command that reads works on it"
        with pytest.raises(Rejected, match="opened for reading"):
            await store.commit(start(run_row("run-2")))
    return caught.value


@pytest.mark.req("EFF-2")
@live
async def test_a_copy_served_beside_the_first_is_refused(original: Path) -> None:
    copy = original.with_name("copy.db")
    shutil.copy2(original, copy)
    error = await refused(copy)
    assert (error.refusal, error.why.count(f"{original}")) == ("copy", 1)
    assert "recover --after-restore" in error.fix and "--moved" in error.fix
    await opens(original)


@pytest.mark.req("EFF-2")
@live
async def test_a_copy_put_back_under_the_old_name_is_refused(original: Path) -> None:
    """ext4 gives the restored file the inode number of the deleted one."""
    copy = original.with_name("copy.db")
    shutil.copy(original, copy)
    os.unlink(original)
    shutil.copy(copy, original)
    assert (await refused(original)).refusal == "copy"
    os.replace(copy, original)  # a new file under the old name, at once
    assert (await refused(original)).refusal == "copy"


@live
async def test_a_move_or_a_rename_is_not_refused(original: Path, tmp_path: Path) -> None:
    os.rename(original, tmp_path / "renamed.db")
    await opens(tmp_path / "renamed.db")
    os.mkdir(tmp_path / "folder")
    os.rename(tmp_path / "renamed.db", tmp_path / "folder" / "outlast.db")
    os.rename(tmp_path / "folder", tmp_path / "renamed folder")
    inside = tmp_path / "renamed folder" / "outlast.db"
    await opens(inside)
    os.symlink(inside, tmp_path / "link.db")
    await opens(tmp_path / "link.db")
    async with at(tmp_path / "link.db") as store:
        named = store_file_of(await store.load(META, FILE))
        assert named is not None and named.path == f"{inside}"
    assert sorted(os.listdir(tmp_path)) == ["link.db", "outlast.db.lock", "renamed folder", "renamed.db.lock"]


@live
async def test_a_recreated_container_is_not_refused(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host name each time, the same file on the volume."""
    for name in ("web-1", "web-2"):
        monkeypatch.setattr("socket.gethostname", lambda name=name: name)
        async with at(original) as store:
            named = store_file_of(await store.load(META, FILE))
            assert named is not None and named.host == name


@live
async def test_a_store_without_identity_gets_one_when_opened(original: Path) -> None:
    db = sqlite3.connect(original)
    db.execute("DELETE FROM meta WHERE key = 'file'")
    db.commit()
    db.close()
    await opens(original)
    shutil.copy(original, original.with_name("copy.db"))
    await refused(original.with_name("copy.db"))


@pytest.mark.req("EFF-2")
@live
async def test_a_backup_is_marked_and_a_recovery_makes_it_a_store(original: Path) -> None:
    copy = original.with_name("copy.db")
    backup.keep(backup.copy(original, copy, 1), copy)
    async with at(copy, "read") as store:
        assert await store.rows(RUN, ())
    there = [name for name in os.listdir(original.parent) if name.startswith("copy")]
    assert there == ["copy.db"], "reading leaves nothing beside it"
    error = await refused(copy)
    assert error.refusal == "backup" and error.fix.startswith(f"outlast --store sqlite:{copy} recover --after-restore")
    shutil.copy(copy, original.with_name("again.db"))
    assert (await refused(original.with_name("again.db"))).refusal == "backup"
    async with at(copy, "recover") as store:
        with pytest.raises(StoreUnusable, match="is a backup"):
            await store.adopt_file(moved=True)
        await refused(copy)  # a recovery that is cut off changes nothing of this
        await store.adopt_file()
    await opens(copy)
    await opens(original)


@live
async def test_a_store_moved_between_disks_can_be_adopted_but_not_a_copy(original: Path) -> None:
    copy = original.with_name("copy.db")
    shutil.copy(original, copy)
    async with at(copy, "recover") as store:
        with pytest.raises(Conflict, match="was not moved"):
            await store.adopt_file(moved=True)
        os.unlink(original)
        await store.adopt_file(moved=True)
    await opens(copy)


# --- files that go while they are open ------------------------------------------------------------------
async def gone(store: SqliteStore, says: str) -> StoreReplaced:
    """Assert that no commit is acknowledged after a second."""
    error = store.lost()
    assert error is not None and says in error.what, error
    with pytest.raises(StoreReplaced):
        await store.commit(start(run_row("run-9")))
    return error


@pytest.mark.req("RUN-3")
@live
async def test_nothing_is_acknowledged_into_a_file_that_was_deleted(original: Path) -> None:
    async with at(original) as store:
        assert store.lost() is None
        os.unlink(original)
        await gone(store, f"{original} was deleted")


@pytest.mark.req("RUN-3")
@live
async def test_nothing_is_acknowledged_into_a_file_that_was_replaced(original: Path) -> None:
    """The log of the present file is untouched, although SQLite deletes a log by its name."""
    other = original.with_name("other.db")
    shutil.copy(original, other)
    async with at(original) as store:
        await store.load(META, FILE)
        os.replace(other, original)
        log = original.with_name("outlast.db-wal")
        os.unlink(log)
        log.write_bytes(b"of another process")
        await gone(store, f"{original} was replaced")
    assert log.read_bytes() == b"of another process"


@pytest.mark.req("RUN-3", "CKP-1")
@pytest.mark.parametrize("ends", [("-wal",), ("-wal", "-shm")])
@live
async def test_a_log_that_was_deleted_is_noticed_and_its_commits_are_saved(original: Path, ends: tuple[str]) -> None:
    async with at(original) as store:
        await store.commit(start(run_row("run-2")))
        for end in ends:
            os.unlink(f"{original}{end}")
        store._thread._check_at = 0  # a second has passed
        with pytest.raises(StoreReplaced, match="-wal was deleted"):
            await store.commit(start(run_row("run-3")))
    async with at(original) as store:
        assert [row[1] for row in await store.rows(RUN, ())] == ["run-1", "run-2"]


@pytest.mark.req("RUN-3")
@live
async def test_the_writer_checks_the_file_each_second(original: Path) -> None:
    """A commit later than a second after the deletion is refused without any call to `lost`."""
    async with at(original) as store:
        await store.commit(start(run_row("run-2")))
        os.unlink(original)
        deadline = time.monotonic() + 30
        n = 2
        while await landed(store, f"run-{(n := n + 1)}"):
            assert time.monotonic() < deadline, "it goes on acknowledging"
            await asyncio.sleep(0.01)  # so that it is a busy writer, which would lay out its log


async def landed(store: SqliteStore, run: str) -> bool:
    try:
        await store.commit(start(run_row(run)))
    except StoreReplaced:
        return False
    return True  # a writer that has died would answer nothing


@pytest.mark.req("EFF-2")
@live
async def test_a_store_that_was_deleted_is_not_created_again(original: Path, tmp_path: Path) -> None:
    """A supervisor starts its workers again as soon as they stop; it would start them on an empty store."""
    await opens(original)
    os.symlink(original, tmp_path / "link.db")
    kept = original.with_name("kept.db")
    os.rename(original, kept)
    for name in (original, tmp_path / "link.db"):
        with pytest.raises(StoreUnusable, match="was deleted or moved") as error:
            await open_store(f"sqlite:{name}")
        assert original.name not in os.listdir(tmp_path), "nothing was created"
    os.rename(kept, original)
    await opens(original)
    os.unlink(original)
    lock = f"{original}.lock"
    assert error.value.fix.endswith(f"for an empty store: rm {lock}")
    with pytest.raises(StoreUnusable, match="was deleted or moved"):
        await open_store(f"sqlite:{original}", use="read")
    os.unlink(lock)
    await opens(original)


@pytest.mark.req("EFF-2")
@live
@pytest.mark.parametrize("use", ["write", "read"])
@pytest.mark.parametrize("content", ["bytes", "tables"], ids=["no_bytes", "no_tables"])
async def test_a_store_that_was_emptied_is_not_made_anew(original: Path, use: Any, content: Any) -> None:
    """An empty file in the place of the store, or a database without tables, knows none of its runs either."""
    await opens(original)
    emptied(original, tables=content == "tables")
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="was emptied"):
            await open_store(f"sqlite:{original}", use=use)
    os.unlink(f"{original}.lock")
    await opens(original)


@live
async def test_without_the_mark_an_emptied_store_is_made_anew(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await opens(original)
    emptied(original, tables=False)
    remove("emptied_stores_made_anew", monkeypatch)
    await opens(original)


@live
async def test_a_start_that_ended_before_the_first_table_is_repeated(original: Path) -> None:
    """A process that is killed in its first second leaves an empty file and an empty lock file."""
    emptied(original, tables=False)
    original.with_name(f"{original.name}.lock").write_bytes(b"")
    await opens(original)


def emptied(path: Path, *, tables: bool) -> None:
    """Put an empty file in the place of a store, or a database without tables."""
    for end in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
    path.touch()
    if tables:
        db = sqlite3.connect(path)
        db.execute("PRAGMA journal_mode = WAL")
        db.close()
