"""Every unfinished run of a store against new code. Reads only; changes nothing, and takes no run."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from outlast.core.rows import RUN, STORE, TOPOLOGY, Run, Topology, is_over, key_of
from outlast.engine.snapshots import state_of_rows
from outlast.errors import Corrupt
from outlast.flow.topology import digest_of, topology_of
from outlast.flow.workflow import Workflow
from outlast.runtime.check.judge import misfits
from outlast.store.port import RunRows, Store

PAGE: Final = 500
AT_ONCE: Final = 50


class Verdict(NamedTuple):
    """One run that would not go on, and why."""

    tenant: str
    run: str
    workflow: str
    lane: str
    node: str
    kind: str  # version, node, state, key, activity, arguments, answer, wait, approval, walk, reconcile, undo, …
    why: str


class Checked(NamedTuple):
    """What was looked at, and what was found."""

    looked_at: int
    verdicts: tuple[Verdict, ...]
    elsewhere: dict[str, int]  # runs of workflows that this code does not have, by lane
    lanes: dict[str, str]  # each lane of this code: 'new', 'as served' or 'changed'

    @property
    def stranded(self) -> tuple[str, ...]:
        """The runs that would not go on."""
        return tuple(dict.fromkeys(verdict.run for verdict in self.verdicts))


async def check(store: Store, workflows: Sequence[Workflow[Any]]) -> Checked:
    """Which unfinished runs, of every tenant, this code would not carry on. Raises StoreError, DefinitionError."""
    lanes = {workflow.lane: workflow for workflow in workflows}
    names = {workflow.name for workflow in workflows}
    before = {row.lane: row for row in await store.rows(TOPOLOGY, (STORE,)) if isinstance(row, Topology)}
    verdicts: list[Verdict] = []
    elsewhere: Counter[str] = Counter()
    looked_at = 0
    after: tuple[str | int, ...] = ()
    while True:
        page = [row for row in await store.rows(RUN, (), after=after, limit=PAGE) if isinstance(row, Run)]
        mine = [run for run in page if not is_over(run) and run.workflow in names]
        elsewhere.update(run.lane for run in page if not is_over(run) and run.workflow not in names)
        looked_at += len(mine)
        for i in range(0, len(mine), AT_ONCE):
            keys = [(run.tenant, run.run) for run in mine[i : i + AT_ONCE]]
            for rows in await store.run_rows(keys):
                if rows is not None and not is_over(rows.run):
                    verdicts += await _verdicts(store, rows, lanes, before.get(rows.run.lane))
        if len(page) < PAGE:
            return Checked(looked_at, tuple(verdicts), dict(elsewhere), _compared(workflows, before))
        after = key_of(RUN, page[-1])


async def _verdicts(
    store: Store, rows: RunRows, lanes: dict[str, Workflow[Any]], before: Topology | None
) -> list[Verdict]:
    run = rows.run
    try:
        state = await state_of_rows(store, rows)
    except Corrupt as error:
        return [Verdict(run.tenant, run.run, run.workflow, run.lane, run.node, "state", error.what)]
    found = misfits(rows, lanes, json.loads(before.body) if before is not None else None, state)
    return [Verdict(run.tenant, run.run, run.workflow, run.lane, run.node, m.kind, m.why) for m in found]


def _compared(workflows: Sequence[Workflow[Any]], before: dict[str, Topology]) -> dict[str, str]:
    said: dict[str, str] = {}
    for workflow in workflows:
        row = before.get(workflow.lane)
        same = row is not None and row.digest == digest_of(topology_of(workflow))
        said[workflow.lane] = "as served" if same else "changed" if row is not None else "new"
    return said
