"""Admission: verbs by which a run gets, waits for and hands over slots of concurrency limits (S-6)."""

from collections.abc import Sequence
from typing import NamedTuple

from outlast.core.commit import Commit, Expect, Instant, Mapping, Put, Wake
from outlast.core.events import EventType
from outlast.core.rows import RUN, SLOT, Run, Slot
from outlast.core.run_columns import WaitingFor
from outlast.core.run_transition import LogEntry, fence, give_back, transition


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
    names = " ".join(f"{slot.tenant}/{slot.i}" for slot in slots)
    put = transition(
        run, "admit", EventType.ADMITTED, now, {"slots": names}, log_entries=log_entries, slots=names, queue=""
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
