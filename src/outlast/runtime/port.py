"""Interface that every runtime offers to programs: start, signal, cancel, get (RT-1). Actors of local clients."""

import os
import pwd
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from outlast.errors import Forbidden
from outlast.flow.approval_rule import EVERY_ROLE
from outlast.models.runs import RunDetail

if TYPE_CHECKING:
    from outlast.runtime.client import Client
    from outlast.runtime.run_handle import RunHandle


@dataclass(frozen=True)
class Actor:
    """The person or program that acts: `name` is recorded in history, `roles` say what it may decide."""

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


class ExecutionRuntime(Protocol):
    """Interface of a runtime. Callers and workflow code do not depend on which runtime it is.

    Parameters of the methods:

    - `workflow_name`: name of a workflow; `workflow_id`: id of a run.
    - `reason`: text for the history, shown to people.
    """

    async def start(
        self,
        *,
        workflow_name: str,
        input: dict[str, Any],  # noqa: A002 - the name in the interface
        idempotency_key: str,
        correlation_id: str,
        trace_id: str | None = None,
    ) -> "RunHandle[Any]":
        """Start a run with this `input` and return once it is durable.

        The same `idempotency_key` returns the same run; with another input it raises Conflict. `correlation_id` and
        `trace_id` are shown with the run and sent with its events.
        """

    async def signal(self, workflow_id: str, name: str, payload: dict[str, Any], signal_id: str | None = None) -> None:
        """Send the signal `name` with a `payload`, once for each `signal_id`. Raises NotFound, Conflict (ended)."""

    async def cancel(self, workflow_id: str, reason: str) -> None:
        """Request that the run end. Raises NotFound, Conflict (the run has ended)."""

    async def get(self, workflow_id: str) -> RunDetail:
        """Return the run; with outcome and reason, once it has ended. Raises NotFound."""


class ClientRuntime(ExecutionRuntime):
    """The interface over a client, of a store or of a service."""

    def __init__(self, client: "Client") -> None:
        """`client`: as `outlast.connect` opens it. The caller closes it."""
        self.client = client

    @override
    async def start(
        self,
        *,
        workflow_name: str,
        input: dict[str, Any],
        idempotency_key: str,
        correlation_id: str,
        trace_id: str | None = None,
    ) -> "RunHandle[Any]":
        return await self.client.start(
            workflow_name, input, key=idempotency_key, correlation_id=correlation_id, trace_id=trace_id or ""
        )

    @override
    async def signal(self, workflow_id: str, name: str, payload: dict[str, Any], signal_id: str | None = None) -> None:
        await self.client.signal(workflow_id, name, payload, signal_id=signal_id or "")

    @override
    async def cancel(self, workflow_id: str, reason: str) -> None:
        await self.client.cancel(workflow_id, reason=reason)

    @override
    async def get(self, workflow_id: str) -> RunDetail:
        return await self.client.run(workflow_id)
