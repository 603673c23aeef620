"""Which batches land by one statement, with no row read before: those of holders whose runs this writer knows (S-8)."""

from collections.abc import Iterable, Sequence
from typing import Final

from outlast.core.commit import Commit, Put
from outlast.core.rows import EFFECT, RUN, Key, Kind, Row, Run
from outlast.store.tickets import Ticket

KNOWN_MAX: Final = 50_000  # runs; at most 1 KB each


class KnownRuns:
    """Runs as this writer's batches left or found them, of the workers that take through it.

    Nothing rests on their being true: the statement finds each at the version and the inbox_seq known here, and holds it
    from there on, or changes nothing.
    """

    def __init__(self) -> None:
        self._owners: set[str] = set()
        self._runs: dict[Key, Run] = {}

    def serve(self, owners: Iterable[str]) -> None:
        """Runs of these owners are held by this process."""
        self._owners.update(owners)

    def learn(self, run: Run) -> None:
        """A run as it stands in the store now."""
        if run.owner not in self._owners:
            self._runs.pop(run[:2], None)
            return
        if len(self._runs) >= KNOWN_MAX:
            self._runs.clear()
        self._runs[run[:2]] = run

    def read(self, kind: Kind, key: Key) -> Row | None:
        """For a Batch: a run that is known, and of other kinds nothing."""
        return self._runs.get(key) if kind is RUN else None

    def of(self, tickets: Sequence[Ticket]) -> "list[Run] | None":
        """The runs that these commits name, in the order in which rows are locked.

        None where one of them is not known, or where a commit asks for the time or for any other row: such a batch
        locks and reads first.
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
    """Is it judged by its run alone, and says nothing that depends on the time?"""
    fence = commit.fence
    if fence is None or fence.mapping is not None or commit.whens or commit.expects:
        return False
    for write in commit.writes:
        if type(write) is not Put:
            return False
        kind, row, replaces = write
        if kind is RUN:
            assert isinstance(row, Run)
            if not replaces or row[:2] != fence[:2] or row.owner == "":  # somebody may have to be told that it is due
                return False
        elif kind.read_first or (kind is EFFECT and row[1] == ""):  # an effect of the tenant's has several writers
            return False
    return True
