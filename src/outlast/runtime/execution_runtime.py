"""Interface that every runtime offers to programs: start, signal, cancel, get (RT-1). Actors of local clients."""

import os
import pwd
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from outlast.core.approvals import EVERY_ROLE, Actor
from outlast.core.approver_rule import LOCAL
from outlast.models.runs import RunDetail

if TYPE_CHECKING:
    from outlast.runtime.client import Client
    from outlast.runtime.run_handle import RunHandle


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
        return Actor(f"{LOCAL}{name}", EVERY_ROLE)
    return Actor(f"{LOCAL}{name}", frozenset(roles), tuple(sorted(set(roles))))


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
