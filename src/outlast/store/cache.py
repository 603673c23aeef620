"""Rows as this writer's own batches left them, so that the hot path reads nothing."""

from itertools import islice

from outlast.core.rows import KINDS, RUN, Key, Kind, Row

RUNS_MAX = 20_000  # that this process holds; at most 1 KB each
ROWS_MAX = 2_000  # of any other kind: most of what a service writes, answers and approvals, is never wanted again


class Cache:
    """True as long as nobody else has written since: the store asks SQLite's data_version and calls `clear`."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[Key, Row]] = {kind.name: {} for kind in KINDS if kind.read_first}

    def get(self, kind: Kind, key: Key) -> Row | None:
        """The row, if it is known."""
        rows = self._rows.get(kind.name)
        return None if rows is None else rows.get(key)

    def put(self, kind: Kind, key: Key, row: Row) -> None:
        """Remember a committed row of a kind that is read first; the newest are kept longest."""
        rows = self._rows[kind.name]
        rows.pop(key, None)
        rows[key] = row
        if len(rows) > (most := RUNS_MAX if kind is RUN else ROWS_MAX):
            for old in list(islice(rows, most // 2)):
                del rows[old]

    def drop(self, kind: Kind, key: Key) -> None:
        """Forget one row."""
        self._rows[kind.name].pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        for rows in self._rows.values():
            rows.clear()
