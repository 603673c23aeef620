"""State shared by the requests of one service, and the parameters of handlers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from outlast.clocks import SystemClock
from outlast.core.addresses import PUBLIC, AddressPolicy
from outlast.core.clock_port import Clock
from outlast.core.limits import STREAMS_MAX
from outlast.core.presence import PRESENCE_S
from outlast.errors import OutlastError, StoreError
from outlast.flow.topology import topology_of
from outlast.flow.workflow import Workflow, workflows_by_name
from outlast.models import PagedList
from outlast.runtime.metrics_text import Metrics
from outlast.runtime.operations import Operations
from outlast.service.connections import Connections, connections_max
from outlast.service.cursors import Cursors
from outlast.service.event_broadcaster import EventBroadcaster
from outlast.service.identity import Authenticator, Principal
from outlast.service.open_approvals import Presence
from outlast.service.request_limits import Bounds
from outlast.service.request_parts import Cursor, Limit
from outlast.service.store_secret import StoreSecret
from outlast.service.tenant_limits import WAITING_SHARE, TenantLimits
from outlast.store.port import Store
from outlast.telemetry import Counters

SERVING_S: Final = 0.5
"""Time for which the set of served lanes is cached."""
SUMMARY_S: Final = 5.0
"""Time for which the version of a tenant's summary is cached."""


@dataclass
class ServiceState:
    """Shared state of one service. `workflows` lists every loaded version that callers can start."""

    store: Store
    authenticator: Authenticator
    workflows: Sequence[Workflow[Any]] = ()
    bounds: Bounds = field(default_factory=Bounds)
    reach: AddressPolicy = PUBLIC
    """Webhook targets allowed besides https:// URLs on the internet."""
    scheduler: str = ""
    """Engine that schedules runs whose start names none; '' is this package's."""
    counters: list[Counters] = field(default_factory=list)
    """Counters of the workers and the dispatcher in this process, for /metrics."""
    clock: Clock = field(default_factory=SystemClock)
    pages: Sequence[BaseRoute] = ()
    """Routes of the web UI, below /ui. The caller provides them, because the package `ui` is above this one."""
    error_page: "Callable[[Request, OutlastError], Awaitable[Response]] | None" = None
    """Maker of the page that answers an error below /ui. Without it, errors there are problems as elsewhere."""
    public_url: str = ""
    currency: str = ""
    """Address of the service for browsers, if it is not the one that their requests name."""
    presence_s: float = PRESENCE_S
    """Time after which other processes forget the open pages of one that was killed."""
    stopping: bool = False
    """True once the process stops. /readyz then answers 503."""

    def __post_init__(self) -> None:
        self.by_name: Mapping[str, Workflow[Any]] = workflows_by_name(list(self.workflows))
        self.connections = Connections(connections_max())
        self.broadcaster = EventBroadcaster(self.store, most=min(STREAMS_MAX, self.connections.most // 2))
        self.presence = Presence(self.store, self.presence_s)
        self.secret = StoreSecret(self.store)
        self.cursors = Cursors(self.secret)
        self.tenant_limits = TenantLimits(self.connections.most // WAITING_SHARE)
        self.topology_of = cache(topology_of)  # of a loaded workflow, which no longer changes: 150 ms for 200 nodes
        self._summaries: dict[str, tuple[float, str]] = {}  # by tenant: until when, and the version
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
        self.presence.close()

    async def serving(self, ops: Operations) -> frozenset[str]:
        """Return the lanes that a live worker serves, at most SERVING_S old. Tenants share the cached value."""
        now = asyncio.get_running_loop().time()
        if now >= self._serving_until:
            self._serving, self._serving_until = await ops.serving(), now + SERVING_S
        return self._serving

    async def summary_version(self, ops: Operations) -> str:
        """Return `Operations.summary_version`, at most SUMMARY_S old. Callers of one tenant share it."""
        now = asyncio.get_running_loop().time()
        until, version = self._summaries.get(ops.tenant, (0.0, ""))
        if now >= until:
            self._summaries[ops.tenant] = (now + SUMMARY_S, version)  # so that others do not read it, too
            try:
                version = await ops.summary_version()
            except StoreError:
                self._summaries[ops.tenant] = (0.0, version)
                raise
            self._summaries[ops.tenant] = (now + SUMMARY_S, version)
        return version

    def operations(self, principal: Principal) -> Operations:
        """Return the operations bound to the tenant and the name of this caller."""
        bound = Operations(
            self.store,
            tenant=principal.tenant,
            actor=principal.actor(),
            workflows=self.by_name,
            versions=self.workflows,
        )
        bound.webhooks.reach, bound.scheduler = self.reach, self.scheduler
        return bound


def root_of(request: Request) -> str:
    """Return the path prefix under which the service is mounted, or ''."""
    return str(request.scope.get("root_path", "")).rstrip("/")


async def page_instead(state: ServiceState, request: Request, error: OutlastError, problem: Response) -> Response:
    """Return the page of an error below /ui, with status and headers of its `problem`. Elsewhere return the problem."""
    if state.error_page is None or not f"{request.scope['path'].removeprefix(root_of(request))}/".startswith("/ui/"):
        return problem
    page = await state.error_page(request, error)
    for name in ("allow", "retry-after", "connection"):
        if name in problem.headers:
            page.headers[name] = problem.headers[name]
    return page


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


ListModel = TypeVar("ListModel", bound=PagedList)


@dataclass(frozen=True)
class PageRequest:
    """Requested page of a list: at most `limit` items after `after`."""

    after: str
    limit: int
    _state: ServiceState
    _request: Request
    _response: Response
    _tenant: str

    async def sealed(self, found: ListModel) -> ListModel:
        """Return a page with a signed cursor. Set the header `Link` if there is a next page."""
        further = await self._state.cursors.seal(self._request, self._response, self._tenant, found.next_cursor)
        return found.model_copy(update={"next_cursor": further})


async def _page_request(
    state: State, ops: Ops, request: Request, response: Response, cursor: Cursor = "", limit: Limit = 50
) -> PageRequest:
    after = await state.cursors.open(request, ops.tenant, cursor)
    return PageRequest(after, limit, state, request, response, ops.tenant)


Pages = Annotated[PageRequest, Depends(_page_request)]
"""Handler parameter: the requested page. A cursor of another list raises InvalidInput."""
