"""Each safeguard of the store is removed once, and a promise of the exam is seen to break: a suite that finds nothing
proves nothing. The variants are the broken ones of the models S-1, S-2, S-7 and S-9, as traces through real stores."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from outlast.core.commit import AppendMessage, Chain, Commit, Done, Fence, Put, Wake
from outlast.core.rows import MESSAGE, META, RUN, Run, key_of
from outlast.errors import StoreError
from outlast.store import batch, sql
from outlast.store.batch import Batch, Mine, _Left
from outlast.store.clock import MAPPING_ROW, StoreClock, mapping_of
from outlast.store.session import RowCache, SqliteSession
from outlast.store.tickets import Ticket, deliver
from outlast.store.writer import WriterThread
from tests.conformance import PROMISES, Promise
from tests.conformance.test_stores import Memory, Sqlite, Subjects

Mutant = Callable[[pytest.MonkeyPatch], None]
BY_NAME = {promise.__name__: promise for promise in PROMISES}
BOTH: tuple[Callable[[Path], Subjects], ...] = (Memory, Sqlite)
FILE: tuple[Callable[[Path], Subjects], ...] = (Sqlite,)


# --- S-1 ------------------------------------------------------------------------------------
def post_spends_a_version(patch: pytest.MonkeyPatch) -> None:
    def post(self: Batch, write: AppendMessage, mine: Mine) -> None:
        run, stored = self._living(write.message[:2], mine)
        after = run._replace(inbox_seq=run.inbox_seq + 1, version=run.version + 1)
        mine[MESSAGE.name, (*write.message[:2], after.inbox_seq)] = _Left(
            MESSAGE, write.message._replace(n=after.inbox_seq), 0
        )
        mine[RUN.name, write.message[:2]] = _Left(RUN, after, stored)

    patch.setattr(Batch, "_post", post)


def post_makes_an_owned_run_due(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batch, "_due_by_now", lambda self, run: self.now.real)


def post_leaves_due_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batch, "_due_by_now", lambda self, run: run.due_at)


def nothing_names_the_mail(patch: pytest.MonkeyPatch) -> None:
    fence = Batch._fence
    patch.setattr(Batch, "_fence", lambda self, f: fence(self, f._replace(inbox_seq=None)))


def an_ended_run_takes_notes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch, "ENDED", "nobody")


def a_holder_writes_the_mail_it_read(patch: pytest.MonkeyPatch) -> None:
    def put_run(self: Batch, write: Put, mine: Mine) -> None:
        found, stored = self._found(RUN, write.row[:2], mine)  # type: ignore[arg-type]
        if (found.version if isinstance(found, Run) else 0) != write.replaces:
            raise batch.Stale(batch.VERSION)
        mine[RUN.name, write.row[:2]] = _Left(RUN, write.row, stored)  # type: ignore[index]

    patch.setattr(Batch, "_put_run", put_run)


# --- S-2, S-8 -------------------------------------------------------------------------------
def the_fence_forgets_the_epoch(patch: pytest.MonkeyPatch) -> None:
    fence = Batch._fence

    def blind(self: Batch, f: Fence) -> Run:
        run = self.row(RUN, (f.tenant, f.run))
        return fence(self, f._replace(epoch=run.epoch) if isinstance(run, Run) else f)

    patch.setattr(Batch, "_fence", blind)


def the_fence_forgets_the_visit(patch: pytest.MonkeyPatch) -> None:
    fence = Batch._fence

    def blind(self: Batch, f: Fence) -> Run:
        run = self.row(RUN, (f.tenant, f.run))
        return fence(self, f._replace(visit=run.visit) if isinstance(run, Run) else f)

    patch.setattr(Batch, "_fence", blind)


def versions_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    def put(self: Batch, write: Put, mine: Mine) -> None:
        key = key_of(write.kind, write.row)
        _, stored = self._found(write.kind, key, mine)
        mine[write.kind.name, key] = _Left(write.kind, write.row, stored)

    patch.setattr(Batch, "_put", put)
    patch.setattr(Batch, "_put_run", put)


def expectations_are_not_judged(patch: pytest.MonkeyPatch) -> None:
    land = Batch._land
    patch.setattr(Batch, "_land", lambda self, commit: land(self, commit._replace(expects=())))


def conditions_on_time_are_not_judged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batch, "_when", lambda self, when: None)


# --- S-4 ------------------------------------------------------------------------------------
def time_follows_the_wall(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoreClock, "real", lambda self: self._clock.wall())


def a_mapping_is_seen_by_its_writer_alone(patch: pytest.MonkeyPatch) -> None:
    def look(self: SqliteSession) -> bool:
        self._cache.clear()
        if self._seen == -1:
            self.mapping = mapping_of(self.read(META, MAPPING_ROW))
        self._seen = 1
        return False

    patch.setattr(SqliteSession, "look", look)


# --- S-7 ------------------------------------------------------------------------------------
def chains_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batch, "land", lambda self, commit, chain=None: self._land(commit))


def a_chain_heals_with_its_batch(patch: pytest.MonkeyPatch) -> None:
    land = Batch.land

    def forgetful(self: Batch, commit: Commit, chain: Chain | None = None) -> Done:
        if chain is not None:
            chain.broken = False
        return land(self, commit, chain)

    patch.setattr(Batch, "land", forgetful)


def a_refusal_half_lands(patch: pytest.MonkeyPatch) -> None:
    def eager(self: Batch, commit: Commit) -> Done:
        for write in commit.writes:
            mine: Mine = {}
            if isinstance(write, Put):
                (self._put_run if write.kind is RUN else self._put)(write, mine)
            elif isinstance(write, Wake):
                self._wake(write, mine)
            else:
                self._post(write, mine)
            for (name, key), left in mine.items():
                self.changes[name][key] = left
        return Done(0, self.now)

    patch.setattr(Batch, "_land", eager)


def the_last_row_is_the_one_submitted(patch: pytest.MonkeyPatch) -> None:
    """Rows are read from the store although an earlier commit of the batch has moved them."""
    patch.setattr(Batch, "row", lambda self, kind, key: self._read(kind, key))
    patch.setattr(
        Batch, "_found",
        lambda self, kind, key, mine: (row := self._read(kind, key), 0 if row is None else batch.version_of(kind, row)),
    )  # fmt: skip


def optimism_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    for name, statements in sql.SQL.items():
        loose = statements.update.replace(" AND version = ?", " AND ? > 0")
        more = statements.insert.replace("INSERT", "INSERT OR REPLACE")
        patch.setitem(sql.SQL, name, statements._replace(update=loose, insert=more))


def others_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RowCache, "clear", lambda self: None)


# --- S-5, S-9 -------------------------------------------------------------------------------
def a_closed_writer_goes_on(patch: pytest.MonkeyPatch) -> None:
    def receipt(self: SqliteSession, labels: Sequence[str]) -> None:
        self._batches += 1
        self.db.execute("UPDATE writer SET batch = ? WHERE id = ?", (self._batches, self._writer))
        self.db.execute("COMMIT")

    patch.setattr(SqliteSession, "_land_receipt", receipt)


def nobody_is_woken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("outlast.store.threads.WakeSubscribers.fire", lambda self: None)


def the_queue_is_dropped_at_the_end(patch: pytest.MonkeyPatch) -> None:
    land = WriterThread._land

    def unless_closing(self: WriterThread, tickets: list[Ticket]) -> None:
        time.sleep(0.02)  # a slow disk, so that the store is being closed by now
        if not self._closing.is_set():
            land(self, tickets)
            return
        self._give_up(tickets, StoreError("dropped"))
        deliver(tickets)

    patch.setattr(WriterThread, "_land", unless_closing)


def bounds_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    for module in ("memory", "batching_store", "tickets"):
        patch.setattr(f"outlast.store.{module}.check", lambda commit: None)


def purge_takes_everything(patch: pytest.MonkeyPatch) -> None:
    loose = "SELECT tenant, run FROM run WHERE ? > 0 LIMIT ?"
    patch.setattr(sql, "OVER", loose)


def tenants_are_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sql, "page", lambda kind, columns, *, after: (
        f"SELECT {sql.SQL[kind.name].columns} FROM {kind.name} WHERE ? <> ''"
        + "".join(f" AND {name} = ?" for name in columns) + " LIMIT ?"
    ))  # fmt: skip


CASES: tuple[tuple[Mutant, str, tuple[Callable[[Path], Subjects], ...]], ...] = (
    (post_spends_a_version, "posting_spends_no_version", BOTH),
    (post_makes_an_owned_run_due, "a_note_to_an_owned_run_does_not_make_it_due", BOTH),
    (post_leaves_due_alone, "a_note_makes_a_sleeping_run_due", BOTH),
    (post_leaves_due_alone, "a_note_and_a_park_never_miss_each_other", BOTH),
    (nothing_names_the_mail, "a_commit_that_names_the_mail_is_refused_once_it_moved", BOTH),
    (nothing_names_the_mail, "a_note_and_a_park_never_miss_each_other", BOTH),
    (an_ended_run_takes_notes, "nothing_is_posted_where_nobody_will_read", BOTH),
    (an_ended_run_takes_notes, "a_terminal_run_never_changes", BOTH),
    (a_holder_writes_the_mail_it_read, "posting_spends_no_version", BOTH),
    (the_fence_forgets_the_epoch, "the_replaced_holder_writes_nothing", BOTH),
    (the_fence_forgets_the_visit, "giving_back_fences_what_is_left_behind", BOTH),
    (versions_are_not_compared, "the_older_version_loses", BOTH),
    (versions_are_not_compared, "one_of_many_wins", BOTH),
    (versions_are_not_compared, "a_closed_worker_never_renews", BOTH),
    (expectations_are_not_judged, "an_expected_row_is_looked_at", BOTH),
    (conditions_on_time_are_not_judged, "a_condition_on_time_is_judged_by_the_store", BOTH),
    (time_follows_the_wall, "time_never_goes_back", BOTH),
    (a_mapping_is_seen_by_its_writer_alone, "a_mapping_changes_business_time_for_everybody", FILE),
    (chains_are_ignored, "a_chain_breaks_at_the_first_refusal", BOTH),
    (chains_are_ignored, "a_rejected_commit_breaks_its_chain_there", FILE),
    (a_chain_heals_with_its_batch, "a_chain_breaks_at_the_first_refusal", BOTH),
    (a_refusal_half_lands, "the_replaced_holder_writes_nothing", BOTH),
    (the_last_row_is_the_one_submitted, "commits_land_in_the_order_submitted", FILE),
    (the_last_row_is_the_one_submitted, "later_commits_see_earlier_ones_of_their_batch", FILE),
    (optimism_is_not_checked, "a_row_that_must_not_exist_is_inserted_once", FILE),
    (optimism_is_not_checked, "one_of_many_wins", FILE),
    (others_are_not_noticed, "one_of_many_wins", FILE),
    (a_closed_writer_goes_on, "a_closed_writer_writes_nothing", FILE),
    (nobody_is_woken, "who_waits_for_work_is_woken", BOTH),
    (the_queue_is_dropped_at_the_end, "closing_lands_what_was_submitted", FILE),
    (bounds_are_not_checked, "what_no_store_could_hold_is_rejected", BOTH),
    (purge_takes_everything, "forgetting_leaves_tokens", FILE),
    (tenants_are_one, "tenants_do_not_meet", FILE),
)


def broken(promise: Promise, make: Callable[[Path], Subjects], folder: Path) -> bool:
    """Does the promise break?"""

    async def exam() -> None:
        subject = make(folder)
        try:
            await promise(subject)
        finally:
            await subject.close()

    try:
        asyncio.run(exam())
    except (AssertionError, StoreError, TimeoutError, TypeError):
        return True
    return False


@pytest.mark.parametrize(
    ("mutant", "promise", "make"),
    [
        pytest.param(mutant, promise, make, id=f"{mutant.__name__}-{promise}-{make.__name__}")
        for mutant, promise, makes in CASES for make in makes
    ],
)  # fmt: skip
def test_without_it_a_promise_breaks(
    mutant: Mutant, promise: str, make: Callable[[Path], Subjects], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.conformance.writers.WAKE_S", 0.3)
    mutant(monkeypatch)
    assert broken(BY_NAME[promise], make, tmp_path)


def test_with_everything_in_place_they_hold(tmp_path: Path) -> None:
    """The same exam, unmutated, so that `broken` is not broken itself."""
    for i, (_, promise, makes) in enumerate(CASES):
        for make in makes:
            folder = tmp_path / f"{i}{make.__name__}"
            folder.mkdir()
            assert not broken(BY_NAME[promise], make, folder), promise
