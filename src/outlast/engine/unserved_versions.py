"""Lanes that nobody serves any more: a worker of another version of the same workflow sees to their runs (RUN-8).

It never takes a run from a worker that has its code: a lane is orphaned once no lease of a worker that serves it has
been running for one heartbeat window. A deploy that is taken back within that time has moved nothing.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from outlast.core.budget import Liveness
from outlast.core.commit import Commit, Put, Wake
from outlast.core.machine import LeaseStatus, Reason
from outlast.core.overlay import attention_of
from outlast.core.rows import RUN, STORE, TOPOLOGY, WORKER, Run, Topology, Worker
from outlast.core.version_move import lane_of, version_in
from outlast.errors import Rejected, Stale
from outlast.flow.topology import digest_of, topology_of
from outlast.flow.workflow import Workflow
from outlast.store.port import Store

PAGE: Final = 500  # runs read at once
LOOK_EVERY: Final = 12  # heartbeats between two looks for lanes that this worker has not heard of
EARLIER_MAX: Final = 20  # earlier versions that are looked for without a trace of them


async def wake_stranded(store: Store, lanes: Collection[str]) -> None:
    """Make due the runs of these lanes that were stranded while no worker served them. Reads every run row once."""
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
    with suppress(Stale):  # it has moved on
        await store.commit(Commit((Wake(run.tenant, run.run),), label=f"{run.run} wake"))


class UnservedVersions:
    """The orphaned lanes of the workflows served here that have runs to take. `refresh` once a heartbeat."""

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
        """Look anew. Raises StoreError."""
        now = (await self._store.now()).real
        self._since = self._since or now
        if self._looks % LOOK_EVERY == 0:
            await self._hear()
        self._looks += 1
        if not self._known:
            return
        rows = [row for row in await self._store.rows(WORKER, (STORE,)) if isinstance(row, Worker)]
        quiet = [lane for lane in sorted(self._known) if now >= self._quiet_from(lane, rows)]
        self.lanes = tuple([lane for lane in quiet if await self._store.next_due((lane,)) is not None])

    async def _hear(self) -> None:
        """Lanes that were served once: each has left its topology."""
        for row in await self._store.rows(TOPOLOGY, (STORE,)):
            assert isinstance(row, Topology)
            name = row.lane.rpartition("@")[0]
            if name in self._names and row.lane not in self._served and version_in(row.lane):
                self._known.add(row.lane)

    def _quiet_from(self, lane: str, workers: list[Worker]) -> int:
        """The real instant from which a lane counts as orphaned, if nobody comes to serve it before."""
        last = self._since
        for row in workers:
            if row.id != self._worker and lane in row.lanes.split():
                last = max(last, row.lease_until if row.status is LeaseStatus.ALIVE else row.renewed_at)
        return last + self._live.heartbeat_window


async def publish(store: Store, workflows: Iterable[Workflow[Any]]) -> None:
    """Write the topologies that are missing or have changed: one read for each lane, one commit at most.

    Raises StoreError when the store cannot be reached. Where two workers begin at once, one of them writes.
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
        except (Stale, Rejected):  # another worker was first, or it is too large: `check` reads less, nothing else
            return
