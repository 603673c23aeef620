"""Each safeguard of the stores is removed once, and a conformance promise must break.

The cases are the broken variants of the models S-1, S-2, S-7 and S-9, played through real stores.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast.errors import StoreError
from tests.conformance import PROMISES, Promise
from tests.conformance.test_stores import Memory, Sqlite, Subjects
from tests.mutants import remove

BY_NAME = {promise.__name__: promise for promise in PROMISES}
BOTH: tuple[Callable[[Path], Subjects], ...] = (Memory, Sqlite)
FILE: tuple[Callable[[Path], Subjects], ...] = (Sqlite,)

CASES: tuple[tuple[str, str, tuple[Callable[[Path], Subjects], ...]], ...] = (
    ("append_spends_version", "appending_a_message_keeps_the_version", BOTH),
    ("append_wakes_owned_run", "a_message_does_not_make_an_owned_run_due", BOTH),
    ("append_keeps_due_at", "a_message_makes_a_parked_run_due", BOTH),
    ("append_keeps_due_at", "a_message_and_a_park_do_not_miss_each_other", BOTH),
    ("no_inbox_check", "a_commit_with_an_old_inbox_seq_is_stale", BOTH),
    ("no_inbox_check", "a_message_and_a_park_do_not_miss_each_other", BOTH),
    ("ended_run_accepts_messages", "a_message_to_an_ended_run_is_refused", BOTH),
    ("ended_run_accepts_messages", "a_terminal_run_never_changes", BOTH),
    ("holder_overwrites_inbox_seq", "appending_a_message_keeps_the_version", BOTH),
    ("fence_without_epoch", "the_replaced_holder_writes_nothing", BOTH),
    ("fence_without_visit", "parking_and_advancing_fence_the_old_holder", BOTH),
    ("versions_not_compared", "a_commit_for_an_older_version_is_stale", BOTH),
    ("versions_not_compared", "one_of_many_writers_wins", BOTH),
    ("versions_not_compared", "writers_may_take_turns", BOTH),
    ("versions_not_compared", "a_closed_worker_never_renews", BOTH),
    ("expectations_not_judged", "an_expected_version_is_checked", BOTH),
    ("time_conditions_not_judged", "a_condition_on_time_is_judged_by_the_store", BOTH),
    ("wall_clock_time", "time_never_goes_back", BOTH),
    ("mapping_not_shared", "a_mapping_changes_business_time_for_all_writers", FILE),
    ("chains_ignored", "a_chain_breaks_at_the_first_refusal", BOTH),
    ("chains_ignored", "a_rejected_commit_breaks_its_chain_in_order", FILE),
    ("chain_heals_in_next_batch", "a_chain_breaks_at_the_first_refusal", BOTH),
    ("refused_commit_half_lands", "the_replaced_holder_writes_nothing", BOTH),
    ("batch_reads_stored_rows", "commits_land_in_the_order_submitted", FILE),
    ("batch_reads_stored_rows", "later_commits_see_earlier_ones_of_their_batch", FILE),
    ("versions_not_checked_in_sql", "a_row_is_inserted_once", FILE),
    ("versions_not_checked_in_sql", "one_of_many_writers_wins", FILE),
    ("row_cache_never_cleared", "writers_may_take_turns", FILE),
    ("outdated_runs_believed", "writers_may_take_turns", FILE),
    ("outdated_runs_believed", "the_replaced_holder_writes_nothing", FILE),
    ("outdated_runs_compared_without_inbox", "a_message_and_a_park_do_not_miss_each_other", FILE),
    ("closed_writer_commits", "a_closed_writer_writes_nothing", FILE),
    ("subscribers_not_woken", "subscribers_are_woken", BOTH),
    ("queue_dropped_on_close", "closing_lands_what_was_submitted", FILE),
    ("bounds_not_checked", "a_commit_beyond_the_limits_is_rejected", BOTH),
    ("purge_takes_running_runs", "purge_keeps_tokens", FILE),
    ("purge_takes_runs_of_living_trees", "a_tree_is_purged_as_one", FILE),
    ("purge_takes_a_root_first", "a_tree_is_purged_as_one", FILE),
    ("tenants_not_separated", "tenants_are_isolated", FILE),
)


def broken(promise: Promise, make: Callable[[Path], Subjects], folder: Path) -> bool:
    """Return True if the promise breaks."""

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
        pytest.param(mutant, promise, make, id=f"{mutant}-{promise}-{make.__name__}")
        for mutant, promise, makes in CASES for make in makes
    ],
)  # fmt: skip
def test_a_removed_safeguard_breaks_a_promise(
    mutant: str, promise: str, make: Callable[[Path], Subjects], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.conformance.writers.WAKE_S", 0.3)
    remove(mutant, monkeypatch)
    assert broken(BY_NAME[promise], make, tmp_path)


def test_with_all_safeguards_every_promise_holds(tmp_path: Path) -> None:
    """The same promises without a removal, so that `broken` is tested, too."""
    for i, (_, promise, makes) in enumerate(CASES):
        for make in makes:
            folder = tmp_path / f"{i}{make.__name__}"
            folder.mkdir()
            assert not broken(BY_NAME[promise], make, folder), promise
