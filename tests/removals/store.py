"""Safeguards of the stores: the judge of batches, the sessions of SQLite and its writer."""

import time
from collections.abc import Sequence
from typing import Any

from outlast.core.commit import AppendMessage, Chain, Commit, Done, Fence, Put, Wake
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import MESSAGE, RUN, Run
from outlast.core.rows.store_rows import META
from outlast.errors import StoreError, Unavailable
from outlast.store import batch, bounds, sql
from outlast.store.batch import Batch, CommitChanges, RowChange
from outlast.store.port import Store
from outlast.store.queries import LoadMany, Newest, Select, Under
from outlast.store.sqlite.row_cache import RowCache
from outlast.store.sqlite.session import SqliteSession
from outlast.store.sqlite.write_lock import WriteLock
from outlast.store.sqlite.writer import WriterThread
from outlast.store.store_clock import MAPPING_ROW, StoreClock, mapping_of
from outlast.store.threads import WakeSubscribers
from outlast.store.tickets import Ticket, deliver
from tests.removals import Patch, replace


# --- reads of lists ---------------------------------------------------------------------------
def lists_read_strictly(patch: Patch) -> None:
    async def load_many(self: Store, kind: Any, keys: Any, *, listed: bool = False) -> Any:
        return await self.query(LoadMany(kind, tuple(keys)))

    async def rows(self: Store, kind: Any, prefix: Any, *, listed: bool = False, **more: Any) -> Any:
        return await self.query(Under(kind, prefix, **more))

    replace(patch, Store.load_many, load_many)
    replace(patch, Store.rows, rows)


def emptied_stores_made_anew(patch: Patch) -> None:
    patch.setattr(WriteLock, "has_mark", property(lambda self: False))


# --- S-1 ------------------------------------------------------------------------------------
def append_spends_version(patch: Patch) -> None:
    def post(self: Batch, write: AppendMessage, mine: CommitChanges, fence: object) -> None:
        run, stored = self._existing_run(write.message[:2], mine)
        after = run._replace(inbox_seq=run.inbox_seq + 1, version=run.version + 1)
        mine[MESSAGE.name, (*write.message[:2], after.inbox_seq)] = RowChange(
            MESSAGE, write.message._replace(n=after.inbox_seq), 0
        )
        mine[RUN.name, write.message[:2]] = RowChange(RUN, after, stored)

    replace(patch, Batch._append_message, post)


def append_wakes_owned_run(patch: Patch) -> None:
    replace(patch, Batch._due_by_now, lambda self, run: self.now.real)


def append_keeps_due_at(patch: Patch) -> None:
    replace(patch, Batch._due_by_now, lambda self, run: run.due_at)


def ended_run_accepts_messages(patch: Patch) -> None:
    patch.setattr(batch, "ENDED", "nobody")


def holder_overwrites_inbox_seq(patch: Patch) -> None:
    def put_run(self: Batch, write: Put, mine: CommitChanges) -> None:
        found, stored = self._found(RUN, write.row[:2], mine)  # type: ignore[arg-type]
        if (found.version if isinstance(found, Run) else 0) != write.replaces:
            raise batch.Stale(batch.VERSION)
        mine[RUN.name, write.row[:2]] = RowChange(RUN, write.row, stored)  # type: ignore[index]

    replace(patch, Batch._put_run, put_run)


# --- S-2, S-8 -------------------------------------------------------------------------------
def fence_without_epoch(patch: Patch) -> None:
    fence = Batch._fence

    def blind(self: Batch, f: Fence) -> Run:
        run = self.row(RUN, (f.tenant, f.run))
        return fence(self, f._replace(epoch=run.epoch) if isinstance(run, Run) else f)

    replace(patch, Batch._fence, blind)


def fence_without_visit(patch: Patch) -> None:
    fence = Batch._fence

    def blind(self: Batch, f: Fence) -> Run:
        run = self.row(RUN, (f.tenant, f.run))
        return fence(self, f._replace(visit=run.visit) if isinstance(run, Run) else f)

    replace(patch, Batch._fence, blind)


def versions_not_compared(patch: Patch) -> None:
    def put(self: Batch, write: Put, mine: CommitChanges) -> None:
        key = key_of(write.kind, write.row)
        _, stored = self._found(write.kind, key, mine)
        mine[write.kind.name, key] = RowChange(write.kind, write.row, stored)

    replace(patch, Batch._put, put)
    replace(patch, Batch._put_run, put)


def expectations_not_judged(patch: Patch) -> None:
    land = Batch._land
    replace(patch, Batch._land, lambda self, commit: land(self, commit._replace(expects=())))


def time_conditions_not_judged(patch: Patch) -> None:
    replace(patch, Batch._when, lambda self, when: None)


# --- S-4 ------------------------------------------------------------------------------------
def wall_clock_time(patch: Patch) -> None:
    replace(patch, StoreClock.real, lambda self: self._clock.wall())


def mapping_not_shared(patch: Patch) -> None:
    def look(self: SqliteSession) -> bool:
        self._cache.clear()
        if self._seen == -1:
            self.mapping = mapping_of(self.read(META, MAPPING_ROW))
        self._seen = 1
        return False

    replace(patch, SqliteSession.see_writes, look)


# --- S-7 ------------------------------------------------------------------------------------
def chains_ignored(patch: Patch) -> None:
    replace(patch, Batch.land, lambda self, commit, chain=None: self._land(commit))


def chain_heals_in_next_batch(patch: Patch) -> None:
    land = Batch.land

    def forgetful(self: Batch, commit: Commit, chain: Chain | None = None) -> Done:
        if chain is not None:
            chain.broken = False
        return land(self, commit, chain)

    replace(patch, Batch.land, forgetful)


def refused_commit_half_lands(patch: Patch) -> None:
    def eager(self: Batch, commit: Commit) -> Done:
        for write in commit.writes:
            mine: CommitChanges = {}
            if isinstance(write, Put):
                (self._put_run if write.kind is RUN else self._put)(write, mine)
            elif isinstance(write, Wake):
                self._wake(write, mine)
            else:
                self._append_message(write, mine, commit.fence)
            for (name, key), left in mine.items():
                self.changes[name][key] = left
        return Done(0, self.now)

    replace(patch, Batch._land, eager)


def batch_reads_stored_rows(patch: Patch) -> None:
    replace(patch, Batch.row, lambda self, kind, key: self._read(kind, key))
    replace(
        patch, Batch._found,
        lambda self, kind, key, mine: (row := self._read(kind, key), 0 if row is None else batch.version_of(kind, row)),
    )  # fmt: skip


def versions_not_checked_in_sql(patch: Patch) -> None:
    for name, statements in sql.SQL.items():
        loose = statements.update.replace(" AND version = ?", " AND ? > 0")
        more = statements.insert.replace("INSERT", "INSERT OR REPLACE")
        patch.setitem(sql.SQL, name, statements._replace(update=loose, insert=more))


def row_cache_never_cleared(patch: Patch) -> None:
    replace(patch, RowCache.clear, lambda self: None)


def outdated_runs_believed(patch: Patch) -> None:
    replace(patch, SqliteSession._unchanged, lambda self, key: self._cache.outdated(key))


def outdated_runs_compared_without_inbox(patch: Patch) -> None:
    patch.setattr(sql, "CHANGING", "SELECT version FROM run WHERE tenant = ? AND run = ?")
    patch.setattr(sql, "changing", lambda run: (run.version,))


# --- S-5, S-9 -------------------------------------------------------------------------------
def closed_writer_commits(patch: Patch) -> None:
    def receipt(self: SqliteSession, labels: Sequence[str]) -> None:
        self._batches += 1
        self.db.execute("UPDATE writer SET batch = ? WHERE id = ?", (self._batches, self._writer))
        self.db.execute("COMMIT")

    replace(patch, SqliteSession._land_receipt, receipt)


def subscribers_not_woken(patch: Patch) -> None:
    replace(patch, WakeSubscribers.fire, lambda self: None)


def queue_dropped_on_close(patch: Patch) -> None:
    land = WriterThread._land

    def unless_closing(self: WriterThread, tickets: list[Ticket]) -> None:
        time.sleep(0.02)  # a slow disk, so that the store is being closed by now
        if not self._closing.is_set():
            land(self, tickets)
            return
        self._give_up(tickets, StoreError("dropped"))
        deliver(tickets)

    replace(patch, WriterThread._land, unless_closing)


def bounds_not_checked(patch: Patch) -> None:
    replace(patch, bounds.check, lambda commit: None)


def purge_takes_running_runs(patch: Patch) -> None:
    loose = "SELECT tenant, run FROM run WHERE ? > 0 AND ? > 0 LIMIT ?"
    patch.setattr(sql, "OVER", loose)


def purge_takes_runs_of_living_trees(patch: Patch) -> None:
    patch.setattr(sql, "OVER", sql.OVER.replace("c.ended_at = 0", "c.ended_at < 0"))


def purge_takes_a_root_first(patch: Patch) -> None:
    patch.setattr(sql, "BELOW", sql.BELOW.replace("root <> ''", "root = ''"))


def tenants_not_separated(patch: Patch) -> None:
    def statements(self: Newest[Any]) -> list[Select]:
        text = f"SELECT {sql.SQL[self.kind.name].columns} FROM {self.kind.name} WHERE ? <> ''"
        columns = "".join(f" AND {name} = ?" for name, _ in self.where)
        return [Select(f"{text}{columns} LIMIT ?", (self.tenant, *(value for _, value in self.where), self.limit + 1))]

    replace(patch, Newest.statements, statements)


# --- a COMMIT whose answer was lost (S-9) -------------------------------------------------------
def unanswered_commit_assumed_lost(patch: Patch) -> None:
    _resolve_as(patch, Unavailable("no"))


def unanswered_commit_assumed_landed(patch: Patch) -> None:
    _resolve_as(patch, None)


def _resolve_as(patch: Patch, verdict: Exception | None) -> None:
    """Decide about a COMMIT without reading the writer's receipt."""

    def resolve(self: SqliteSession, number: int, error: Any) -> None:
        self.drop()
        if verdict is not None:
            raise verdict

    replace(patch, SqliteSession._resolve, resolve)
