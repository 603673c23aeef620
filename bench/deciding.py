"""Latency of decisions, for the measurements within one process and across two."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from bench.figures import Figures, Goal, percentile
from bench.serving import ACTOR, TENANT
from outlast.core.approvals import Actor, PersonDecision
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.engine import commands
from outlast.store.port import Store

MS = 1_000_000


class Sample(NamedTuple):
    """One decision, in ms: from its acknowledgement and from its call to the first line of the next node."""

    from_ack: float
    from_call: float


def goals(gate_ms: float) -> tuple[Goal, ...]:
    """Return the goals; both measurements differ in the gate only."""
    return (
        Goal("p99_ms", "ms", gate=gate_ms, digits=1),
        Goal("p50_ms", "ms", digits=1),
        Goal("max_ms", "ms", digits=1),
        Goal("from_call_p50_ms", "ms", digits=1),
        Goal("from_call_p99_ms", "ms", digits=1),
        Goal("samples", ""),
    )


class Decider:
    """Decides pending approvals and measures the latency. Their ids are read beforehand."""

    def __init__(self, store: Store, approvals: dict[str, Approval]) -> None:
        self._store = store
        self._approvals = approvals
        self._called: dict[str, int] = {}
        self._acknowledged: dict[str, int] = {}
        self.samples: list[Sample] = []

    @classmethod
    async def of(cls, store: Store, runs: Sequence[str]) -> "Decider":
        """Return a decider for the approvals of these runs."""
        rows = [row for run in runs for row in await store.rows(APPROVAL, (TENANT, run))]
        return cls(store, {row.run: row for row in rows})

    async def decide(self, run: str) -> None:
        """Approve the run's request. Returns when the decision is acknowledged."""
        row, actor = self._approvals[run], Actor(ACTOR, claims=("bench",))
        self._called[run] = time.monotonic_ns()
        choice = PersonDecision("approve", "")
        await commands.decide_approval(self._store, TENANT, row.id, actor, choice, lambda run: None)
        self._acknowledged[run] = time.monotonic_ns()

    def line(self, run: str, at_ns: int) -> None:
        """Record the first line of the next node. A run that is faster than the acknowledgement counts as 0."""
        from_ack = max(0, at_ns - self._acknowledged[run]) / MS
        self.samples.append(Sample(from_ack, (at_ns - self._called[run]) / MS))


def figures(decider: Decider) -> Figures:
    """Return the figures that `goals` declares."""
    acks = [sample.from_ack for sample in decider.samples]
    calls = [sample.from_call for sample in decider.samples]
    return {
        "p50_ms": percentile(acks, 0.5),
        "p99_ms": percentile(acks, 0.99),
        "max_ms": max(acks),
        "from_call_p50_ms": percentile(calls, 0.5),
        "from_call_p99_ms": percentile(calls, 0.99),
        "samples": len(acks),
    }
