"""State that the requests of one service share, and the handler parameters that are derived from it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.clock import Clock
from outlast.core.limits import STREAMS_MAX
from outlast.core.rows import Run
from outlast.flow.workflow import Workflow
from outlast.outbox.address import PUBLIC, AddressPolicy
from outlast.runtime.clocks import SystemClock
from outlast.runtime.metrics import Metrics
from outlast.runtime.operations import Operations
from outlast.runtime.versions import workflows_by_name
from outlast.service.connections import Connections, connections_max
from outlast.service.cursors import Cursors
from outlast.service.event_broadcaster import EventBroadcaster
from outlast.service.identity import Authenticator, Principal
from outlast.service.request_limits import Bounds
from outlast.service.requests import Cursor, Limit
from outlast.service.tenant_limits import WAITING_SHARE, TenantLimits
from outlast.store.port import Store
from outlast.telemetry import Counters

SERVING_S: Final = 0.5
"""How long the set of served lanes is cached."""


@dataclass
class ServiceState:
    """Shared state of one service. `workflows` lists every loaded version that callers can start."""

    store: Store
    authenticator: Authenticator
    workflows: Sequence[Workflow[Any]] = ()
    bounds: Bounds = field(default_factory=Bounds)
    reach: AddressPolicy = PUBLIC
    """Webhook targets allowed besides https:// URLs on the internet."""
    counters: list[Counters] = field(default_factory=list)
    """Counters of the workers and the dispatcher in this process, for /metrics."""
    clock: Clock = field(default_factory=SystemClock)
    stopping: bool = False
    """True once the process stops. /readyz then answers 503."""

    def __post_init__(self) -> None:
        self.by_name: Mapping[str, Workflow[Any]] = workflows_by_name(list(self.workflows))
        self.connections = Connections(connections_max())
        self.broadcaster = EventBroadcaster(self.store, most=min(STREAMS_MAX, self.connections.most // 2))
        self.cursors = Cursors(self.store)
        self.tenant_limits = TenantLimits(self.connections.most // WAITING_SHARE)
        self._metrics: Metrics | None = None
        self._serving: frozenset[str] = frozenset()
        self._serving_until = 0.0  # event loop time

    def metrics(self) -> Metrics:
        """Return the metrics of this process. Raises InvalidInput if the extra is not installed."""
        if self._metrics is None:
            self._metrics = Metrics(self.store, self.counters)
        return self._metrics

    def stop(self) -> None:
        """End every stream and make /readyz answer 503."""
        self.stopping = True
        self.broadcaster.close()

    def code_of(self, run: Run) -> Workflow[Any] | None:
        """Return the workflow of a run in the run's own version, or None if it is not loaded."""
        return next((each for each in self.workflows if each.lane == run.lane), None)

    async def serving(self, ops: Operations) -> frozenset[str]:
        """Return the lanes that a live worker serves, at most SERVING_S old. Tenants share the cached value."""
        now = asyncio.get_running_loop().time()
        if now >= self._serving_until:
            self._serving, self._serving_until = await ops.serving(), now + SERVING_S
        return self._serving

    def operations(self, principal: Principal) -> Operations:
        """Return the operations bound to the tenant and the name of this caller."""
        bound = Operations(self.store, tenant=principal.tenant, actor=principal.actor(), workflows=self.by_name)
        bound.webhooks.reach = self.reach
        return bound


def root_of(request: Request) -> str:
    """Return the path prefix under which the service is mounted, or ''."""
    return str(request.scope.get("root_path", "")).rstrip("/")


async def _state(request: Request) -> ServiceState:
    state: ServiceState = request.app.state.service
    return state


async def _operations(request: Request) -> Operations:
    bound: Operations = request.state.operations
    return bound


State = Annotated[ServiceState, Depends(_state)]
"""Handler parameter: the state of the service."""
Ops = Annotated[Operations, Depends(_operations)]
"""Handler parameter: the operations of the authenticated caller."""


@dataclass(frozen=True)
class PageRequest:
    """Requested page of a list: at most `limit` items after `after`."""

    after: str
    limit: int
    _state: ServiceState
    _request: Request
    _response: Response
    _tenant: str

    async def page(self, name: str, items: Sequence[Any], further: str) -> dict[str, Any]:
        """Return the body of the answer. Set the header `Link` if `further` names a next page."""
        sealed = await self._state.cursors.seal(self._request, self._response, self._tenant, further)
        return {name: items, "next_cursor": sealed}


async def _page_request(
    state: State, ops: Ops, request: Request, response: Response, cursor: Cursor = "", limit: Limit = 50
) -> PageRequest:
    after = await state.cursors.open(request, ops.tenant, cursor)
    return PageRequest(after, limit, state, request, response, ops.tenant)


Pages = Annotated[PageRequest, Depends(_page_request)]
"""Handler parameter: the requested page. A cursor of another list raises InvalidInput."""
