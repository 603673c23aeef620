"""Rows of a memory store: dictionaries by kind, with the indexes that its queries need."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Final

from outlast.core.machine import ENDED, ApprovalStatus, DeliveryStatus, EffectStatus
from outlast.core.rows.all_kinds import KINDS, R, Row
from outlast.core.rows.effect_rows import APPROVAL, EFFECT
from outlast.core.rows.outbox_rows import DELIVERY
from outlast.core.rows.row_kind import AnyKind, Key, Kind, key_of
from outlast.core.rows.run_rows import MESSAGE, RUN, Run, is_act, queue_order
from outlast.store.fair_queueing import DueQuery

SLACK: Final = 1_000  # superseded entries that a heap may hold before it is rebuilt
IS_OPEN: Final[dict[str, Callable[[Any], bool]]] = {
    RUN.name: lambda run: run.flagged_at > 0,
    APPROVAL.name: lambda approval: approval.status is ApprovalStatus.PENDING,
    EFFECT.name: lambda effect: effect.status is EffectStatus.UNCERTAIN,
    DELIVERY.name: lambda delivery: delivery.status is DeliveryStatus.DEAD,
    MESSAGE.name: is_act,
}
"""Conditions of rows that wait for a person or are an act of a caller. Their SQL is in `open_rows.py`."""


class RowsInMemory:
    """All rows of a memory store. A row is replaced whole, and versions are not compared."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Key, dict[Key, Any]]] = {kind.name: {} for kind in KINDS}
        self._due: dict[str, list[tuple[int, Key]]] = {}  # heap per lane, with entries that newer rows supersede
        self._armed: dict[str, int] = {}  # number of runs with a due_at, by lane
        self._unfinished: dict[str, Counter[str]] = {}  # number of unfinished runs, by tenant and lane
        self._owned: dict[str, set[Key]] = {}
        self._queued: set[Key] = set()
        self._over: list[tuple[int, Key]] = []  # end and key of ended runs, in order
        self._open: dict[str, dict[str | int, set[Key]]] = {name: {} for name in IS_OPEN}  # keys by kind and tenant

    def get(self, kind: Kind[R], key: Key) -> R | None:
        """Return the row at a key, or None."""
        group = self._groups[kind.name].get(_group(kind, key))
        return None if group is None else group.get(key)

    def put(self, kind: AnyKind, key: Key, row: Row) -> None:
        """Replace the row at a key."""
        group = self._groups[kind.name].setdefault(_group(kind, key), {})
        if kind is RUN:
            old = group.get(key)
            assert isinstance(row, Run)
            self._index(old, row)
        group[key] = row
        if (is_open := IS_OPEN.get(kind.name)) is not None:
            self._note_open(kind, key, is_open=is_open(row))

    def drop(self, kind: AnyKind, prefix: Key) -> None:
        """Delete all rows of this kind whose key begins with `prefix`."""
        for key in [key_of(kind, row) for row in self.under(kind, prefix)]:
            group = self._groups[kind.name][_group(kind, key)]
            row = group.pop(key)
            if kind is RUN:
                self._index(row, None)
            if kind.name in IS_OPEN:
                self._note_open(kind, key, is_open=False)
            if not group:
                del self._groups[kind.name][_group(kind, key)]

    def under(self, kind: Kind[R], prefix: Key) -> list[R]:
        """Return rows whose key begins with `prefix`, in key order."""
        groups = self._groups[kind.name]
        width = 1 if kind.key == 2 else 2
        if len(prefix) >= width:
            found = list(groups.get(prefix[:width], {}).items())
        else:
            found = [item for group in groups.values() for item in group.items()]
        return [row for key, row in sorted(found) if key[: len(prefix)] == prefix]

    def due(self, query: DueQuery, real: int) -> list[Run]:
        """Return the runs that a query for due runs finds."""
        heap = self._due.get(query.lane, [])
        if query.without:
            others = sorted({e for e in heap if query.since <= e[0] <= real and e[1][0] not in query.without})
            armed = (self._armed_run(query.lane, entry) for entry in others)
            return list(islice((run for run in armed if run is not None), query.limit))
        found: list[Run] = []
        taken: list[tuple[int, Key]] = []
        while heap and heap[0][0] <= real and len(found) < query.limit:
            entry = heappop(heap)
            run = self._armed_run(query.lane, entry)
            if run is not None and (not taken or taken[-1] != entry):
                found.append(run)
                taken.append(entry)
        for entry in taken:
            heappush(heap, entry)
        return found

    def next_due(self, lane: str, after: int | None = None) -> int | None:
        """Return the earliest due_at of a lane, or the earliest one after an instant, or None."""
        heap = self._due.get(lane, [])
        if after is not None:
            later = (entry for entry in heap if entry[0] > after and self._armed_run(lane, entry) is not None)
            return min((due for due, _ in later), default=None)
        while heap and self._armed_run(lane, heap[0]) is None:
            heappop(heap)
        return heap[0][0] if heap else None

    def owned(self, owner: str) -> list[Run]:
        """Return the runs of an owner, in key order."""
        return self._runs(self._owned.get(owner, set()))

    def held(self, tenant: str) -> list[Run]:
        """Return the owned runs of a tenant, by owner."""
        return [run for owner in sorted(self._owned) for run in self.owned(owner) if run.tenant == tenant]

    def over(self, tenant: str, since: int) -> list[Run]:
        """Return the runs of a tenant that ended at or after a business instant, newest end first."""
        found = self._over[bisect_left(self._over, (since, ())) :]
        runs = [self.get(RUN, key) for _, key in reversed(found) if key[0] == tenant]
        return [run for run in runs if run is not None]

    def queued(self) -> list[Run]:
        """Return the runs that wait for a slot, those of the oldest tree first."""
        return sorted(self._runs(self._queued), key=queue_order)

    def open(self, kind: Kind[R], tenant: str) -> list[R]:
        """Return the rows of a tenant for which IS_OPEN holds, in any order."""
        rows = [self.get(kind, key) for key in self._open[kind.name].get(tenant, ())]
        return [row for row in rows if row is not None]

    def unfinished(self, tenant: str) -> "Counter[str]":
        """Count the unfinished runs of a tenant, by lane."""
        return +self._unfinished.get(tenant, Counter())

    def _note_open(self, kind: AnyKind, key: Key, *, is_open: bool) -> None:
        keys = self._open[kind.name].setdefault(key[0], set())
        if is_open:
            keys.add(key)
        else:
            keys.discard(key)

    def _runs(self, keys: set[Key]) -> list[Run]:
        runs = [self.get(RUN, key) for key in sorted(keys)]
        return [run for run in runs if run is not None]

    def _armed_run(self, lane: str, entry: tuple[int, Key]) -> Run | None:
        """Return the run of a heap entry, or None if a newer row superseded the entry."""
        run = self.get(RUN, entry[1])
        return run if run is not None and run.lane == lane and run.due_at == entry[0] else None

    def _index(self, old: Run | None, new: Run | None) -> None:
        key = (new or old)[:2]  # type: ignore[index]
        was = None if old is None else (old.lane, old.due_at, old.owner, old.queue, old.ended_at)
        now = None if new is None else (new.lane, new.due_at, new.owner, new.queue, new.ended_at)
        if was == now:
            return
        if old is not None:
            self._owned.get(old.owner, set()).discard(key)
            self._queued.discard(key)
            if old.due_at is not None:
                self._armed[old.lane] -= 1
            if old.ended_at:
                del self._over[bisect_left(self._over, (old.ended_at, key))]
            else:
                self._unfinished[old.tenant][old.lane] -= 1
        if new is not None:
            if new.owner not in ("", ENDED):
                self._owned.setdefault(new.owner, set()).add(key)
            if new.queue:
                self._queued.add(key)
            if new.ended_at:
                insort(self._over, (new.ended_at, key))
            else:
                self._unfinished.setdefault(new.tenant, Counter())[new.lane] += 1
            if new.due_at is not None:
                self._arm(new.lane, new.due_at, key)

    def _arm(self, lane: str, due_at: int, key: Key) -> None:
        self._armed[lane] = self._armed.get(lane, 0) + 1
        heap = self._due.setdefault(lane, [])
        heappush(heap, (due_at, key))
        if len(heap) > 2 * self._armed[lane] + SLACK:
            heap[:] = {e for e in heap if self._armed_run(lane, e) is not None} | {(due_at, key)}
            heapify(heap)


def _group(kind: AnyKind, key: Key) -> Key:
    """Return the group of a key: the run if the key names one, else the tenant."""
    return key[:1] if kind.key == 2 else key[:2]
