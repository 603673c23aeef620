"""Outlast as a measured engine on any store. The workloads of bench/engines are the workflows of bench/flows.py."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from bench import flows
from bench.engines import Place
from bench.serving import Process, opened, start_runs, waiting_process
from outlast import Workflow
from outlast.core.durations import HOUR
from outlast.store.queries import NextDue

LOOK_S = 0.01


def workflow_of(work: str) -> Workflow[Any]:
    """Return the workflow of a workload."""
    return {
        "effectful": flows.effectful,
        "readonly": flows.readonly,
        "long-effectful": flows.long_effectful,
        "silent": flows.silent,
        "logging": flows.logging,
        "long-readonly": flows.long_readonly,
        "cargo": flows.cargo,
    }[work]


class Outlast(ABC):
    """Everything but the store. See the protocol in bench/engines."""

    name: str

    @abstractmethod
    def place(self) -> AbstractContextManager[Place]:
        """Create an empty store and a folder."""

    @abstractmethod
    def control(self, place: Place, seconds: float) -> float:
        """Measure single small commits per second."""

    @abstractmethod
    def kept(self, place: Place) -> int:
        """Return the size of the store after a checkpoint."""

    def start(self, place: Place, work: str, runs: int, *, loops: int = 0, cargo: int = 0, name: str = "") -> None:
        """Start runs durably, without a worker."""

        async def start() -> None:
            async with opened(place.url) as store:
                size = {"size": cargo} if cargo else {}
                await start_runs(store, workflow_of(work), runs, prefix=f"{name or work}-", loops=loops, **size)

        asyncio.run(start())

    @contextmanager
    def serve(self, place: Place, work: str, workers: int) -> Iterator[Sequence[Process]]:
        """Run worker processes for a workload, ready but idle."""
        with ExitStack() as stack:
            waiting = [waiting_process(place.url, workflow_of(work)) for _ in range(workers)]
            yield [stack.enter_context(each) for each in waiting]

    def ended(self, place: Place, work: str) -> None:
        """Return when every run has ended. A run that has not ended is due soon, or waits until its ceiling."""

        async def wait() -> None:
            workflow = workflow_of(work)
            async with opened(place.url) as store:
                while (due := await store.query(NextDue((workflow.lane,)))) is not None:
                    if due > (await store.now()).real + HOUR:
                        raise RuntimeError(f"a run of {work} waits for a person")
                    await asyncio.sleep(LOOK_S)

        asyncio.run(wait())
