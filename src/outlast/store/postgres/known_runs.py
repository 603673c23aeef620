"""Runs of this process's workers, known without a read, and the batches that they suffice to judge.

A known run may be outdated, because another process writes the store, too. Nothing relies on it: the statement of a
batch locks each run at the known version and inbox_seq, or changes nothing, and the batch is then judged with rows that
are read.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from outlast.core.commit import Commit, Put
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.core.rows.run_rows import RUN, Run
from outlast.store.tickets import Ticket

KNOWN_MAX: Final = 50_000  # runs; at most 1 KB each


class KnownRuns:
    """Runs of this process's workers, as this writer's batches left or found them.

    Outdated entries are harmless: the statement locks each run at the known version and inbox_seq, or changes nothing.
    """

    def __init__(self) -> None:
        self._owners: set[str] = set()
        self._runs: dict[Key, Run] = {}

    def add_owners(self, owners: Iterable[str]) -> None:
        """Add owners whose runs this process holds."""
        self._owners.update(owners)

    def remember(self, run: Run) -> None:
        """Keep a run as the store has it now, or drop it if its owner is not one of ours."""
        if run.owner not in self._owners:
            self._runs.pop(run[:2], None)
            return
        if len(self._runs) >= KNOWN_MAX:
            self._runs.clear()
        self._runs[run[:2]] = run

    def read(self, kind: AnyKind, key: Key) -> Run | None:
        """Return a known run. Used as the `read` of a Batch, which gets no rows of other kinds."""
        return self._runs.get(key) if kind is RUN else None

    def of(self, tickets: Sequence[Ticket]) -> "list[Run] | None":
        """Return the runs that these commits name, in lock order.

        Return None if a run is unknown, or if a commit depends on the time or on any other row. Such a batch locks and
        reads first.
        """
        keys: set[Key] = set()
        for ticket in tickets:
            if not isinstance(ticket.work, Commit) or not _of_a_holder(ticket.work):
                return None
            assert ticket.work.fence is not None
            keys.add(ticket.work.fence[:2])
        runs = [self._runs.get(key) for key in sorted(keys)]
        return None if None in runs else runs  # type: ignore[return-value]


def _of_a_holder(commit: Commit) -> bool:
    """Return True if the commit is judged by its run alone and does not depend on the time."""
    fence = commit.fence
    if fence is None or fence.mapping is not None or commit.whens or commit.expects:
        return False
    for write in commit.writes:
        if type(write) is not Put:
            return False
        kind, row, replaces = write
        if kind is RUN:
            assert isinstance(row, Run)
            if (
                not replaces or row[:2] != fence[:2] or row.owner == ""
            ):  # other processes may have to be notified that it is due
                return False
        elif kind.read_first or (kind is EFFECT and row[1] == ""):  # a shared effect has several writers
            return False
    return True
