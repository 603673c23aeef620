"""Models of rows, one function for each noun. Only `runtime.approvals` and `runtime.webhooks` have further ones.

Texts are complete and not escaped here; code that prints on a terminal escapes first.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from outlast.core import children
from outlast.core.approvals import EVERY_ROLE, Actor
from outlast.core.attributes import attribute_values
from outlast.core.causes import causes_in
from outlast.core.commit import Instant
from outlast.core.drain import DrainRequest
from outlast.core.durations import DAY, MINUTE
from outlast.core.events import EventType, iso
from outlast.core.keys import OncePer, scope_of_shared
from outlast.core.lanes import OWN, is_built_in
from outlast.core.machine import RULES, EffectStatus
from outlast.core.mailbox import REOPENED, is_unknown, may_answer
from outlast.core.rows.columns import decoded
from outlast.core.rows.effect_columns import NO_ERROR
from outlast.core.rows.effect_rows import STATED, Effect, Evidence, Wait
from outlast.core.rows.limit_rows import Pause
from outlast.core.rows.run_rows import Event, Message, Result, Run, is_due, is_over
from outlast.core.rows.store_rows import Worker
from outlast.core.start_details import DECLARED
from outlast.core.state.delta_packets import Delta
from outlast.core.usage import NO_LIMITS, NOTHING_USED, Amounts, Limits, money_text
from outlast.core.verbs import completed_node
from outlast.insight.answer_schemas import AskedEffect
from outlast.insight.labels import bridged_ms, effect_label, shown_status, waiting_text, worker_label
from outlast.insight.run_history import RunHistory
from outlast.models import exact_instant, instant
from outlast.models.effects import EffectRecord, LateEvidence, effect_id
from outlast.models.runs import (
    AllowedAmounts,
    AttentionReason,
    CloudEvent,
    EventList,
    FailedChild,
    PendingRequest,
    Progress,
    ResultRow,
    RunDelta,
    RunDetail,
    RunListItem,
    RunMap,
    RunState,
    RunSummary,
    Takeover,
    UsedAmounts,
    Visit,
    Waiting,
)
from outlast.models.service import ActivePause, CallerInfo, UsageLine, UsageList, WorkerStatus
from outlast.store.usage_sums import UsageOfDays


# --- runs ------------------------------------------------------------------------------------------
def run_summary(run: Run, serving: Collection[str], results: int, oldest_call: int = 0) -> RunSummary:
    """Return a run as lists show it.

    `serving`: lanes with a live worker; `results`: its number of result rows; `oldest_call`: as in `shown_status`.
    """
    return RunSummary(
        run=run.run,
        workflow=run.workflow,
        lane=run.lane,
        scheduler=run.scheduler,
        status=run.status.value,
        shown=shown_status(run, oldest_call),
        node=run.node,
        visit=run.visit,
        version=run.version,
        owner="" if is_over(run) else run.owner,
        created_at=instant(run.created_at),
        entered_at=instant(run.entered_at),
        ended_at=instant(run.ended_at),
        requested_by=run.requested_by,
        **DECLARED.shown_in(run),
        attributes=attribute_values(run),
        forked_from=run.forked_from,
        parent=run.parent,
        root=run.root,
        depth=run.depth,
        waiting_for=[
            Waiting(kind=w.kind, what=w.what, who=w.who, since=instant(w.since), until=instant(w.until), then=w.then)
            for w in run.waiting_for
        ],
        waiting_text=waiting_text(run, serving),
        attention=[
            AttentionReason(
                reason=a.reason.value,
                since=instant(a.since),
                detail=a.detail,
                key=a.key,
                trigger=a.trigger,
                choices=[choice.value for choice in a.choices(run.attention)],
                if_ignored=RULES[a.reason].if_ignored,
                name=a.name,
                cause=a.cause or a.reason.value,
            )
            for a in run.attention
        ],
        causes=[each.cause for each in causes_in(run.causes)],
        served=is_over(run) or run.lane in serving,
        results=results,
    )


def with_schemas(summary: RunSummary, run: Run, waits: Iterable[Wait]) -> RunSummary:
    """Return the summary with the JSON Schema of each signal that the run waits for, as its waits have recorded it."""
    schemas = {wait.key: wait.signal_schema() for wait in waits if wait.visit == run.visit and wait.schema}
    waiting = [
        each.model_copy(update={"schema_": schemas.get(each.what)}) if each.kind == "signal" else each
        for each in summary.waiting_for
    ]
    return summary.model_copy(update={"waiting_for": waiting}) if schemas else summary


def list_item(
    row: Run,
    summary: RunSummary,
    asked: Sequence[PendingRequest],
    now: Instant,
    reason: str = "",
    used: Amounts = NOTHING_USED,
) -> RunListItem:
    """Return a run with its pending requests. `summary`: of the same row; `reason`: of its end; `used`: its usage."""
    due = not row.owner and is_due(row, now.real)
    cost = money_text(used.money)
    return RunListItem(**vars(summary), asked=list(asked), due=due, reason=reason, cost=cost, unpriced=used.unpriced)


def run_detail(
    item: RunListItem,
    history: RunHistory,
    effects: Sequence[Effect],
    takeovers: Sequence[Takeover],
    explained: str,
    used: Amounts = NOTHING_USED,
    allowed: Limits = NO_LIMITS,
    used_by_tree: Amounts | None = None,
    *,
    ledger_purged: bool = False,
    detached: bool = False,
    history_from: int = 1,
    maps: Sequence[RunMap] = (),
) -> RunDetail:
    """Return a run with all its details. `history`: all its events; `used`, `used_by_tree`: usage; `allowed`: limits.

    The rows of its children are counted apart from those of its calls.
    """
    calls = [effect for effect in effects if not effect.child_text]
    of_maps = sum(each.inputs - each.not_started for each in maps)
    return RunDetail(
        **{**vars(item), **ending_of(history)},
        visits=visit_models(history),
        effects=effect_counts(calls),
        takeovers=list(takeovers),
        progress=progress_of(history, calls),
        used=used_amounts(used),
        used_by_tree=used_amounts(used_by_tree) if used_by_tree is not None else None,
        budget=allowed_amounts(allowed),
        explained=explained,
        history_from=history_from,
        ledger_purged=ledger_purged,
        children=sum(bool(each.child_text and not each.child.map) for each in effects) + of_maps,
        maps=list(maps),
        failed_children=[failed_child(call) for call in failed_alone(effects)[:FAILED_MAX]],
        detached=detached,
        forked_at=history.forked_at,
    )


FAILED_MAX: Final = 20
"""Failed children that one answer lists."""


def failed_alone(effects: Sequence[Effect]) -> list[Effect]:
    """Return the rows of failed children that no map has started."""
    return [call for call in children.failed(effects) if not call.child.map]


def failed_child(call: Effect) -> FailedChild:
    """Return a child that has failed, as its parent recorded it."""
    error = call.error or NO_ERROR
    return FailedChild(workflow=call.activity, key=call.key, run=call.external_id, code=error.code, detail=error.detail)


def used_amounts(used: Amounts) -> UsedAmounts:
    """Return usage in the units of people."""
    return UsedAmounts(
        tokens=used.tokens,
        money=money_text(used.money),
        calls=used.calls,
        minutes=round(used.ms / MINUTE, 1),
        unpriced=used.unpriced,
        children=used.children,
    )


def usage_list(found: UsageOfDays, days: int, until: int) -> UsageList:
    """Return the usage of the business days up to `until`, in the units of people."""
    return UsageList(
        usage=[
            UsageLine(
                day=day_text(each.day),
                workflow=each.workflow,
                model=each.model,
                activity=each.activity,
                tokens=each.tokens,
                input_tokens=each.input_tokens,
                output_tokens=each.output_tokens,
                money=money_text(each.money),
                calls=each.calls,
                unpriced=each.unpriced,
            )
            for each in found.sums
        ],
        since=day_text(until - days + 1),
        until=day_text(until),
        every=found.every,
    )


def day_text(day: int) -> str:
    """Return a business day, counted since 1970, as text."""
    return iso(day * DAY)[: len("2026-03-01")]


def allowed_amounts(limits: Limits) -> AllowedAmounts:
    """Return limits in the units of people."""
    return AllowedAmounts(
        tokens=limits.tokens,
        money=None if limits.money is None else money_text(limits.money),
        calls=limits.calls,
        minutes=None if limits.ms is None else round(limits.ms / MINUTE, 1),
        children=limits.children,
    )


def pending_request(message: Message) -> PendingRequest:
    """Return a request that no worker has acted on yet."""
    return PendingRequest(verb=message.kind, by=message.actor, at=exact_instant(message.at), reason=message.reason)


def visit_models(history: RunHistory) -> list[Visit]:
    """Return each visit to a node with the times of entry and exit; the last one may be open."""
    return [
        Visit(node=each.node, visit=each.visit, entered_at=instant(each.entered), left_at=instant(each.left))
        for each in history.visits
    ]


def progress_of(history: RunHistory, effects: Sequence[Effect]) -> Progress:
    """Count done and intended effects (of this visit and of all), and name the last checkpoint and the waits."""
    run, left = history.run, history.visits[:-1]
    here = [e for e in effects if e.node == run.node and e.visit in (0, run.visit)]
    return Progress(
        node=run.node,
        visit=run.visit,
        effects_done=_done(effects),
        effects_intended=len(effects),
        here_done=_done(here),
        here_intended=len(here),
        checkpoints=len(left),
        last_checkpoint_at=exact_instant(left[-1].left) if left else None,
        waits_for=[f"{w.kind} {w.what}" for w in run.waiting_for],
        until=instant(min((w.until for w in run.waiting_for if w.until), default=0)),
    )


def _done(effects: Sequence[Effect]) -> int:
    return sum(1 for e in effects if e.status is EffectStatus.DONE)


def ending_of(history: RunHistory) -> dict[str, Any]:
    """Return the fields outcome, reason and not_undone of an ended run; {} if it has not ended."""
    end = history.end
    return {} if end is None else {**end._asdict(), "not_undone": list(end.not_undone)}


def effect_counts(effects: Iterable[Effect]) -> dict[str, int]:
    """Count effects by status, and the repeated calls."""
    counts = {status.value: 0 for status in EffectStatus}
    again = 0
    for effect in effects:
        counts[effect.status.value] += 1
        again += effect.attempts - 1
    return {**counts, "asked_again": again}


def cloud_event(event: Event) -> CloudEvent:
    """Return a history event: the CloudEvent, and its hash. Raises Corrupt."""
    return CloudEvent.model_validate({**decoded(event.body, f"event {event.run}/{event.seq}"), "hash": event.hash})


def run_delta(delta: Delta) -> RunDelta:
    """Return a delta as its listeners see it."""
    at = delta.origin
    return RunDelta(
        run=at.run, node=at.node, visit=at.visit, epoch=at.epoch, key=at.key, attempt=at.attempt, text=delta.text
    )


def event_list(run: Run, rows: Sequence[Event], last: int, full: bool) -> EventList:
    """Return a page of a run's events. `last`: number of the last event that was read; `full`: more may follow."""
    return EventList(
        events=[cloud_event(event) for event in rows],
        last=last,
        ended=is_over(run) and last >= run.seq,
        next_cursor=str(last) if full else "",
    )


def result_row(result: Result) -> ResultRow:
    """Return a result row of a run."""
    return ResultRow(
        key=result.key,
        ordinal=result.ordinal,
        kind=result.kind,
        data=result.value(),
        at=instant(result.at),
    )


def run_state(run: str, node: str, last: Event, state: Any, shown: Any) -> RunState:
    """Return the state that an event of a run wrote. `shown`: without the values that look like secrets."""
    return RunState(
        run=run,
        node=node,
        completed=completed_node(last) if last.type == EventType.CHECKPOINT else "",
        seq=last.seq,
        at=exact_instant(last.at),
        state=shown,
        redacted=shown != state,
    )


# --- effects ---------------------------------------------------------------------------------------
def effect_record(
    effect: Effect,
    now: Instant,
    evidence: Iterable[Evidence] = (),
    *,
    held: Collection[str] | None = None,
    asked: AskedEffect | None = None,
) -> EffectRecord:
    """Return an effect. `settles_in_ms`: time until a person may answer "did not happen".

    `held`: runs that a worker holds, from `TenantRows.held_runs`; None: not needed, because the effect is settled.
    `asked`: from `TenantRows.asked_effects`, if a person may answer.
    """
    error = effect.error or NO_ERROR
    run = effect.by_run or effect.run
    return EffectRecord(
        id=effect_id(run, effect.visit, effect.key),
        run=run,
        visit=effect.visit,
        once_per=once_per(effect),
        node=effect.node,
        effect=effect.activity,
        key=effect.key,
        version=effect.version,
        status=effect.status.value,
        outcome=effect_label(effect, error.code, held=held is None or run in held),
        code=error.code,
        detail=error.text,
        reopened=effect.status is EffectStatus.REFUSED and error.code == REOPENED,
        attempts=effect.attempts,
        arguments=effect.arguments(),
        response=effect.answer(),
        external_id=effect.external_id,
        digest=effect.digest,
        approval=effect.approval,
        allowed_by=effect.allowed_by,
        undo=effect.undo,
        settled_at=instant(effect.settled_at),
        settled_by=effect.settled_by,
        first_at_real=instant(effect.first_at),
        not_after_real=instant(effect.not_after),
        waited_ms=effect.waited_ms,
        evidence=[late_evidence(each) for each in evidence],
        settle_after_real=instant(effect.settle_after),
        settles_in_ms=max(0, effect.settle_after - now.real) if may_answer(effect) else 0,
        takes_response=asked is not None and bool(asked.returns),
        correctable=effect.shared == STATED and not (asked is not None and asked.is_over),
        unknown=is_unknown(effect),
        returns=asked.returns if asked is not None else "",
        child=effect.external_id if effect.child_text else "",
    )


def once_per(effect: Effect) -> OncePer:
    """Return the scope in which the effect's key is unique."""
    if effect.visit:
        return "visit"
    return "run" if effect.run else scope_of_shared(effect.key)


def late_evidence(evidence: Evidence) -> LateEvidence:
    """Return the late answer of a replaced worker, which does not settle the effect."""
    answer = evidence.answer
    error = answer.error or NO_ERROR
    return LateEvidence(
        epoch=evidence.epoch,
        at=instant(evidence.at),
        status=answer.status,
        response=answer.response(),
        code=error.code,
        detail=error.text,
    )


# --- the store -------------------------------------------------------------------------------------
def worker_status(worker: Worker, now: Instant, held: int, drain: DrainRequest | None = None) -> WorkerStatus:
    """Return a worker: its lanes, lease, health at its last heartbeat, and the request that it drains."""
    health = worker.health
    concurrency = health.of
    return WorkerStatus(
        worker=worker.id,
        name=worker.name,
        status=worker.status.value,
        serving=worker.is_alive(now.real),
        state=worker_label(worker, now, asked=drain is not None),
        serves=[lane for lane in worker.lane_names if not is_built_in(lane)],
        scheduler=health.scheduler or OWN,
        away_ms=None if health.away_since is None else max(0, now.real - health.away_since),
        away_why=health.away_why or "",
        bridged_ms=bridged_ms(worker, now),
        holds=held,
        concurrency=concurrency,
        free=None if concurrency is None else max(0, concurrency - held),
        pid=health.pid,
        host=health.host,
        version=health.version,
        loop_late_ms=health.loop_late_ms,
        loop_ticked_ms=health.loop_ticked_ms,
        lease_left_ms=worker.lease_until - now.real if worker.is_alive(now.real) else 0,
        heartbeat_ago_ms=max(0, now.real - worker.renewed_at),
        started_at=instant(worker.started_at),
        renewed_at_real=instant(worker.renewed_at),
        lease_until_real=instant(worker.lease_until),
        drain_asked_by=drain.by if drain is not None else "",
        drain_asked_at=instant(drain.at) if drain is not None else None,
        drain_reason=drain.reason if drain is not None else "",
    )


def active_pause(pause: Pause, runs: int, business: Callable[[int], int]) -> ActivePause:
    """Return a pause with its number of waiting runs. `business` converts real instants to business time."""
    return ActivePause(
        paused=pause.key.replace("/", " ", 1),
        kind=pause.kind,
        runs=runs,
        by=pause.by,
        since=instant(pause.since),
        again_at=instant(business(pause.again_at)) if pause.again_at else None,
        reason=pause.reason,
    )


def caller_info(actor: Actor, tenant: str, until_real: int = 0) -> CallerInfo:
    """Return the caller's identity and roles. `until_real`: expiry of the credential in ms; 0 = never."""
    return CallerInfo(
        name=actor.name,
        tenant=tenant,
        roles=list(actor.claims),
        every_role=actor.roles is EVERY_ROLE,
        person=actor.person,
        until_real=instant(until_real),
    )
