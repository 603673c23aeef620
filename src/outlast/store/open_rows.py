"""Reads of the rows that wait for a person, or that a caller left, whatever number of other rows a store has.

These are flagged runs, pending approvals, uncertain effects, deliveries that were given up, and messages of callers.
Each kind has an index of such rows alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from typing_extensions import override

from outlast.core.approver_rule import OF_RUN
from outlast.core.causes import cause_mark, reason_mark
from outlast.core.durations import DAY
from outlast.core.limits import COUNT_MAX
from outlast.core.machine import ApprovalStatus, DeliveryStatus, EffectStatus, LeaseStatus, Reason, SubscriptionStatus
from outlast.core.mailbox import GIVEN_UP, is_unknown
from outlast.core.row_checks import listed
from outlast.core.rows.all_kinds import R, Row
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import APPROVAL, BY_ITSELF, EFFECT, Approval, Effect
from outlast.core.rows.limit_rows import PAUSE, Pause
from outlast.core.rows.outbox_rows import DELIVERY, SUBSCRIPTION, Delivery, Subscription
from outlast.core.rows.row_kind import AnyKind, Key, Kind, key_of
from outlast.core.rows.run_rows import ACTS, ACTS_WITH_REASON, MESSAGE, RUN
from outlast.core.rows.store_rows import STORE, WORKER, lanes_served
from outlast.store.bars import EVERY, OfRuns
from outlast.store.queries import PAGE_MAX, Page, Query, Select, check_columns, cursor_at, place_after
from outlast.store.rows_in_memory import IS_OPEN, RowsInMemory
from outlast.store.sql import MARK, SQL, Values, equal, listed_rows


class _Open(NamedTuple):
    """The open rows of a kind: their condition, as their index repeats it, and their order."""

    condition: str
    order: str
    earliest: bool  # first; else the latest is


def _among(kinds: Iterable[str]) -> str:
    # Not `IN`: each insert would make a table of the names.
    return " OR ".join(f"kind = '{each}'" for each in sorted(kinds))


_OPEN: Final = {
    RUN.name: _Open("flagged_at <> 0", "created_at", False),
    APPROVAL.name: _Open(f"status = '{ApprovalStatus.PENDING}'", "within_until", True),
    EFFECT.name: _Open(f"status = '{EffectStatus.UNCERTAIN}'", "first_at", False),
    DELIVERY.name: _Open(f"status = '{DeliveryStatus.DEAD}'", "first_at", False),
    MESSAGE.name: _Open(
        f"({_among(ACTS)} OR (({_among(ACTS_WITH_REASON)}) AND length(payload) > 2)) "
        f"AND substr(actor, 1, {len(OF_RUN)}) <> '{OF_RUN}' AND (kind = 'signal' OR signal_id = '')",
        "at",
        False,
    ),
}


_NOT_STATED: Final = ", ".join(f"'{each}'" for each in sorted(BY_ITSELF))
_CODE: Final = ERROR.encode(EffectError(GIVEN_UP, "")).partition(",")[0]
_AFTER_CODE: Final = f"{_CODE[:-1]}{chr(ord(_CODE[-1]) + 1)}"
# The index has the conditions on status and error alone: with a third column each step would cost 2 % more.
_UNKNOWN: Final = _Open(
    f"status = '{EffectStatus.REFUSED}' AND error >= '{_CODE}' AND error < '{_AFTER_CODE}' "
    f"AND settled_by NOT IN ({_NOT_STATED})",
    "first_at",
    False,
)
"""Effects whose outcome is unknown (`mailbox.is_unknown`)."""


def open_order(kind: AnyKind) -> str:
    """Return the column by which the open rows of a kind are ordered."""
    return _OPEN[kind.name].order


def earliest_first(kind: AnyKind) -> bool:
    """Return True if a list of the kind's open rows begins with the earliest."""
    return _OPEN[kind.name].earliest


def open_place(kind: AnyKind, row: Row) -> Key:
    """Return the position of an open row: its instant, then its key without the tenant."""
    at = row[kind.columns.index(open_order(kind))]
    assert isinstance(at, int)
    return (at, *key_of(kind, row)[1:])


def open_cursor(kind: AnyKind, row: Row) -> str:
    """Return the opaque cursor that continues a list of open rows after a row."""
    return cursor_at(open_place(kind, row))


def marks(reason: str, cause: str) -> tuple[str, ...]:
    """Return the texts that the column `causes` of a run with this reason and this cause has; '' is any."""
    if reason and cause:
        return (f"{reason_mark(reason)}{cause_mark(cause)[1:]}",)
    return (*([reason_mark(reason)] if reason else ()), *([cause_mark(cause)] if cause else ()))


def has_marks(kind: AnyKind, row: Row, wanted: Sequence[str]) -> bool:
    """Return True if the column `causes` of a run has these texts. One without causes has a contradiction."""
    if not wanted:
        return True
    causes = str(row[kind.columns.index("causes")])
    return all(mark in causes for mark in wanted) or (not causes and wanted == _CONTRADICTION)


_CONTRADICTION: Final = marks(Reason.CONTRADICTION.value, "")


@dataclass(frozen=True, slots=True)
class OpenRows(Query[Page[R]]):
    """One page of a tenant's open rows whose columns equal `where`.

    Approvals come by their deadline, the earliest first. The rows of other kinds come newest first. `reason`, `cause`:
    only runs with an entry of this reason and this cause. `unknown`: in place of uncertain effects, those that a person
    gave up.
    """

    polls: ClassVar[bool] = True

    kind: Kind[R]
    tenant: str
    where: tuple[tuple[str, str | int], ...] = ()
    cursor: str = ""
    limit: int = 50
    reason: str = ""
    cause: str = ""
    unknown: bool = False

    @override
    def statements(self) -> Sequence[Select]:
        kind, names = self.kind, [name for name, _ in self.where]
        check_columns(kind, names)
        after, of = place_after(kind, self.cursor), _UNKNOWN if self.unknown else _OPEN[kind.name]
        place = (of.order, *kind.columns[1 : kind.key])
        begin = f" AND ({', '.join(place)}) {'>' if of.earliest else '<'} ({', '.join(MARK for _ in place)})"
        order = ", ".join(name if of.earliest else f"{name} DESC" for name in place)
        wanted = marks(self.reason, self.cause)
        # Not LIKE, in which "_" stands for any character.
        or_none = "causes = '' OR " if wanted == _CONTRADICTION else ""
        marked = f" AND ({or_none}replace(causes, {MARK}, '') <> causes)" * len(wanted)
        rest = (
            f" FROM {kind.name} WHERE {equal(['tenant', *names])} AND {of.condition}"
            f"{marked}{begin if after else ''} ORDER BY {order} LIMIT {MARK}"
        )
        values = (self.tenant, *(value for _, value in self.where), *wanted, *(after or ()), self._rows_max() + 1)
        if not wanted or names:
            return (Select(f"SELECT {SQL[kind.name].columns}{rest}", values),)
        # The index of open runs has all columns that the inner statement reads, so few of many runs are found fast.
        columns = ", ".join(f"r.{name}" for name in kind.columns)
        ordered = ", ".join(f"r.{name} DESC" for name in place)
        found = f"SELECT tenant, run{rest}"
        return (
            Select(
                f"SELECT {columns} FROM ({found}) found JOIN run r ON r.tenant = found.tenant AND r.run = found.run "
                f"ORDER BY {ordered}",
                values,
            ),
        )

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> Page[R]:
        return self._page(listed_rows(self.kind, found[0]))

    @override
    def find(self, rows: RowsInMemory) -> Page[R]:
        check_columns(self.kind, [name for name, _ in self.where])
        after, earliest = place_after(self.kind, self.cursor), _OPEN[self.kind.name].earliest
        columns = [(self.kind.columns.index(name), value) for name, value in self.where]
        found = []
        for row in rows.under(self.kind, (self.tenant,)) if self.unknown else rows.open(self.kind, self.tenant):
            place = open_place(self.kind, row)
            if (after is None or (place > after if earliest else place < after)) and self._fits(row, columns):
                found.append((place, row))
        found.sort(reverse=not earliest)
        return self._page(tuple([listed(self.kind, row) for _, row in found[: self._rows_max() + 1]]))

    def is_among(self, row: Row) -> bool:
        """Return True if the row is one of those that are listed without filters."""
        return isinstance(row, Effect) and is_unknown(row) if self.unknown else IS_OPEN[self.kind.name](row)

    def _fits(self, row: Row, columns: Sequence[tuple[int, object]]) -> bool:
        if not self.is_among(row):
            return False
        wanted = marks(self.reason, self.cause)
        return has_marks(self.kind, row, wanted) and all(row[i] == value for i, value in columns)

    def _rows_max(self) -> int:
        return min(self.limit, PAGE_MAX)

    def _page(self, rows: tuple[R, ...]) -> Page[R]:
        """Return the page of these rows, of which the last one only tells if another page follows."""
        page = rows[: self._rows_max()]
        return Page(page, open_cursor(self.kind, page[-1]) if len(rows) > len(page) else "")


class GivenUp(NamedTuple):
    """Deliveries to a webhook that were given up: their number, the first one, and the last error."""

    subscription: str
    events: int
    since: int
    error: str


class FlaggedRuns(NamedTuple):
    """Flagged runs with the same reasons and causes: their number, the first beginning and the first end (0: none)."""

    causes: str
    runs: int
    since: int
    until: int
    last: int = 0
    """The last beginning."""


class PendingApprovals(NamedTuple):
    """Pending approvals without votes that the same people may decide."""

    who: str
    excluded: str
    """Person who may not decide, because he or she requested the run; '' if all may whom the rule allows."""
    approvals: int
    late: int
    """Number of those past their deadline."""
    soon: int
    """Number of those past their deadline or due within a day."""
    next_until: int
    """The next deadline that is not past, 0 if all are."""


class SummaryRows(NamedTuple):
    """Rows of a summary. Pending approvals with votes are rows, without their calls."""

    pending: tuple[PendingApprovals, ...]
    voted: tuple[Approval, ...]
    flagged: tuple[FlaggedRuns, ...]
    uncertain: int
    unserved: dict[str, int]
    """Number of unfinished runs of each lane that no live worker serves."""
    pauses: tuple[Pause, ...]
    subscriptions: tuple[Subscription, ...]
    dead: tuple[GivenUp, ...]
    most: int = COUNT_MAX
    """Rows of a kind that were counted at most, but for approvals without votes, flagged runs and deliveries."""
    approvals_all: bool = True
    """True if `pending` and `voted` have every pending approval."""
    flagged_all: bool = True
    """True if `flagged` counts every flagged run."""
    dead_all: bool = True
    """True if `dead` counts every delivery that was given up."""


_APPROVALS: Final = f"SELECT {SQL[APPROVAL.name].columns} FROM approval".replace(" plans,", " '',")
_EXCLUDED: Final = "CASE WHEN not_requester = 1 THEN requested_by ELSE '' END"
# The inner statement reads its groups in the order of an index that has all its columns, so nothing is sorted but the
# groups. Parameters: business time, a day later, business time, tenant, limit.
_PENDING: Final = (
    f"SELECT who, {_EXCLUDED}, sum(approvals), sum(late), sum(soon), min(next_until) FROM ("
    "SELECT who, not_requester, requested_by, count(*) AS approvals, "
    f"sum(CASE WHEN within_until <= {MARK} THEN 1 ELSE 0 END) AS late, "
    f"sum(CASE WHEN within_until <= {MARK} THEN 1 ELSE 0 END) AS soon, "
    f"min(CASE WHEN within_until > {MARK} THEN within_until END) AS next_until FROM approval "
    f"WHERE tenant = {MARK} AND {_OPEN[APPROVAL.name].condition} AND votes = '' "
    f"GROUP BY who, not_requester, requested_by) counted GROUP BY who, {_EXCLUDED} "
    f"ORDER BY who, {_EXCLUDED} LIMIT {MARK}"
)
_VOTED: Final = (
    f"{_APPROVALS} WHERE tenant = {MARK} AND {_OPEN[APPROVAL.name].condition} AND votes <> '' "
    f"ORDER BY within_until, run, id LIMIT {MARK}"
)
RULES_MAX: Final = 10_000
"""Different rules and excluded people by which the pending approvals of a tenant are counted."""
_UNCERTAIN: Final = (
    f"SELECT count(*) FROM (SELECT 1 FROM effect WHERE tenant = {MARK} AND {_OPEN[EFFECT.name].condition} "
    f"LIMIT {MARK}) counted"
)
# Each step finds the next lane by the index `run_lane`. Parameters: tenant, thrice, and limit.
_LANES: Final = (
    f"WITH RECURSIVE lanes(lane) AS (SELECT min(lane) FROM run WHERE tenant = {MARK} AND ended_at = 0 UNION ALL "
    f"SELECT (SELECT min(r.lane) FROM run r WHERE r.tenant = {MARK} AND r.ended_at = 0 AND r.lane > lanes.lane) "
    "FROM lanes WHERE lanes.lane IS NOT NULL) "
    f"SELECT lane, (SELECT count(*) FROM (SELECT 1 FROM run r WHERE r.tenant = {MARK} AND r.lane = lanes.lane "
    f"AND r.ended_at = 0 LIMIT {MARK}) counted) FROM lanes WHERE lane IS NOT NULL"
)
# The same without lanes that a worker serves, as `Worker.serves` has it. Further parameter: real time.
_UNSERVED: Final = (
    f"{_LANES} AND NOT EXISTS "
    f"(SELECT 1 FROM worker w WHERE w.tenant = '{STORE}' AND w.status = '{LeaseStatus.ALIVE}' "
    f"AND w.lease_until > {MARK} "
    "AND replace(' ' || w.lanes || ' ', ' ' || lanes.lane || ' ', '') <> ' ' || w.lanes || ' ')"
)
# An index has these columns, in this order.
_FLAGGED: Final = (
    "SELECT causes, count(*), min(flagged_at), "
    "min(CASE WHEN flagged_until > 0 THEN flagged_until END), max(flagged_at) "
    f"FROM run WHERE tenant = {MARK} AND {_OPEN[RUN.name].condition}{{}} GROUP BY causes ORDER BY causes"
)
# By webhook, because so many of one could hide those of another. Parameters: tenant, twice.
_DEAD: Final = (
    "SELECT d.subscription, count(*), min(d.first_at), (SELECT e.error FROM delivery e "
    f"WHERE e.tenant = {MARK} AND e.subscription = d.subscription AND e.{_OPEN[DELIVERY.name].condition} "
    "ORDER BY e.first_at DESC, e.run DESC, e.seq DESC LIMIT 1) "
    f"FROM delivery d WHERE d.tenant = {MARK} AND d.{_OPEN[DELIVERY.name].condition} GROUP BY d.subscription"
)
_REMOVED: Final = SubscriptionStatus.REMOVED


@dataclass(frozen=True, slots=True)
class FlaggedCounts(Query[tuple[FlaggedRuns, ...]]):
    """The flagged runs of a tenant, counted by their reasons and causes."""

    polls: ClassVar[bool] = True

    tenant: str
    of: OfRuns = EVERY

    @override
    def statements(self) -> Sequence[Select]:
        more, further = self.of.condition()
        return (Select(_FLAGGED.format(more), (self.tenant, *further)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[FlaggedRuns, ...]:
        return tuple(FlaggedRuns(str(causes), int(n), *map(_instant, instants)) for causes, n, *instants in found[0])

    @override
    def find(self, rows: RowsInMemory) -> tuple[FlaggedRuns, ...]:
        kept = [run for run in rows.open(RUN, self.tenant) if self.of.keep(run)]
        return flagged_counts((run.causes, run.flagged_at, run.flagged_until) for run in kept)


def flagged_counts(flags: Iterable[tuple[str, int, int]]) -> tuple[FlaggedRuns, ...]:
    """Count runs by causes. `flags`: the columns `causes`, `flagged_at` and `flagged_until` of each run."""
    found: dict[str, FlaggedRuns] = {}
    for causes, since, until in flags:
        of = found.get(causes)
        if of is None:
            found[causes] = FlaggedRuns(causes, 1, since, until, since)
        else:
            end = min(of.until, until) if of.until and until else of.until or until
            found[causes] = FlaggedRuns(causes, of.runs + 1, min(of.since, since), end, max(of.last, since))
    return tuple([found[causes] for causes in sorted(found)])


@dataclass(frozen=True, slots=True)
class LaneCounts(Query[dict[str, int]]):
    """The number of a tenant's unfinished runs in each lane that has some, at most COUNT_MAX of a lane.

    `lanes`: further lanes that may have runs, for a store that cannot list those of all runs (DynamoDB).
    """

    polls: ClassVar[bool] = True

    tenant: str
    lanes: tuple[str, ...] = ()

    @override
    def statements(self) -> Sequence[Select]:
        return (Select(_LANES, (self.tenant, self.tenant, self.tenant, COUNT_MAX)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> dict[str, int]:
        return {str(lane): int(runs) for lane, runs in found[0]}

    @override
    def find(self, rows: RowsInMemory) -> dict[str, int]:
        return {lane: min(COUNT_MAX, n) for lane, n in rows.unfinished(self.tenant).items()}


@dataclass(frozen=True, slots=True)
class Summary(Query[SummaryRows]):
    """The rows that a summary of a tenant is made from, at most `most` of a kind.

    All flagged runs and pending approvals are counted. `real` and `business`: the present time. `lanes`: further lanes
    that may have runs, for a store that cannot list those of all runs (DynamoDB).
    """

    polls: ClassVar[bool] = True

    tenant: str
    real: int
    lanes: tuple[str, ...] = ()
    most: int = COUNT_MAX
    business: int = 0

    @override
    def statements(self) -> Sequence[Select]:
        tenant, most, now = self.tenant, self.most, self.business
        return (
            Select(_PENDING, (now, now + DAY, now, tenant, RULES_MAX)),
            Select(_VOTED, (tenant, most)),
            *FlaggedCounts(tenant).statements(),
            Select(_UNCERTAIN, (tenant, most)),
            Select(_UNSERVED, (tenant, tenant, tenant, most, self.real)),
            Select(f"SELECT {SQL[PAUSE.name].columns} FROM pause WHERE tenant = {MARK} ORDER BY key", (tenant,)),
            Select(
                f"SELECT {SQL[SUBSCRIPTION.name].columns} FROM subscription WHERE tenant = {MARK} "
                "ORDER BY subscription",
                (tenant,),
            ),
            Select(_DEAD, (tenant, tenant)),
        )

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> SummaryRows:
        pending, voted, flagged, ((uncertain,),), lanes, stops, subscriptions, dead = found
        return SummaryRows(
            tuple(
                PendingApprovals(str(who), str(excluded), int(n), int(late), int(soon), _instant(until))
                for who, excluded, n, late, soon, until in pending
            ),
            tuple([a._replace(plans_text="") for a in listed_rows(APPROVAL, voted)]),
            FlaggedCounts(self.tenant).answer([flagged]),
            int(uncertain),
            {str(lane): int(runs) for lane, runs in lanes},
            listed_rows(PAUSE, stops),
            tuple([row for row in listed_rows(SUBSCRIPTION, subscriptions) if row.status is not _REMOVED]),
            tuple([GivenUp(str(name), int(n), _instant(since), str(error)) for name, n, since, error in dead]),
            self.most,
            len(pending) < RULES_MAX and len(voted) < self.most,
        )

    @override
    def find(self, rows: RowsInMemory) -> SummaryRows:
        tenant, most = self.tenant, self.most
        served = lanes_served(rows.under(WORKER, (STORE,)), self.real)
        lanes = {lane: min(most, n) for lane, n in rows.unfinished(tenant).items() if lane not in served}
        subscriptions = rows.under(SUBSCRIPTION, (tenant,))
        approvals = [listed(APPROVAL, row) for row in rows.open(APPROVAL, tenant)]
        return SummaryRows(
            *self.pending(approvals),
            FlaggedCounts(tenant).find(rows),
            len(OpenRows(EFFECT, tenant, limit=most).find(rows).rows),
            lanes,
            tuple([listed(PAUSE, row) for row in rows.under(PAUSE, (tenant,))]),
            tuple([listed(SUBSCRIPTION, row) for row in subscriptions if row.status is not _REMOVED]),
            _given_up(listed(DELIVERY, row) for row in rows.open(DELIVERY, tenant)),
            most,
            sum(1 for each in approvals if each.votes_text) < most,
        )

    def pending(self, approvals: Iterable[Approval]) -> tuple[tuple[PendingApprovals, ...], tuple[Approval, ...]]:
        """Count pending approvals by who may decide them. Return those with votes, at most `most`, as rows."""
        found: dict[tuple[str, str], list[int]] = {}
        voted: list[Approval] = []
        for each in approvals:
            if each.votes_text:
                voted.append(each._replace(plans_text=""))
            else:
                excluded = each.requested_by if each.not_requester == 1 else ""
                found.setdefault((each.who, excluded), []).append(each.within_until)
        voted.sort(key=lambda each: (each.within_until, each.run, each.id))
        return tuple([self._counted(*key, found[key]) for key in sorted(found)]), tuple(voted[: self.most])

    def _counted(self, who: str, excluded: str, untils: Sequence[int]) -> PendingApprovals:
        now = self.business
        late, soon = (sum(until <= end for until in untils) for end in (now, now + DAY))
        next_until = min((until for until in untils if until > now), default=0)
        return PendingApprovals(who, excluded, len(untils), late, soon, next_until)


def _given_up(dead: Iterable[Delivery]) -> tuple[GivenUp, ...]:
    of_webhook: dict[str, list[Delivery]] = {}
    for row in dead:
        of_webhook.setdefault(row.subscription, []).append(row)
    return tuple(
        GivenUp(
            name,
            len(rows),
            min(row.first_at for row in rows),
            max(rows, key=lambda row: open_place(DELIVERY, row)).error,
        )
        for name, rows in sorted(of_webhook.items())
    )


def _instant(value: object) -> int:
    """Return a stored instant, 0 if the column holds another type."""
    return value if type(value) is int else 0
