"""Checks of a run's history and results: numbers, bytes, hash chain, and whether its moves are in the table."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from outlast.core.events import GENESIS, EventType, chain_hash
from outlast.core.machine import TABLE, TERMINAL, RunStatus, Transition
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.run_rows import EVENT, RESULT, RUN, STATE_CHUNK, Event, Result, is_over
from outlast.core.state.snapshot_codec import chunks_in, decode, unpack
from outlast.errors import Corrupt
from outlast.upkeep.fsck_checks import CheckedRun, Violations, missing_numbers, violation

# Verbs that each type of event may record. Other types record no move.
SPOKEN: Final[dict[EventType, tuple[str, ...]]] = {
    EventType.STARTED: ("start",),
    EventType.CLAIMED: ("claim",),
    EventType.TAKEN_OVER: ("claim",),
    EventType.ADMITTED: ("admit",),
    EventType.QUEUED: ("queue",),
    EventType.CHECKPOINT: ("advance",),
    EventType.LOGGED: ("log",),
    EventType.FORKED: ("note_fork",),
    EventType.PARKED: ("park", "retry", "await_settle"),
    EventType.HANDED_BACK: ("hand_back",),
    EventType.REQUEUED: ("requeue",),
    EventType.FLAGGED: ("flag",),
    EventType.COMPENSATING: ("compensate",),
    EventType.MOVED: ("move", "transfer"),
    EventType.RESTORED: ("restore",),
    EventType.FINISHED_WELL: ("complete",),
    EventType.FAILED: ("fail",),
    EventType.CANCELLED: ("cancel",),
}
EVENT_TYPES: Final = frozenset(type_.value for type_ in EventType)
ENDS: Final = (EventType.FINISHED_WELL.value, EventType.FAILED.value, EventType.CANCELLED.value)
_MOVES: Final[tuple[Transition, ...]] = tuple(m for m in TABLE if isinstance(m.target, RunStatus))


def _is_whole(one: CheckedRun) -> bool:
    """Return True if no event is missing; otherwise history_numbers reports it, and comparisons are skipped."""
    history = one.history
    if history is None or len(history) != one.run.seq - one.begins + 1:
        return False
    return all(event.seq == n for n, event in enumerate(history, one.begins))


def data_of(event: Event) -> dict[str, Any]:
    """Return the data of an event; {} if its bytes cannot be parsed."""
    try:
        return event.data()
    except Corrupt:
        return {}


def history_numbers(one: CheckedRun) -> Violations:
    """Check that the events of a run are numbered from 1, or from the floor of its window, without a gap (I21)."""
    if one.history is None:
        return
    for seq in missing_numbers((event.seq for event in one.history), one.run.seq, one.begins):
        yield EVENT, (one.run.tenant, one.run.run, seq), f"event {seq} of {one.run.seq} is missing"
    for event in one.history:
        if not 1 <= event.seq <= one.run.seq:
            yield violation(EVENT, event, f"the run's row counts {one.run.seq} events")


def history_head(one: CheckedRun) -> Violations:
    """Check that the run's row names the hash of its last event (I37)."""
    last = one.history[-1] if one.history else None
    if last is not None and last.seq == one.run.seq and last.hash != one.run.event_hash:
        yield violation(RUN, one.run, f"its head is not the hash of event {last.seq}")


def history_chain(one: CheckedRun) -> Violations:
    """Check that each event's hash is that of its predecessor's hash and its own bytes (I37)."""
    if not one.chain or one.history is None:
        return
    before, number = (GENESIS, 0) if one.floor is None else (one.floor.event_hash, one.floor.seq - 1)
    for event in one.history:
        if event.seq == number + 1 and event.hash != chain_hash(before, event.body):
            yield violation(EVENT, event, "its bytes and its predecessor's hash do not give its hash")
        before, number = event.hash, event.seq


def history_columns(one: CheckedRun) -> Violations:
    """Check that an event has a known type, the workflow of its run, and data that can be read."""
    for event in one.history or ():
        if event.type not in EVENT_TYPES:
            yield violation(EVENT, event, f"its type is {event.type!r}")
        elif event.workflow != one.run.workflow:
            yield violation(EVENT, event, f"its workflow is {event.workflow!r}, that of the run {one.run.workflow!r}")
        try:
            event.data()
        except Corrupt as error:
            yield violation(EVENT, event, error.what)


def history_versions(one: CheckedRun) -> Violations:
    """Check that every version of the run's row has its events, and claims do not decrease (I9, I11)."""
    if not one.history or not _is_whole(one):
        return
    for before, event in pairwise(one.history):
        if event.run_version - before.run_version not in (0, 1):
            yield violation(EVENT, event, f"version {event.run_version} follows {before.run_version}")
        elif event.epoch - before.epoch not in (0, 1):
            yield violation(EVENT, event, f"claim {event.epoch} follows {before.epoch}")
    first, last = one.history[0], one.history[-1]
    if last.seq != one.run.seq:
        return  # reported by history_numbers
    if first.run_version != 1 and first.seq == 1:
        yield violation(EVENT, first, f"the first event has version {first.run_version}")
    if (last.run_version, last.epoch) != (one.run.version, one.run.epoch):
        expected = f"event {last.seq} {last.run_version}, {last.epoch}"
        yield violation(RUN, one.run, f"version {one.run.version}, claim {one.run.epoch}; {expected}")


def history_moves(one: CheckedRun) -> Violations:
    """Check that every move of the history is in the table and leads to the run's status (I10)."""
    if not one.history or not _is_whole(one):
        return
    may_be: set[RunStatus | None] = {None} if one.begins == 1 else {*RunStatus}
    known = {word.value: verbs for word, verbs in SPOKEN.items()}
    before = 0
    for event in one.history:
        if event.run_version == before:
            continue  # written with the next move, and no move itself
        before = event.run_version
        verbs = known.get(event.type)
        if verbs is None:
            may_be = {*RunStatus}
            continue
        led = {RunStatus(m.target) for m in _MOVES if m.verb in verbs and m.source in may_be}
        if not led:
            word = event.type.rsplit(".", 1)[1]
            yield violation(EVENT, event, f"{word} is not a move from {' or '.join(sorted(map(str, may_be)))}")
            return
        may_be = set(led)
    if one.history[-1].seq == one.run.seq and one.run.status not in may_be:
        yield violation(
            RUN, one.run, f"it is {one.run.status}; its history ends {' or '.join(sorted(map(str, may_be)))}"
        )


def history_end(one: CheckedRun) -> Violations:
    """Check that a run's end is recorded once, as its last event (I10)."""
    ends = [event for event in one.history or () if event.type in ENDS]
    for event in ends:
        if event.seq != one.run.seq or not is_over(one.run):
            yield violation(EVENT, event, f"the run ended here, and has event {one.run.seq} as {one.run.status}")
    if one.history and not ends and one.run.status in TERMINAL and one.history[-1].seq == one.run.seq:
        yield violation(RUN, one.run, f"it is {one.run.status}, and no event records it")


def effect_settled(one: CheckedRun) -> Violations:
    """Check that no effect is settled later than the event that ends its visit or its run (S-4).

    A child may end in a later visit than the one that has started it, and after its run if it is left alone.
    """
    times = [event.at for event in one.history or ()]
    if not _is_whole(one) or one.run.restored or times != sorted(times):
        return  # a restore settles after the visit; a clock that was set back makes the times of two processes differ
    left = {event.visit - 1: event for event in one.history or () if event.type == EventType.CHECKPOINT}
    end = next((event for event in one.history or () if event.type in ENDS), None)
    for effect in one.effects:
        if effect.child.close == "abandon":
            continue
        after = end if effect.undoes or effect.child_text else left.get(effect.visit, end)
        if after is not None and effect.settled_at > after.at + one.skew:
            yield violation(EFFECT, effect, f"settled at {effect.settled_at}; event {after.seq} follows at {after.at}")


def checkpoint_kept(one: CheckedRun) -> Violations:
    """Check that each completed visit has a checkpoint (CKP-2)."""
    if one.history is None:
        if one.rows.last.visit > one.run.visit:
            yield violation(
                EVENT, one.rows.last, f"a checkpoint of visit {one.rows.last.visit}, beyond {one.run.visit}"
            )
        return
    kept = [event for event in one.history if event.type == EventType.CHECKPOINT]
    for event in kept:
        if event.snapshot is None:
            yield violation(EVENT, event, "a checkpoint without its snapshot")
    first = one.history[0] if one.history else None
    before = first.visit - 1 if first is not None and one.run.forked_from else 0  # visits of the ancestor
    if one.floor is not None and one.begins > 1:
        before = one.floor.visit - 2  # the first kept event enters a visit
    if len(kept) != one.run.visit - 1 - before and len(one.history) == one.run.seq - one.begins + 1:
        follows = one.run.visit - 1
        yield violation(RUN, one.run, f"{len(kept)} checkpoints; visit {one.run.visit} follows {follows}")
    if first is not None and first.seq == 1 and first.snapshot is None:
        yield violation(EVENT, first, "the run began without a state")


def state_whole(one: CheckedRun) -> Violations:
    """Check that all values of a checkpoint exist with their hashes, and that the last state can be joined (CKP-3)."""
    if one.values is None:
        return
    whole: dict[str, bytes] = {}
    for value in one.values:
        try:
            whole[value.hash] = unpack(value.packed, value.body, value.hash)
        except Corrupt as error:
            yield violation(STATE_CHUNK, value, error.what)
    there = {value.hash for value in one.values}
    kept = () if one.first is None else (one.first,)
    for event in (*kept, *(one.history if one.history is not None else (one.rows.last,))):
        try:
            if missing := [name for name in chunks_in(event.snapshot or b"", whole) if name not in there]:
                yield violation(EVENT, event, f"its state names missing values: {', '.join(missing)}")
            elif event.seq == one.rows.last.seq and whole.keys() >= there:
                decode(event.snapshot or b"", whole)
        except Corrupt as error:
            yield violation(EVENT, event, error.what)


def results_counted(history: Sequence[Event], rows: Sequence[Result], *, purged: bool = False) -> Violations:
    """Check that results are numbered from 1, and that no event counts more of them (I18, CKP-5, OUT-5).

    `purged`: results may be gone, because the history is a window. Then only the last number counts.
    """
    last = max((row.ordinal for row in rows), default=0) if purged else len(rows)
    for n, row in enumerate(sorted(rows, key=lambda row: row.ordinal), 1):
        if row.ordinal != n and not purged:
            yield violation(RESULT, row, f"its ordinal is {row.ordinal}, expected {n}")
            break
    for row in rows:
        try:
            row.value()
        except Corrupt:
            yield violation(RESULT, row, "its data is not JSON")
    for event in history:
        if b'"results":' not in event.details:
            continue
        counted = data_of(event).get("results")  # history_columns reports an event that cannot be read
        count = counted.get("count", 0) if isinstance(counted, dict) else 0
        if not isinstance(count, int):
            yield violation(EVENT, event, f"its number of results is {count!r}"[:200])
        elif count > last:
            yield violation(EVENT, event, f"it counts {count} results, and {last} exist")
