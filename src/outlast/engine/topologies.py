"""What the code of each lane looks like, kept beside its runs: written by a worker that begins to serve (S-15)."""

import json
from collections.abc import Iterable
from typing import Any

from outlast.core.commit import Commit, Put
from outlast.core.rows import STORE, TOPOLOGY, Topology
from outlast.errors import Rejected, Stale
from outlast.flow.topology import digest_of, topology_of
from outlast.flow.workflow import Workflow
from outlast.store.port import Store


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
