"""The newest requests to models, calls and denials of a tenant, with the workflow and version of their runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, NamedTuple

from typing_extensions import override

from outlast.core.durations import DAY
from outlast.core.limits import DENIED_RUNS_MAX, TOOL_CALLS_MAX, VERDICTS_MAX
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT, MEMO
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.run_rows import RUN
from outlast.core.usage import SUMMED
from outlast.store.queries import Query, Select
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import MARK, Values

VERDICTS: Final = ("policy/", "policy0")
"""First key of a verdict, and the first key after all of them."""


class AskedRequest(NamedTuple):
    """Request to a model, as its row of usage has it. `lane` is '' if its run was purged."""

    at: int
    run: str
    prompt: str
    tools: str
    model: str
    outcome: str
    ms: int
    tokens: int
    input_tokens: int
    output_tokens: int
    money: int  # micros
    unpriced: int
    lane: str


_ASKED: Final = AskedRequest._fields[:-1]
"""Columns of the row of usage."""


@dataclass(frozen=True, slots=True)
class NewestRequests(Query[tuple[AskedRequest, ...]]):
    """The newest requests to models from business day `since` to `until`, at most `most`, the newest first."""

    tenant: str
    since: int
    until: int
    most: int = TOOL_CALLS_MAX

    @override
    def statements(self) -> Sequence[Select]:
        names = ", ".join(f"u.{name}" for name in _ASKED)
        text = (
            f"SELECT {names}, coalesce(r.lane, '') FROM (SELECT * FROM call_usage WHERE tenant = {MARK} "
            f"AND model <> '' AND at >= {MARK} AND at < {MARK} AND epoch > {SUMMED} ORDER BY at DESC LIMIT {MARK}) u "
            "LEFT JOIN run r ON r.tenant = u.tenant AND r.run = u.run ORDER BY u.at DESC"
        )
        return (Select(text, (self.tenant, self.since * DAY, (self.until + 1) * DAY, self.most)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[AskedRequest, ...]:
        return tuple(AskedRequest(*row) for row in found[0])

    @override
    def find(self, rows: RowsInMemory) -> tuple[AskedRequest, ...]:
        lanes = {run.run: run.lane for run in rows.under(RUN, (self.tenant,))}
        of_days = [
            row
            for row in rows.under(CALL_USAGE, (self.tenant,))
            if row.model and row.epoch > SUMMED and self.since <= row.day <= self.until
        ]
        newest = nlargest(self.most, of_days, key=lambda row: row.at)
        return tuple(AskedRequest(*(*(getattr(u, name) for name in _ASKED), lanes.get(u.run, ""))) for u in newest)


class CountedCall(NamedTuple):
    """Call of an activity, or start of a child run, as the ledger has it. `lane` is '' if its run was purged."""

    activity: str
    status: EffectStatus
    first_at: int  # real
    settled_at: int  # business; 0 = open
    lane: str


@dataclass(frozen=True, slots=True)
class NewestCalls(Query[tuple[CountedCall, ...]]):
    """The newest calls of a tenant without those that undo others, at most `most`, the newest first."""

    tenant: str
    most: int = TOOL_CALLS_MAX

    @override
    def statements(self) -> Sequence[Select]:
        text = (
            "SELECT e.activity, e.status, e.first_at, e.settled_at, coalesce(r.lane, '') FROM "
            "(SELECT tenant, activity, status, first_at, settled_at, CASE WHEN run <> '' THEN run ELSE "
            f"by_run END AS of_run FROM effect WHERE tenant = {MARK} AND undoes = '' ORDER BY first_at DESC "
            f"LIMIT {MARK}) e LEFT JOIN run r ON r.tenant = e.tenant AND r.run = e.of_run ORDER BY e.first_at DESC"
        )
        return (Select(text, (self.tenant, self.most)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[CountedCall, ...]:
        return _made((activity, str(status), *rest) for activity, status, *rest in found[0])

    @override
    def find(self, rows: RowsInMemory) -> tuple[CountedCall, ...]:
        lanes = {run.run: run.lane for run in rows.under(RUN, (self.tenant,))}
        calls = [row for row in rows.under(EFFECT, (self.tenant,)) if not row.undoes]
        newest = nlargest(self.most, calls, key=lambda row: row.first_at)
        return tuple(
            CountedCall(e.activity, e.status, e.first_at, e.settled_at, lanes.get(e.run or e.by_run, ""))
            for e in newest
        )


def _made(found: Iterable[Values]) -> tuple[CountedCall, ...]:
    known = {status.value: status for status in EffectStatus}
    return tuple(CountedCall(row[0], known[row[1]], *row[2:]) for row in found if row[1] in known)


class RecordedVerdict(NamedTuple):
    """Recorded verdict of a policy, as its memo has it."""

    key: str
    body: bytes
    lane: str


@dataclass(frozen=True, slots=True)
class NewestVerdicts(Query[tuple[RecordedVerdict, ...]]):
    """The verdicts of policies in the newest `runs` of a tenant, at most `most`."""

    tenant: str
    runs: int = DENIED_RUNS_MAX
    most: int = VERDICTS_MAX

    @override
    def statements(self) -> Sequence[Select]:
        text = (
            "SELECT m.key, m.response, r.lane FROM (SELECT tenant, run, lane, created_at FROM run "
            f"WHERE tenant = {MARK} ORDER BY created_at DESC, run DESC LIMIT {MARK}) r JOIN memo m "
            f"ON m.tenant = r.tenant AND m.run = r.run WHERE m.key >= {MARK} AND m.key < {MARK} "
            f"ORDER BY r.created_at DESC, m.run DESC, m.visit, m.key LIMIT {MARK}"
        )
        return (Select(text, (self.tenant, self.runs, *VERDICTS, self.most)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[RecordedVerdict, ...]:
        return tuple(RecordedVerdict(key, body or b"", lane) for key, body, lane in found[0])

    @override
    def find(self, rows: RowsInMemory) -> tuple[RecordedVerdict, ...]:
        newest = nlargest(self.runs, rows.under(RUN, (self.tenant,)), key=lambda run: (run.created_at, run.run))
        first, after = VERDICTS
        found = [
            RecordedVerdict(memo.key, memo.response or b"", run.lane)
            for run in newest
            for memo in sorted(rows.under(MEMO, (self.tenant, run.run)), key=lambda memo: (memo.visit, memo.key))
            if first <= memo.key < after
        ]
        return tuple(found[: self.most])
