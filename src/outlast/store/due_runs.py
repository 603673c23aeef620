"""The read of due runs without taking them, for schedulers that decide who executes a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from typing_extensions import override

from outlast.core.rows.run_rows import RUN, Run
from outlast.store.bounds import INT_MAX
from outlast.store.fair_queueing import DueQuery
from outlast.store.queries import Query, Select
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import MARK, SQL, Values, readable_runs

# Parameters: lane, since, until, limit.
_STATEMENT: Final = (
    f"SELECT {SQL[RUN.name].columns} FROM run WHERE lane = {MARK} AND due_at >= {MARK} AND due_at <= {MARK} "
    f"ORDER BY due_at, tenant, run LIMIT {MARK}"
)


@dataclass(frozen=True, slots=True)
class DueRuns(Query[tuple[Run, ...]]):
    """The runs of a lane that fall due from `since` to `until` (real time), owned ones included, earliest first."""

    polls: ClassVar[bool] = True

    lane: str
    since: int
    until: int
    limit: int

    @override
    def statements(self) -> Sequence[Select]:
        return (Select(_STATEMENT, (self.lane, self.since, self.until, self.limit)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[Run, ...]:
        return tuple(readable_runs(found[0]))

    @override
    def find(self, rows: RowsInMemory) -> tuple[Run, ...]:
        found = rows.due(DueQuery(self.lane, INT_MAX), self.until)
        return tuple([run for run in found if (run.due_at or 0) >= self.since][: self.limit])
