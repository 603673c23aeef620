"""The moves of a run, each a pure function from rows to one commit.

A caller who loses a race gets Stale, reloads, and decides again; nothing is ever half written. Every move of
the run row spends one version, appends at least one event, and says who acted (S-11).
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from outlast.core.commit import Commit, Expect, Fence, Instant, Mapping, Put, Wake
from outlast.core.events import EventType, event
from outlast.core.machine import ENDED, Reason, RunStatus, run_target
from outlast.core.overlay import (
    Armed,
    Attention,
    WaitingFor,
    attention_of,
    due_of,
    dump_attention,
    dump_clocks,
    dump_waiting,
)
from outlast.core.people import withdraw
from outlast.core.rows import EVENT, MEMO, RUN, SLOT, TOKEN, Approval, Memo, Run, Slot, Token, check_run


class Told(NamedTuple):
    """Something a node said with ctx.tell: written with the next move of the run row, once per key and visit."""

    key: str
    text: str
    data: dict[str, object]


class SlotChange(NamedTuple):
    """A slot row as it was read, and the queued run that gets it next (None: it becomes free)."""

    slot: Slot
    heir: Run | None = None


def _move(
    run: Run,
    verb: str,
    type_: EventType,
    now: Instant,
    data: dict[str, object],
    *,
    told: Sequence[Told] = (),
    snapshot: bytes | None = None,
    **changes: object,
) -> tuple[Put, ...]:
    """The run row one move later, and the events that tell of it: what was told before, then the move itself."""
    puts: list[Put] = []
    before = run
    for word in told:
        before = before._replace(seq=before.seq + 1)
        row = event(before, EventType.TOLD, now.business, word._asdict())
        before = before._replace(head=row.hash)
        memo = Memo(run.tenant, run.run, run.visit, told_key(word.key), "", "", None, "", now.business)
        puts += [Put(EVENT, row, 0), Put(MEMO, memo, 0)]
    after = before._replace(
        version=run.version + 1,
        status=run_target(verb, run.status),
        seq=before.seq + 1,
        **changes,  # type: ignore[arg-type]
    )
    row = event(after, type_, now.business, data, snapshot)
    after = after._replace(head=row.hash)
    check_run(after)
    return (Put(RUN, after, run.version), *puts, Put(EVENT, row, 0))


def told_key(key: str) -> str:
    """The key of the memo that keeps a repeated tell from adding anything."""
    return f"tell/{key}"


def _fence(run: Run, *, mail: int | None = None, mapping: int | None = None) -> Fence:
    return Fence(run.tenant, run.run, run.epoch, run.visit, mail, mapping)


def moved(commit: Commit) -> Run:
    """The run row as a verb's commit leaves it."""
    row = commit.writes[0]
    assert isinstance(row, Put) and isinstance(row.row, Run)
    return row.row


def start(
    *,
    tenant: str,
    run: str,
    workflow: str,
    lane: str,
    node: str,
    label: str,
    state: bytes,
    now: Instant,
    actor: str,
    ceiling_ms: int,
    limited: bool,
    token: Token | None = None,
    correlation_id: str = "",
    trace_id: str = "",
) -> Commit:
    """A run that wants a worker. `limited`: it must get a slot before its first walk."""
    row = Run(
        tenant=tenant,
        run=run,
        version=1,
        epoch=0,
        owner="",
        mail=0,
        due_at=now.real,
        lane=lane,
        queue=tenant if limited else "",
        status=run_target("start", None),
        workflow=workflow,
        node=node,
        label=label,
        visit=1,
        entered_at=now.business,
        seq=1,
        head="",
        attention="",
        waiting_for=dump_waiting([WaitingFor("worker", f"a worker that serves {lane}", since=now.business)]),
        clocks="",
        visits=json.dumps({node: 1}),
        slots="",
        ceiling_at=now.business + ceiling_ms,
        created_at=now.business,
        ended_at=0,
        requested_by=actor,
        correlation_id=correlation_id,
        trace_id=trace_id,
    )
    born = event(row, EventType.STARTED, now.business, {"by": actor, "lane": lane}, state)
    row = row._replace(head=born.hash)
    check_run(row)
    puts = (Put(RUN, row, 0), Put(EVENT, born, 0))
    return Commit((*puts, Put(TOKEN, token, 0)) if token else puts, label=f"{run} start")


def claim(run: Run, *, worker: str, now: Instant, budget_ms: int, closed: Sequence[str] = ()) -> Commit | None:
    """Take a run that is due, or whose owner's row is closed; None when it is neither (S-2).

    An owned run taken so had its holder die or outlast its budget: it is claimed `recovering`.
    """
    if run.owner == ENDED:
        return None
    due = run.due_at is not None and run.due_at <= now.real
    if not due and run.owner not in closed:
        return None
    data: dict[str, object] = {"worker": worker, "new_epoch": run.epoch + 1}
    if run.owner:
        data["from"] = run.owner
    return Commit(
        _move(
            run,
            "claim",
            EventType.TAKEN_OVER if run.owner else EventType.CLAIMED,
            now,
            data,
            epoch=run.epoch + 1,
            owner=worker,
            due_at=now.real + budget_ms,
            waiting_for="",
            clocks="",
        ),
        label=f"{run.run} claim",
    )


def admit(run: Run, slots: Sequence[Slot], *, now: Instant) -> Commit:
    """Write the run into a free slot of each limit, or take up those already handed to it (S-6)."""
    puts: list[Put] = []
    expects: list[Expect] = []
    for slot in slots:
        assert slot.holder in ("", run.run), "a slot is never taken from its holder"
        if slot.holder:
            expects.append(Expect(SLOT, (slot.tenant, slot.i), slot.version))
        else:
            mine = slot._replace(version=slot.version + 1, holder_tenant=run.tenant, holder=run.run)
            puts.append(Put(SLOT, mine, slot.version))
    names = " ".join(f"{slot.tenant}/{slot.i}" for slot in slots)
    move = _move(run, "admit", EventType.ADMITTED, now, {"slots": names}, slots=names, queue="")
    return Commit((*move, *puts), _fence(run), tuple(expects), label=f"{run.run} admit")


def queue(run: Run, seen: Sequence[Slot], *, now: Instant, clocks: Sequence[Armed], mapping: Mapping) -> Commit:
    """Fall asleep for a slot, naming the slot rows as seen: one freed since then refuses this (S-6)."""
    waiting = WaitingFor("slot", "a free slot", since=run.created_at, then="starts, first come first served")
    move = _give(run, "queue", EventType.QUEUED, now, {}, [waiting], clocks, mapping)
    expects = tuple(Expect(SLOT, (s.tenant, s.i), s.version) for s in seen)
    return Commit(move, _fence(run, mail=run.mail, mapping=mapping.version), expects, label=f"{run.run} queue")


def advance(
    run: Run,
    *,
    node: str,
    label: str,
    state: bytes,
    now: Instant,
    budget_ms: int,
    told: Sequence[Told] = (),
    cleared: bool = False,
) -> Commit:
    """One node done: its checkpoint and the entry into the next, in one commit. The holder keeps the run."""
    visits: dict[str, int] = json.loads(run.visits)
    visits[node] = visits.get(node, 0) + 1
    return Commit(
        _move(
            run,
            "advance",
            EventType.CHECKPOINT,
            now,
            {"completed": run.node, "next": node},
            told=told,
            snapshot=state,
            node=node,
            label=label,
            visit=run.visit + 1,
            entered_at=now.business,
            due_at=now.real + budget_ms,
            visits=json.dumps(visits),
            attention="" if cleared else run.attention,
        ),
        _fence(run),
        label=f"{run.run} advance {run.node}#{run.visit}",
    )


def _give(
    run: Run,
    verb: str,
    type_: EventType,
    now: Instant,
    data: dict[str, object],
    waiting: Sequence[WaitingFor],
    clocks: Sequence[Armed],
    mapping: Mapping,
    *,
    told: Sequence[Told] = (),
    due_now: bool = False,
    attention: str | None = None,
) -> tuple[Put, ...]:
    """The holder lets go: the epoch rises, so nothing it left behind can intend or record any more (S-2)."""
    return _move(
        run,
        verb,
        type_,
        now,
        data,
        told=told,
        epoch=run.epoch + 1,
        owner="",
        due_at=now.real if due_now else due_of(clocks, mapping),
        waiting_for=dump_waiting(waiting),
        clocks=dump_clocks(clocks),
        attention=run.attention if attention is None else attention,
    )


def park(
    run: Run,
    verb: str,
    *,
    mail: int,
    waiting: Sequence[WaitingFor],
    clocks: Sequence[Armed],
    now: Instant,
    mapping: Mapping,
    told: Sequence[Told] = (),
    cleared: bool = False,
) -> Commit:
    """Give the run back until a clock or a note: `park` (waits), `retry` (back-off), `quiet` (a call may still land).

    `mail` is the mailbox as the walk read it: if a note has come since, this is refused and nothing sleeps
    with unread mail (S-1).
    """
    assert verb in ("park", "retry", "quiet") and waiting
    data: dict[str, object] = {"waiting_for": [w._asdict() for w in waiting]}
    move = _give(
        run,
        verb,
        EventType.PARKED,
        now,
        data,
        waiting,
        clocks,
        mapping,
        told=told,
        attention="" if cleared else None,
    )
    fence = _fence(run, mail=mail, mapping=mapping.version)
    return Commit(move, fence, label=f"{run.run} {verb} {run.node}#{run.visit}")


def hand_back(run: Run, *, mail: int | None, now: Instant, mapping: Mapping, why: str) -> Commit:
    """Give the run back, due at once: a drained worker, or a slice that has used up its budget."""
    waiting = [WaitingFor("worker", f"a worker that serves {run.lane}", since=now.business)]
    move = _give(run, "hand_back", EventType.HANDED_BACK, now, {"why": why}, waiting, (), mapping, due_now=True)
    return Commit(move, _fence(run, mail=mail), label=f"{run.run} hand_back")


def flag(
    run: Run,
    reasons: Sequence[Attention],
    *,
    mail: int,
    now: Instant,
    mapping: Mapping,
    clocks: Sequence[Armed] = (),
    told: Sequence[Told] = (),
) -> Commit:
    """Call a person and give the run back; status, node and visit stay (RUN-2)."""
    assert reasons
    kept = [a for a in attention_of(run) if (a.reason, a.key) not in {(r.reason, r.key) for r in reasons}]
    waiting = [
        WaitingFor("attention", f"a person: {a.reason.value}" + (f" {a.key}" if a.key else ""), since=a.since)
        for a in reasons
    ]
    data: dict[str, object] = {"reasons": [a.reason.value for a in reasons], "detail": reasons[0].detail}
    move = _give(
        run,
        "flag",
        EventType.FLAGGED,
        now,
        data,
        waiting,
        clocks,
        mapping,
        told=told,
        attention=dump_attention([*kept, *reasons]),
    )
    return Commit(move, _fence(run, mail=mail, mapping=mapping.version), label=f"{run.run} flag {run.node}#{run.visit}")


_END = {
    RunStatus.COMPLETED: ("complete", EventType.FINISHED_WELL),
    RunStatus.FAILED: ("fail", EventType.FAILED),
    RunStatus.CANCELLED: ("cancel", EventType.CANCELLED),
}


def finish(
    run: Run,
    outcome: RunStatus,
    *,
    mail: int,
    state: bytes,
    result: object,
    reason: str,
    standing: Sequence[str],
    approvals: Iterable[Approval],
    slots: Sequence[SlotChange],
    now: Instant,
    told: Sequence[Told] = (),
) -> Commit:
    """End the run: slots go to the oldest queued run or become free, open approvals are withdrawn, in one commit.

    `standing` names the done effects that stand and have an undo, where the run ends failed or cancelled.
    """
    verb, type_ = _END[outcome]
    data: dict[str, object] = {"outcome": result, "reason": reason, "standing": list(standing)}
    move = _move(
        run,
        verb,
        type_,
        now,
        data,
        told=told,
        snapshot=state,
        epoch=run.epoch + 1,
        owner=ENDED,
        due_at=None,
        queue="",
        waiting_for="",
        clocks="",
        attention="",
        slots="",
        ended_at=max(now.business, 1),
    )
    freed, expects = hand_over(slots)
    withdrawn = tuple(put for a in approvals if (put := withdraw(a, now)) is not None)
    return Commit(
        (*move, *freed, *withdrawn), _fence(run, mail=mail), expects, label=f"{run.run} {verb} {run.node}#{run.visit}"
    )


def hand_over(slots: Sequence[SlotChange]) -> tuple[tuple[Put | Wake, ...], tuple[Expect, ...]]:
    """Each slot to its heir, whatever the heir is doing just now, or free; the heir is made due (S-6)."""
    writes: list[Put | Wake] = []
    expects: list[Expect] = []
    for slot, heir in slots:
        after = slot._replace(
            version=slot.version + 1,
            holder_tenant=heir.tenant if heir else "",
            holder=heir.run if heir else "",
        )
        writes.append(Put(SLOT, after, slot.version))
        if heir:
            writes.append(Wake(heir.tenant, heir.run))
            expects.append(Expect(RUN, (heir.tenant, heir.run), heir.version))
    return tuple(writes), tuple(expects)


def without(run: Run, reason: Reason, key: str = "") -> str:
    """The attention column without one entry."""
    return dump_attention(a for a in attention_of(run) if (a.reason, a.key) != (reason, key))
