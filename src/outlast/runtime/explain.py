"""Why a run stands where it stands, in one sentence: a pure function of its rows, the same for every reader (RUN-9)."""

import json

from outlast.core.machine import (
    OVERLAY_ONLY,
    TERMINAL,
    Choice,
    EffectStatus,
    LeaseStatus,
    Reason,
    RunStatus,
    if_ignored,
)
from outlast.core.overlay import Attention, attention_of
from outlast.core.route import ENGINE, Answer, EndCancelled, EndFailed, Rest, Route, route
from outlast.core.rows import Effect, Worker, is_over
from outlast.runtime.answers import Way, until_of, ways_of
from outlast.runtime.explain_undo import undoing_part
from outlast.runtime.explain_waits import waiting_part
from outlast.runtime.seen import (
    START_WORKER,
    Explanation,
    Part,
    Seen,
    blocked_words,
    clock_words,
    first_line,
    group_text,
    start_one,
    taker_text,
)
from outlast.runtime.views import ENDINGS, TAKEN, evidence_view
from outlast.runtime.words import blocked_ms, is_alive, is_held, late_words

BLOCKING = "write a call that blocks as an activity with def, which runs in a thread, or await it"
OPEN = (EffectStatus.INTENDED, EffectStatus.UNCERTAIN)


def explain(seen: Seen) -> Explanation:
    """Where the run stands, why, who holds it, since and until when, what comes next, what would unblock it."""
    run = seen.run
    part = _part(seen)
    tripped = () if is_over(run) else _overlays(seen)
    clause = part.clause
    unblock = list(part.unblock)
    stops = any(a.reason not in OVERLAY_ONLY for a in attention_of(run))
    for entry in tripped:
        clause = f"{_overlay(seen, entry)}{'; it' if stops else ' and goes on: it'} {clause}"
        unblock += [way.command for way in ways_of(run, entry)]
    facts = [("node", f"{run.node} (visit {run.visit})"), ("held by", run.owner if is_held(run) else "nobody")]
    if not is_over(run) and (group := group_text(run)):
        facts.append(("group", group))
    if clock := clock_words(seen.clock_step):
        facts.append(("this machine's clock", clock))
    if part.since:
        facts.append(("since", seen.instant(part.since)))
    if part.until:
        facts.append(("until", seen.instant(part.until)))
    return Explanation(f"{run.run} {clause}.", (*facts, *part.facts), part.next, tuple(dict.fromkeys(unblock)))


def _route(seen: Seen) -> Route:
    return route(seen.run, seen.messages, _ledger(seen), seen.now.business, served=bool(seen.takers()))


def _overlays(seen: Seen) -> tuple[Attention, ...]:
    """Reasons that stop nothing, and that nobody has answered yet."""
    way = _route(seen)
    left = () if isinstance(way, EndCancelled | EndFailed) else way.left
    return tuple(a for a in left if a.reason in OVERLAY_ONLY)


def _overlay(seen: Seen, entry: Attention) -> str:
    if entry.reason is Reason.TOTAL_TIMEOUT:
        return f"passed its ceiling {seen.ago(entry.since)} ago ({entry.trigger or entry.reason.value})"
    return f"needs a person for {entry.reason.value} since {seen.ago(entry.since)}"


def _ledger(seen: Seen) -> dict[tuple[int, str], Effect]:
    return {(e.visit, e.key): e for e in seen.effects}


def _part(seen: Seen) -> Part:
    if is_over(seen.run):
        return _over(seen)
    way = _route(seen)
    if seen.run.ending:
        return undoing_part(seen, _meanwhile(seen, way))
    if isinstance(way, EndCancelled | EndFailed):
        return _to_end(seen, way)
    if isinstance(way, Rest):
        return _needs_person(seen, tuple(a for a in way.left if a.reason not in OVERLAY_ONLY))
    if is_held(seen.run):
        return _walked(seen)
    if way.answers:
        return _answered(seen, way.answers)
    return waiting_part(seen)


def _meanwhile(seen: Seen, way: Route) -> Part | None:
    """What keeps a run from undoing at this moment."""
    if isinstance(way, Rest):
        return _needs_person(seen, tuple(a for a in way.left if a.reason not in OVERLAY_ONLY))
    if is_held(seen.run):
        return _walked(seen)
    return None if seen.is_due() else waiting_part(seen)


# --- over ------------------------------------------------------------------------------------------
_ENDED = {
    RunStatus.COMPLETED: RunStatus.COMPLETED.value,
    RunStatus.FAILED: RunStatus.FAILED.value,
    RunStatus.CANCELLED: f"was {RunStatus.CANCELLED.value}",
}
assert set(_ENDED) == set(TERMINAL)


def _over(seen: Seen) -> Part:
    run = seen.run
    last = seen.events[-1] if seen.events else None
    data = json.loads(last.body)["data"] if last is not None and last.type in ENDINGS else {}
    reason, stands = first_line(data.get("reason", "")), data.get("standing", [])
    said = f": {reason}" if reason else ""
    for by in ("cancelled by ", "failed by "):
        if reason.startswith(by):
            said = f" by {reason.removeprefix(by)}"
    clause = f"{_ENDED[run.status]} {seen.ago(run.ended_at)} ago{said}"
    if stands:
        clause += f"; {_count(len(stands), 'effect')} of it stand{'s' if len(stands) == 1 else ''}"
    unblock = ("undo by hand what must be undone",) if stands else ()
    facts = (("stands", ", ".join(stands)),) if stands else ()
    return Part(clause, "nothing: a run that has ended never changes", unblock, since=run.ended_at, facts=facts)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


# --- asked to end ------------------------------------------------------------------------------------
def _to_end(seen: Seen, way: EndCancelled | EndFailed) -> Part:
    run = seen.run
    message = next((n for n in seen.messages if n.kind in ("cancel", "answer") and n.actor == way.by), None)
    since = message.at if message is not None else 0
    if way.by == ENGINE:
        asked = f"is to be cancelled ({way.reason})"
    else:
        when = f" {seen.ago(since)} ago" if since else ""
        asked = f"was asked to end by {way.by}{when} ({way.reason})"
    open_ = [e for e in seen.effects if e.status in OPEN]
    facts = (("open effects", ", ".join(f"{e.activity} {e.key}" for e in open_)),) if open_ else ()
    if is_held(run):
        clause = f"{asked}; {run.owner} heeds it before its next call"
        return Part(clause, "its open effects are settled, then it ends", since=since, facts=facts)
    if seen.is_due():
        clause = f"{asked}; {taker_text(seen)}"
        return Part(clause, "its open effects are settled, then it ends", start_one(seen), since=since, facts=facts)
    stopping = tuple(a for a in attention_of(run) if a.reason not in OVERLAY_ONLY)
    inner = _needs_person(seen, stopping) if stopping else waiting_part(seen)
    return inner._replace(clause=f"{asked} and first {inner.clause}", since=since, facts=facts)


# --- a person --------------------------------------------------------------------------------------
def _needs_person(seen: Seen, entries: tuple[Attention, ...]) -> Part:
    run = seen.run
    said = [_why(seen, entry) for entry in entries]
    untils = [u for entry in entries if (u := until_of(entry))]
    commands = tuple(way.command for entry in entries for way in ways_of(run, entry) if _is_open(seen, entry, way))
    ignored = " · ".join(dict.fromkeys(if_ignored(entry.reason) for entry in entries))
    return Part(
        f"needs a person: {'; and '.join(said)}",
        f"ignored: {ignored}",
        commands,
        since=min(entry.since for entry in entries),
        until=min(untils, default=0),
        facts=(("reasons", ", ".join(dict.fromkeys(entry.reason.value for entry in entries))), *_open_facts(seen)),
    )


def _open_facts(seen: Seen) -> tuple[tuple[str, str], ...]:
    """Return the effects that no worker works at and that no person is asked about."""
    open_ = [f"{e.activity} {e.key}" for e in seen.effects if e.status is EffectStatus.INTENDED]
    return (("open effects", ", ".join(open_)),) if open_ and not is_held(seen.run) else ()


def _is_open(seen: Seen, entry: Attention, way: Way) -> bool:
    """Would it be accepted now? «Did not happen» is, once a call in flight can no longer land."""
    effect = _ledger(seen).get((entry.visit, entry.key))
    return way.choice is not Choice.DID_NOT_HAPPEN or effect is None or effect.settle_after <= seen.now.real


def _why(seen: Seen, entry: Attention) -> str:
    detail = first_line(entry.detail)
    effect = _ledger(seen).get((entry.visit, entry.key))
    name = f"{effect.activity} {effect.key}" if effect is not None else entry.key
    match entry.reason:
        case Reason.EFFECT_UNCERTAIN:
            when = "now"
            if effect is not None and effect.settle_after > seen.now.real:
                when = f"in {seen.left_real(effect.settle_after)}"
            late = "".join(
                f"; {late_words(evidence_view(e))}"
                for e in seen.evidence
                if (e.visit, e.key) == (entry.visit, entry.key)
            )
            return f"{name} may or may not have happened ({detail}){late}; «did not happen» is accepted {when}"
        case Reason.RETRIES_EXHAUSTED:
            return f"{name} did not happen {detail}"
        case Reason.EXCEPTION:
            return f"node {seen.run.node} raised {detail}"
        case Reason.APPROVAL_TIMEOUT:
            return f"{detail}; without an answer it is cancelled in {seen.left(until_of(entry))}"
    return detail or entry.reason.value


def _answered(seen: Seen, answers: tuple[Answer, ...]) -> Part:
    said = " and ".join(_chosen(answer) for answer in answers)
    by_itself = all(answer.by == ENGINE for answer in answers)
    clause = f"goes on: {said}" if by_itself else f"goes on with what people answered ({said})"
    clause += f"; {taker_text(seen)}"
    return Part(clause, "the node is walked again, in the same visit", start_one(seen))


def _chosen(answer: Answer) -> str:
    if answer.attention.reason is Reason.EFFECT_UNCERTAIN:
        return f"{answer.attention.key} is settled by {answer.by}"
    if answer.by == ENGINE:
        return answer.text
    return f"{answer.choice.value} by {answer.by}"


# --- a worker --------------------------------------------------------------------------------------
def _walked(seen: Seen) -> Part:
    run = seen.run
    taken = next((e for e in reversed(seen.events) if e.type in TAKEN), None)
    since = taken.at if taken is not None else 0
    worker = next((w for w in seen.workers if w.id == run.owner), None)
    if worker is None or not is_alive(worker, seen.now):
        return _orphaned(seen, worker, since)
    facts = (
        ("lease", f"for another {seen.left_real(worker.lease_until)}, renewed as long as the worker lives"),
        ("slice", f"ends within {seen.left_real(run.due_at or 0)}"),
    )
    dies = f"another worker takes over once the lease of {run.owner} has expired, should it die"
    silent = seen.now.real - worker.renewed_at
    if blocked := blocked_ms(worker, seen.now):
        clause = f"is held by {run.owner} and goes on once {blocked_words(blocked)}"
        then = f"the worker stops renewing its lease if that lasts; {dies}"
        return Part(clause, then, (BLOCKING, *start_one(seen)), since=since, facts=facts)
    if silent > (worker.lease_until - worker.renewed_at) // 2:
        clause = f"is held by {run.owner}, which has been silent for {seen.ago_real(worker.renewed_at)}"
        clause += f": takeover in {seen.left_real(worker.lease_until)}, unless it renews its lease"
        return Part(clause, dies, () if seen.takers() else (START_WORKER,), since=since, facts=facts)
    ago = f", since {seen.ago(since)}" if since else ""
    if run.status is RunStatus.RECOVERING:
        clause = f"is held by {run.owner}, which settles what its predecessor left open in node {run.node}{ago}"
    elif run.status is RunStatus.COMPENSATING:
        clause = f"is held by {run.owner}{ago}"
    else:
        clause = f"is walked by {run.owner} in node {run.node}{ago}"
    return Part(clause, f"it goes on by itself; {dies}", since=since, facts=facts)


def _orphaned(seen: Seen, worker: Worker | None, since: int) -> Part:
    owner, takers = seen.run.owner, seen.takers()
    if worker is None:
        what = "of which nothing is known"
    elif worker.status is LeaseStatus.CLOSED:
        what = "which is gone"
    else:
        what = f"whose lease expired {seen.ago_real(worker.lease_until)} ago"
    if takers:
        return Part(f"was held by {owner}, {what}; {takers[0].id} takes it over now", "what was open is settled first")
    clause = f"was held by {owner}, {what}, and no live worker serves {seen.run.lane} to take it over"
    return Part(clause, "a worker that serves it takes it over", (START_WORKER,), since=since)
