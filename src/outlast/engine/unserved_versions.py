"""Versions that no worker serves: a worker of another version of the workflow takes their runs (RUN-8, S-15).

A worker never takes a run from a worker that has its code. A lane is unserved once no worker that serves it has had a
lease for one heartbeat window. A deploy that is rolled back within that time has moved nothing. Each worker publishes
the topologies of its lanes.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from outlast.core.commit import Commit, Put, Wake
from outlast.core.durations import Liveness
from outlast.core.machine import LeaseStatus, Reason
from outlast.core.rows import RUN, STORE, TOPOLOGY, WORKER, Run, Topology, Worker
from outlast.core.run_columns import attention_of
from outlast.core.version_move import lane_of, version_in
from outlast.errors import Rejected, Stale
from outlast.flow.topology import digest_of, topology_of
from outlast.flow.workflow import Workflow
from outlast.store.port import Store

PAGE: Final = 500  # runs in one read
LOOK_EVERY: Final = 12  # heartbeats between two reads of the published lanes
EARLIER_MAX: Final = 20  # earlier versions that are checked even if they published no topology


async def wake_stranded(store: Store, lanes: Collection[str]) -> None:
    """Make stranded runs of these lanes due. Reads each flagged run row once."""
    flagged = await store.census(RUN, ("tenant", "lane"), filled="attention")
    for tenant, lane in flagged:
        cursor, more = "", lane in lanes
        while more:
            page = await store.page(RUN, tenant, {"lane": lane}, cursor=cursor, limit=PAGE)
            for row in page.rows:
                if isinstance(row, Run) and any(a.reason is Reason.STRANDED_VERSION for a in attention_of(row)):
                    await _wake(store, row)
            cursor = page.cursor
            more = bool(cursor)


async def _wake(store: Store, run: Run) -> None:
    with suppress(Stale):  # another worker has moved the run
        await store.commit(Commit((Wake(run.tenant, run.run),), label=f"{run.run} wake"))


class UnservedVersions:
    """Unserved lanes of the workflows of one worker, if they have due runs."""

    def __init__(self, store: Store, workflows: Mapping[str, Workflow[Any]], live: Liveness, worker: str) -> None:
        self._store = store
        self._served = frozenset(workflows)
        self._names = {workflow.name for workflow in workflows.values()}
        self._known = {
            lane_of(workflow.name, version)
            for workflow in workflows.values()
            for version in range(max(1, workflow.version - EARLIER_MAX), workflow.version)
        } | {lane_of(w.name, m.from_) for w in workflows.values() for m in w.migrations.all}
        self._known -= self._served
        self._live = live
        self._worker = worker
        self._since = 0
        self._looks = 0
        self.lanes: tuple[str, ...] = ()

    async def refresh(self) -> None:
        """Find the unserved lanes, once a heartbeat. Raises StoreError."""
        now = (await self._store.now()).real
        self._since = self._since or now
        if self._looks % LOOK_EVERY == 0:
            await self._read_lanes()
        self._looks += 1
        if not self._known:
            return
        rows = [row for row in await self._store.rows(WORKER, (STORE,)) if isinstance(row, Worker)]
        quiet = [lane for lane in sorted(self._known) if now >= self._unserved_from(lane, rows)]
        self.lanes = tuple([lane for lane in quiet if await self._store.next_due((lane,)) is not None])

    async def _read_lanes(self) -> None:
        """Add the lanes of all published topologies."""
        for row in await self._store.rows(TOPOLOGY, (STORE,)):
            assert isinstance(row, Topology)
            name = row.lane.rpartition("@")[0]
            if name in self._names and row.lane not in self._served and version_in(row.lane):
                self._known.add(row.lane)

    def _unserved_from(self, lane: str, workers: list[Worker]) -> int:
        """Return the real time from which a lane counts as unserved."""
        last = self._since
        for row in workers:
            if row.id != self._worker and lane in row.lanes.split():
                last = max(last, row.lease_until if row.status is LeaseStatus.ALIVE else row.renewed_at)
        return last + self._live.heartbeat_window


async def publish(store: Store, workflows: Iterable[Workflow[Any]]) -> None:
    """Write topologies that are missing or have changed, with one commit at most.

    Reads one row for each lane. If two workers start at once, one of them writes. Raises StoreError.
    """
    now = await store.now()
    puts: list[Put] = []
    for workflow in workflows:
        body = topology_of(workflow)
        name = digest_of(body)
        there = await store.load(TOPOLOGY, (STORE, workflow.lane))
        if isinstance(there, Topology) and there.digest == name:
            continue
        before = there.version if isinstance(there, Topology) else 0
        text = json.dumps(body, sort_keys=True, ensure_ascii=False)
        puts.append(Put(TOPOLOGY, Topology(STORE, workflow.lane, before + 1, name, text, now.business), before))
    if puts:
        try:
            await store.commit(Commit(tuple(puts), label="topologies"))
        except (Stale, Rejected):  # another worker was first, or it is too large: then `check` knows less of this lane
            return
