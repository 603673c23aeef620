"""If a COMMIT fails or its answer is lost, the receipt decides, nothing acknowledged is lost, and the store goes on."""

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlast.core.commit import Chain, Commit, Done, Put
from outlast.core.rows.run_rows import EVENT, RUN
from outlast.core.rows.store_rows import STORE, WRITER
from outlast.errors import Rejected, Stale, Unavailable, Uncertain
from outlast.store.sqlite.database import OFF, Database
from tests.conformance.subject import (
    append_message,
    event_row,
    message_row,
    outcome,
    put_run,
    run_row,
    start,
    the_run,
)
from tests.mutants import remove
from tests.store.helpers import opened

BIG = b"x" * 8_000


def failure(name: str) -> sqlite3.OperationalError:
    """Return an error as SQLite raises it."""
    error = sqlite3.OperationalError("injected")
    error.sqlite_errorname = name
    return error


class Scripted(sqlite3.Connection):
    """A connection whose COMMITs and pragmas fail by the test's script."""

    script: list[Callable[["Scripted", str], sqlite3.Cursor | None]] = []  # noqa: RUF012  # each test sets its own

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:  # type: ignore[override]
        if self.script and sql == "COMMIT":
            answer = self.script.pop(0)(self, sql)
            if answer is not None:
                return answer
        return self.plain(sql, *values)

    def plain(self, sql: str, *values: object) -> sqlite3.Cursor:
        return super().execute(sql, *values)  # type: ignore[arg-type]


def lost_after(db: Scripted, sql: str) -> None:
    """Commit, then fail as a disk does."""
    db.plain(sql)
    raise failure("SQLITE_IOERR_FSYNC")


def lost_before(db: Scripted, sql: str) -> None:
    """Fail as a disk does, before the commit."""
    db.plain("ROLLBACK")
    raise failure("SQLITE_IOERR_WRITE")


def full(db: Scripted, sql: str) -> None:
    """Fail because the log cannot grow."""
    raise failure("SQLITE_FULL")


def well(db: Scripted, sql: str) -> None:
    """Do not fail at all, even once."""


def scripted(script: list[Callable[[Scripted, str], None]]) -> Callable[[Path], Database]:
    """Return a database whose commits fail by this script once the store is open."""
    kind = type("Connection", (Scripted,), {"script": [well, *script]})  # the first COMMIT registers the writer

    def make(path: Path) -> Database:
        database = Database(path, synchronous=OFF)
        database.migrate()
        database.connection = kind
        return database

    return make


@pytest.mark.req("CKP-2")
@pytest.mark.parametrize("fault", [lost_after, lost_before, full])
def test_a_lost_commit_is_resolved_by_its_receipt(fault: Callable[[Scripted, str], None], tmp_path: Path) -> None:
    """Refused commits are not there, acknowledged ones are. A message is no compare-and-set, so it counts, too."""

    async def meet() -> None:
        async with opened(tmp_path / "s.db", database=scripted([well, fault])) as store:
            await store.commit(start(run_row()))
            chain = Chain()
            message = store.submit(append_message(message_row()))
            move = store.submit(put_run(run_row(), node="x"), chain=chain)
            answers = await asyncio.gather(outcome(message), outcome(move))
            row = await the_run(store)
            if fault is lost_after:
                assert [getattr(answer, "inbox_seq", None) for answer in answers] == [1, 1]
                assert (row.inbox_seq, row.node, chain.broken) == (1, "x", False)
            else:
                assert all(isinstance(answer, Unavailable) and answer.landed is False for answer in answers), answers
                assert (row, chain.broken) == (run_row(), True)
            await store.commit(put_run(row, node="y"))
            assert (await store.commit(append_message(message_row()))).inbox_seq == row.inbox_seq + 1

    asyncio.run(meet())


def test_a_missing_receipt_proves_nothing(tmp_path: Path) -> None:
    """Without the writer's row the result is unknown: Uncertain, and the chain is broken."""

    def gone(db: Scripted, sql: str) -> None:
        db.plain("DELETE FROM writer")
        db.plain(sql)
        raise failure("SQLITE_IOERR_FSYNC")

    async def meet() -> None:
        async with opened(tmp_path / "s.db", database=scripted([gone])) as store:
            chain = Chain()
            answer = await outcome(store.commit(start(run_row()), chain=chain))
            assert isinstance(answer, Uncertain)
            assert answer.landed is None
            assert chain.broken
            assert isinstance(await outcome(store.commit(start(run_row("run-2")))), Unavailable)

    asyncio.run(meet())


def test_a_log_that_cannot_be_synced_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed sync, a receipt counts only when the log is in the database. Until then it is Uncertain."""

    async def meet() -> None:
        async with opened(tmp_path / "s.db", database=scripted([lost_after])) as store:
            monkeypatch.setattr(store._session, "_copy_whole_log", lambda: False)
            assert isinstance(await outcome(store.commit(start(run_row()))), Uncertain)

    asyncio.run(meet())


def landed_without_a_row(db: Scripted, sql: str) -> None:
    """Commit and delete the writer's row."""
    db.plain("DELETE FROM writer")
    lost_after(db, sql)


def answers_are_true(path: Path, fault: Callable[[Scripted, str], None]) -> bool:
    """Return True if acknowledged commits are there and refused ones are not."""

    async def meet() -> bool:
        async with opened(path, database=scripted([fault])) as store:
            answer = await outcome(store.commit(start(run_row())))
            there = await store.load(RUN, ("acme", "run-1")) is not None
            return isinstance(answer, Uncertain) or there == isinstance(answer, Done)

    return asyncio.run(meet())


@pytest.mark.parametrize("fault", [lost_after, lost_before, full, landed_without_a_row])
def test_every_answer_is_true(fault: Callable[[Scripted, str], None], tmp_path: Path) -> None:
    assert answers_are_true(tmp_path / "s.db", fault)


@pytest.mark.parametrize(
    ("fault", "mutant"),
    [
        (lost_after, "unanswered_commit_assumed_lost"),
        (lost_before, "unanswered_commit_assumed_landed"),
        (landed_without_a_row, "unanswered_commit_assumed_lost"),
    ],
    ids=["sent again without asking", "believed without asking", "a missing row reads as no"],
)
def test_without_the_receipt_an_answer_is_false(
    fault: Callable[[Scripted, str], None], mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variants of model S-9, in the real store, each give a false answer."""
    remove(mutant, monkeypatch)
    assert not answers_are_true(tmp_path / "s.db", fault)


def test_every_transaction_has_its_own_number(tmp_path: Path) -> None:
    """A number shared by two transactions would prove the second by the first. Holds for single commits, too."""
    seen: list[int] = []

    class Noting(Scripted):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:  # type: ignore[override]
            if sql.startswith("UPDATE writer SET batch = ?"):
                seen.append(values[0][0])  # type: ignore[index]
            return self.plain(sql, *values)

    def make(path: Path) -> Database:
        database = Database(path, synchronous=OFF)
        database.migrate()
        refuse_poison(path)
        database.connection = Noting
        return database

    async def meet() -> None:
        async with opened(tmp_path / "s.db", database=make) as store:
            await asyncio.gather(*(outcome(store.submit(start(run_row(name)))) for name in ("a", "poison", "b")))
            await store.commit(start(run_row("c")))
            row = await store.load(WRITER, (STORE, "writer-1"))
            assert row is not None
            assert row[4] == seen[-1]

    asyncio.run(meet())
    assert sorted(set(seen)) == seen
    assert len(seen) >= 3


def refuse_poison(path: Path) -> None:
    """Make the database refuse a statement, which no limit of the store does."""
    db = sqlite3.connect(path)
    db.execute(
        "CREATE TRIGGER poison BEFORE INSERT ON run WHEN NEW.run = 'poison' BEGIN SELECT RAISE(ABORT, 'poison'); END"
    )
    db.commit()
    db.close()


def test_a_statement_that_fails_is_refused_alone(tmp_path: Path) -> None:
    """The batch is rolled back and applied one by one. Only the failing commit and its chain are refused."""

    async def meet() -> None:
        async with opened(tmp_path / "s.db") as store:
            refuse_poison(tmp_path / "s.db")
            chain = Chain()
            futures = [
                store.submit(start(run_row("first")), chain=chain),
                store.submit(start(run_row("poison")), chain=chain),
                store.submit(start(run_row("last")), chain=chain),
                store.submit(start(run_row("other"))),
            ]
            first, poison, last, other = await asyncio.gather(*map(outcome, futures))
            assert isinstance(poison, Rejected)
            assert isinstance(last, Stale)
            assert last.reason == "chain"
            assert first.now.real == other.now.real  # type: ignore[union-attr]
            assert [row[1] for row in await store.rows(RUN, ("acme",))] == ["first", "other"]
            await store.commit(start(run_row("last")))

    asyncio.run(meet())


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], None]]:
    """Mount a file system of 2 MB if this user may, and return a function that enlarges it."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        yield lambda: None
        return
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=32m", str(folder)], check=True) and None
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def limited(path: Path) -> Database:
    """Return a database that cannot grow beyond 1 MB, as on a full disk."""

    class Limited(Database):
        pages = 250

        def connect(self) -> sqlite3.Connection:
            db = super().connect()
            db.execute(f"PRAGMA max_page_count = {self.pages}")
            return db

    return Limited(path, synchronous=OFF)


@pytest.mark.parametrize("how", ["a small disk", "a page limit"])
def test_a_full_disk_loses_nothing(how: str, tmp_path: Path) -> None:
    """Commits raise Unavailable while the disk is full. Acknowledged rows stay, and later commits land."""

    async def fill(free: Callable[[], None], database: Callable[[Path], Database] | None) -> None:
        async with opened(tmp_path / "s.db", database=database) as store:
            await store.commit(start(run_row()))
            acknowledged, refusal = 1, None
            while refusal is None and acknowledged < 1_000:
                row = event_row(seq=acknowledged + 1)._replace(details=BIG)
                answer = await outcome(store.commit(Commit((Put(EVENT, row, 0),))))
                refusal = answer if isinstance(answer, Exception) else None
                acknowledged += refusal is None
            assert isinstance(refusal, Unavailable), refusal
            assert len(await store.rows(EVENT, ("acme", "run-1"))) == acknowledged
            free()
            if database is not None:
                type(store._database).pages = 10_000  # type: ignore[attr-defined]
                store._session.drop()
            await store.commit(Commit((Put(EVENT, event_row(seq=acknowledged + 1), 0),)))
            assert len(await store.rows(EVENT, ("acme", "run-1"))) == acknowledged + 1

    if how == "a page limit":
        asyncio.run(fill(lambda: None, limited))
    else:
        with small_disk(tmp_path) as free:
            real = os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize < 4_000_000
            asyncio.run(fill(free, None if real else limited))
    db = sqlite3.connect(tmp_path / "s.db") if how == "a page limit" else sqlite3.connect(":memory:")
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()
