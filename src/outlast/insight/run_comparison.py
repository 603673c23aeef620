"""Comparison of two runs of one workflow: where they part, and each further difference.

Visits are aligned by their nodes: in order, and after a difference by the nearest pair of equal nodes. Within a pair of
visits, calls are aligned by activity and key, without the visit. A visit that only one run has is one difference, with
the number of its calls. So are two visits in the same place to different nodes.

Undos, and effects of other runs that a run uses, belong to no visit that both runs know: they are aligned at the end.
Time is a difference of a visit if one is twice as long as the other and 1 s longer, because no two runs take equally
long. Runs part at the first difference beyond input, cost and time.

With `every`, the equal visits and calls are rows, too, so both runs can be read side by side. It is the same walk.

Messages are compared but not shown, because no other read of a viewer shows them.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, zip_longest
from typing import Final, NamedTuple, TypeAlias

from outlast.core.codec import compact
from outlast.core.durations import SECOND
from outlast.core.lanes import version_in
from outlast.core.rows.columns import decoded
from outlast.core.rows.run_rows import is_over
from outlast.core.usage import money_text
from outlast.errors import InvalidInput
from outlast.insight.compared_calls import FACETS, OF_CALLS, ComparedCall, calls_of
from outlast.insight.run_history import RunVisit
from outlast.insight.tenant_rows import ComparedRows, TenantRows
from outlast.insight.value_changes import MISSING, ChangedPlace, changed_places, shown_change
from outlast.models import exact_instant, instant
from outlast.models.comparison import (
    ComparedRun,
    ComparedSide,
    DifferenceKind,
    Facet,
    RunComparison,
    RunDifference,
    ValueChange,
)
from outlast.operations.run_operations import CompareRuns
from outlast.telemetry.redact import redact_shown, redacted

CHANGES_MAX: Final = 20
DETAIL_CHARS: Final = 200
LOOK_AHEAD: Final = 32
"""Visits that are passed over in both runs together, in search of a pair of equal nodes."""
TIMES_LONGER: Final = 2
LONGER_MS: Final = SECOND
_BESIDE: Final = frozenset[Facet]({"input", "cost", "time"})
"""Aspects in which two runs differ without parting."""
_Values: TypeAlias = tuple[Facet, bytes | str | None, bytes | str | None]
"""JSON of a value in both runs; None: the run has none."""


@dataclass(frozen=True)
class _Side:
    """One run, with its visits and its calls by visit."""

    rows: ComparedRows
    with_ledger: bool
    calls: dict[int, list[ComparedCall]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for call in sorted(calls_of(self.rows, with_ledger=self.with_ledger), key=ComparedCall.order):
            self.calls.setdefault(call.visit, []).append(call)

    @cached_property
    def visits(self) -> Sequence[RunVisit | None]:
        """Visits in order. None: its events are not in this history; in a fork they are those of its ancestor."""
        known = self.rows.steps.history.visits
        return (*([None] * (known[0].visit - 1)), *known)

    @property
    def copied(self) -> int:
        """Number of visits that the run has copied from its ancestor."""
        return self.visits.count(None)

    @cached_property
    def nth(self) -> dict[int, int]:
        """Numbers of its visits among those of their nodes; {} if the nodes of earlier visits are not known."""
        counts: Counter[str] = Counter()
        found = dict[int, int]()
        for n, each in enumerate(() if self.copied else self.visits, 1):
            counts[_node(each)] += 1
            found[n] = counts[_node(each)]
        return found

    def count(self) -> int:
        """Return the number of its compared rows."""
        return sum(map(len, self.calls.values()))


@dataclass
class _Found:
    """A difference before it is shown. Its texts are redacted only if a page shows it."""

    kind: DifferenceKind
    what: str
    key: str
    differs: list[Facet]
    run: ComparedSide | ComparedCall | None
    other: ComparedSide | ComparedCall | None
    values: Sequence[_Values] = ()
    equal_visits: int = 0
    equal_calls: int = 0

    @property
    def parts(self) -> bool:
        """True if the runs part here, unless they parted before."""
        return not _BESIDE.issuperset(self.differs)


async def compared_runs(rows: TenantRows, request: CompareRuns) -> RunComparison:
    """Return a page of the differences of two runs, made in a thread because large values take seconds."""
    run = await rows.compared_rows(request.run, request.limit)
    other = await rows.compared_rows(request.other, request.limit)
    return await asyncio.to_thread(
        comparison_of, run, other, after=request.after, limit=request.limit, every=request.every
    )


def comparison_of(
    run: ComparedRows, other: ComparedRows, *, after: int = 0, limit: int = 50, every: bool = False
) -> RunComparison:
    """Return a page of the differences of two runs, `after` a number. `every`: with what is equal.

    It redacts the texts of the page, which takes time for large values: call it in a thread. Raises InvalidInput for
    runs of two workflows.
    """
    if run.run.workflow != other.run.workflow:
        raise InvalidInput(
            f"{run.run.run} is a run of {run.run.workflow}, {other.run.run} one of {other.run.workflow}",
            "only runs of one workflow can be compared, of any versions",
            f"choose another one: outlast runs ls --workflow {run.run.workflow}",
        )
    with_ledger = not (run.ledger_purged or other.ledger_purged)
    a, b = _Side(run, with_ledger), _Side(other, with_ledger)
    found, equal_visits, equal_calls = _differences(a, b, every=every)
    first = next(((n, each) for n, each in enumerate(found, 1) if each.parts), None)
    error = next(((n, each) for n, each in enumerate(found, 1) if each.kind == "error" and each.differs), None)
    after = max(0, after)
    page = [_shown(n, each, a, b) for n, each in enumerate(found[after : after + limit], after + 1)]
    return RunComparison(
        run=_run_of(a),
        other=_run_of(b),
        first=_shown(*first, a, b) if first is not None else None,
        error=_shown(*error, a, b) if error is not None else None,
        differences=page,
        total=sum(bool(each.differs) for each in found),
        rows=len(found),
        equal_visits=equal_visits,
        equal_calls=equal_calls,
        not_compared=[*_of_forks(a, b), *_not_compared(run, other)],
        next_cursor=str(after + limit) if after + limit < len(found) else "",
    )


def _of_forks(*sides: _Side) -> Iterator[str]:
    for each in sides:
        visits = f"{each.copied} visit{'' if each.copied == 1 else 's'}"
        if each.copied and not each.rows.run.forked_from:
            yield f"the first {visits} of {each.rows.run.run} have been purged, so they are not compared"
        elif each.copied:
            yield f"{each.rows.run.run} is a fork: its input and its first {visits} are those of its ancestor"


def _not_compared(run: ComparedRows, other: ComparedRows) -> Iterator[str]:
    for each in (run, other):
        if each.given is None:
            yield f"the input of {each.run.run} has been deleted, so inputs are not compared"
        if each.ledger_purged:
            yield f"the ledger of {each.run.run} has been purged, so calls, lookups and verdicts are not compared"
    if not (is_over(run.run) or is_over(other.run)):
        yield "neither run has ended, so their ends are not compared"


def _run_of(side: _Side) -> ComparedRun:
    run, usage = side.rows.run, side.rows.steps.usage
    money = sum(used.money for used in usage)
    return ComparedRun(
        run=run.run,
        workflow=run.workflow,
        workflow_version=version_in(run.lane),
        status=run.status.value,
        node=run.node,
        visits=len(side.visits),
        calls=side.count(),
        began=exact_instant(run.created_at),
        ended=instant(run.ended_at),
        tokens=sum(used.tokens for used in usage),
        money=money_text(money) if money else "",
    )


# --- differences -----------------------------------------------------------------------------------
def _differences(a: _Side, b: _Side, *, every: bool) -> tuple[list[_Found], int, int]:
    """Return all differences, with `every` all rows, and the numbers of equal visits and of equal calls."""
    found: list[_Found] = []
    equal_visits = equal_calls = visits = calls = 0
    for each in chain(_input(a, b), _visits(a, b), _last_calls(a, b), _end(a, b)):
        if isinstance(each, _Found):
            each.equal_visits, each.equal_calls = visits, calls
            visits = calls = 0
            found.append(each)
        else:
            if every:
                found += each.rows
            else:
                visits, calls = visits + each.visits, calls + each.calls
            equal_visits, equal_calls = equal_visits + each.visits, equal_calls + each.calls
    return found, equal_visits, equal_calls


class _Equal(NamedTuple):
    """Visits that are equal as a whole, and equal calls. `rows`: what both runs have there, without a difference."""

    visits: int = 0
    calls: int = 0
    rows: Sequence[_Found] = ()


def _input(a: _Side, b: _Side) -> Iterator[_Found]:
    given, other = a.rows.given, b.rows.given
    if a.copied or b.copied:  # the first state of a fork is that of its checkpoint
        return
    if given is not None and other is not None and given != other:
        yield _Found("input", "input", "", ["input"], _BLANK, _BLANK, [("input", given, other)])


def _end(a: _Side, b: _Side) -> Iterator[_Found]:
    run, other = a.rows.run, b.rows.run
    if not (is_over(run) or is_over(other)):
        return
    ends = a.rows.steps.history.end, b.rows.steps.history.end
    values = [compact(end.outcome) if end is not None and end.outcome is not None else None for end in ends]
    reasons = [end.reason if end is not None else "" for end in ends]
    if (run.status, values[0], reasons[0]) != (other.status, values[1], reasons[1]):
        one, two = (
            _BLANK.model_copy(update={"status": each.status.value, "detail": _detail(reason), "visit": each.visit})
            for each, reason in zip((run, other), reasons, strict=True)
        )
        changed: list[_Values] = [("end", values[0], values[1])] if values[0] != values[1] else []
        yield _Found("end", "run", "", ["end"], one, two, changed)


def _visits(a: _Side, b: _Side) -> Iterator[_Found | _Equal]:
    for n, m in aligned([_node(each) for each in a.visits], [_node(each) for each in b.visits]):
        if n is None or m is None or not _same_node(_node(a.visits[n]), _node(b.visits[m])):
            yield _of_visit(a, n, b, m, ["node"])
        else:
            yield from _one_visit(a, n, b, m)


def _one_visit(a: _Side, n: int, b: _Side, m: int) -> Iterator[_Found | _Equal]:
    """Yield the differences of two visits to one node. Those that a fork has copied are equal by construction."""
    heading = _of_visit(a, n, b, m, [])
    if a.visits[n] is None or b.visits[m] is None:
        yield _Equal(1, max(len(side.calls.get(at + 1, ())) for side, at in ((a, n), (b, m))), (heading,))
        return
    pairs = list(paired(a.calls.get(n + 1, ()), b.calls.get(m + 1, ())))
    differences = [_of_calls(*pair) for pair in pairs]
    equal = [_of_equal(*pair) for pair in pairs]
    if _took_longer(_ms(a.visits[n]), _ms(b.visits[m])):
        yield _of_visit(a, n, b, m, ["time"])
    elif not any(differences):
        yield _Equal(1, len(pairs), (heading, *equal))
        return
    else:
        yield _Equal(rows=(heading,))
    for each, same in zip(differences, equal, strict=True):
        yield each or _Equal(calls=1, rows=(same,))


def _last_calls(a: _Side, b: _Side) -> Iterator[_Found | _Equal]:
    """Yield the differences of calls that belong to no visit."""
    for pair in paired(a.calls.get(0, ()), b.calls.get(0, ())):
        yield _of_calls(*pair) or _Equal(calls=1, rows=(_of_equal(*pair),))


def _of_equal(a: ComparedCall | None, b: ComparedCall | None) -> _Found:
    """Return two calls of one identity as a row without a difference."""
    only = a or b
    assert only is not None, "one of a pair is there"
    return _Found(only.kind, only.what, only.key, [], a, b)


def _of_calls(a: ComparedCall | None, b: ComparedCall | None) -> _Found | None:
    """Return the difference of two calls of one identity, of which one may be missing; None for equal ones."""
    if a is None or b is None:
        only = a or b
        assert only is not None, "one of a pair is there"
        return _Found(only.kind, only.what, only.key, ["call"], a, b)
    differs = a.differs_from(b)
    if not differs:
        return None
    given, answered = FACETS.get(a.kind, OF_CALLS)
    values: list[_Values] = []
    if a.arguments is None and a.digest != b.digest:  # the row has only the digest of its arguments
        values.append((given, compact({"digest": a.digest}), compact({"digest": b.digest})))
    elif a.arguments != b.arguments:
        values.append((given, a.arguments, b.arguments))
    if a.kind == "error":
        values += _first_line(str(a.answer), str(b.answer))
    elif a.answer != b.answer and a.kind != "wait":
        values.append((answered, a.answer, b.answer))
    return _Found(a.kind, a.what, a.key, differs, a, b, values)


def _first_line(run: str, other: str) -> Iterator[_Values]:
    """Yield the first line after the message in which two tracebacks differ, named by its number."""
    lines = zip_longest(run.splitlines()[1:], other.splitlines()[1:])
    differing = next(((n, pair) for n, pair in enumerate(lines, 2) if pair[0] != pair[1]), None)
    if differing is not None:
        n, pair = differing
        before, after = (compact({f"line_{n}": text.strip()}) if text is not None else None for text in pair)
        yield "error", before or b"{}", after or b"{}"


def _of_visit(a: _Side, n: int | None, b: _Side, m: int | None, differs: list[Facet]) -> _Found:
    one, two = (None if at is None else _visit_side(side, at) for side, at in ((a, n), (b, m)))
    nodes = dict.fromkeys(side.node for side in (one, two) if side is not None)
    return _Found("visit", " | ".join(nodes), "", differs, one, two)


def _visit_side(side: _Side, at: int) -> ComparedSide:
    visit, calls = side.visits[at], len(side.calls.get(at + 1, ()))
    update = {"visit": at + 1, "node": _node(visit), "ms": _ms(visit)}
    return _BLANK.model_copy(update={**update, "detail": f"{calls} call{'' if calls == 1 else 's'}"})


# --- alignment -------------------------------------------------------------------------------------
def aligned(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Yield pairs of positions of two lists of nodes, in order; None where one list has no counterpart.

    Members between two pairs of equal nodes are paired by position. '' is equal to each node.
    """
    i = j = 0
    while i < len(a) and j < len(b):
        n, m = _to_next_pair(a, i, b, j)
        yield from zip_longest(range(i, i + n), range(j, j + m))
        i, j = i + n, j + m
        if i < len(a) and j < len(b):
            yield i, j
            i, j = i + 1, j + 1
    yield from zip_longest(range(i, len(a)), range(j, len(b)))


def _to_next_pair(a: Sequence[str], i: int, b: Sequence[str], j: int) -> tuple[int, int]:
    """Return how many members of both lists are before the nearest pair of equal nodes; (1, 1) if none is near."""
    for both in range(LOOK_AHEAD):
        for n in range(both + 1):
            m = both - n
            if i + n < len(a) and j + m < len(b) and _same_node(a[i + n], b[j + m]):
                return n, m
    return 1, 1


def paired(
    a: Sequence[ComparedCall], b: Sequence[ComparedCall]
) -> Iterator[tuple[ComparedCall | None, ComparedCall | None]]:
    """Yield pairs of calls of one identity, in the order of the first run; None where a run has no such call.

    The key of a lookup may be made of its arguments. So lookups of one name that are left are paired in their order.
    """
    partners = _partners(a, b)
    taken, shown = {n for n in partners if n is not None}, 0
    for call, partner in zip(a, partners, strict=True):
        if partner is None:
            yield call, None
            continue
        yield from ((None, b[n]) for n in range(shown, partner) if n not in taken)
        yield call, b[partner]
        shown = max(shown, partner + 1)
    yield from ((None, b[n]) for n in range(shown, len(b)) if n not in taken)


def _partners(a: Sequence[ComparedCall], b: Sequence[ComparedCall]) -> Sequence[int | None]:
    """Return for each call of a run the position of its partner in the other one, or None."""
    by_identity: dict[tuple[str, ...], deque[int]] = {}
    for n, call in enumerate(b):
        by_identity.setdefault(call.identity, deque()).append(n)
    found = [_next_of(by_identity, call.identity) for call in a]
    by_name: dict[tuple[str, ...], deque[int]] = {}
    for n in sorted(chain.from_iterable(by_identity.values())):
        by_name.setdefault(b[n].name, deque()).append(n)
    return [
        _next_of(by_name, call.name) if n is None and call.is_lookup else n for call, n in zip(a, found, strict=True)
    ]


def _next_of(places: dict[tuple[str, ...], deque[int]], name: tuple[str, ...]) -> int | None:
    """Return the first place that is left under a name, and take it; None if none is left."""
    left = places.get(name)
    return left.popleft() if left else None


def _node(visit: RunVisit | None) -> str:
    return visit.node if visit is not None else ""


def _same_node(a: str, b: str) -> bool:
    return a == b or not a or not b


def _ms(visit: RunVisit | None) -> int | None:
    return visit.left - visit.entered if visit is not None and visit.left else None


def _took_longer(a: int | None, b: int | None) -> bool:
    if a is None or b is None:
        return False
    return max(a, b) >= max(TIMES_LONGER * min(a, b), min(a, b) + LONGER_MS)


# --- shown -----------------------------------------------------------------------------------------
_BLANK: Final = ComparedSide.model_construct(
    visit=0, nth=0, node="", status="", detail="", by="", ms=None, tokens=0, money="", step=""
)


def _shown(n: int, found: _Found, a: _Side, b: _Side) -> RunDifference:
    changes = [(facet, change) for facet, *values in found.values for change in _changes(*values)]
    return RunDifference(
        n=n,
        kind=found.kind,
        what=redacted(found.what),
        key=redacted(found.key),
        differs=found.differs,
        run=_side_of(found.run, a),
        other=_side_of(found.other, b),
        changes=[_value_change(facet, change) for facet, change in changes[:CHANGES_MAX]],
        more_changes=max(0, len(changes) - CHANGES_MAX),
        equal_visits=found.equal_visits,
        equal_calls=found.equal_calls,
    )


def _side_of(side: ComparedSide | ComparedCall | None, of: _Side) -> ComparedSide | None:
    if side is None:
        return None
    if not isinstance(side, ComparedCall):
        return side.model_copy(update={"nth": of.nth.get(side.visit, 0)})
    return ComparedSide(
        visit=side.visit,
        nth=of.nth.get(side.visit, 0),
        node=side.node,
        status=side.status,
        detail=_detail(side.detail),
        by=side.by,
        ms=None if side.ms is None else max(0, side.ms),
        tokens=side.tokens,
        money=money_text(side.money) if side.money else "",
        step=side.step,
    )


def _changes(run: bytes | str | None, other: bytes | str | None) -> Iterable[ChangedPlace]:
    before, after = (MISSING if text is None else decoded(text, "a compared value") for text in (run, other))
    return changed_places(before, after)


def _value_change(facet: Facet, change: ChangedPlace) -> ValueChange:
    path, before, after = shown_change(change)
    return ValueChange(of=facet, path=path, run=before, other=after)


def _detail(text: str) -> str:
    shown = redact_shown(text)
    return shown if len(shown) <= DETAIL_CHARS else f"{shown[:DETAIL_CHARS]}…"
