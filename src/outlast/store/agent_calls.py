"""The newest requests to models, calls, lookups and denials of a tenant, with the lanes of their runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, NamedTuple

from typing_extensions import override

from outlast.core.durations import DAY
from outlast.core.keys import ADMISSION, MODEL
from outlast.core.limits import MEMO_RUNS_MAX, MEMOS_MAX, TOOL_CALLS_MAX
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT, MEMO, Memo
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.run_rows import RUN
from outlast.core.usage import SUMMED
from outlast.store.queries import Query, Select
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import MARK, Values

VERDICTS: Final = ("policy/", "policy0")
"""First key of a verdict, and the first key after all of them."""
_OF_MODELS: Final = (MODEL, ADMISSION)
"""Activities of memos that are part of a request to a model."""


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
    run: str
    visit: int
    key: str
    attempts: int
    settled_by: str
    is_child: bool
    lane: str


@dataclass(frozen=True, slots=True)
class NewestCalls(Query[tuple[CountedCall, ...]]):
    """The newest calls of a tenant without those that undo others, at most `most`, the newest first."""

    tenant: str
    most: int = TOOL_CALLS_MAX

    @override
    def statements(self) -> Sequence[Select]:
        names = "activity, status, first_at, settled_at, of_run, visit, key, attempts, settled_by, is_child"
        text = (
            f"SELECT {names}, coalesce((SELECT r.lane FROM run r WHERE r.tenant = e.tenant AND r.run = e.of_run), '') "
            "FROM (SELECT tenant, activity, status, first_at, settled_at, CASE WHEN run <> '' THEN run ELSE by_run END "
            "AS of_run, visit, key, attempts, settled_by, CASE WHEN child <> '' THEN 1 ELSE 0 END AS is_child "
            f"FROM effect WHERE tenant = {MARK} AND undoes = '' ORDER BY first_at DESC LIMIT {MARK}) e "
            "ORDER BY first_at DESC"
        )
        return (Select(text, (self.tenant, self.most)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[CountedCall, ...]:
        known = {status.value: status for status in EffectStatus}
        return tuple(
            CountedCall._make((activity, known[str(status)], *rest, bool(is_child), lane))
            for activity, status, *rest, is_child, lane in found[0]
            if status in known
        )

    @override
    def find(self, rows: RowsInMemory) -> tuple[CountedCall, ...]:
        lanes = {run.run: run.lane for run in rows.under(RUN, (self.tenant,))}
        calls = [row for row in rows.under(EFFECT, (self.tenant,)) if not row.undoes]
        newest = nlargest(self.most, calls, key=lambda row: row.first_at)
        return tuple(
            CountedCall(
                e.activity, e.status, e.first_at, e.settled_at, of_run, e.visit, e.key, e.attempts, e.settled_by,
                bool(e.child_text), lanes.get(of_run, ""),
            )
            for e in newest
            for of_run in (e.run or e.by_run,)
        )  # fmt: skip


class CountedMemo(NamedTuple):
    """Memo of a lookup, or of a verdict of a policy. `body`: b'' for a lookup, whose answer is not read."""

    activity: str
    run: str
    visit: int
    key: str
    at: int  # business
    failed: bool
    body: bytes
    lane: str


@dataclass(frozen=True, slots=True)
class NewestMemos(Query[tuple[CountedMemo, ...]]):
    """The lookups and the verdicts of policies in the newest `runs` of a tenant, at most `most`.

    The run that was created last comes first. Requests to models are no lookups.
    """

    tenant: str
    runs: int = MEMO_RUNS_MAX
    most: int = MEMOS_MAX

    @override
    def statements(self) -> Sequence[Select]:
        verdict = f"m.digest = '' AND m.key >= {MARK} AND m.key < {MARK}"
        text = (
            "SELECT m.activity, m.run, m.visit, m.key, m.at, CASE WHEN m.error <> '' THEN 1 ELSE 0 END, "
            "CASE WHEN m.digest = '' THEN m.response END, r.lane FROM (SELECT tenant, run, lane, created_at FROM run "
            f"WHERE tenant = {MARK} ORDER BY created_at DESC, run DESC LIMIT {MARK}) r JOIN memo m "
            f"ON m.tenant = r.tenant AND m.run = r.run WHERE ({verdict}) "
            f"OR (m.digest <> '' AND m.activity NOT IN ({', '.join(MARK for _ in _OF_MODELS)})) "
            f"ORDER BY r.created_at DESC, m.run DESC, m.visit, m.key LIMIT {MARK}"
        )
        return (Select(text, (self.tenant, self.runs, *VERDICTS, *_OF_MODELS, self.most)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[CountedMemo, ...]:
        return tuple(
            CountedMemo(activity, run, visit, key, at, bool(failed), body or b"", lane)
            for activity, run, visit, key, at, failed, body, lane in found[0]
        )

    @override
    def find(self, rows: RowsInMemory) -> tuple[CountedMemo, ...]:
        newest = nlargest(self.runs, rows.under(RUN, (self.tenant,)), key=lambda run: (run.created_at, run.run))
        found = [
            CountedMemo(
                memo.activity, memo.run, memo.visit, memo.key, memo.at, bool(memo.error_text),
                b"" if memo.digest else memo.response or b"", run.lane,
            )
            for run in newest
            for memo in sorted(rows.under(MEMO, (self.tenant, run.run)), key=lambda memo: (memo.visit, memo.key))
            if _is_counted(memo)
        ]  # fmt: skip
        return tuple(found[: self.most])


def _is_counted(memo: Memo) -> bool:
    first, after = VERDICTS
    return memo.activity not in _OF_MODELS if memo.digest else first <= memo.key < after
