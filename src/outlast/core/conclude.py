"""Decision what follows the result of an execution: one commit, and whether the holder keeps the run (S-16).

`core/route.py` decides what a claimed run needs. The holder does it and gets a move, one of the values below.
`conclude` decides what follows the move: a pure function of rows, move and time. If it needs rows that the holder does
not keep in memory, it answers `Then.READ`. The holder reads them and asks again.
"""

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Mapping as Facts
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.core import children
from outlast.core.approvals import withdraw
from outlast.core.attention import flag, waiting_for
from outlast.core.attributes import AttributeChange
from outlast.core.budget import ask_root
from outlast.core.children import NO_PARENT, ParentRows
from outlast.core.codec import canonical
from outlast.core.commit import Commit, Expect, Instant, Mapping, Put, in_portions
from outlast.core.compensation import compensate, compensated, must_undo, names, not_undone
from outlast.core.durations import HOUR
from outlast.core.effect_verbs import mark_uncertain
from outlast.core.failed_calls import (
    WAYS_OUT,
    EffectKey,
    EmptyEnd,
    FailureLimit,
    count_calls,
    failed_broadly,
    when_nothing_was_produced,
)
from outlast.core.limits import (
    APPROVALS_BESIDE_MAX,
    LOG_ENTRIES_BESIDE_MAX,
    LOG_ENTRIES_MAX,
    SLOTS_CHECKED_MAX,
    TEXT_CHARS_MAX,
    UNCERTAIN_BESIDE_MAX,
)
from outlast.core.machine import ApprovalStatus, Reason, RunStatus
from outlast.core.route import ENGINE, EndCancelled, EndFailed
from outlast.core.rows.columns import stored_text
from outlast.core.rows.effect_rows import MEMO, Approval, Effect, Memo
from outlast.core.rows.limit_rows import Slot
from outlast.core.rows.run_columns import (
    NOTHING_PURGED,
    Attention,
    Ending,
    PurgedCounts,
    Timer,
    WaitingFor,
    attention_timers,
    fit_attention,
)
from outlast.core.rows.run_rows import Run
from outlast.core.run_transition import LogEntry, SlotChange, admit, fence, queue, write_log
from outlast.core.state.snapshot_codec import StateChunk
from outlast.core.verbs import advance, finish, hand_back, park
from outlast.core.version_move import MoveTarget, move_to_version
from outlast.core.window import remaining

LOGGED: Final = (RunStatus.RUNNING, RunStatus.RECOVERING)
"""Statuses in which a run may have more log entries than the commit of a move has room for."""
NOTHING: Final[Facts[Any, Any]] = MappingProxyType({})


# --- results of an execution -----------------------------------------------------------------------
class Parked(NamedTuple):
    """One wait of the execution: the verb, the description for operators, and its timer (None: no end)."""

    verb: str
    waiting: WaitingFor
    armed: Timer | None


class Flagged(NamedTuple):
    """Result: a person must decide. `parked` are the other waits, `expects` the rows that made it so, as read."""

    reasons: tuple[Attention, ...]
    parked: tuple[Parked, ...] = ()
    expects: tuple[Expect, ...] = ()


class Resting(NamedTuple):
    """Result: the run waits, and no task of it can continue."""

    parked: tuple[Parked, ...]


class Again(NamedTuple):
    """Result: execute the node again at once, with fresh rows."""

    why: str


class HandBack(NamedTuple):
    """Result: release the run, because its time is too short for an attempt or the worker drains."""

    why: str


class Raised(NamedTuple):
    """Result: the body raised. The holder translates the exception to `Flagged` or `Stopping`."""

    error: BaseException


class Returned(NamedTuple):
    """Result: the body returned the next node, or None for the end. The holder adds state and declarations."""

    value: Any


NodeResult: TypeAlias = EndCancelled | Flagged | Resting | Again | HandBack | Raised | Returned


# --- moves that follow from a route or a result ------------------------------------------------------
class Entering(NamedTuple):
    """The node has returned a node that it declares. `visits_max`: None without a limit, or if one more is allowed."""

    node: str
    state: bytes
    status_label: str = ""
    visits_max: int | None = None
    ceiling_ms: int = 0
    claim_ms: int = 0
    results: dict[str, int] | None = None
    chunks: tuple[StateChunk, ...] = ()
    ceiling_memo: Memo | None = None  # of a ceiling in business days that raises that of the run
    attributes: AttributeChange | None = None


class Completing(NamedTuple):
    """The node has returned None, and may. `empty`: what decides if calls failed and no result was emitted."""

    state: bytes
    outcome: Any
    label: str = ""
    results: dict[str, int] | None = None
    empty: EmptyEnd = EmptyEnd()
    fails_if: FailureLimit | None = None
    chunks: tuple[StateChunk, ...] = ()
    attributes: AttributeChange | None = None


class Stopping(NamedTuple):
    """The run fails or is cancelled. `inbox_seq`: None if no further message may change that."""

    ending: Ending
    inbox_seq: int | None = None


class Unwound(NamedTuple):
    """No effect is open or must be undone, so the run may end.

    `kept`: lines about completed children of its maps, of which the ledger has no rows.
    """

    ending: Ending
    kept: tuple[str, ...] = ()


class StillFlagged(NamedTuple):
    """A person has not answered yet. `parked`: waits of effects that settle in the meantime."""

    left: tuple[Attention, ...]
    parked: tuple[Parked, ...] = ()


class Relocating(NamedTuple):
    """The run moves to another version or node."""

    to: MoveTarget
    chunks: tuple[StateChunk, ...] = ()


class Admitting(NamedTuple):
    """A slot of each limit is free, or was handed to the run."""

    slots: tuple[Slot, ...]


class Queueing(NamedTuple):
    """A limit has no free slot. `seen`: its slots as read."""

    seen: tuple[Slot, ...]


Move: TypeAlias = (
    EndCancelled
    | Flagged
    | Resting
    | Again
    | HandBack
    | Entering
    | Completing
    | Stopping
    | Unwound
    | StillFlagged
    | Relocating
    | Admitting
    | Queueing
)


# --- rows and answers ---------------------------------------------------------------------------------
class StoreReads(NamedTuple):
    """Rows that some conclusions need and the holder does not keep."""

    freed: tuple[SlotChange, ...] = ()
    """Slots of the run, each with the queued run that gets it."""
    others: tuple[Slot, ...] = ()
    """The other slots of its limits."""
    exhausted: tuple[tuple[Effect, str, str], ...] = ()
    """Open effects without a further attempt, each with a code and a detail."""
    results: int = 0
    """Number of results that the run has emitted."""
    parent: ParentRows = NO_PARENT
    """Rows of its parent that its end changes."""


class HeldRows(NamedTuple):
    """Rows of a held run, and values of the holder, as they are when it asks for a conclusion."""

    run: Run
    inbox_read: int
    mapping: Mapping
    log_entries: tuple[LogEntry, ...] = ()
    effects: Facts[EffectKey, Effect] = NOTHING
    memos: Facts[EffectKey, Memo] = NOTHING
    approvals: Facts[str, Approval] = NOTHING
    snapshot: bytes = b"{}"
    keeps_slots: bool = True
    reads: StoreReads | None = None
    others: Facts[str, Effect] = NOTHING
    """Shared effects of other runs that this holder has read."""
    children: Facts[EffectKey, Effect] = NOTHING
    """Its living children."""
    noted: Collection[str] = ()
    """Keys of the shared effects that this run uses, waits for, or was refused by."""
    purged: PurgedCounts = NOTHING_PURGED
    """Counts of rows that the run no longer has, because its history is a window."""


class Then(Enum):
    """Action of the holder after its commit, if there is one, has landed."""

    KEEP = "keep"
    RELEASE = "release"
    RELOAD = "reload"
    """Read all rows again and ask for the route."""
    READ = "read"
    """Read `StoreReads` and ask again."""
    AGAIN = "again"
    """Ask again with the rows as the commit leaves them: the move needs more than one commit."""
    UNWIND = "unwind"
    """Settle the open effects of a run that ends; nothing must be undone."""


class Conclusion(NamedTuple):
    """Commit that follows a move, and what the holder does then."""

    then: Then
    commit: Commit | None = None
    called: tuple[Attention, ...] = ()
    """Reasons to notify people of once the commit has landed."""
    durable: bool = True
    """False: the next node may begin before the commit has landed."""
    chunks: tuple[StateChunk, ...] = ()
    """Parts of the new state, to land with or before the commit."""
    ending: Ending | None = None
    """End of a run to unwind."""


READ: Final = Conclusion(Then.READ)
RELOAD: Final = Conclusion(Then.RELOAD)


def conclude(rows: HeldRows, move: Move, now: Instant) -> Conclusion:
    """Return the commit that follows a move, and what the holder does then."""
    if len(rows.log_entries) > LOG_ENTRIES_BESIDE_MAX and rows.run.status in LOGGED:
        first = write_log(rows.run, rows.log_entries[:LOG_ENTRIES_MAX], now=now)
        return Conclusion(Then.AGAIN, first)
    match move:
        case Entering():
            return _entering(rows, move, now)
        case Resting(parked):
            verb = next(v for v in ("await_settle", "retry", "park") if any(p.verb == v for p in parked))
            timers = _timers(parked)
            if rows.run.attention_text:  # of an approval whose time is over beside other waits (S-29)
                timers += (timer for timer in attention_timers(rows.run.attention) if timer.at > now.business)
            return _park(rows, verb, [p.waiting for p in parked], timers, now)
        case Completing():
            return _completing(rows, move, now)
        case Flagged(reasons, parked, expects):
            return _flag(rows, reasons, parked, now, expects)
        case StillFlagged(left, parked):
            still = [a for a in left if a.stops]
            waiting = [*waiting_for(still), *(p.waiting for p in parked)]
            return _park(rows, "park", waiting, [*attention_timers(still), *_timers(parked)], now)
        case HandBack(why):
            run, mapping, entries = rows.run, rows.mapping, rows.log_entries
            released = hand_back(run, inbox_seq=None, now=now, mapping=mapping, why=why, log_entries=entries)
            return Conclusion(Then.RELEASE, released)
        case Stopping():
            return _stopping(rows, move, now)
        case Unwound(ending, kept):
            return _unwound(rows, ending, (*remaining(rows.purged), *kept), now)
        case Relocating(to, chunks):
            latest = max((effect.ordinal for effect in rows.effects.values()), default=0)
            moved = move_to_version(rows.run, to, now=now, log_entries=rows.log_entries, ordinal=latest)
            return Conclusion(Then.KEEP, moved, chunks=chunks)
        case Admitting(slots):
            return Conclusion(Then.KEEP, admit(rows.run, slots, now=now, log_entries=rows.log_entries))
        case Queueing(seen):
            seen = seen[:SLOTS_CHECKED_MAX]  # a slot that is missed is passed on at the next lease renewal (S-6)
            queued = queue(rows.run, seen, now=now, mapping=rows.mapping, log_entries=rows.log_entries)
            return Conclusion(Then.RELEASE, queued)
        case EndCancelled() | Again():  # a cancel that came during the execution is routed like any other
            return RELOAD


def _entering(rows: HeldRows, move: Entering, now: Instant) -> Conclusion:
    run, most = rows.run, move.visits_max
    if most is not None and (n := run.visits.get(move.node, 0) - rows.purged.visits.get(move.node, 0)) >= most:
        within = " within its history" if rows.purged.visits else ""
        detail = f"node {move.node} has been entered {n} times{within}; max_visits is {most}"
        return _flag(rows, (_attention(rows, Reason.VISITS_EXHAUSTED, detail, now),), (), now)
    commit = advance(
        run,
        node=move.node,
        status_label=move.status_label,
        state=move.state,
        now=now,
        claim_ms=move.claim_ms,
        ceiling_ms=move.ceiling_ms,
        log_entries=rows.log_entries,
        results=move.results,
        attributes=move.attributes,
    )
    if move.ceiling_memo is not None:
        commit = commit._replace(writes=(*commit.writes, Put(MEMO, move.ceiling_memo, 0)))
    # durable first with log entries, because those of the author may be refused for their size
    return Conclusion(Then.KEEP, commit, durable=bool(rows.log_entries), chunks=move.chunks)


# --- releasing -------------------------------------------------------------------------------------------
def _flag(
    rows: HeldRows,
    reasons: Sequence[Attention],
    parked: Sequence[Parked],
    now: Instant,
    expects: Sequence[Expect] = (),
) -> Conclusion:
    """Call a person. The same commit marks open effects without a further attempt uncertain (EFF-2)."""
    if rows.reads is None:
        return READ
    exhausted = rows.reads.exhausted
    marked = [mark_uncertain(rows.run, e, code, detail, now=now) for e, code, detail in exhausted]
    portions = in_portions(
        (put for commit in marked for put in commit.writes if isinstance(put, Put)), UNCERTAIN_BESIDE_MAX
    )
    exhausted = exhausted[: len(portions[0])] if portions else ()  # the next execution finds the others
    uncertain = (
        _attention(rows, Reason.EFFECT_UNCERTAIN, f"{code}: {detail}", now)._replace(key=e.key, visit=e.visit)
        for e, code, detail in exhausted
    )
    called = fit_attention((*reasons, *uncertain))
    commit = flag(
        rows.run,
        called,
        inbox_seq=rows.inbox_read,
        now=now,
        mapping=rows.mapping,
        log_entries=rows.log_entries,
        freed=_freed(rows, rows.reads),
        uncertain=marked[: len(exhausted)],
        waiting=[p.waiting for p in parked],
        timers=_timers(parked),
        expects=expects,
    )
    return Conclusion(Then.RELEASE, commit, called)


def _park(
    rows: HeldRows, verb: str, waiting: Sequence[WaitingFor], timers: Sequence[Timer], now: Instant
) -> Conclusion:
    reads = rows.reads
    freed: tuple[SlotChange, ...] = ()
    if any(each.kind == children.CHILD_KIND for each in waiting):
        rows = rows._replace(keeps_slots=False)  # a child may need the slot (S-6)
    if verb == "park" and rows.run.slots and not rows.keeps_slots:
        if reads is None:
            return READ
        freed = _freed(rows, reads)
    commit = park(
        rows.run,
        verb,
        inbox_seq=rows.inbox_read,
        waiting=waiting,
        timers=timers,
        now=now,
        mapping=rows.mapping,
        log_entries=rows.log_entries,
        freed=freed,
    )
    return Conclusion(Then.RELEASE, ask_root(commit, rows.run, waiting))


def _freed(rows: HeldRows, reads: StoreReads) -> tuple[SlotChange, ...]:
    """Return the slots that a run gives back when it waits (RUN-6)."""
    return () if rows.keeps_slots or not rows.run.slots else reads.freed


def _timers(parked: Iterable[Parked]) -> list[Timer]:
    return [p.armed for p in parked if p.armed is not None]


# --- ending -------------------------------------------------------------------------------------------------
def _completing(rows: HeldRows, move: Completing, now: Instant) -> Conclusion:
    if move.fails_if is not None and (why := failed_broadly(rows, move.fails_if)):
        return _stopping(rows, Stopping(Ending(RunStatus.FAILED, why, ""), rows.inbox_read), now)
    if not move.results and move.empty.when_empty != "complete":
        count = count_calls(rows)
        if (reaction := when_nothing_was_produced(move.empty, move.outcome, count)) != "complete":
            if rows.reads is None:
                return READ
            if not rows.reads.results:
                why = f"it produced no result, and {count.failed} of its {count.settled} calls failed"
                if reaction == "ask_person":
                    return _flag(rows, (_attention(rows, Reason.RESULTS_MISSING, why, now),), (), now)
                why += WAYS_OUT if move.empty.when_empty is None else ""
                return _stopping(rows, Stopping(Ending(RunStatus.FAILED, why, ""), rows.inbox_read), now)
    if living := children.awaited(rows.children.values()):
        return _park(rows, "park", [children.waiting(each) for each in living], (), now)
    ending = Ending(RunStatus.COMPLETED, "", "")
    return _finish(
        rows, ending, move.state, now, move.outcome, move.results, move.label, move.chunks, attributes=move.attributes
    )


def _stopping(rows: HeldRows, move: Stopping, now: Instant) -> Conclusion:
    """Record the end before effects are undone; without such effects the run ends in one commit (S-19)."""
    ending = _storable(move.ending)
    effects = rows.effects.values()
    if not must_undo(rows.run, effects):
        return Conclusion(Then.UNWIND, ending=ending)
    if first := _withdrawn_first(rows, move.inbox_seq, now):
        return first
    commit = compensate(
        rows.run,
        ending,
        effects,
        inbox_seq=move.inbox_seq,
        approvals=rows.approvals.values(),
        now=now,
        log_entries=rows.log_entries,
    )
    return Conclusion(Then.KEEP, commit)


def _unwound(rows: HeldRows, ending: Ending, kept: tuple[str, ...], now: Instant) -> Conclusion:
    effects = tuple(rows.effects.values())
    if rows.run.ending:
        rows = rows._replace(log_entries=(*rows.log_entries, compensated(rows.run, effects, kept)))
    left = (*names(not_undone(rows.run, effects)), *kept)
    return _finish(rows, _storable(ending), rows.snapshot, now, left=left)


def _finish(
    rows: HeldRows,
    ending: Ending,
    state: bytes,
    now: Instant,
    outcome: Any = None,
    results: dict[str, int] | None = None,
    label: str = "",
    chunks: tuple[StateChunk, ...] = (),
    left: tuple[str, ...] = (),
    attributes: AttributeChange | None = None,
) -> Conclusion:
    run, reads = rows.run, rows.reads
    if reads is None:
        if run.slots or run.queue or run.root:
            return READ
        reads = StoreReads()
    if first := _withdrawn_first(rows, rows.inbox_read, now):
        return first
    commit = finish(
        run,
        ending.outcome,
        inbox_seq=rows.inbox_read,
        state=state,
        result=outcome,
        reason=ending.reason,
        not_undone=left,
        approvals=rows.approvals.values(),
        slots=reads.freed,
        now=now,
        log_entries=rows.log_entries,
        seen=reads.others[:SLOTS_CHECKED_MAX] if run.queue else (),
        results=results,
        label=label,
        attributes=attributes,
    )
    if run.root:
        response = canonical(outcome)
        below = children.failed_below(ending.child, rows.effects)
        commit = children.settle_in_parent(commit, run, ending, response, below, reads.parent, now)
    return Conclusion(Then.RELEASE, commit, chunks=chunks)


def _withdrawn_first(rows: HeldRows, inbox_seq: int | None, now: Instant) -> Conclusion | None:
    """Return the commit that withdraws the approvals for which the commit of an end has no room; None if it has.

    If the holder dies after it, the next execution of the node requests them again.
    """
    run = rows.run
    open_ = sorted(rows.approvals.values(), key=lambda a: (a.status is ApprovalStatus.APPROVED, a.visit))
    puts = [put for approval in open_ if (put := withdraw(approval, now)) is not None]
    portions = in_portions(puts, APPROVALS_BESIDE_MAX)
    if len(portions) <= 1:
        return None
    commit = Commit(portions[0], fence(run, inbox_seq=inbox_seq), label=f"{run.run} withdraw")
    return Conclusion(Then.AGAIN, commit)


def _storable(ending: Ending) -> Ending:
    return ending._replace(reason=stored_text(ending.reason, TEXT_CHARS_MAX))


# --- decisions before a move ------------------------------------------------------------------------------
def ended_by(way: EndCancelled | EndFailed) -> Stopping:
    """Return the end that a person or the engine has decided."""
    if isinstance(way, EndFailed):
        return Stopping(Ending(RunStatus.FAILED, f"failed by {way.by}: {way.reason}", way.by, way.child))
    reason = way.reason if way.by == ENGINE else f"cancelled by {way.by}: {way.reason}"
    return Stopping(Ending(RunStatus.CANCELLED, reason, way.by))


def ceiling_passed(run: Run, inbox_read: int, now: Instant) -> Attention | None:
    """Return the reason to call an operator if the run has passed its total timeout, else None (GATE-4)."""
    if not 0 < run.ceiling_at <= now.business:
        return None
    detail = f"{run.run} is {(now.business - run.created_at) / HOUR:.0f} h old and has not ended"
    trigger = f"{run.workflow}_total_timeout"
    return Attention(Reason.TOTAL_TIMEOUT, now.business, detail, seen=inbox_read, trigger=trigger)


def is_wait(parked: Parked) -> bool:
    """Return True for a wait that the body declared, False for one that a call of it needs."""
    return parked.waiting.kind in ("timer", "signal", "approval", "child")


def still_flagged(left: tuple[Attention, ...], result: "Returned | Resting | Flagged") -> StillFlagged | Flagged:
    """Return the move of a run whose open effects settle while a person is asked.

    Each wait that is not for the person is kept with its timer: settle time, retry, pause, breaker, limit, the effect
    of another run. A person is notified of new reasons only.
    """
    known = {(a.reason, a.key) for a in left}
    if isinstance(result, Flagged) and any((a.reason, a.key) not in known for a in result.reasons):
        return result
    return StillFlagged(left, () if isinstance(result, Returned) else result.parked)


def _attention(rows: HeldRows, reason: Reason, detail: str, now: Instant) -> Attention:
    """Return an entry of the attention set. Only messages that this holder has not read can answer it."""
    return Attention(reason, now.business, detail, seen=rows.inbox_read)
