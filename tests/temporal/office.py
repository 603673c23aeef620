"""A store, its receiver of sales, and worker processes of the runs that a Temporal server schedules."""

import subprocess
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from temporalio.client import Client

from outlast import Workflow
from outlast.core.rows.run_rows import is_over
from outlast.models.approvals import ApprovalSummary
from outlast.runtime.operations import Operations
from tests.e2e.helpers import Installation, Receiver, when
from tests.temporal.flows import sale
from tests.temporal.server import TemporalServer

T = TypeVar("T")


class Office(Installation):
    """A store, its receiver, and workers of the runs that Temporal schedules."""

    code: ClassVar[tuple[Workflow[Any], ...]] = (sale,)

    def __init__(self, folder: Path, receiver: Receiver, temporal: TemporalServer) -> None:
        super().__init__(folder, receiver)
        self.temporal = temporal
        self.client: Client = self._loop.run(temporal.client())

    @property
    def operations(self) -> Operations:
        """The store's operations."""
        return self._operations

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the store."""
        return self._loop.run(coroutine)

    def on_temporal(self, act: Callable[[Client, str], Coroutine[Any, Any, T]], run: str) -> T:
        """Run a coroutine function with the connection to the server."""
        return self._loop.run(act(self.client, run))

    def serve(self, version: int = 1, runtime: str = "temporal") -> "subprocess.Popen[bytes]":
        """Start a worker of this version of the sale."""
        variables = {"SALE_VERSION": f"{version}", **self.temporal.environment}
        return self.hire("--runtime", runtime, module="tests.temporal.flows", **variables)

    def sell(self, run: str, scheduler: str = "temporal", **given: object) -> None:
        """Start a sale."""
        self.do(lambda ops: ops.start_run("sale", given, run_id=run, key=run, scheduler=scheduler))

    def calls(self, run: str) -> list[str]:
        """Return the calls of a run that the receiver got, in their order; one that it got twice is listed twice."""
        return [key.partition(f":{run}:0:")[2] for key in self.receiver.seen.elements() if f":{run}:" in key]

    def until_over(self, *runs: str) -> None:
        when(lambda: all(is_over(self.run(run)) for run in runs), self.said)

    def approve(self, run: str) -> None:
        """Approve the proposal once it is asked for."""
        (found,) = when(lambda: self.pending(run), self.said)
        self.do(lambda ops: ops.approve(found.approval, reason="fine"))

    def pending(self, run: str) -> Sequence[ApprovalSummary]:
        """Return the open approvals of a run."""
        found: Sequence[ApprovalSummary] = self.do(lambda ops: ops.approvals(run=run, status="pending")).approvals
        return found

    def explain(self, run: str) -> str:
        return str(self.do(lambda ops: ops.explain(run)))
