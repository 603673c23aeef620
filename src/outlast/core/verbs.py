"""Verbs of a run: pure functions from rows to one commit.

Each change of a run row raises its version by one, appends at least one event, and records who acted (S-11). Possible
faults, and why none does harm:

- *Two writers change one run.* A commit replaces the row of a version, so the second gets Stale. It reloads the rows
  and decides again. A commit is never written in part.
- *A worker writes after another one has taken its run.* `claim` and `requeue` raise the epoch. Each verb of a holder
  carries a fence with its epoch and visit, and fails with Stale.
- *A verb meets a status for which it is not meant.* `run_target` looks the pair up in the table of `core/machine.py`
  and raises before a commit exists.
- *A waiting run is never due again.* `due_at` is the earliest of its timers, computed in the same commit that releases
  it; a message makes the run due in the commit that appends it.
"""

import json
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Facts
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from outlast.core.approvals import withdraw
from outlast.core.attributes import NO_ATTRIBUTES, AttributeChange, AttributeValues, first_attributes
from outlast.core.causes import failure
from outlast.core.commit import Commit, Expect, Instant, Mapping, Put, changed
from outlast.core.events import ENDINGS, EventType
from outlast.core.limits import ACTIONS_MAX, COMMIT_BYTES_MAX, LARGE_ITEMS_MAX, RESULT_BYTES_MAX
from outlast.core.machine import ENDED, Reason, RunStatus, run_target
from outlast.core.quarantine import after_death
from outlast.core.row_checks import check_run
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_columns import (
    ATTENTION,
    DESCENT,
    NO_DESCENT,
    WAITING_FOR,
    Descent,
    Timer,
    WaitingFor,
    entered_visits,
    fit_waits,
    placed_visits,
)
from outlast.core.rows.run_rows import EVENT, RESULT, RUN, TOKEN, Event, Result, Run, Token, is_due, is_overdue
from outlast.core.run_transition import LogEntry, SlotChange, event, fence, give_back, hand_over, transition
from outlast.core.start_details import NO_DETAILS, StartDetails
from outlast.errors import Corrupt

NONE_CLOSED: Final[Facts[str, int]] = MappingProxyType({})


def moved(commit: Commit) -> Run:
    """Return the run row as the commit leaves it."""
    row = commit.writes[0]
    assert isinstance(row, Put) and isinstance(row.row, Run)
    return row.row


class Forked(NamedTuple):
    """Place in its ancestor's history at which a fork begins (S-28)."""

    of: str
    seq: int  # the ancestor's event with whose state it begins
    version: int  # of the ancestor's row, whose change refuses the start; 0 = it has a note of the fork
    visit: int
    visits: Facts[str, int]  # of each node, as the ancestor counted them there
    terms: Facts[str, object]  # for the first event


class TreePlace(NamedTuple):
    """Place of a child run below the run that starts it (S-30)."""

    root: str
    root_created_at: int
    depth: int
    descent: Descent
    restored: int = 0  # as of its parent: an earlier start, and calls of that run, may be missing since a restore


AT_TOP: Final = TreePlace("", 0, 0, NO_DESCENT)


class NewRun(NamedTuple):
    """Everything that the first commit of a run says, beside the instant."""

    tenant: str
    run: str
    workflow: str
    lane: str
    node: str  # the first one
    status_label: str
    state: bytes  # its snapshot
    ceiling_at: int
    actor: str
    token: Token | None = None
    details: StartDetails = NO_DETAILS
    forked: Forked | None = None
    place: TreePlace = AT_TOP
    attributes: AttributeValues = NO_ATTRIBUTES
    rows: tuple[Put, ...] = ()  # land with it: large values of its state, kept deadlines, terms of a fork


def start(new: NewRun, now: Instant, *, limited: bool) -> Commit:
    """Create a run that waits for a worker. If `limited`, it needs a slot before its first execution.

    A fork begins in the visit of its ancestor's checkpoint, so keys of earlier visits are never asked for again.
    """
    forked, place = new.forked, new.place
    found = first_attributes(new.tenant, new.run, new.attributes, now.business) if new.attributes else None
    waiting = WaitingFor("worker", f"a worker that serves {new.lane}", since=now.business)
    row = Run(
        tenant=new.tenant,
        run=new.run,
        version=1,
        epoch=0,
        owner="",
        inbox_seq=0,
        due_at=now.real,
        lane=new.lane,
        queue=new.tenant if limited else "",
        status=run_target("start", None),
        workflow=new.workflow,
        node=new.node,
        status_label=new.status_label,
        visit=1 if forked is None else forked.visit,
        entered_at=now.business,
        seq=1,
        event_hash="",
        attention_text="",
        waiting_for_text=WAITING_FOR.encode([waiting]),
        timers_text="",
        visits_text=placed_visits({new.node: 1} if forked is None else dict(forked.visits)),
        crash_count=0,
        slots_text="",
        ceiling_at=new.ceiling_at,
        created_at=now.business,
        ended_at=0,
        requested_by=new.actor,
        forked_from="" if forked is None else forked.of,
        root=place.root,
        root_created_at=place.root_created_at or now.business,
        depth=place.depth,
        descent_text=DESCENT.encode(place.descent),
        restored=place.restored,
        attributes_text="" if found is None else found.text,
        **dict[str, Any](zip(StartDetails._fields, new.details, strict=True)),
    )
    data: dict[str, object] = {"by": new.actor, "lane": new.lane}
    if place.root:
        data["parent"] = place.descent.parent
    if forked is not None:
        data["fork"] = dict(forked.terms)
    born = event(row, EventType.STARTED, now.business, data, new.state)
    row = row._replace(event_hash=born.hash)
    check_run(row)
    token = (Put(TOKEN, new.token, 0),) if new.token else ()
    expects = () if forked is None or not forked.version else (Expect(RUN, (new.tenant, forked.of), forked.version),)
    indexed = () if found is None else found.puts
    puts = (Put(RUN, row, 0), Put(EVENT, born, 0), *token, *new.rows, *indexed)
    return Commit(puts, expects=expects, label=f"{new.run} start")


def claim(
    run: Run,
    *,
    worker: str,
    now: Instant,
    claim_ms: int,
    closed: Facts[str, int] = NONE_CLOSED,
    skew: int = 0,
) -> Commit | None:
    """Claim a run that is due or whose owner is closed; return None for any other run (S-2).

    `closed` maps each closed worker to the number of runs that it held when it died, 0 if it was drained. The claim
    also counts the death (S-5). An owned run is due when its execution budget is over, also by the owner's clock, which
    may differ by `skew` ms (S-4).
    """
    if run.owner == ENDED:
        return None
    due = is_overdue(run, now.real, skew) if run.owner else is_due(run, now.real)
    if not due and run.owner not in closed:
        return None
    data: dict[str, object] = {"worker": worker, "new_epoch": run.epoch + 1}
    if run.owner:
        data["from"] = run.owner
    suspicion = after_death(run, closed.get(run.owner, 0))
    return Commit(
        transition(
            run,
            "claim",
            EventType.TAKEN_OVER if run.owner else EventType.CLAIMED,
            now,
            data,
            epoch=run.epoch + 1,
            owner=worker,
            due_at=now.real + claim_ms,
            waiting_for_text="",
            timers_text="",
            crash_count=suspicion.crash_count,
            group_max=suspicion.group_max,
        ),
        label=f"{run.run} claim",
    )


def requeue(run: Run, *, now: Instant, closed: Facts[str, int]) -> Commit:
    """Release a run whose owner is closed, due at once for any worker. The death counts as in `claim`."""
    suspicion = after_death(run, closed[run.owner])
    waiting = [WaitingFor("worker", f"a worker that serves {run.lane}", since=now.business)]
    return Commit(
        transition(
            run,
            "requeue",
            EventType.REQUEUED,
            now,
            {"from": run.owner, "held": closed[run.owner], "group_max": suspicion.group_max},
            epoch=run.epoch + 1,
            owner="",
            due_at=now.real,
            waiting_for_text=WAITING_FOR.encode(waiting),
            crash_count=suspicion.crash_count,
            group_max=suspicion.group_max,
        ),
        label=f"{run.run} requeue",
    )


def advance(
    run: Run,
    *,
    node: str,
    status_label: str,
    state: bytes,
    now: Instant,
    claim_ms: int,
    ceiling_ms: int = 0,
    log_entries: Sequence[LogEntry] = (),
    results: dict[str, int] | None = None,
    attributes: AttributeChange | None = None,
) -> Commit:
    """Complete a node and enter the next one in one commit. The holder keeps the run.

    `ceiling_ms`: ceiling of the next node, counted from the run's creation; it can only raise an armed ceiling.
    `results`: number of results of the visit by kind; their rows land before this commit (CKP-5). `attributes`: those
    of the run, if one has another value now.
    """
    data: dict[str, object] = {"completed": run.node, "next": node}
    if results:
        data["results"] = results
    if attributes is not None:
        run = changed(run, attributes_text=attributes.text)
    puts = transition(
        run,
        "advance",
        EventType.CHECKPOINT,
        now,
        data,
        log_entries=log_entries,
        snapshot=state,
        node=node,
        status_label=status_label,
        visit=run.visit + 1,
        entered_at=now.business,
        due_at=now.real + claim_ms,
        visits_text=entered_visits(run.visits_text, node),
        crash_count=0,
        group_max=0,
        attention_text=run.attention_text
        and ATTENTION.encode(a for a in run.attention if a.reason is not Reason.VISITS_EXHAUSTED),
        ceiling_at=max(run.ceiling_at, run.created_at + ceiling_ms) if run.ceiling_at else 0,
    )
    if attributes is not None:
        puts = (*puts, *attributes.puts)
    return Commit(puts, fence(run), label=f"{run.run} advance {run.node}#{run.visit}")


def park(
    run: Run,
    verb: str,
    *,
    inbox_seq: int,
    waiting: Sequence[WaitingFor],
    timers: Sequence[Timer],
    now: Instant,
    mapping: Mapping,
    log_entries: Sequence[LogEntry] = (),
    freed: Sequence[SlotChange] = (),
) -> Commit:
    """Release the run until a timer or a message.

    `verb` is `park` (a wait), `retry` (back-off) or `await_settle` (a call may still arrive). `inbox_seq` is the last
    message that the holder read: the commit is refused if another has arrived, so no run sleeps with unread messages
    (S-1). `freed`: slots that the run returns while it waits.
    """
    assert verb in ("park", "retry", "await_settle") and waiting
    waiting = fit_waits(waiting)
    data: dict[str, object] = {"waiting_for": [w._asdict() for w in waiting]}
    put = give_back(
        run,
        verb,
        EventType.PARKED,
        now,
        data,
        waiting,
        timers,
        mapping,
        log_entries=log_entries,
        slots=() if freed else None,
    )
    handed, expects = hand_over(freed)
    label = f"{run.run} {verb} {run.node}#{run.visit}"
    return Commit((*put, *handed), fence(run, inbox_seq=inbox_seq, mapping=mapping.version), expects, label=label)


def hand_back(
    run: Run, *, inbox_seq: int | None, now: Instant, mapping: Mapping, why: str, log_entries: Sequence[LogEntry] = ()
) -> Commit:
    """Release the run, due at once: its worker is drained, or its execution budget is used up."""
    waiting = [WaitingFor("worker", f"a worker that serves {run.lane}", since=now.business)]
    put = give_back(
        run,
        "hand_back",
        EventType.HANDED_BACK,
        now,
        {"why": why},
        waiting,
        (),
        mapping,
        log_entries=log_entries,
        due_now=True,
    )
    return Commit(put, fence(run, inbox_seq=inbox_seq), label=f"{run.run} hand_back")


_END = {
    RunStatus.COMPLETED: ("complete", EventType.FINISHED_WELL),
    RunStatus.FAILED: ("fail", EventType.FAILED),
    RunStatus.CANCELLED: ("cancel", EventType.CANCELLED),
}


def finish(
    run: Run,
    outcome: RunStatus,
    *,
    inbox_seq: int,
    state: bytes,
    result: object,
    reason: str,
    not_undone: Sequence[str],
    approvals: Iterable[Approval],
    slots: Sequence[SlotChange],
    now: Instant,
    log_entries: Sequence[LogEntry] = (),
    seen: Sequence[Slot] = (),
    results: dict[str, int] | None = None,
    label: str = "",
    attributes: AttributeChange | None = None,
) -> Commit:
    """End the run, free or hand over its slots, and withdraw its open approvals, in one commit.

    `not_undone`: effects that stay in force when a run fails or is cancelled. `seen`: slots as a queued run read them;
    the commit is refused if one was handed to it since (S-6). `results`, `attributes`: as in `advance`. `label`: the
    status that a completed run is shown with.
    """
    assert not label or outcome is RunStatus.COMPLETED, "only a run that completes names its label"
    verb, type_ = _END[outcome]
    data: dict[str, object] = {"outcome": result, "reason": reason, "not_undone": list(not_undone)}
    if results:
        data["results"] = results
    if label:
        data["end"] = label
    if attributes is not None:
        run = changed(run, attributes_text=attributes.text)
    put = transition(
        run,
        verb,
        type_,
        now,
        data,
        log_entries=log_entries,
        snapshot=state,
        status_label=label,
        epoch=run.epoch + 1,
        owner=ENDED,
        due_at=None,
        queue="",
        waiting_for_text="",
        timers_text="",
        attention_text="",
        causes=failure(run, reason) if outcome is RunStatus.FAILED else "",
        flagged_at=0,
        flagged_until=0,
        slots_text="",
        ended_at=max(now.business, 1),
    )
    freed, expects = hand_over(slots)
    expects += tuple(Expect(SLOT, (s.tenant, s.i), s.version) for s in seen)
    withdrawn = tuple(w for a in approvals if (w := withdraw(a, now)) is not None)
    return Commit(
        (*put, *freed, *withdrawn, *(() if attributes is None else attributes.puts)),
        fence(run, inbox_seq=inbox_seq),
        expects,
        label=f"{run.run} {verb} {run.node}#{run.visit}",
    )


class EndData(NamedTuple):
    """Data of the event that ended a run."""

    outcome: Any  # JSON
    reason: str
    not_undone: tuple[str, ...]  # effects that stay in force


def end_of(event: Event) -> EndData | None:
    """Return the end that an event records; None if the event ends no run. Raises Corrupt."""
    if event.type not in ENDINGS:
        return None
    data = event.data()
    try:
        return EndData(data["outcome"], data["reason"], tuple(data["not_undone"]))
    except (KeyError, TypeError) as error:
        raise Corrupt(f"event {event.run}/{event.seq}: its data records no end: {error!r}") from error


def completed_node(event: Event) -> str:
    """Return the node that a checkpoint completes. The event's own node is the one that follows."""
    return str(json.loads(event.details or b"{}").get("completed", event.node))


CHUNK_ROWS: Final = 50
CHUNK_BYTES: Final = COMMIT_BYTES_MAX // 2
assert CHUNK_ROWS + 2 + LARGE_ITEMS_MAX <= ACTIONS_MAX and CHUNK_BYTES + RESULT_BYTES_MAX < COMMIT_BYTES_MAX, (
    "a chunk is one commit"
)


def emit(run: Run, rows: Sequence[Result]) -> Commit:
    """Each row in place of the one it follows (version 1: it is new). Lands only under this claim and visit, so a
    holder that was replaced adds nothing; it moves no run row, and the event that counts them comes after (CKP-5)."""
    assert 0 < len(rows) <= CHUNK_ROWS
    assert all(row.version >= 1 and row.ordinal >= 1 and row[:2] == run[:2] for row in rows)
    puts = tuple(Put(RESULT, row, row.version - 1) for row in rows)
    return Commit(puts, fence(run), label=f"{run.run} emit {rows[0].key}")
