"""Transition of a run row: next version, its events, and the fence of the claim (S-11)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from outlast.core.causes import flagged, flags_from
from outlast.core.codec import compact
from outlast.core.commit import Commit, Expect, Fence, Instant, Mapping, Put, Wake, changed
from outlast.core.events import FORKED_FROM, TYPES, EventType, chain_hash, make_body, trace_of
from outlast.core.limits import EVENT_BYTES_MAX, TEXT_CHARS_MAX
from outlast.core.machine import run_target
from outlast.core.row_checks import check_run
from outlast.core.rows.columns import stored_data
from outlast.core.rows.effect_rows import MEMO, Memo
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_columns import ATTENTION, SLOTS, TIMERS, WAITING_FOR, Attention, SlotName, Timer, WaitingFor
from outlast.core.rows.run_rows import EVENT, FLAGGING, RUN, Event, Flagging, Run


class LogEntry(NamedTuple):
    """Entry of a run's history, once per key and visit: of `ctx.log`, or of the engine with its next transition."""

    key: str
    text: str
    data: dict[str, object]
    type: EventType = EventType.LOGGED
    flagged: tuple[Attention, ...] = ()
    """Entries that the run's attention got, which this entry of the history tells of."""


def event(run: Run, type_: EventType, at: int, data: dict[str, object], snapshot: bytes | None = None) -> Event:
    """Return the next event of a run, from its row *after* the transition.

    `run.seq` is the number of the event; `run.event_hash` is still the hash of the previous event.
    """
    if run.forked_from:
        data = {FORKED_FROM: run.forked_from, **data}
    try:
        body = compact(data).encode() if data else b""
    except UnicodeEncodeError:
        body = _fitted(data)
    if len(body) > EVENT_BYTES_MAX:
        body = _fitted(data)
    columns = (
        run.tenant,
        run.run,
        run.seq,
        type_._value_[len(TYPES) :],  # `value` is a property made of Python functions
        at,
        run.node,
        run.visit,
        run.version,
        run.epoch,
        run.workflow,
        run.correlation_id,
        run.trace_id and trace_of(run.trace_id),
        body,
    )
    return Event(*columns, chain_hash(run.event_hash, make_body(*columns)), snapshot)


def _fitted(data: dict[str, object]) -> bytes:
    """Return data of an event that fits into its row; only data that is too large loses parts of its texts."""
    body = compact(stored_data(data, EVENT_BYTES_MAX)).encode()
    return body if len(body) <= EVENT_BYTES_MAX else compact(stored_data(data, TEXT_CHARS_MAX)).encode()


def log_key(key: str) -> str:
    """Return the key of the memo that makes a repeated ctx.log a no-op."""
    return f"tell/{key}"


def transition(
    run: Run,
    verb: str,
    type_: EventType,
    now: Instant,
    data: dict[str, object],
    *,
    log_entries: Sequence[LogEntry] = (),
    snapshot: bytes | None = None,
    attention: Sequence[Attention] | None = None,
    **changes: object,
) -> tuple[Put, ...]:
    """Return the changed run row and its events: log entries first, then the event of the transition."""
    before, puts = _logged(run, log_entries, now) if log_entries else (run, ())
    status = run_target(verb, run.status)
    if attention is not None:
        changes |= {"attention_text": ATTENTION.encode(attention), **flags_from(attention)._asdict()}
    after = changed(before, version=run.version + 1, status=status, seq=before.seq + 1, **changes)
    if attention is None and (after.attention_text or after.causes):
        after = flagged(after)
    row = event(after, type_, now.business, data, snapshot)
    after = changed(after, event_hash=row.hash)
    check_run(after)
    if attention is not None and (new := _new(attention, run.attention)):
        puts = (*puts, Put(FLAGGING, flagging(after, after.seq, new), 0))
    return (Put(RUN, after, run.version), *puts, Put(EVENT, row, 0))


def _new(attention: Sequence[Attention], before: Sequence[Attention]) -> Sequence[Attention]:
    """Return the entries of an attention set that another one does not have."""
    if not before:
        return attention
    known = {(entry.reason, entry.key, entry.since) for entry in before}
    return [entry for entry in attention if (entry.reason, entry.key, entry.since) not in known]


def flagging(run: Run, seq: int, new: Sequence[Attention]) -> Flagging:
    """Return the row of a flagging. `seq`: number of the event that says so. `new`: entries that it added."""
    flags = flags_from(new)
    return Flagging(run.tenant, run.run, seq, flags.flagged_at, flags.causes, run.workflow, run.lane)


def write_log(run: Run, log_entries: Sequence[LogEntry], *, now: Instant) -> Commit:
    """Add entries to the history of a run whose node goes on. Status, visit and checkpoint stay."""
    moved = run._replace(version=run.version + 1, status=run_target("log", run.status))
    after, puts = _logged(moved, log_entries, now)
    if after.attention_text or after.causes:
        after = flagged(after)
    check_run(after)
    label = f"{run.run} log {log_entries[0].key}"
    return Commit((Put(RUN, after, run.version), *puts), fence(run), label=label)


def _logged(run: Run, log_entries: Sequence[LogEntry], now: Instant) -> tuple[Run, list[Put]]:
    """Return the run row after the events of these entries, and the events, each with its memo."""
    puts: list[Put] = []
    for entry in log_entries:
        run = run._replace(seq=run.seq + 1)
        row = event(run, entry.type, now.business, {"key": entry.key, "text": entry.text, **entry.data})
        run = run._replace(event_hash=row.hash)
        memo = Memo(run.tenant, run.run, run.visit, log_key(entry.key), "", "", None, "", now.business)
        puts += [Put(EVENT, row, 0), Put(MEMO, memo, 0)]
        if entry.flagged:
            puts.append(Put(FLAGGING, flagging(run, run.seq, entry.flagged), 0))
    return run, puts


def fence(run: Run, *, inbox_seq: int | None = None, mapping: int | None = None, version: int | None = None) -> Fence:
    """Return the fence of the current claim, also for `inbox_seq`, `mapping` and `version` if given."""
    return Fence(run.tenant, run.run, run.epoch, run.visit, inbox_seq, mapping, version)


def due_of(timers: Iterable[Timer], mapping: Mapping) -> int | None:
    """Return the earliest timer as real time: the run's `due_at` (S-3)."""
    return min((c.at if c.real else mapping.real(c.at) for c in timers), default=None)


def rearmed(run: Run, mapping: Mapping) -> int | None:
    """Return `due_at` of an unowned, unfinished run after a change of the clock mapping (S-4)."""
    return due_of(run.timers, mapping) if run.timers_text else run.due_at


def give_back(
    run: Run,
    verb: str,
    type_: EventType,
    now: Instant,
    data: dict[str, object],
    waiting: Sequence[WaitingFor],
    timers: Sequence[Timer],
    mapping: Mapping,
    *,
    log_entries: Sequence[LogEntry] = (),
    due_now: bool = False,
    attention: Sequence[Attention] | None = None,
    slots: Iterable[SlotName] | None = None,
    queue: str | None = None,
) -> tuple[Put, ...]:
    """Return the rows of a run that its holder releases.

    The epoch rises, so later commits of the holder are refused (S-2). An armed ceiling is one of the timers of a run
    without an owner (S-3).
    """
    if run.ceiling_at:
        timers = [*timers, Timer("ceiling", run.ceiling_at)]
    return transition(
        run,
        verb,
        type_,
        now,
        data,
        log_entries=log_entries,
        attention=attention,
        epoch=run.epoch + 1,
        owner="",
        due_at=now.real if due_now else due_of(timers, mapping),
        waiting_for_text=WAITING_FOR.encode(waiting),
        timers_text=TIMERS.encode(timers),
        slots_text=run.slots_text if slots is None else SLOTS.encode(slots),
        queue=run.queue if queue is None else queue,
    )


class SlotChange(NamedTuple):
    """Slot row as read, and the queued run that gets it next; None frees it."""

    slot: Slot
    heir: Run | None = None


def admit(run: Run, slots: Sequence[Slot], *, now: Instant, log_entries: Sequence[LogEntry] = ()) -> Commit:
    """Take a free slot of each limit, or accept slots already handed to the run (S-6)."""
    puts: list[Put] = []
    expects: list[Expect] = []
    for slot in slots:
        assert slot.holder in ("", run.run), "a slot is never taken from its holder"
        if slot.holder:
            expects.append(Expect(SLOT, (slot.tenant, slot.i), slot.version))
        else:
            mine = slot._replace(version=slot.version + 1, holder_tenant=run.tenant, holder=run.run)
            puts.append(Put(SLOT, mine, slot.version))
    names = SLOTS.encode([(slot.tenant, slot.i) for slot in slots])
    put = transition(
        run, "admit", EventType.ADMITTED, now, {"slots": names}, log_entries=log_entries, slots_text=names, queue=""
    )
    return Commit((*put, *puts), fence(run), tuple(expects), label=f"{run.run} admit")


def queue(
    run: Run, seen: Sequence[Slot], *, now: Instant, mapping: Mapping, log_entries: Sequence[LogEntry] = ()
) -> Commit:
    """Park the run until a slot is free. Refused if one of the slot rows `seen` has changed since (S-6)."""
    waiting = WaitingFor("slot", "a free slot", since=run.created_at, then="starts, first come first served")
    put = give_back(
        run, "queue", EventType.QUEUED, now, {}, [waiting], (), mapping, log_entries=log_entries, queue=run.tenant
    )
    expects = tuple(Expect(SLOT, (s.tenant, s.i), s.version) for s in seen)
    return Commit(put, fence(run, inbox_seq=run.inbox_seq, mapping=mapping.version), expects, label=f"{run.run} queue")


def hand_over(slots: Sequence[SlotChange]) -> tuple[tuple[Put | Wake, ...], tuple[Expect, ...]]:
    """Return the writes that give each slot to its heir and make the heir due, or free the slot (S-6)."""
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
