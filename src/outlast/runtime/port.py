"""Interface that every runtime offers to programs, and the values it returns: start, signal, cancel, get (RT-1)."""

import os
import pwd
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from outlast.errors import Forbidden
from outlast.flow.approval_rule import EVERY_ROLE


@dataclass(frozen=True)
class Actor:
    """The person or program that acts, as recorded in history, with its roles."""

    name: str
    roles: Container[str] = field(default=EVERY_ROLE)
    claims: tuple[str, ...] = ()
    """Names of the roles, for the record; () for the local operator, who has every role."""
    person: bool = True
    """False for agents and workers, which may not decide, whatever their roles."""

    def check_person(self) -> None:
        """Raise Forbidden if the actor is a program."""
        if not self.person:
            raise Forbidden(
                f"{self.name} may not decide anything",
                "it is a program, and only people may decide, whatever roles a program has",
                "ask a person to decide",
                refusal="not_a_person",
            )


def local_actor(roles: Sequence[str]) -> Actor:
    """Return the user that the kernel names, holding these roles, or every role if none is named.

    The environment is ignored: a second name there would count as a second approver.
    """
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # a user id without a name, as in some containers
        name = f"uid-{uid}"
    if not roles:
        return Actor(f"local:{name}", EVERY_ROLE)
    return Actor(f"local:{name}", frozenset(roles), tuple(sorted(set(roles))))


@dataclass(frozen=True)
class WorkflowHandle:
    """A started run. `created` is False if an earlier call with the same idempotency key started it."""

    workflow_id: str
    workflow_name: str
    created: bool = True


@dataclass(frozen=True)
class WorkflowState:
    """State of a run. `status` is the engine's; `shown` is attention, else the node's status label."""

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
    """Number of result rows, counted with the other reads."""


class ExecutionRuntime(Protocol):
    """Interface of a runtime. Callers and workflow code do not depend on which runtime it is."""

    async def start(
        self,
        *,
        workflow_name: str,
        input: dict[str, Any],  # noqa: A002 - the name in the interface
        idempotency_key: str,
        correlation_id: str,
        trace_id: str | None = None,
    ) -> WorkflowHandle:
        """Start a run and return once it is durable.

        The same key returns the same run; with another input it raises Conflict.
        """

    async def signal(self, workflow_id: str, name: str, payload: dict[str, Any], signal_id: str | None = None) -> None:
        """Send a signal, once for each `signal_id`. Raises NotFound, Conflict (the run has ended)."""

    async def cancel(self, workflow_id: str, reason: str) -> None:
        """Request that the run end. Raises NotFound, Conflict (the run has ended)."""

    async def get(self, workflow_id: str) -> WorkflowState:
        """Return the state of the run. Raises NotFound."""
