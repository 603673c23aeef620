"""Causes of flagged runs with their numbers, and bars of runs by time."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from outlast.core.attributes import attribute_text
from outlast.core.causes import FORM_CHARS_MAX, CauseName, cause_mark, causes_in, name_in, normal_form
from outlast.core.commit import Instant
from outlast.core.durations import MINUTE
from outlast.core.lanes import version_in, workflow_in
from outlast.core.limits import FLAGGED_MAX
from outlast.core.machine import Reason
from outlast.core.paging import pages
from outlast.core.rows.columns import decoded
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import EVENT, Run
from outlast.core.rows.store_rows import STORE, TOPOLOGY
from outlast.core.run_filters import Interval
from outlast.core.state.snapshot_codec import MARK
from outlast.errors import Corrupt, InvalidInput, NotFound
from outlast.insight.counted_time import counted_runs, counted_time
from outlast.insight.tenant_rows import TenantRows
from outlast.models import exact_instant, instant
from outlast.models.causes import (
    Bar,
    Bars,
    Cause,
    CauseDetail,
    CauseList,
    CountedField,
    CountedValue,
    FirstSeen,
)
from outlast.operations.cause_operations import GetBars
from outlast.store.bars import (
    ANY,
    OUTCOMES,
    BarSpan,
    Causes,
    CountedBars,
    EndBars,
    FirstFlagged,
    FlaggedBars,
    FlaggingTimes,
    LastFlaggings,
    OfRuns,
    StartBars,
    TimesOfCauses,
)
from outlast.store.open_rows import FlaggedCounts, FlaggedRuns
from outlast.telemetry.redact import redact, redacted

BARS: Final = 48
BAR: Final = 30 * MINUTE
GROUPS_MAX: Final = 200
"""Values of the column `causes`, those with most runs, that are read."""
RUNS_READ_MAX: Final = 1_000
PAGE: Final = 200
FIELDS_MAX: Final = 20
VALUES_MAX: Final = 5
VALUE_CHARS_MAX: Final = 100
FLAGGED: Final = "flagged"
_LIST: Final = "outlast causes ls"
_EVER: Final = BarSpan(1, 2**52, 1)
STARTS: Final = "starts"


class _Groups(NamedTuple):
    """Flagged runs by the column `causes`, each with the run that was flagged first, and all flaggings by cause."""

    groups: tuple[FlaggedRuns, ...]
    first: dict[str, Run]
    times: dict[str, list[FlaggingTimes]]
    """Flaggings by cause, also those that were answered."""
    more: bool
    at_least: bool


async def _groups(of: TenantRows, cause: str = "") -> _Groups:
    counts = await of.store.query(FlaggedCounts(of.tenant))
    groups, more = _with_most_runs(counts, cause)
    texts = tuple(each.causes for each in groups)
    first = await of.store.query(FirstFlagged(of.tenant, texts)) if texts else ()
    return _Groups(
        groups,
        {run.causes: run for run in first},
        await _times(of) if texts else {},
        more,
        _cut(of, counts),
    )


async def _times(of: TenantRows) -> dict[str, list[FlaggingTimes]]:
    found: dict[str, list[FlaggingTimes]] = {}
    for each in await of.store.query(TimesOfCauses(of.tenant)):
        for name in causes_in(each.causes):
            found.setdefault(name.cause, []).append(each)
    return found


def _with_most_runs(counts: Sequence[FlaggedRuns], cause: str) -> tuple[tuple[FlaggedRuns, ...], bool]:
    """Return the counts with a cause ('' = any), at most GROUPS_MAX, and whether some were left out."""
    named = [each for each in counts if not cause or any(name.cause == cause for name in causes_in(each.causes))]
    return tuple(sorted(named, key=lambda each: -each.runs)[:GROUPS_MAX]), len(named) > GROUPS_MAX


def _cut(of: TenantRows, counts: Sequence[FlaggedRuns]) -> bool:
    """Return True if the store may have more flagged runs than it has counted: one whose indexes lag stops there."""
    return of.store.skew > 0 and sum(each.runs for each in counts) >= FLAGGED_MAX


async def cause_list(of: TenantRows, *, reason: str = "", workflow: str = "", node: str = "") -> CauseList:
    """Return the causes of the runs that need a person."""
    span = _last_day(await of.store.now())
    groups = await _groups(of)
    causes, all_flaggings = await _causes(of, groups, span, await _deploys(of))
    found = [
        each
        for each, _ in causes
        if reason in ("", each.reason) and workflow in ("", each.workflow) and node in ("", each.node)
    ]
    found.sort(key=lambda each: (each.reason != Reason.EFFECT_UNCERTAIN.value, -each.runs, each.cause))
    return CauseList(
        causes=found,
        more=groups.more or groups.at_least,
        at_least=groups.at_least,
        about=of.store.skew > 0,
        bars_since=exact_instant(span.since),
        bar_ms=span.width,
        bars_at_least=not all_flaggings,
    )


def _last_day(now: Instant) -> BarSpan:
    """Return the last 48 half-hours, of which the last one is not over."""
    return BarSpan((now.business // BAR + 1 - BARS) * BAR, BAR, BARS)


async def _deploys(of: TenantRows) -> dict[str, int]:
    """Return the instant at which each lane was first served, as its worker wrote it."""
    return {row.lane: row.at for row in await of.store.rows(TOPOLOGY, (STORE,), listed=True)}


async def _causes(
    of: TenantRows, groups: _Groups, span: BarSpan, deploys: Mapping[str, int]
) -> tuple[list[tuple[Cause, Attention]], bool]:
    """Return each cause once, with an entry of its example, and whether the bars have every flagging.

    A run with several causes counts for each of them.
    """
    parts: dict[CauseName, list[FlaggedRuns]] = {}
    for group in groups.groups:
        for name in causes_in(group.causes):
            parts.setdefault(name, []).append(group)
    bars, all_flaggings = await _bars_of(of, [groups.times.get(name.cause, []) for name in parts], span)
    found: list[tuple[Cause, Attention]] = []
    for (name, open_runs), counts in zip(parts.items(), bars, strict=True):
        runs = [groups.first[each.causes] for each in open_runs if each.causes in groups.first]
        if not runs:  # they were answered between two reads
            continue
        run = min(runs, key=lambda each: each.flagged_at)
        entry = _entry(run, name)
        times = groups.times.get(name.cause, [])
        first = min(times, key=lambda each: each.since, default=None)
        found.append(
            (
                Cause(
                    cause=name.cause,
                    reason=name.reason,
                    workflow=run.workflow,
                    node=run.node,
                    name=entry.name,
                    text=redact(normal_form(entry.detail)),
                    example=_example(entry.detail),
                    version=version_in(first.lane if first else run.lane),
                    deployed=_deployed(deploys, first.lane if first else run.lane, run.flagged_at),
                    since=exact_instant(first.since if first else run.flagged_at),
                    last=exact_instant(max((each.last for each in times), default=run.flagged_at)),
                    runs=sum(each.runs for each in open_runs),
                    run=run.run,
                    bars=[*counts],
                ),
                entry,
            )
        )
    return found, all_flaggings


async def _bars_of(
    of: TenantRows, times: Sequence[Sequence[FlaggingTimes]], span: BarSpan
) -> tuple[list[Sequence[int]], bool]:
    """Return the bars of each cause from the values of the column `causes` that have it, and whether they are exact."""
    known = [tuple(text.causes for text in each) for each in times if each]
    counted = await of.store.query(FlaggedBars(of.tenant, span, tuple(known))) if known else CountedBars(())
    found = iter(counted.counts)
    return [next(found) if each else (0,) * span.bars for each in times], counted.all


def _deployed(deploys: Mapping[str, int], lane: str, flagged_at: int) -> datetime | None:
    """Return when a version was deployed; None if not known, or written after its run was flagged."""
    at = deploys.get(lane, 0)
    return instant(at) if at <= flagged_at else None


def _example(detail: str) -> str:
    """Return the first line of a message, redacted and no longer than its normal form may be."""
    line = redact(detail.strip().partition("\n")[0])
    return line if len(line) <= FORM_CHARS_MAX else line[: FORM_CHARS_MAX - 1] + "…"


def _entry(run: Run, name: CauseName) -> Attention:
    alike = [each for each in run.attention if each.reason.value == name.reason]
    exact = [each for each in alike if (each.cause or each.reason.value) == name.cause]
    return next(iter([*exact, *alike, *run.attention]))


async def cause_detail(of: TenantRows, cause: str) -> CauseDetail:
    """Return one cause with what differs among its runs, or its past if no run has it now. Raises NotFound."""
    span = _last_day(await of.store.now())
    groups, lanes = await _groups(of, cause), await _deploys(of)
    causes, all_flaggings = await _causes(of, groups, span, lanes)
    shown, detail = next(((each, entry.detail) for each, entry in causes if each.cause == cause), (None, ""))
    if shown is None:
        shown, detail, all_flaggings = await _past(of, cause, span, lanes)
    runs = await _runs_of(of, cause) if shown.runs else []
    seen = {version_in(lane): at for lane, at in lanes.items() if workflow_in(lane) == shown.workflow}
    return CauseDetail(
        **dict(shown),
        detail=redact(detail),
        read=len(runs),
        versions=_counted(str(version_in(run.lane)) for run in runs),
        fields=await _fields(of, runs),
        deploys=[
            FirstSeen(version=version, at=exact_instant(at))
            for version, at in sorted(seen.items(), key=lambda each: -each[1])[:FIELDS_MAX]
        ],
        at_least=groups.at_least,
        about=of.store.skew > 0,
        bars_since=exact_instant(span.since),
        bar_ms=span.width,
        bars_at_least=not all_flaggings,
    )


async def _past(of: TenantRows, cause: str, span: BarSpan, deploys: Mapping[str, int]) -> tuple[Cause, str, bool]:
    """Return a cause that no run has now, the message of its last run, and whether its bars have every flagging.

    Raises NotFound if no run had it.
    """
    times = (await _times(of)).get(cause, [])
    at = max((each.last for each in times), default=0)
    flaggings = await of.store.query(LastFlaggings(of.tenant, Interval(at, at + 1), OfRuns(cause=cause_mark(cause))))
    if not flaggings.rows:
        raise NotFound(f"no run needs a person for the cause {cause}", "no run had it, or these were deleted", _LIST)
    last = flaggings.rows[0]
    (event,) = await of.store.load_many(EVENT, [(of.tenant, last.run, last.seq)])
    detail = str(event.data().get("detail", "")) if event is not None else ""
    first = min(times, key=lambda each: each.since)
    reason = next(name.reason for name in causes_in(last.causes) if name.cause == cause)
    (bars,), all_flaggings = await _bars_of(of, [times], span)
    shown = Cause(
        cause=cause,
        reason=reason,
        workflow=last.workflow,
        node=event.node if event is not None else "",
        name=name_in(detail) if reason == Reason.EXCEPTION.value else "",
        text=redact(normal_form(detail)),
        example=_example(detail),
        version=version_in(first.lane),
        deployed=_deployed(deploys, first.lane, first.since),
        since=exact_instant(first.since),
        last=exact_instant(at),
        runs=0,
        run=last.run,
        bars=[*bars],
    )
    return shown, detail, all_flaggings


async def _runs_of(of: TenantRows, cause: str) -> list[Run]:
    """Return the newest runs with a cause, at most RUNS_READ_MAX."""
    runs: list[Run] = []
    async for page in pages(partial(of.flagged, cause=cause, limit=PAGE)):
        runs += page.rows
        if len(runs) >= RUNS_READ_MAX:
            break
    return runs


def _counted(values: Iterable[str]) -> list[CountedValue]:
    return [CountedValue(value=value, runs=n) for value, n in Counter(values).most_common(VALUES_MAX)]


async def _fields(of: TenantRows, runs: Sequence[Run]) -> list[CountedField]:
    """Count the values of each attribute, and of each field of the runs' inputs that is a text, a number or a boolean.

    A field with the name of an attribute is left out, because a list finds the runs by the attribute.
    """
    found: dict[str, Counter[str]] = {}
    for run in runs:
        for each in run.attributes:
            if text := attribute_text(each.value):
                found.setdefault(each.name, Counter())[text] += 1
    attributes = frozenset(found)
    for first in range(0, len(runs), PAGE):
        keys = [(run.tenant, run.run, 1) for run in runs[first : first + PAGE]]
        for event in await of.store.load_many(EVENT, keys, listed=True):
            if event is None or event.snapshot is None or event.snapshot[:1] == MARK:
                continue  # deleted, or too large to be compared
            for name, value in _plain(event.snapshot).items():
                if isinstance(value, str | int | float) and name not in attributes:
                    found.setdefault(str(name), Counter())[str(value)[:VALUE_CHARS_MAX]] += 1
    return [
        CountedField(
            name=name,
            values=[CountedValue(value=value, runs=n) for value, n in counts.most_common(VALUES_MAX)],
            others=max(0, len(counts) - VALUES_MAX),
            attribute=name in attributes,
        )
        for name, counts in list(found.items())[:FIELDS_MAX]
    ]


def _plain(snapshot: bytes) -> dict[str, Any]:
    try:
        value = redacted(decoded(snapshot, "its input"))
    except Corrupt:
        return {}
    return value if isinstance(value, dict) else {}


async def ended_runs(of: TenantRows, request: GetBars) -> tuple[dict[str, int], bool]:
    """Return the number of ended runs by outcome, and whether these are lower bounds."""
    ended = await of.store.query(EndBars(of.tenant, _EVER, _wanted(request)))
    return dict(zip((each.value for each in OUTCOMES), map(sum, ended.counts), strict=True)), not ended.all


async def flagged_runs(of: TenantRows, request: GetBars) -> tuple[int, bool]:
    """Return the number of runs that need a person, and whether it is a lower bound."""
    counts = await of.store.query(FlaggedCounts(of.tenant, _wanted(request)))
    return sum(each.runs for each in counts), _cut(of, counts)


def _wanted(request: GetBars) -> OfRuns:
    return counted_runs(request.workflow, request.version, request.cause)


async def counted_bars(of: TenantRows, request: GetBars) -> Bars:
    """Count runs by their end, and by the times at which they began to need a person. Raises InvalidInput."""
    span = _span(request, await of.store.now())
    outcomes = [each.value for each in OUTCOMES]
    if request.outcome and request.outcome not in (*outcomes, FLAGGED):
        raise InvalidInput(f"outcome is {request.outcome!r}", f"it is one of {', '.join((*outcomes, FLAGGED))}")
    wanted = _wanted(request)
    of_starts = request.of == STARTS
    if of_starts and (request.outcome or request.cause):
        raise InvalidInput(
            "a start with an outcome or a cause", "a run has them later", "count ends, or leave them out"
        )
    of_ends = not of_starts and request.outcome != FLAGGED
    of_flaggings = not of_starts and request.outcome in ("", FLAGGED)
    ended, flagged, started = await asyncio.gather(
        of.store.query(EndBars(of.tenant, span, wanted)) if of_ends else _nothing(span),
        _flagged(of, span, wanted, request.cause) if of_flaggings else _nothing(span),
        of.store.query(StartBars(of.tenant, span, wanted)) if of_starts else _nothing(span),
    )
    by_outcome = dict(zip(outcomes, ended.counts, strict=True))
    none = (0,) * span.bars
    shown = {each: by_outcome[each] if request.outcome in ("", each) else none for each in outcomes}
    return Bars(
        bars=[
            Bar(
                at=exact_instant(span.since + n * span.width),
                flagged=flagged.counts[0][n],
                started=started.counts[0][n],
                **{each: counts[n] for each, counts in shown.items()},
            )
            for n in range(span.bars)
        ],
        since=exact_instant(span.since),
        until=exact_instant(span.until),
        bar_ms=span.width,
        at_least=not (flagged.all and ended.all and started.all),
        about=of.store.skew > 0,
    )


def _span(request: GetBars, now: Instant) -> BarSpan:
    low, high = counted_time(request.since, request.until, now)
    return BarSpan(low, -(-(high - low) // request.bars), request.bars)


async def _nothing(span: BarSpan) -> CountedBars:
    return CountedBars(((0,) * span.bars,) * len(OUTCOMES))


async def _flagged(of: TenantRows, span: BarSpan, wanted: OfRuns, cause: str) -> CountedBars:
    """Count flaggings. Those of a cause are found by the values of their column `causes` that have it."""
    causes: Causes = ANY
    if cause:
        causes = tuple(each.causes for each in (await _times(of)).get(cause, []))
        if not causes:
            return await _nothing(span)
    return await of.store.query(FlaggedBars(of.tenant, span, (causes,), replace(wanted, cause="")))
