"""Rows in memory as this process's own batches left them, so that the hot path reads nothing.

A cached row may be outdated, because another process writes the file, too. No batch relies on it: SQLite's
`data_version` changes with each commit of another connection, the session looks at it inside its write transaction, and
then calls `outdate`. Runs are kept aside for a comparison, because most of them have not changed.
"""

from itertools import islice
from typing import Any, Final

from outlast.core.rows.all_kinds import KINDS, R, Row
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.row_kind import AnyKind, Key, Kind
from outlast.core.rows.run_rows import RUN, Run

RUNS_MAX: Final = 20_000  # runs that this process holds, at most 1 KB each
ROWS_MAX: Final = 2_000  # rows of any other kind: a service rarely reads the answers and approvals it writes


class RowCache:
    """Rows as this writer's own batches left them, so that the hot path reads nothing.

    Valid until another process writes: the session compares SQLite's data_version and calls `outdate`.
    """

    def __init__(self) -> None:
        self._rows: dict[str, dict[Key, Any]] = {kind.name: {} for kind in KINDS if kind.read_first or kind is EFFECT}
        self._outdated: dict[Key, Run] = {}  # runs as they were before another process wrote

    def get(self, kind: Kind[R], key: Key) -> R | None:
        """Return the row, or None if it is not cached."""
        rows = self._rows.get(kind.name)
        return None if rows is None else rows.get(key)

    def put(self, kind: AnyKind, key: Key, row: Row) -> None:
        """Keep a committed row of a kind that is read first, or an open effect. The newest rows are kept longest."""
        rows = self._rows[kind.name]
        rows.pop(key, None)
        rows[key] = row
        if len(rows) > (limit := RUNS_MAX if kind is RUN else ROWS_MAX):
            for old in list(islice(rows, limit // 2)):
                del rows[old]

    def drop(self, kind: AnyKind, key: Key) -> None:
        """Remove one row from the cache."""
        self._rows[kind.name].pop(key, None)
        if kind is RUN:
            self._outdated.pop(key, None)

    def clear(self) -> None:
        """Remove all rows from the cache."""
        for rows in self._rows.values():
            rows.clear()
        self._outdated.clear()

    def outdate(self) -> None:
        """Remove all rows from the cache, and keep the runs for a comparison with the store."""
        outdated = {**self._outdated, **self._rows[RUN.name]}
        self.clear()
        if len(outdated) <= RUNS_MAX:
            self._outdated = outdated

    def outdated(self, key: Key) -> Run | None:
        """Return a run as it was before another process wrote, and forget it."""
        return self._outdated.pop(key, None)
