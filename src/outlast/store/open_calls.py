"""The read of calls that have no outcome yet, for the statuses that lists of runs show."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from typing_extensions import override

from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT, USAGE
from outlast.store.queries import Query, Select
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import MARK, Values

_OPEN: Final = f"e.status = '{EffectStatus.INTENDED}'"
SHARED: Final = (
    "JOIN effect e ON e.tenant = u.tenant AND e.run = '' AND e.visit = 0 AND e.key = u.key "
    f"AND e.by_run = u.run AND {_OPEN}"
)
"""Join of `usage u` with the open calls once per tenant that its run makes."""
# Parameters: tenant, run, visit, tenant, run.
_STATEMENT: Final = (
    f"SELECT e.epoch FROM effect e WHERE e.tenant = {MARK} AND e.run = {MARK} AND e.visit IN (0, {MARK}) AND {_OPEN} "
    f"UNION ALL SELECT e.epoch FROM usage u {SHARED} WHERE u.tenant = {MARK} AND u.run = {MARK}"
)


@dataclass(frozen=True, slots=True)
class OpenCalls(Query[dict[str, int]]):
    """The lowest epoch of the calls without an outcome that each of a tenant's runs makes in a visit, by run.

    `visits`: the runs, each with its visit. A run without an open call is left out.
    """

    long: ClassVar[bool] = True
    polls: ClassVar[bool] = True

    tenant: str
    visits: tuple[tuple[str, int], ...]

    @override
    def statements(self) -> Sequence[Select]:
        return [Select(_STATEMENT, (self.tenant, run, visit, self.tenant, run)) for run, visit in self.visits]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> dict[str, int]:
        of_runs = zip(self.visits, found, strict=True)
        return {run: min(epoch for (epoch,) in values) for (run, _), values in of_runs if values}

    @override
    def find(self, rows: RowsInMemory) -> dict[str, int]:
        found: dict[str, int] = {}
        for run, visit in self.visits:
            own = [e for at in {0, visit} for e in rows.under(EFFECT, (self.tenant, run, at))]
            used = [rows.get(EFFECT, (self.tenant, "", 0, each.key)) for each in rows.under(USAGE, (self.tenant, run))]
            own += [e for e in used if e is not None and e.by_run == run]
            epochs = [e.epoch for e in own if e.status is EffectStatus.INTENDED]
            if epochs:
                found[run] = min(epochs)
        return found
