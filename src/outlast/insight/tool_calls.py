"""Calls of tools: the newest calls, lookups, denials and rejections of a tenant, as counts and as a list.

A count and its list come from the same reads, so a list has as many rows as its number says.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from outlast.core.effect_verbs import UNANSWERED
from outlast.core.lanes import version_in, workflow_in
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import RUN
from outlast.errors import Corrupt, InvalidInput
from outlast.insight.agent_calls import percentiles
from outlast.insight.tenant_rows import PAGE_ROWS_MAX, TenantRows
from outlast.models import exact_instant
from outlast.models.agents import CountedToolCall, ToolCallList, ToolFilter, ToolList, ToolOutcome, ToolUse
from outlast.operations.agent_operations import ListToolCalls
from outlast.store.agent_calls import CountedCall, CountedMemo, NewestCalls, NewestMemos
from outlast.store.queries import cursor_at, place_in

REJECTED_MAX: Final = 1_000
OFFERS: Final = "policy/offer/"
_OF_CALLS: Final = {
    EffectStatus.DONE: ToolOutcome.DONE, EffectStatus.REFUSED: ToolOutcome.REFUSED,
    EffectStatus.UNCERTAIN: ToolOutcome.UNCERTAIN, EffectStatus.UNDONE: ToolOutcome.UNDONE,
    EffectStatus.INTENDED: ToolOutcome.UNDER_WAY,
}  # fmt: skip
_NOT_MADE: Final = frozenset({ToolOutcome.DENIED, ToolOutcome.REJECTED})


class Counted(NamedTuple):
    """Call, lookup, denial or rejection. `took`: ms of the only attempt, None if there is no such time."""

    at: int
    """Business time of the first intent of a call, and of the end of the others."""
    run: str
    visit: int
    key: str
    tool: str
    lane: str
    outcome: ToolOutcome
    is_lookup: bool = False
    attempts: int = 0
    took: int | None = None
    approval: str = ""

    @property
    def place(self) -> Key:
        """Return the position in the list, in falling order."""
        return (self.at, self.run, self.visit, self.key, self.approval)

    def fits(self, of: ListToolCalls) -> bool:
        """Return True if a list has it."""
        return (
            of.tool in ("", self.tool)
            and of.workflow in ("", workflow_in(self.lane))
            and of.version in (None, version_in(self.lane))
            and (of.outcome is None or self._is(of.outcome))
        )

    def _is(self, wanted: ToolFilter) -> bool:
        """Return True if a filter keeps it."""
        if wanted is ToolFilter.MADE:
            return self.is_made
        return self.attempts > 1 if wanted is ToolFilter.AGAIN else wanted.value == self.outcome.value

    @property
    def is_made(self) -> bool:
        """Return True for a call of the ledger and for a lookup."""
        return self.outcome not in _NOT_MADE


class _CountedRows(NamedTuple):
    """Rows that were read, and whether there are earlier calls, or further memos of the counted runs."""

    found: list[Counted]
    calls: int
    every: bool
    lookups: int
    every_lookup: bool
    runs: int


async def _read(of: TenantRows) -> _CountedRows:
    of_calls, of_memos = NewestCalls(of.tenant), NewestMemos(of.tenant)
    calls = await of.store.query(of_calls)
    memos = await of.store.query(of_memos)
    found = [*counted_calls(calls, of.store.mapping().business), *counted_memos(memos), *await _rejected(of)]
    lookups = sum(each.is_lookup for each in found)
    return _CountedRows(
        found, len(calls), len(calls) < of_calls.most, lookups, len(memos) < of_memos.most, of_memos.runs
    )


async def tool_list(of: TenantRows, *, workflow: str) -> ToolList:
    """Return the newest calls by tool and version of a workflow, with lookups, denials and rejected requests."""
    read = await _read(of)
    kept = [each for each in read.found if workflow in ("", workflow_in(each.lane))]
    calls = read.calls if not workflow else sum(each.is_made and not each.is_lookup for each in kept)
    return ToolList(
        tools=tool_uses(kept),
        read=calls,
        every=read.every,
        lookups=sum(each.is_lookup for each in kept),
        every_lookup=read.every_lookup,
        newest_runs=read.runs,
    )


async def tool_calls(of: TenantRows, request: ListToolCalls) -> ToolCallList:
    """Return a page of the counted calls of a tool, the newest first. Raises InvalidInput."""
    if not 1 <= request.limit <= PAGE_ROWS_MAX:
        raise InvalidInput(f"limit is {request.limit}", f"a page has 1 to {PAGE_ROWS_MAX:,} rows", "use the cursor")
    after = place_in(request.cursor, (int, str, int, str, str)) if request.cursor else None
    read = await _read(of)
    left = [each for each in read.found if each.fits(request) and (after is None or each.place < after)]
    left.sort(key=lambda each: each.place, reverse=True)
    page = left[: request.limit]
    return ToolCallList(
        calls=[_shown(each) for each in page],
        every=read.every and read.every_lookup,
        next_cursor=cursor_at(page[-1].place) if len(left) > len(page) else "",
    )


def _shown(each: Counted) -> CountedToolCall:
    return CountedToolCall(
        tool=each.tool,
        workflow=workflow_in(each.lane),
        version=version_in(each.lane),
        outcome=each.outcome,
        read_only=each.is_lookup,
        run=each.run,
        visit=each.visit,
        key=each.key,
        at=exact_instant(each.at),
        attempts=each.attempts,
        took_ms=each.took,
        approval=each.approval,
    )


# --- what is counted ------------------------------------------------------------------------------------------
def counted_calls(calls: Iterable[CountedCall], business: Callable[[int], int]) -> list[Counted]:
    """Return rows of the ledger. A call has a time if its only attempt was answered; a child run has none."""
    found = []
    for call in calls:
        began = business(call.first_at)
        once = call.attempts == 1 and call.settled_by == "call" and not call.is_child
        answered = call.status in (EffectStatus.DONE, EffectStatus.UNDONE)
        took = max(0, call.settled_at - began) if once and answered and call.settled_at else None
        outcome = _OF_CALLS[call.status]
        found.append(
            Counted(
                began, call.run, call.visit, call.key, call.activity, call.lane, outcome, False, call.attempts, took
            )
        )
    return found


def counted_memos(memos: Iterable[CountedMemo]) -> list[Counted]:
    """Return lookups, and the calls that policies denied. A tool that was not offered is no call."""
    found = []
    for memo in memos:
        if not memo.body:
            key = memo.key.removeprefix(UNANSWERED)
            outcome = ToolOutcome.REFUSED if memo.failed or key != memo.key else ToolOutcome.DONE
            found.append(Counted(memo.at, memo.run, memo.visit, key, memo.activity, memo.lane, outcome, True))
        elif (tool := _denied(memo)) is not None:
            found.append(Counted(memo.at, memo.run, memo.visit, memo.key, tool, memo.lane, ToolOutcome.DENIED))
    return found


def _denied(memo: CountedMemo) -> str | None:
    """Return the activity whose call a verdict has denied; None for another verdict."""
    if memo.key.startswith(OFFERS) or b'"deny"' not in memo.body:
        return None
    try:
        body: Any = json.loads(memo.body)
    except ValueError:
        return None  # fsck reports it
    return str(body.get("activity", "")) if isinstance(body, dict) and body.get("verdict") == "deny" else None


async def _rejected(of: TenantRows) -> list[Counted]:
    """Return the newest requests that people rejected."""
    rows: list[Approval] = []
    for status in (ApprovalStatus.REJECTED, ApprovalStatus.AGAIN):
        rows += (await of.store.page(APPROVAL, of.tenant, {"status": status.value}, limit=REJECTED_MAX)).rows
    runs = await of.store.load_many(RUN, [*dict.fromkeys((row.tenant, row.run) for row in rows)], listed=True)
    lanes = {run.run: run.lane for run in runs if run is not None}
    found = []
    for row in rows:
        lane = lanes.get(row.run, "")
        for tool, key in _offered(row):
            at = row.decided_at
            found.append(Counted(at, row.run, row.visit, key, tool, lane, ToolOutcome.REJECTED, approval=row.id))
    return found


def _offered(row: Approval) -> Sequence[tuple[str, str]]:
    try:
        return [(row.plans[0].activity, row.plans[0].key)] if row.plans else []
    except Corrupt:
        return []  # fsck reports it


# --- counts -----------------------------------------------------------------------------------------------------
def tool_uses(counted: Iterable[Counted]) -> list[ToolUse]:
    """Return a line for each version of a workflow and tool, those with most calls first."""
    groups: dict[tuple[str, str], list[Counted]] = {}
    for each in counted:
        groups.setdefault((each.lane, each.tool), []).append(each)
    uses = [_use(lane, tool, found) for (lane, tool), found in groups.items()]
    return sorted(uses, key=lambda use: (-use.calls, use.tool, use.workflow, -use.version))


def _use(lane: str, tool: str, found: Sequence[Counted]) -> ToolUse:
    lookups = sum(each.is_lookup for each in found)
    by = Counter(each.outcome for each in found)
    times = [each.took for each in found if each.took is not None]
    p50, p95 = percentiles(times)
    return ToolUse(
        tool=tool,
        workflow=workflow_in(lane),
        version=version_in(lane),
        read_only=lookups > 0,
        calls=sum(each.is_made for each in found),
        again=sum(each.attempts > 1 for each in found),
        **{outcome.value: by[outcome] for outcome in ToolOutcome},
        timed=len(times),
        p50_ms=p50,
        p95_ms=p95,
    )
