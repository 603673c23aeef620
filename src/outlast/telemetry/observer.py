"""Metrics, spans and log lines derived from the rows of landed commits.

Each commit of a holder is inspected once, and not at all in a process that is not observed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from outlast.core.commit import Commit, Instant, Put
from outlast.core.durations import SECOND
from outlast.core.events import EventType
from outlast.core.limits import NAME
from outlast.core.machine import ApprovalStatus, EffectStatus, WaitStatus
from outlast.core.route import Answer
from outlast.core.rows.effect_rows import Approval, Effect, Wait
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import Event, Run
from outlast.core.usage import CallUsage
from outlast.telemetry.logs import RunLog
from outlast.telemetry.metrics import (
    ACTIVITY_RETRIES,
    EFFECTS,
    INTERRUPT_WAIT,
    MODEL_TOKENS,
    NODE_DURATION,
    RECOVERY,
    WORKFLOW_DURATION,
    Counters,
)
from outlast.telemetry.traces import Traces

ENDS: Final = frozenset({EventType.FINISHED_WELL, EventType.FAILED, EventType.CANCELLED})
CUT: Final = "interrupted"  # a crash, or a check of the engine, ended the attempt before


class ObservedRows(Protocol):
    """The rows of a holder before a commit changes them."""

    run: Run
    effects: dict[tuple[int, str], Effect]
    approvals: dict[str, Approval]


class Observer:
    """Counts, and optional spans and log lines, of one process."""

    def __init__(
        self, counters: Counters | None = None, traces: Traces | None = None, run_log: RunLog | None = None
    ) -> None:
        self.counters = counters or Counters()
        self.traces = traces
        self.run_log = run_log

    # --- claims --------------------------------------------------------------------------------
    def held(self, before: Run, rows: ObservedRows, now: Instant, alive_at: int = 0) -> None:
        """Record a claim. `before` is the claimed row, `alive_at` the last heartbeat of a dead owner."""
        run = rows.run
        if self.run_log is not None and before.epoch == 0:
            self.run_log.write("start", run, workflow=run.workflow, lane=run.lane, requested_by=run.requested_by)
        if self.traces is not None:
            self.traces.held(run)
        if alive_at:
            self.counters.observe(RECOVERY, (now.real - alive_at) / SECOND)
        for waited in before.waiting_for:
            if waited.kind != "approval":
                continue
            approval = rows.approvals.get(waited.what.partition(" ")[0])
            if approval is not None and approval.decided_at and approval.status is not ApprovalStatus.PENDING:
                about = {"decision": approval.status.value}
                self.waited(run, "approval", approval.wait, approval.asked_at, approval.decided_at, about)

    def let_go(self, key: tuple[str, str]) -> None:
        """Record that the holder of this run has ended."""
        if self.traces is not None:
            self.traces.let_go(key)

    def waited(
        self, run: Run, kind: str, what: str, since: int, until: int, about: Mapping[str, str] | None = None
    ) -> None:
        """Record a wait that has ended (business time)."""
        self.counters.observe(INTERRUPT_WAIT, (until - since) / SECOND, run.workflow, kind)
        if self.traces is not None:
            self.traces.waited(run, kind, what, since, until, about or {})

    def answered(self, run: Run, answers: Sequence[Answer], now: Instant) -> None:
        """Record the waits for people that these answers end."""
        for a in answers:
            about = {"choice": a.choice.value}
            self.waited(run, "attention", a.attention.reason.value, a.attention.since, now.business, about)

    # --- commits -------------------------------------------------------------------------------
    def seen(self, rows: ObservedRows, commit: Commit, now: Instant) -> Callable[[], None] | None:
        """Return a function to call once this commit has landed. `rows` are as before the commit."""
        found: list[Callable[[], None]] = []
        run, at = rows.run, now.business
        for write in commit.writes:
            row = write.row if isinstance(write, Put) else None
            if isinstance(row, Run) and self.traces is not None:
                if row.visit != run.visit:
                    self.traces.entered(row)  # calls from here on belong to the new visit, even before the commit lands
                if row.attention_text and row.attention_text != run.attention_text:
                    found += [_call(self._asked, row, "attention", a.reason.value, a.since) for a in _new(row, run)]
            elif isinstance(row, Approval) and self.traces is not None and row.id not in rows.approvals:
                found.append(_call(self._asked, run, "approval", row.wait, row.asked_at))
            elif isinstance(row, Effect):
                found += self._effect(rows.effects.get((row.visit, row.key)), row)
            elif isinstance(row, CallUsage):
                found.append(_call(self._used, row))
            elif isinstance(row, Wait) and row.status is WaitStatus.BOUND:
                found.append(_call(self.waited, run, row.kind, row.name, row.since, at))
            elif isinstance(row, Event) and row.type == EventType.CHECKPOINT:
                found.append(_call(self._checkpoint, run, row))
            elif isinstance(row, Event) and row.type in ENDS:
                found.append(_call(self._end, run, row))
        return (lambda: _all(found)) if found else None

    def _asked(self, run: Run, kind: str, what: str, at: int) -> None:
        if self.traces is not None:
            self.traces.asked_person(run, kind, what, at)

    def _used(self, row: CallUsage) -> None:
        rest = row.tokens - row.input_tokens - row.output_tokens
        for direction, number in (("input", row.input_tokens), ("output", row.output_tokens), ("unknown", rest)):
            if number > 0:
                self.counters.add(MODEL_TOKENS, row.model, direction, number=number)

    def _effect(self, before: Effect | None, row: Effect) -> list[Callable[[], None]]:
        if row.undoes:  # the effect that becomes undone is counted instead
            return []
        if row.status is EffectStatus.INTENDED:
            if before is None or row.attempts <= before.attempts:
                return []
            reason = before.code or CUT
            reason = reason if NAME.fullmatch(reason) else "other"
            return [_call(self.counters.add, ACTIVITY_RETRIES, row.activity, reason)]
        if before is not None and before.status is row.status:
            return []
        return [_call(self.counters.add, EFFECTS, row.activity, row.status.value)]

    def _checkpoint(self, before: Run, event: Event) -> None:
        self.counters.observe(NODE_DURATION, (event.at - before.entered_at) / SECOND, before.workflow, before.node)
        if self.traces is not None:
            self.traces.checkpoint(before, event.at, next_=event.node)
        if self.run_log is not None:
            self.run_log.write("checkpoint", before, completed=before.node, next=event.node, visit=before.visit)

    def _end(self, before: Run, event: Event) -> None:
        status = event.type.rsplit(".", 1)[1]
        seconds = (event.at - before.created_at) / SECOND
        self.counters.observe(WORKFLOW_DURATION, seconds, before.workflow, status)
        if event.type == EventType.FINISHED_WELL:
            self.counters.observe(NODE_DURATION, (event.at - before.entered_at) / SECOND, before.workflow, before.node)
        if self.traces is not None:
            self.traces.end(before, event.at, status)
        if self.run_log is not None:
            self.run_log.write("end", before, status=status, node=before.node, seconds=round(seconds, 3))


def _new(row: Run, before: Run) -> list[Attention]:
    """Return the reasons for attention that the row before did not have."""
    known = {(a.reason, a.key, a.visit, a.since) for a in before.attention}
    return [a for a in row.attention if (a.reason, a.key, a.visit, a.since) not in known]


def _all(found: list[Callable[[], None]]) -> None:
    for each in found:
        each()


def _call(fn: Callable[..., None], *args: Any) -> Callable[[], None]:
    return lambda: fn(*args)
