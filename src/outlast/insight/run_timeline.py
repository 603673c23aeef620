"""The timeline of a run, made from its rows and events: a pure function.

| bar | rows |
|---|---|
| visit | checkpoints |
| attempt | an effect, cut by the spans in which a worker held the run; the verdict that denied a call |
| model, lookup | a memo, which has its end; the usage of a request to a model has its time |
| wait | the events that released the run, up to the next claim |

Events name the nodes and workers of that time. Attempts that followed at once share a bar (`insight/run_history.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from outlast.core.commit import Instant
from outlast.core.effect_verbs import UNANSWERED
from outlast.core.events import ENDINGS, EventType
from outlast.core.keys import ADMISSION, MODEL
from outlast.core.machine import ApprovalStatus, EffectStatus, Reason, WaitStatus
from outlast.core.rows.effect_columns import NO_ERROR
from outlast.core.rows.effect_rows import Approval, Effect, Memo, Wait
from outlast.core.rows.run_columns import WaitingFor, until_of
from outlast.core.rows.run_rows import Event, Run, is_over
from outlast.core.rows.store_rows import Worker
from outlast.core.usage import CallUsage, micros, money_text
from outlast.engine.policy_gate import decision_of
from outlast.errors import InvalidInput
from outlast.insight.row_models import visit_models
from outlast.insight.run_history import HistorySpan, RunHistory
from outlast.insight.step_names import (
    DENIED,
    NOT_ANSWERED,
    call_step,
    denial_step,
    is_denial,
    lookup_outcome,
    lookup_step,
    request_step,
)
from outlast.models import checked_instant, exact_instant, instant, milliseconds
from outlast.models.effects import effect_id
from outlast.models.runs import Visit
from outlast.models.timeline import BarKind, MarkKind, Timeline, TimelineBar, TimelineLane, TimelineMark
from outlast.telemetry.redact import redacted

BARS_MAX: Final = 400
MARKS_MAX: Final = 400
OPEN: Final = WaitStatus.OPEN.value
CLOSED: Final = WaitStatus.CLOSED.value
ENDED: Final = "ended"
DEADLINE: Final = "deadline"
REPEATED: Final = "repeated"
_TITLES: Final[dict[str, MarkKind]] = {
    EventType.REQUEUED: "crash", EventType.TAKEN_OVER: "takeover", EventType.FLAGGED: "attention",
    EventType.ANSWERED: "answered", EventType.HANDED_BACK: "handed_back", EventType.COMPENSATING: "undoing",
    EventType.MOVED: "moved", EventType.RESTORED: "recovered", **dict.fromkeys(ENDINGS, "ended"),
}  # fmt: skip


class TimelineRows(NamedTuple):
    """Rows of one run. `business` and `real` convert instants between the clocks."""

    history: RunHistory
    effects: Sequence[Effect]
    waits: Sequence[Wait]
    approvals: Sequence[Approval]
    workers: Sequence[Worker]
    now: Instant
    business: Callable[[int], int]
    real: Callable[[int], int]
    memos: Sequence[Memo] = ()
    usage: Sequence[CallUsage] = ()


def timeline_of(rows: TimelineRows, *, begin: datetime | None = None, end: datetime | None = None) -> Timeline:
    """Return the timeline of a run, all of it or from `begin` to `end`. Raises InvalidInput."""
    run, now = rows.history.run, rows.now.business
    first = run.created_at if begin is None else checked_instant("begin", begin)
    last = run.ended_at or max(now, run.created_at) if end is None else checked_instant("end", end)
    if last < first:
        raise InvalidInput("the end of the timeline is before its beginning", fix="exchange the two")
    return _timeline(rows, first, last)


def measured_ms(bar: TimelineBar) -> int | None:
    """Return how long a bar took; None if it lasts, or if only its end is recorded."""
    if bar.ended is None:
        return None
    ms = milliseconds(bar.ended) - milliseconds(bar.began)
    return None if not ms and (bar.kind in ("model", "lookup") or bar.outcome == DENIED) else ms


def wait_bars(rows: TimelineRows) -> Iterator[TimelineBar]:
    """Yield each wait of a run once, in the order in which they began."""
    return _Bars(rows).waits()


def waits_of(run: Run, span: HistorySpan) -> Sequence[WaitingFor]:
    """Return the waits of a run in a span in which no worker held it."""
    event = span.event
    if not span.end and not run.owner:
        return run.waiting_for
    data = event.data()
    if event.type == EventType.PARKED:
        return [WaitingFor(**each) for each in data.get("waiting_for", ())]
    if event.type in (EventType.FLAGGED, EventType.RESTORED):
        reasons = [str(each) for each in data.get("reasons", (Reason.RESTORED,))]
        return [WaitingFor("attention", f"a person: {reason}", since=event.at) for reason in reasons]
    if event.type == EventType.QUEUED:
        return [WaitingFor("slot", "a free slot", since=run.created_at, then="starts, first come first served")]
    return [WaitingFor("worker", run.lane, since=event.at)]


def _timeline(rows: TimelineRows, begin: int, end: int) -> Timeline:
    history, run = rows.history, rows.history.run
    bars = [bar for bar in _Bars(rows).all() if _overlaps(bar, begin, end)]
    bars.sort(key=lambda bar: (bar.began, _ORDER[bar.kind], bar.id))
    marks = [mark for mark in _marks(history.events) if begin <= milliseconds(mark.at) <= end]
    drawn = grouped_bars(bars, begin, end)
    deadline, text = _next(run)
    visits = visit_models(history)
    return Timeline(
        run=run.run,
        visits=visits,
        takeovers=history.takeovers(rows.workers, rows.real),
        lanes=_lanes(visits, drawn),
        bars=drawn,
        marks=marks[-MARKS_MAX:],
        began=exact_instant(run.created_at),
        ended=instant(run.ended_at),
        now=exact_instant(rows.now.business),
        from_=exact_instant(begin),
        to=exact_instant(end),
        next_deadline=instant(deadline),
        next_text=text,
        total=len(bars),
        grouped=len(drawn) < len(bars),
    )


_ORDER: Final[Mapping[BarKind, int]] = {"visit": 0, "model": 1, "attempt": 2, "lookup": 2, "wait": 3}


def _overlaps(bar: TimelineBar, begin: int, end: int) -> bool:
    return milliseconds(bar.began) <= end and (bar.ended is None or milliseconds(bar.ended) >= begin)


def _next(run: Run) -> tuple[int, str]:
    """Return the earliest instant at which an open wait or a question ends by itself, and its text; 0 without one."""
    if is_over(run):
        return 0, ""
    ends = [(w.until, f"{w.kind} {w.what}" + (f": {w.then}" if w.then else "")) for w in run.waiting_for]
    ends += [(until_of(entry), f"attention {entry.reason.value}") for entry in run.attention]
    ends += [(run.ceiling_at, "ceiling: a person is asked")]
    return min((each for each in ends if each[0]), default=(0, ""))


def _lanes(visits: Iterable[Visit], bars: Iterable[TimelineBar]) -> list[TimelineLane]:
    counts: dict[str, list[int]] = {}
    for visit in visits:
        counts.setdefault(visit.node, [0, 0])[0] += 1
    for bar in bars:
        counts.setdefault(bar.node, [0, 0])[1] += 1
    return [TimelineLane(node=node, visits=of, bars=n) for node, (of, n) in counts.items()]


class _Bars:
    """The bars of one run."""

    def __init__(self, rows: TimelineRows) -> None:
        self._rows = rows
        self._history = rows.history
        self._waits = {(wait.visit, wait.name, wait.since): wait for wait in rows.waits}
        self._approvals = {approval.id: approval for approval in rows.approvals}
        self._used: dict[tuple[int, str], list[CallUsage]] = {}
        for used in rows.usage:
            self._used.setdefault((used.visit, used.key), []).append(used)

    def all(self) -> Iterator[TimelineBar]:
        yield from self._visits()
        for effect in self._rows.effects:
            yield from self._attempts(effect)
        for memo in self._rows.memos:
            if memo.digest and memo.activity not in ("", ADMISSION):
                yield self._answer(memo)
            elif is_denial(memo):
                yield self._denial(memo)
        yield from self.waits()

    # --- visits ------------------------------------------------------------------------------
    def _visits(self) -> Iterator[TimelineBar]:
        run = self._history.run
        for visit in self._history.visits:
            outcome = EffectStatus.DONE.value if visit.left else OPEN
            if is_over(run) and visit.visit == run.visit:
                outcome = run.status.value
            yield _bar(
                f"visit/{visit.visit}",
                "visit",
                visit.node,
                visit.visit,
                visit.node,
                visit.entered,
                ended=instant(visit.left),
                outcome=outcome,
                event=visit.event,
            )

    # --- attempts ----------------------------------------------------------------------------
    def _attempts(self, effect: Effect) -> Iterator[TimelineBar]:
        attempts = self._history.attempts(effect, self._rows.business, self._rows.now.business)
        error = effect.error
        for attempt in attempts:
            last = attempt is attempts[-1]
            yield _bar(
                f"attempt/{effect.visit}/{effect.key}/{attempt.number}",
                "attempt",
                effect.node,
                effect.visit,
                effect.activity,
                attempt.begin,
                ended=instant(attempt.end),
                outcome=_outcome_of(effect) if last else REPEATED,
                detail=redacted(f"{error.code}: {error.detail}") if error and last else "",
                key=effect.key,
                effect=effect_id(effect.by_run or effect.run, effect.visit, effect.key),
                attempt=attempt.number,
                attempts=effect.attempts,
                event=attempt.event,
                approval=effect.approval,
                step=call_step(effect),
                **(self._cost(effect.visit, effect.key) if last else {}),
            )

    # --- models, lookups, denials ------------------------------------------------------------
    def _answer(self, memo: Memo) -> TimelineBar:
        """Return the bar of a request to a model, as long as its attempts took, or of a lookup."""
        key, is_model = memo.key.removeprefix(UNANSWERED), memo.activity == MODEL
        used = self._used.get((memo.visit, key), ())
        error = memo.error or NO_ERROR
        named = next((row.model for row in reversed(used) if row.model), "") if is_model else ""
        visit = self._visit_of(memo)
        return _bar(
            f"{'model' if is_model else 'lookup'}/{memo.visit}/{memo.key}",
            "model" if is_model else "lookup",
            self._history.entry(visit).node_at(memo.at),
            visit,
            named or memo.activity,
            memo.at - sum(row.ms for row in used),
            ended=instant(memo.at),
            outcome=lookup_outcome(memo),
            detail=redacted(f"{error.code}: {error.detail}") if memo.error_text else "",
            key=key,
            step=lookup_step(memo),
            **self._cost(memo.visit, key),
        )

    def _denial(self, memo: Memo) -> TimelineBar:
        decision, visit = decision_of(memo), self._visit_of(memo)
        return _bar(
            denial_step(memo),
            "attempt",
            self._history.entry(visit).node_at(memo.at),
            visit,
            decision.activity,
            memo.at,
            ended=instant(memo.at),
            outcome=DENIED,
            key=decision.key,
            step=denial_step(memo),
        )

    def _visit_of(self, memo: Memo) -> int:
        return memo.visit or self._history.visit_at(memo.at)

    def _cost(self, visit: int, key: str) -> dict[str, Any]:
        used = self._used.get((visit, key), ())
        money = sum(row.money for row in used)
        return {"tokens": sum(row.tokens for row in used), "money": money_text(money) if money else ""}

    # --- waits -------------------------------------------------------------------------------
    def waits(self) -> Iterator[TimelineBar]:
        """Yield each wait once: a run that is woken and parks again for the same reason still waits."""
        merged: dict[tuple[int, str, str, int], TimelineBar] = {}
        for span in self._history.waited:
            for wait in waits_of(self._history.run, span):
                bar = self._wait(wait, span)
                key = (span.event.visit, wait.kind, wait.what, wait.since or span.event.seq)
                before = merged.get(key)
                if before is not None:
                    bar = bar.model_copy(update={"began": before.began, "event": before.event, "id": before.id})
                merged[key] = bar
        yield from merged.values()

    def _wait(self, wait: WaitingFor, span: HistorySpan) -> TimelineBar:
        event = span.event
        approval = wait.what.partition(" ")[0] if wait.kind == "approval" else ""
        began = max(self._history.entry(event.visit).entered, min(wait.since or event.at, event.at))
        return _bar(
            f"wait/{event.seq}/{wait.kind}/{wait.what}"[:120],
            "wait",
            event.node,
            event.visit,
            wait.what,
            began,
            ended=instant(span.end),
            outcome=self._ending(wait, span, approval),
            key=wait.what if wait.kind in ("timer", "signal") else "",
            wait=wait.kind,
            who=wait.who,
            until=instant(wait.until),
            then=wait.then,
            approval=approval,
            step=request_step(approval) if approval else "",
            event=event.seq,
        )

    def _ending(self, wait: WaitingFor, span: HistorySpan, approval: str) -> str:
        if not span.end:
            return OPEN
        row = self._approvals.get(approval)
        if row is not None:
            return ENDED if row.status is ApprovalStatus.PENDING else row.status.value
        named = (span.event.visit, wait.what, wait.since)
        of = self._waits.get(named) if wait.kind in ("timer", "signal") else None
        if of is not None and of.status is WaitStatus.CLOSED:
            return CLOSED
        if of is not None and of.status is WaitStatus.BOUND and of.binding is None and wait.kind == "signal":
            return DEADLINE
        return ENDED


def _outcome_of(effect: Effect) -> str:
    return OPEN if effect.status is EffectStatus.INTENDED else effect.status.value


def _bar(id_: str, kind: BarKind, node: str, visit: int, what: str, began: int, **fields: Any) -> TimelineBar:
    plain: dict[str, Any] = {
        "outcome": "", "detail": "", "key": "", "effect": "", "attempt": 0, "attempts": 0, "wait": "", "who": "",
        "until": None, "then": "", "approval": "", "event": 0,
    }  # fmt: skip
    fields = {**plain, **fields, "what": redacted(what), "began": exact_instant(began)}
    return TimelineBar(id=id_, kind=kind, node=node, visit=visit, **fields)


# --- marks -----------------------------------------------------------------------------------------
def _marks(events: Iterable[Event]) -> Iterator[TimelineMark]:
    for event in events:
        kind = _TITLES.get(event.type)
        if kind is not None:
            yield TimelineMark(
                kind=kind,
                at=exact_instant(event.at),
                node=event.node,
                visit=event.visit,
                text=redacted(mark_text(kind, event.data())),
                event=event.seq,
            )


def mark_text(kind: MarkKind, data: Mapping[str, Any]) -> str:
    """Return the text of a mark from the data of its event."""
    match kind:
        case "crash":
            return f"worker {data.get('from')} is gone"
        case "takeover":
            return f"{data.get('worker')} took it over from {data.get('from')}"
        case "attention":
            return f"{', '.join(map(str, data.get('reasons', ())))}: {data.get('detail', '')}"
        case "answered":
            return ", ".join(f"{a.get('choice')} by {a.get('by')}" for a in data.get("answers", ()))
        case "handed_back":
            return str(data.get("why", ""))
        case "moved":
            return f"{data.get('from')} → {data.get('lane')} by {data.get('by')}"
        case "recovered":
            return f"from a backup, by {data.get('by')}"
        case "undoing":
            return f"{data.get('outcome')}: {data.get('reason')}"
    return str(data.get("reason", ""))


# --- groups ----------------------------------------------------------------------------------------
def grouped_bars(bars: Sequence[TimelineBar], begin: int, end: int, most: int = BARS_MAX) -> list[TimelineBar]:
    """Return at most `most` bars: neighbouring ones of a lane and kind as one, by as few bars as needed.

    A bar that lasts keeps its own place. `bars`: in the order of their beginning.
    """
    if len(bars) <= most:
        return list(bars)
    lanes = len({(bar.node, bar.kind) for bar in bars})
    slots = max(1, most // max(1, lanes))
    found = _in_slots(bars, begin, end, slots)
    while len(found) > most and slots > 1:
        slots //= 2
        found = _in_slots(bars, begin, end, slots)
    return found if len(found) <= most else [*found[: most - 1], _merge(found[most - 1 :])]


def _in_slots(bars: Sequence[TimelineBar], begin: int, end: int, slots: int) -> list[TimelineBar]:
    width = max(1, (end - begin) // slots)
    groups: dict[tuple[str, str, int], list[TimelineBar]] = {}
    for bar in bars:
        slot = min(slots - 1, max(0, (milliseconds(bar.began) - begin) // width))
        groups.setdefault((bar.node, bar.kind, slot), []).append(bar)
    return sorted(map(_merge, groups.values()), key=lambda bar: (bar.began, _ORDER[bar.kind], bar.id))


def _merge(bars: Sequence[TimelineBar]) -> TimelineBar:
    """Return one bar for several. Its outcome is the one that needs a person first."""
    if len(bars) == 1:
        return bars[0]
    first, ends = bars[0], [bar.ended for bar in bars]
    outcomes = {bar.outcome for bar in bars}
    outcome = next((each for each in _WORST if each in outcomes), first.outcome)
    what = {bar.what for bar in bars}
    count = sum(bar.count for bar in bars)
    paid = sum(micros(bar.money) for bar in bars if bar.money)
    return first.model_copy(
        update={
            "id": f"group/{first.id}",
            "ended": None if None in ends else max(each for each in ends if each is not None),
            "outcome": outcome,
            "what": first.what if len(what) == 1 else f"{count} {first.kind}s",
            "count": count,
            "key": "",
            "effect": "",
            "approval": "",
            "step": "",
            "tokens": sum(bar.tokens for bar in bars),
            "money": money_text(paid) if paid else "",
            "detail": "",
            "until": None,
            "then": "",
        }
    )


_WORST: Final = (
    EffectStatus.UNCERTAIN.value, EffectStatus.REFUSED.value, DENIED, NOT_ANSWERED, OPEN, DEADLINE, REPEATED,
    EffectStatus.UNDONE.value,
)  # fmt: skip
