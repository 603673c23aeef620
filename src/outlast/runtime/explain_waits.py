"""What a run that nobody holds waits for, in a clause for each kind of wait (RUN-9)."""

import json

from outlast.core.ledger import bound_notes
from outlast.core.machine import ApprovalStatus, WaitStatus
from outlast.core.overlay import WaitingFor, waiting_of
from outlast.core.rows import Approval, Slot
from outlast.engine.pauses import BREAKER
from outlast.runtime.seen import Part, Seen, start_one, taker_text

DECIDED = {
    ApprovalStatus.APPROVED: ApprovalStatus.APPROVED.value,
    ApprovalStatus.REJECTED: ApprovalStatus.REJECTED.value,
    ApprovalStatus.AGAIN: f"{ApprovalStatus.REJECTED.value}, with another round,",
}


def waiting_part(seen: Seen) -> Part:
    """What it waits for, all of it in one clause; or, once it is due, who takes it."""
    waits = waiting_of(seen.run)
    if seen.is_due() and not any(w.kind == "worker" for w in waits):
        return _due(seen, waits)
    if not waits:
        return Part(f"waits for a worker; {taker_text(seen)}", "a worker takes it", start_one(seen))
    parts = [_one(seen, wait) for wait in waits]
    return Part(
        clause=" and ".join(part.clause for part in parts),
        next=" · ".join(dict.fromkeys(part.next for part in parts)),
        unblock=tuple(command for part in parts for command in part.unblock),
        since=min((part.since for part in parts if part.since), default=0),
        until=min((part.until for part in parts if part.until), default=0),
        facts=tuple(fact for part in parts for fact in part.facts),
    )


def _due(seen: Seen, waits: tuple[WaitingFor, ...]) -> Part:
    """It is due, and no worker has taken it yet: what made it so?"""
    decided = [a for w in waits if w.kind == "approval" and (a := _approval(seen, w)) and a.status in DECIDED]
    over = [w for w in waits if 0 < w.until <= seen.now.business]
    late = seen.ago_real(seen.run.due_at or 0)
    if decided:
        a = decided[0]
        what = f"{a.id} was {DECIDED[a.status]} by {a.decided_by} {seen.ago(a.decided_at)} ago"
    elif over:
        what = f"its time for {over[0].kind} {over[0].what} is over since {seen.ago(over[0].until)}"
    elif seen.messages and seen.messages[-1].kind == "signal":
        message = seen.messages[-1]
        what = f"the signal {message.name} came {seen.ago(message.at)} ago"
    else:
        what = f"it is due since {late}"
    return Part(f"goes on: {what}; {taker_text(seen)}", "the node is walked again", start_one(seen))


def _approval(seen: Seen, wait: WaitingFor) -> Approval | None:
    name = wait.what.partition(" ")[0]
    return next((a for a in seen.approvals if a.id == name), None)


def _one(seen: Seen, wait: WaitingFor) -> Part:
    match wait.kind:
        case "worker":
            return _worker(seen, wait)
        case "slot":
            return _slot(seen, wait)
        case "timer":
            clause = f"sleeps ({wait.what}) for another {seen.left(wait.until)}"
            return _timed(seen, wait, clause)
        case "signal":
            return _signal(seen, wait)
        case "approval":
            return _decision(seen, wait)
        case "retry":
            clause = f"waits for {wait.what} ({wait.who}), for another {seen.left(wait.until)}"
            return _timed(seen, wait, clause)
        case "settle":
            clause = f"waits until a call can no longer land, for another {seen.left(wait.until)}, to know {wait.what}"
            return _timed(seen, wait, clause)
        case "hold":
            return _held(seen, wait)
        case "effect":
            return _shared(seen, wait)
    return _timed(seen, wait, f"waits for {wait.kind} {wait.what}")


def _timed(seen: Seen, wait: WaitingFor, clause: str, *unblock: str) -> Part:
    following = f"in {seen.left(wait.until)} it {wait.then}" if wait.until else "it waits for as long as it takes"
    return Part(clause, following, unblock, wait.since, wait.until)


def _worker(seen: Seen, wait: WaitingFor) -> Part:
    clause = f"is queued since {seen.ago(wait.since)}; {taker_text(seen)}"
    then = next((each.id for each in seen.takers()), f"a worker that serves {seen.run.lane}")
    return Part(clause, f"{then} walks node {seen.run.node}", start_one(seen), since=wait.since)


def _slot(seen: Seen, wait: WaitingFor) -> Part:
    tenants = dict.fromkeys(s.tenant for s in seen.slots)
    said = " and ".join(_taken(tenant, [s for s in seen.slots if s.tenant == tenant]) for tenant in tenants)
    clause = f"is queued for a slot since {seen.ago(wait.since)}" + (f"; {said}" if said else "")
    return Part(clause, f"it {wait.then}, when a run that holds a slot ends", ("outlast runs ls",), wait.since)


def _taken(tenant: str, slots: list[Slot]) -> str:
    whose = f"of tenant {tenant}" if tenant != "*" else "of all tenants"
    return f"{sum(1 for s in slots if s.holder)} of {len(slots)} slots {whose} are taken"


def _signal(seen: Seen, wait: WaitingFor) -> Part:
    left = f"for another {seen.left(wait.until)}" if wait.until else "without an end"
    row = next((w for w in seen.waits if w.name == wait.what and w.visit == seen.run.visit), None)
    send = f"outlast signal {seen.run.run} {wait.what} --data '{{…}}'"
    spent = {n for w in seen.waits if w.status is WaitStatus.BOUND for n in bound_notes(w)}
    came = [n for n in seen.messages if n.kind == "signal" and n.name == wait.what and n.n not in spent]
    if row is None or row.kind != "collect":
        unfit = f"; {len(came)} came whose data it cannot read" if came else ""
        return _timed(seen, wait, f"waits for the signal {wait.what}, {left}{unfit}", send)
    of = f"{len(came)} of {row.most}" if row.most else f"{len(came)}"
    clause = f"has {of} signals {wait.what} and waits for more, {left}"
    return _timed(seen, wait, clause, send)


def _decision(seen: Seen, wait: WaitingFor) -> Part:
    name = wait.what.partition(" ")[0]
    clause = f"waits for {wait.who} to decide {wait.what}, for another {seen.left(wait.until)}"
    commands = [f"outlast approvals approve {name} --reason …", f"outlast approvals reject {name} --reason …"]
    row = _approval(seen, wait)
    facts: tuple[tuple[str, str], ...] = ()
    if row is not None:
        facts = (("asks for", ", ".join(f"{p['activity']} {p['key']}" for p in json.loads(row.plans)[:1])),)
        if row.again:
            commands.append(f"outlast approvals reject {name} --again --reason …")
    then = f"in {seen.left(wait.until)} an operator is called ({wait.then}); nothing is approved by waiting"
    return Part(clause, then, tuple(commands), wait.since, wait.until, facts)


def _held(seen: Seen, wait: WaitingFor) -> Part:
    key, _, reason = wait.what.partition(": ")
    up = next((h for h in seen.holds if h.key == key), None)
    said = f" ({reason})" if reason else ""
    if up is None:
        clause = f"goes on: the hold of {key.replace('/', ' ')} was released; {taker_text(seen)}"
        return Part(clause, "a worker looks again within a minute", start_one(seen))
    if up.kind == BREAKER:
        again = (
            f"one run tries in {seen.left_real(up.again_at)} whether it answers" if up.again_at > seen.now.real else ""
        )
        clause = f"waits for {key.replace('/', ' ')}, which is away since {seen.ago(up.since)}{said}"
        return Part(clause, again or "one run tries now whether it answers", _ways_of(key), up.since, wait.until)
    clause = f"waits while {key.replace('/', ' ')} is held by {up.by} since {seen.ago(up.since)}{said}"
    return Part(clause, f"it {wait.then}", (f"outlast release {key.replace('/', ' ')}",), up.since)


def _ways_of(key: str) -> tuple[str, ...]:
    """A breaker can be released at once, or be made a hold that stays until a person takes it down."""
    name = key.replace("/", " ")
    return (f"outlast release {name}", f"outlast hold {name} --reason …")


def _shared(seen: Seen, wait: WaitingFor) -> Part:
    owner = wait.who.removeprefix("run ")
    clause = f"waits for {wait.what}, which {wait.who} has under way: it alone settles it"
    return Part(clause, "it takes the recorded answer", (f"outlast explain {owner}",), wait.since)
