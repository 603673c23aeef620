"""What the requests of one service share: its store, the code it knows, who may come in, and its one watcher."""

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
from outlast.service.connections import Connections, room
from outlast.service.cursors import Cursors
from outlast.service.event_broadcaster import EventBroadcaster
from outlast.service.identity import Authenticator, Principal
from outlast.service.request_limits import Bounds
from outlast.service.requests import Cursor, Limit
from outlast.service.tenant_limits import WAITING_SHARE, TenantLimits
from outlast.store.port import Store
from outlast.telemetry import Counters

SERVING_S: Final = 0.5


@dataclass
class ServiceState:
    """One service. `workflows`: those that can be started here, every version that is loaded."""

    store: Store
    authenticator: Authenticator
    workflows: Sequence[Workflow[Any]] = ()
    bounds: Bounds = field(default_factory=Bounds)
    reach: AddressPolicy = PUBLIC
    """Where webhooks may lead besides https:// addresses on the internet."""
    counters: list[Counters] = field(default_factory=list)
    """What this process has counted; those of its workers and its dispatcher, for /metrics."""
    clock: Clock = field(default_factory=SystemClock)
    stopping: bool = False
    """No new work should come here: /readyz says so."""

    def __post_init__(self) -> None:
        self.by_name: Mapping[str, Workflow[Any]] = workflows_by_name(list(self.workflows))
        self.connections = Connections(room())
        self.broadcaster = EventBroadcaster(self.store, most=min(STREAMS_MAX, self.connections.most // 2))
        self.cursors = Cursors(self.store)
        self.tenant_limits = TenantLimits(self.connections.most // WAITING_SHARE)
        self._metrics: Metrics | None = None
        self._serving: frozenset[str] = frozenset()
        self._serving_until = 0.0  # of the loop's clock

    def metrics(self) -> Metrics:
        """What this process shows at /metrics. Raises InvalidInput without the extra."""
        if self._metrics is None:
            self._metrics = Metrics(self.store, self.counters)
        return self._metrics

    def stop(self) -> None:
        """End every stream, and say that no new work should come."""
        self.stopping = True
        self.broadcaster.close()

    def code_of(self, run: Run) -> Workflow[Any] | None:
        """The code of a run's own version; None where it is not loaded here."""
        return next((each for each in self.workflows if each.lane == run.lane), None)

    async def serving(self, ops: Operations) -> frozenset[str]:
        """The lanes that some live worker serves, as it was half a second ago at most: the same for everybody."""
        now = asyncio.get_running_loop().time()
        if now >= self._serving_until:
            self._serving, self._serving_until = await ops.serving(), now + SERVING_S
        return self._serving

    def operations(self, principal: Principal) -> Operations:
        """What this caller may speak to: bound to his or her tenant and name."""
        bound = Operations(self.store, tenant=principal.tenant, actor=principal.actor(), workflows=self.by_name)
        bound.webhooks.reach = self.reach
        return bound


def root_of(request: Request) -> str:
    """Under which prefix this service is mounted; '' where it stands alone."""
    return str(request.scope.get("root_path", "")).rstrip("/")


async def _house(request: Request) -> ServiceState:
    state: ServiceState = request.app.state.service
    return state


async def _operations(request: Request) -> Operations:
    bound: Operations = request.state.operations
    return bound


In = Annotated[ServiceState, Depends(_house)]
"""A parameter of a handler: the service."""
Ops = Annotated[Operations, Depends(_operations)]
"""A parameter of a handler: `Operations` of whoever asks."""


@dataclass(frozen=True)
class Paging:
    """Which part of a list is asked for: from `place` on, at most `limit`."""

    place: str
    limit: int
    _house: ServiceState
    _request: Request
    _response: Response
    _tenant: str

    async def page(self, name: str, items: Sequence[Any], further: str) -> dict[str, Any]:
        """The answer, with the cursor of the next page, which the header `Link` names too."""
        sealed = await self._house.cursors.further(self._request, self._response, self._tenant, further)
        return {name: items, "next_cursor": sealed}


async def _paging(
    state: In, ops: Ops, request: Request, response: Response, cursor: Cursor = "", limit: Limit = 50
) -> Paging:
    place = await state.cursors.open(request, ops.tenant, cursor)
    return Paging(place, limit, state, request, response, ops.tenant)


Pages = Annotated[Paging, Depends(_paging)]
"""A parameter of a handler: the part of the list that is asked for. Raises InvalidInput for a cursor of another."""
