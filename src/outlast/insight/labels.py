"""Labels that rows are shown with: run status, waits, worker state and effect outcome."""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from outlast.core.approvals import changed_call
from outlast.core.commit import EMPTY, Instant
from outlast.core.compensation import BY_HAND
from outlast.core.durations import HEARTBEAT_EVERY, MINUTE, span
from outlast.core.effect_verbs import NOT_SENT
from outlast.core.limits import COUNT_MAX
from outlast.core.machine import HELD, ApprovalStatus, EffectStatus, LeaseStatus, RunStatus
from outlast.core.mailbox import REOPENED, is_unknown
from outlast.core.maps import waited_map
from outlast.core.rows.columns import decoded
from outlast.core.rows.effect_columns import ANSWER_NOT_STORED
from outlast.core.rows.effect_rows import BY_ITSELF, Effect
from outlast.core.rows.run_columns import StatusLabels, WaitingFor, WaitingKind, labels_of
from outlast.core.rows.run_rows import Message, Run, is_over
from outlast.core.rows.store_rows import Worker
from outlast.models.approvals import ApprovalSummary, OfferedPlan
from outlast.models.effects import LateEvidence
from outlast.models.runs import FailedChild, RunListItem, RunMap, Visit
from outlast.models.service import ReasonCount, StatusSummary

ATTENTION = "REQUIRES_ATTENTION"
APPROVAL = "PENDING_APPROVAL"
LATE_CHARS = 200
BRIDGE_SILENT = MINUTE  # since the bridge of a guest's worker searched for due runs
STALLED = 2 * HEARTBEAT_EVERY  # since the event loop last ran: a heartbeat was missed
_BY_LABEL = frozenset({RunStatus.RUNNING, RunStatus.WAITING, RunStatus.RECOVERING})
_OF_CALLS: frozenset[WaitingKind] = frozenset({"effect", "retry", "settle", "child"})
"""Waits of a call that has an intent."""


def shown_status(run: Run, oldest_call: int = 0) -> str:
    """Return REQUIRES_ATTENTION if a person is needed, else the node's status label, else the status (RUN-2).

    The label of a completed run is the `end` of its last node. A run that failed or was cancelled shows that.
    `oldest_call`: the lowest epoch of its open calls, 0 if it has none; only for runs that `may_have_open_calls` names.
    """
    if run.attention:
        return ATTENTION
    if not is_over(run) and (labels := labels_of(run.status_label)) is not None:
        return _shown_label(run, labels, oldest_call)
    if run.status_label and (not is_over(run) or run.status is RunStatus.COMPLETED):
        return run.status_label
    if any(w.kind == "approval" for w in run.waiting_for):
        return APPROVAL
    return run.status.upper()


def visit_text(node: str, nth: int, visit: int) -> str:
    """Return a visit for a reader: `award, 1st visit`. `nth`: its number among those of its node; 0 if it is unknown.

    `visit`: its number in the run; 0 for what belongs to no visit. The first visit of a run is the first of its node.
    """
    if visit == 1 or nth:
        return f"{node}, {ordinal(nth or 1)} visit"
    return f"{node}, visit {visit} of the run" if visit else node


def ordinal(n: int) -> str:
    """Return a number as an ordinal: 1st, 2nd, 3rd, 11th."""
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def nth_of(visits: Sequence[Visit]) -> dict[int, int]:
    """Return the number of each visit among those of its node; {} if the first visits were purged."""
    counts: Counter[str] = Counter()
    found = dict[int, int]()
    for each in visits if visits and visits[0].visit == 1 else ():
        counts[each.node] += 1
        found[each.visit] = counts[each.node]
    return found


def call_of(view: ApprovalSummary, chosen: str = "") -> str:
    """Return what an approval is about, for a list: the call that was approved, if it is not the requested one.

    `chosen`: digest of the call that one vote names [that of the decision, or of the votes so far]. The details of an
    approval show both calls.
    """
    if not chosen and view.status == ApprovalStatus.PENDING and view.votes:
        chosen = view.votes[0].chosen
    for plan in view.plans[1:]:
        if plan.digest == chosen if chosen else plan.chosen:
            asked = asked_before(view.plans[0], plan)
            if asked:
                return f"{plan.effect} {plan.line} (asked {asked}, edited by {plan.changed_by})"
            return changed_call(plan.effect, plan.arguments, plan.alternative, plan.changed_by)
    return view.asks


def asked_before(asked: OfferedPlan, made: OfferedPlan) -> str:
    """Return the main arguments before an edit that changed nothing else, '' otherwise."""
    before, now = ({each.name: each.text for each in plan.shown} for plan in (asked, made))
    if not made.changes or not made.changes.keys() <= before.keys() & now.keys():
        return ""
    return ", ".join(before[name] for name in made.changes if before[name] != now[name])


def _shown_label(run: Run, labels: StatusLabels, oldest_call: int) -> str:
    if run.status not in _BY_LABEL:
        return run.status.upper()
    kinds = {wait.kind for wait in run.waiting_for}
    if "approval" in kinds:
        return labels.approval
    if kinds & _OF_CALLS:
        return labels.calling
    if run.status is RunStatus.RECOVERING and (not is_held(run) or 0 < oldest_call < run.epoch):
        return run.status.upper()
    return labels.calling if oldest_call else labels.executing


def may_have_open_calls(run: Run) -> bool:
    """Return True if the shown status depends on the calls that are open now."""
    return is_held(run) and labels_of(run.status_label) is not None


def is_held(run: Run) -> bool:
    """Return True if a worker holds the run now."""
    return run.status in HELD and bool(run.owner)


def waiting_text(run: Run, serving: Collection[str]) -> str:
    """Return what the run waits for in one line, or the node being executed. `serving`: the lanes served."""
    if is_over(run):
        return ""
    if is_held(run):
        return f"node {visit_text(run.node, 0, run.visit)} ({run.owner})"
    children = [wait for wait in run.waiting_for if wait.kind == "child" and not waited_map(wait)]
    several = len(children) > 1
    each = [_one_wait(w, run, serving) for w in run.waiting_for if not (several and w in children)]
    return " + ".join([*each, f"{len(children)} children"] if several else each) or "a worker"


def _one_wait(wait: WaitingFor, run: Run, serving: Collection[str]) -> str:
    by = f" by {wait.who}" if wait.who else ""
    match wait.kind:
        case "worker":
            return f"a worker that serves {run.lane}" if run.lane in serving else f"no worker serves {run.lane}"
        case "approval":
            return f"{wait.kind} {wait.what.partition(' ')[0]}{by}"
        case "attention":
            return f"you: {wait.what.removeprefix('a person: ')}"
        case "retry":
            return f"{wait.what}: {wait.who}" if wait.who else wait.what
        case "settle":
            return f"{wait.what}: a call may still land"
        case "slot":
            return wait.what
        case "child" if waited_map(wait):
            return f"map {wait.what}"
        case "child":
            return f"{wait.kind} {wait.what} ({wait.who})"
    return f"{wait.kind} {wait.what}{by}"


def engine_label(worker: Worker, now: Instant) -> str:
    """Return the trouble of a guest's worker with its engine; '' without one, and for other workers.

    Its engine cannot be reached, or its bridge no longer searches for due runs.
    """
    health, searched = worker.health, bridged_ms(worker, now)
    if health.away_since is not None:
        why = f": {health.away_why}" if health.away_why else ""
        return f"{health.scheduler} away for {span(max(0, now.real - health.away_since))}{why}"
    if searched is not None and searched > BRIDGE_SILENT:
        return f"its bridge to {health.scheduler} has been silent for {span(searched)}"
    return ""


def cost_text(run: RunListItem) -> str:
    """Return what a run has cost, with a plus if calls had no price; '' if its calls have reported nothing."""
    more = "+" if run.unpriced else ""
    return f"{run.cost}{more}" if more or run.cost != "0" else ""


def counted(count: int, count_max: int = COUNT_MAX) -> str:
    """Return a count as text, with "+" if rows were counted only so far."""
    return f"{count:,}{'+' if count >= count_max else ''}"


def count_of(counts: StatusSummary | ReasonCount, name: str) -> str:
    """Return a count of a summary as text, with "+" if it is a lower bound."""
    least = counts.at_least if isinstance(counts, ReasonCount) else name in counts.at_least
    return f"{getattr(counts, name):,}{'+' if least else ''}"


def worker_label(worker: Worker, now: Instant, *, asked: bool = False) -> str:
    """Return the worker's state: serving, draining (or `asked` to drain), silent (lease expired) or stopped."""
    if worker.status is LeaseStatus.CLOSED:
        return "gone"
    if not worker.is_alive(now.real):
        return "silent: its runs are taken over"
    return "draining" if worker.health.draining or asked else engine_label(worker, now) or "serving"


def blocked_ms(worker: Worker, now: Instant) -> int:
    """Return for how long the worker's event loop has been blocked at its last heartbeat; 0 if it runs."""
    ticked = worker.health.loop_ticked_ms or 0
    return ticked + max(0, now.real - worker.renewed_at) if ticked > STALLED else 0


def bridged_ms(worker: Worker, now: Instant) -> int | None:
    """Return the time since the bridge of a guest's worker last searched for due runs; None for other workers."""
    before = worker.health.bridged_ms
    return None if before is None else before + max(0, now.real - worker.renewed_at)


def effect_label(effect: Effect, code: str, *, held: bool = True) -> str:
    """Return the outcome of an effect or a child; `code` is of its refusal, uncertainty or last failure."""
    verb = "started" if effect.child_text else "called"
    again = f", {verb} again ×{effect.attempts - 1}" if effect.attempts > 1 else ""
    if effect.status is EffectStatus.DONE and code == BY_HAND:
        return f"done manually{_source(effect)}"
    if effect.status is EffectStatus.DONE:
        missing = f", {code}" if code == ANSWER_NOT_STORED else ""
        return f"executed{again}{_source(effect)}{missing}"
    if effect.status is EffectStatus.UNCERTAIN:
        return f"UNCERTAIN {code}"
    if effect.status is EffectStatus.UNDONE:
        return f"{effect.status.value}{again}"
    if effect.status is EffectStatus.REFUSED:
        if code == REOPENED:
            return f"will be {verb} again{_source(effect)}"
        if is_unknown(effect):
            return f"given up, outcome unknown{again}{_source(effect)}"
        return f"{effect.status.value} {code}{again}{_source(effect)}"
    if effect.child_text:
        return f"in progress, runs as {effect.external_id}{again}"
    if effect.settle_after == 0:
        return f"will be called again after {code}"
    return f"in progress{again}" if held else f"left open{again}: it may have happened"


def happened_options(takes_response: bool) -> str:
    """Return the options of `outlast effects resolve` for a call that happened."""
    return "--happened ID --response JSON" if takes_response else "--happened ID"


class Said(NamedTuple):
    """Message of a person: the verb, its object with the choice, and the reason."""

    verb: str
    about: str
    reason: str


def said_in(message: Message) -> Said:
    """Return the words of a message of a person: `A-17: happened (tx-9)`, `exception: continue`."""
    if message.kind == "resolve" and message.payload != EMPTY:
        stated = message.stated
        as_id = f" ({stated.external_id})" if stated.external_id else ""
        again = f", which replaces the answer of {stated.corrects}" if stated.corrects else ""
        return Said("answer", f"{stated.key}: {choice_text(stated.verb)}{as_id}{again}", stated.reason)
    if message.kind == "answer":
        answer = message.answer
        of = f" {answer.key}" if answer.key else ""
        return Said("answer", f"{message.name}{of}: {choice_text(answer.choice)}", answer.reason)
    content = decoded(message.payload or EMPTY, f"message {message.n} of run {message.run}")
    has_reason = message.kind != "signal" and isinstance(content, dict)
    return Said(message.kind, message.name, str(content.get("reason") or "") if has_reason else "")


def choice_text(choice: str) -> str:
    """Return a choice as words: `did not happen`."""
    return choice.replace("_", " ")


def late_answer_label(late: LateEvidence) -> str:
    """Describe the late answer of a replaced worker."""
    if late.status == NOT_SENT:
        return f"a replaced worker did not send it: {late.detail} (epoch {late.epoch})"
    error_text = late.code and f" {late.code}: {late.detail}"
    answer = json.dumps(late.response, ensure_ascii=False)[:LATE_CHARS] if late.response is not None else ""
    return f"a replaced worker later got: {late.status}{error_text or (answer and ' ' + answer)} (epoch {late.epoch})"


def _source(effect: Effect) -> str:
    if effect.settled_by == "reconcile":
        return " (the receiver was asked)"
    return "" if effect.settled_by in BY_ITSELF else f" (stated by {effect.settled_by})"


def failed_child_text(child: FailedChild) -> str:
    """Return a child that has failed, on one line."""
    return f"{child.workflow} {child.key} ({child.run}) {child.code}{f': {child.detail}' if child.detail else ''}"


def map_text(each: RunMap) -> str:
    """Return a map on one line: `research: 12 of 100 completed, 1 failed, 20 run`."""
    numbers = {RunStatus.FAILED.value: each.failed, RunStatus.CANCELLED.value: each.cancelled, "run": each.running}
    if each.ended:
        numbers["not started"] = each.not_started
    counts = [
        f"{each.completed:,} of {each.inputs:,} completed",
        *(f"{n:,} {word}" for word, n in numbers.items() if n),
    ]
    name = each.workflow if each.key == each.workflow else f"{each.workflow} {each.key}"
    decided = {"enough": "; it has enough", "too_few": "; not enough completed"}.get(each.decided, "")
    return f"{name}: {', '.join(counts)}{decided}"
