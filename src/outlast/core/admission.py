"""Admission: how a run gets a slot of each limit, falls asleep for one, and hands it on; pure functions (S-6)."""

from collections.abc import Sequence
from typing import NamedTuple

from outlast.core.commit import Commit, Expect, Instant, Mapping, Put, Wake
from outlast.core.events import EventType
from outlast.core.overlay import WaitingFor
from outlast.core.rows import RUN, SLOT, Run, Slot
from outlast.core.run_transition import LogEntry, fence, give_back, transition


class SlotChange(NamedTuple):
    """A slot row as it was read, and the queued run that gets it next (None: it becomes free)."""

    slot: Slot
    heir: Run | None = None


def admit(run: Run, slots: Sequence[Slot], *, now: Instant, log_entries: Sequence[LogEntry] = ()) -> Commit:
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
    put = transition(
        run, "admit", EventType.ADMITTED, now, {"slots": names}, log_entries=log_entries, slots=names, queue=""
    )
    return Commit((*put, *puts), fence(run), tuple(expects), label=f"{run.run} admit")


def queue(
    run: Run, seen: Sequence[Slot], *, now: Instant, mapping: Mapping, log_entries: Sequence[LogEntry] = ()
) -> Commit:
    """Fall asleep for a slot, naming the slot rows as seen: one freed since then refuses this (S-6)."""
    waiting = WaitingFor("slot", "a free slot", since=run.created_at, then="starts, first come first served")
    put = give_back(
        run, "queue", EventType.QUEUED, now, {}, [waiting], (), mapping, log_entries=log_entries, queue=run.tenant
    )
    expects = tuple(Expect(SLOT, (s.tenant, s.i), s.version) for s in seen)
    return Commit(put, fence(run, inbox_seq=run.inbox_seq, mapping=mapping.version), expects, label=f"{run.run} queue")


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
