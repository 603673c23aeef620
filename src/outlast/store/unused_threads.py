"""The read of threads of LangGraph that have not changed for long, of all tenants, for their deletion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from outlast.core.rows.graph_rows import GRAPH_THREAD, GraphThread
from outlast.store.queries import Query, Select
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import MARK, SQL, Values, listed_rows

# The condition on `ns` is that of the index. Parameters: before; changed_at, tenant and thread of the last one; limit.
_STATEMENT: Final = (
    f"SELECT {SQL[GRAPH_THREAD.name].columns} FROM {GRAPH_THREAD.name} WHERE ns = '' AND changed_at < {MARK} "
    f"AND (changed_at, tenant, thread) > ({MARK}, {MARK}, {MARK}) ORDER BY changed_at, tenant, thread LIMIT {MARK}"
)
Place = tuple[int, str, str]
"""Instant of the last change, tenant and thread."""
FIRST: Final[Place] = (-1, "", "")


@dataclass(frozen=True, slots=True)
class UnusedThreads(Query[tuple[GraphThread, ...]]):
    """Threads that last changed before a business instant, the longest unchanged first, starting after a place.

    Threads that are being deleted come first, because their instant is 0.
    """

    before: int
    after: Place
    limit: int

    @override
    def statements(self) -> Sequence[Select]:
        return (Select(_STATEMENT, (self.before, *self.after, self.limit)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[GraphThread, ...]:
        return listed_rows(GRAPH_THREAD, found[0])

    @override
    def find(self, rows: RowsInMemory) -> tuple[GraphThread, ...]:
        threads: list[GraphThread] = rows.under(GRAPH_THREAD, ())
        found = [row for row in threads if not row.ns and row.changed_at < self.before and place_of(row) > self.after]
        return tuple(sorted(found, key=place_of)[: self.limit])


def place_of(row: GraphThread) -> Place:
    """Return the place of a thread in the order of changes."""
    return (row.changed_at, row.tenant, row.thread)
