"""Sums of the usage that calls reported: of a run, of a tree of runs, and of a tenant's business day."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from typing_extensions import override

from outlast.core.limits import USAGE_ROWS_MAX
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.run_rows import RUN
from outlast.core.usage import NOTHING_USED, Amounts, CallUsage
from outlast.store.queries import Query, Select
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import MARK, Values

SUMS: Final = "coalesce(sum(tokens), 0), coalesce(sum(money), 0), coalesce(sum(calls), 0), coalesce(sum(unpriced), 0)"


@dataclass(frozen=True, slots=True)
class RunUsage(Query[Amounts]):
    """The usage of a run. `epoch`, `n`: only rows up to this one; 0 = all."""

    tenant: str
    run: str
    epoch: int = 0
    n: int = 0

    @override
    def statements(self) -> Sequence[Select]:
        text = f"SELECT {SUMS} FROM call_usage WHERE tenant = {MARK} AND run = {MARK}"
        if not self.epoch:
            return (Select(text, (self.tenant, self.run)),)
        until = f" AND (epoch < {MARK} OR (epoch = {MARK} AND n <= {MARK}))"
        return (Select(text + until, (self.tenant, self.run, self.epoch, self.epoch, self.n)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> Amounts:
        return amounts_of(found[0][0])

    @override
    def find(self, rows: RowsInMemory) -> Amounts:
        until = (self.epoch, self.n)
        under = rows.under(CALL_USAGE, (self.tenant, self.run))
        return total(row for row in under if not self.epoch or (row.epoch, row.n) <= until)


RUNS_PER_STATEMENT: Final = 50
_OF_RUNS: Final = (
    f"SELECT run, {SUMS} FROM call_usage WHERE tenant = {MARK} "
    f"AND run IN ({', '.join([MARK] * RUNS_PER_STATEMENT)}) GROUP BY run"
)


@dataclass(frozen=True, slots=True)
class RunsUsage(Query[dict[str, Amounts]]):
    """The usage of each of these runs, without those of which no call has reported any."""

    tenant: str
    runs: tuple[str, ...]

    @override
    def statements(self) -> Sequence[Select]:
        parts = [self.runs[at : at + RUNS_PER_STATEMENT] for at in range(0, len(self.runs), RUNS_PER_STATEMENT)]
        # A short part repeats its last run, so that all statements have one text.
        return [Select(_OF_RUNS, (self.tenant, *each, *each[-1:] * (RUNS_PER_STATEMENT - len(each)))) for each in parts]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> dict[str, Amounts]:
        return {str(run): amounts_of(sums) for rows in found for run, *sums in rows}

    @override
    def find(self, rows: RowsInMemory) -> dict[str, Amounts]:
        found = {run: rows.under(CALL_USAGE, (self.tenant, run)) for run in dict.fromkeys(self.runs)}
        return {run: total(reported) for run, reported in found.items() if reported}


@dataclass(frozen=True, slots=True)
class TreeUsage(Query[Amounts]):
    """The usage of a root and of all runs below it, without one run of the tree if `but` names it."""

    tenant: str
    root: str
    but: str = ""

    @override
    def statements(self) -> Sequence[Select]:
        text = f"SELECT {SUMS} FROM call_usage WHERE tenant = {MARK} AND run <> {MARK} AND"
        below = f"{text} root = {MARK} AND root <> ''"
        return tuple(Select(each, (self.tenant, self.but, self.root)) for each in (below, f"{text} run = {MARK}"))

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> Amounts:
        return sum_of(amounts_of(rows[0]) for rows in found)

    @override
    def find(self, rows: RowsInMemory) -> Amounts:
        of_tenant = rows.under(CALL_USAGE, (self.tenant,))
        return total(row for row in of_tenant if self.root in (row.root, row.run) and row.run != self.but)


class DayUsage(NamedTuple):
    """Usage of a tenant on one business day. `reports`: True if the activity in question is among those that report."""

    amounts: Amounts
    reports: bool


@dataclass(frozen=True, slots=True)
class TenantDayUsage(Query[DayUsage]):
    """The usage of a tenant on a business day, and whether calls of `activity` are part of it."""

    tenant: str
    day: int
    activity: str = ""

    @override
    def statements(self) -> Sequence[Select]:
        mine = f"coalesce(sum(CASE WHEN activity = {MARK} THEN 1 ELSE 0 END), 0)"
        text = f"SELECT {SUMS}, {mine} FROM call_usage WHERE tenant = {MARK} AND day = {MARK}"
        return (Select(text, (self.activity, self.tenant, self.day)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> DayUsage:
        *sums, mine = found[0][0]
        return DayUsage(amounts_of(sums), bool(mine))

    @override
    def find(self, rows: RowsInMemory) -> DayUsage:
        of_day = [row for row in rows.under(CALL_USAGE, (self.tenant,)) if row.day == self.day]
        return DayUsage(total(of_day), any(row.activity == self.activity for row in of_day))


class UsageSum(NamedTuple):
    """Usage of a business day by workflow, model and activity. `workflow` is '' if its run was purged."""

    day: int
    workflow: str
    model: str
    activity: str
    tokens: int
    input_tokens: int
    output_tokens: int
    money: int  # micros
    calls: int
    unpriced: int
    rows: int


class UsageOfDays(NamedTuple):
    """Sums of the usage of a tenant, the latest day first. `every`: False if the earliest rows were left out."""

    sums: tuple[UsageSum, ...]
    every: bool


_OF_DAYS: Final = (
    "SELECT u.day, coalesce(r.workflow, ''), u.model, u.activity, sum(u.tokens), sum(u.input_tokens), "
    "sum(u.output_tokens), sum(u.money), sum(u.calls), sum(u.unpriced), count(*) FROM (SELECT * FROM call_usage "
    f"WHERE tenant = {MARK} AND day >= {MARK} AND day <= {MARK} ORDER BY day DESC LIMIT {MARK}) u "
    "LEFT JOIN run r ON r.tenant = u.tenant AND r.run = u.run "
    "GROUP BY u.day, coalesce(r.workflow, ''), u.model, u.activity"
)


@dataclass(frozen=True, slots=True)
class TenantUsage(Query[UsageOfDays]):
    """The usage of a tenant from business day `since` to `until`, of at most `most` reports, the latest days first."""

    tenant: str
    since: int
    until: int
    most: int = USAGE_ROWS_MAX

    @override
    def statements(self) -> Sequence[Select]:
        return (Select(_OF_DAYS, (self.tenant, self.since, self.until, self.most + 1)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> UsageOfDays:
        sums = [UsageSum(int(day), str(flow), str(model), str(activity), *map(int, counts))
                for day, flow, model, activity, *counts in found[0]]  # fmt: skip
        return _of_days(sums, self.most)

    @override
    def find(self, rows: RowsInMemory) -> UsageOfDays:
        workflows = {run.run: run.workflow for run in rows.under(RUN, (self.tenant,))}
        of_days = [row for row in rows.under(CALL_USAGE, (self.tenant,)) if self.since <= row.day <= self.until]
        of_days.sort(key=lambda row: row.day, reverse=True)
        sums: dict[tuple[int, str, str, str], list[int]] = {}
        for row in of_days[: self.most + 1]:
            group = row.day, workflows.get(row.run, ""), row.model, row.activity
            counts = row.tokens, row.input_tokens, row.output_tokens, row.money, row.calls, row.unpriced, 1
            sums[group] = [a + b for a, b in zip(sums.get(group, [0] * len(counts)), counts, strict=True)]
        return _of_days([UsageSum(*group, *counts) for group, counts in sums.items()], self.most)


def _of_days(sums: Iterable[UsageSum], most: int) -> UsageOfDays:
    found = sorted(sums, key=lambda each: (-each.day, -each.money, -each.tokens, *each[1:4]))
    return UsageOfDays(tuple(found), sum(each.rows for each in found) <= most)


def total(rows: Iterable[CallUsage]) -> Amounts:
    """Return the sum of usage rows."""
    return sum_of(row.amounts for row in rows)


def sum_of(amounts: Iterable[Amounts]) -> Amounts:
    """Return the sum of amounts."""
    found = NOTHING_USED
    for each in amounts:
        found = found.plus(each)
    return found


def amounts_of(sums: Sequence[Any]) -> Amounts:
    """Return the amounts of a row of SUMS."""
    tokens, money, calls, unpriced = map(int, sums)
    return Amounts(tokens, money, calls, unpriced=unpriced)
