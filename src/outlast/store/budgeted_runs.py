"""Reads of unfinished runs with a budget, and of the amounts that they have spent."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from typing_extensions import override

from outlast.core.budget import RAISED
from outlast.core.row_checks import listed
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.run_rows import MESSAGE, RUN, Message, Run
from outlast.core.usage import NOTHING_USED, Amounts
from outlast.store.queries import Query, Select
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import MARK, SQL, Values, listed_rows
from outlast.store.usage_sums import SUMS, amounts_of


@dataclass(frozen=True, slots=True)
class UnfinishedRuns(Query[tuple[Run, ...]]):
    """A tenant's unfinished runs in these lanes, at most `most`, those that were created first.

    DynamoDB has no such order: if there are more than `most`, it reads any of them.
    """

    long: ClassVar[bool] = True

    tenant: str
    lanes: tuple[str, ...]
    most: int

    @override
    def statements(self) -> Sequence[Select]:
        text = (
            f"SELECT {SQL[RUN.name].columns} FROM run WHERE tenant = {MARK} AND lane IN "
            f"({', '.join(MARK for _ in self.lanes)}) AND ended_at = 0 ORDER BY created_at, run LIMIT {MARK}"
        )
        return (Select(text, (self.tenant, *self.lanes, self.most)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[Run, ...]:
        return listed_rows(RUN, found[0])

    @override
    def find(self, rows: RowsInMemory) -> tuple[Run, ...]:
        of_lanes = [row for row in rows.under(RUN, (self.tenant,)) if row.lane in self.lanes and not row.ended_at]
        first = sorted(of_lanes, key=lambda row: (row.created_at, row.run))[: self.most]
        return tuple([listed(RUN, row) for row in first])


class RunSpending(NamedTuple):
    """Amounts that a run has spent. `below`, `started_below`: of the runs below it, if it is a root."""

    own: Amounts
    below: Amounts
    started: int
    started_below: int
    raises: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class SpentOfRuns(Query[tuple[RunSpending, ...]]):
    """The amounts that each of these runs has spent, in the order of `runs`."""

    long: ClassVar[bool] = True

    tenant: str
    runs: tuple[str, ...]

    @override
    def statements(self) -> Sequence[Select]:
        among = f"IN ({', '.join(MARK for _ in self.runs)})"
        of_tenant = f"WHERE tenant = {MARK}"
        below = f"{of_tenant} AND root {among} AND root <> '' GROUP BY root"
        texts = (
            f"SELECT run, {SUMS} FROM call_usage {of_tenant} AND run {among} GROUP BY run",
            f"SELECT root, {SUMS} FROM call_usage {below}",
            f"SELECT run, sum(attempts) FROM effect {of_tenant} AND run {among} AND child <> '' AND undoes = '' "
            "GROUP BY run",
            f"SELECT root, count(*) FROM run {below}",
            f"SELECT {SQL[MESSAGE.name].columns} FROM message {of_tenant} AND run {among} AND kind = '{RAISED}'",
        )
        return [Select(text, (self.tenant, *self.runs)) for text in texts]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[RunSpending, ...]:
        own, below = ({str(run): amounts_of(sums) for run, *sums in each} for each in found[:2])
        started, started_below = ({str(run): int(n) for run, n in each} for each in found[2:4])
        return self._each(own, below, started, started_below, listed_rows(MESSAGE, found[4]))

    @override
    def find(self, rows: RowsInMemory) -> tuple[RunSpending, ...]:
        own, below = dict[str, Amounts](), dict[str, Amounts]()
        for row in rows.under(CALL_USAGE, (self.tenant,)):
            own[row.run] = own.get(row.run, NOTHING_USED).plus(row.amounts)
            below[row.root] = below.get(row.root, NOTHING_USED).plus(row.amounts)
        started: dict[str, int] = {}
        messages: list[Message] = []
        for run in self.runs:
            calls = rows.under(EFFECT, (self.tenant, run))
            started[run] = sum(each.attempts for each in calls if each.child_text and not each.undoes)
            messages += [each for each in rows.under(MESSAGE, (self.tenant, run)) if each.kind == RAISED]
        return self._each(own, below, started, Counter(run.root for run in rows.under(RUN, (self.tenant,))), messages)

    def _each(
        self,
        own: Mapping[str, Amounts],
        below: Mapping[str, Amounts],
        started: Mapping[str, int],
        started_below: Mapping[str, int],
        messages: Iterable[Message],
    ) -> tuple[RunSpending, ...]:
        raises: dict[str, list[Message]] = {run: [] for run in self.runs}
        for message in messages:
            raises[message.run].append(message)
        return tuple(
            RunSpending(
                own.get(run, NOTHING_USED),
                below.get(run, NOTHING_USED),
                started.get(run, 0),
                started_below.get(run, 0),
                tuple(raises[run]),
            )
            for run in self.runs
        )
