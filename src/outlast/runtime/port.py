"""The interface every runtime offers to callers, and what it answers: start, signal, cancel, get (RT-1)."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, Protocol

from outlast.errors import Forbidden
from outlast.flow.approval_rule import EVERY_ROLE


@dataclass(frozen=True)
class Actor:
    """Who acts, as recorded in history, and the roles he or she holds."""

    name: str
    roles: Container[str] = field(default=EVERY_ROLE)
    claims: tuple[str, ...] = ()
    """The roles by name, for the record; () for the local operator, who holds them all."""
    person: bool = True
    """False for agents and workers, which decide nothing, whatever roles they hold."""

    def check_person(self) -> None:
        """Raise Forbidden where a program acts: its credentials decide nothing, on whatever way they come."""
        if not self.person:
            raise Forbidden(
                f"{self.name} may not decide anything",
                "it is a program, and only people decide, whatever roles a program holds",
                "let a person do it",
                refusal="not_a_person",
            )


@dataclass(frozen=True)
class WorkflowHandle:
    """A started run. `created` is False when the same idempotency key had started it before."""

    workflow_id: str
    workflow_name: str
    created: bool = True


@dataclass(frozen=True)
class WorkflowState:
    """Where a run stands. `status` is the engine's; `shown` is what people see (attention, else the node's own)."""

    workflow_id: str
    workflow_name: str
    status: str
    shown: str
    node: str
    visit: int
    version: int
    waiting_for: tuple[dict[str, Any], ...]
    attention: tuple[dict[str, Any], ...]
    state: dict[str, Any]
    outcome: Any
    reason: str
    results: int
    """Number of result rows, counted when the rest was read."""


class ExecutionRuntime(Protocol):
    """Callers and workflow code do not change between runtimes."""

    async def start(
        self,
        *,
        workflow_name: str,
        input: dict[str, Any],  # noqa: A002 - the name in the interface
        idempotency_key: str,
        correlation_id: str,
        trace_id: str | None = None,
    ) -> WorkflowHandle:
        """Start a run, durably. The same key answers the same run; with another input it raises Conflict."""

    async def signal(self, workflow_id: str, name: str, payload: dict[str, Any], signal_id: str | None = None) -> None:
        """Leave a signal; one with a `signal_id` arrives once. Raises NotFound, Conflict (the run has ended)."""

    async def cancel(self, workflow_id: str, reason: str) -> None:
        """Ask that the run end. Raises NotFound, Conflict (the run has ended)."""

    async def get(self, workflow_id: str) -> WorkflowState:
        """Where the run stands now. Raises NotFound."""
