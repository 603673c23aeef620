"""The worker of this process, put together: the engine's, with the system's clock and dice."""

from collections.abc import Sequence
from typing import Any

from outlast.core.budget import Liveness
from outlast.core.clock import Clock
from outlast.engine.notices import Notifier
from outlast.engine.worker import WorkerProcess, budget_of
from outlast.flow.workflow import Workflow
from outlast.runtime.clocks import SystemClock, chance, process_id
from outlast.store.port import Store


def worker_of(
    store: Store,
    workflows: Sequence[Workflow[Any]],
    *,
    live: Liveness | None = None,
    concurrency: int = 100,
    name: str = "",
    clock: Clock | None = None,
    threads: bool = True,
    notifier: Notifier | None = None,
) -> WorkerProcess:
    """A worker that was never started before. Raises DefinitionError, ValueError for durations that contradict."""
    return WorkerProcess(
        store,
        workflows,
        worker=process_id("w"),
        clock=clock or SystemClock(),
        chance=chance,
        live=live,
        concurrency=concurrency,
        name=name,
        threads=threads,
        notifier=notifier,
    )


def lease_view(workflows: Sequence[Workflow[Any]], live: Liveness) -> dict[str, Any]:
    """The durations of a worker that serves these workflows, and how its execution budget comes about (REC-2).

    Raises ValueError with the sentence that names a broken relation, DefinitionError.
    """
    budget = budget_of(workflows, live.checked())
    own = [(workflow.lane, budget_of([workflow], live)) for workflow in workflows]
    return {
        **{f"{name}_ms": value for name, value in live._asdict().items() if name != "attempts_max"},
        "attempts_max": live.attempts_max,
        "execution_budget_ms": budget.ms,
        "derivation": budget.derivation,
        "workflows": [
            {"lane": lane, "execution_budget_ms": each.ms, "derivation": each.derivation} for lane, each in own
        ],
    }
