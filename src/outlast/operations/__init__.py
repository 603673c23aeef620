"""One declaration for each operation of `/v1`: its request, its answer, and the roles that may use it.

Modules: `declaration` (the types), `field_types` (limits and texts of fields), `bodies` (models of bodies), `handlers`,
and by resource `run_operations`, `effect_operations` and so on. A method of `Client` makes a request. `Operations`
answers it by the handler of its operation, and the HTTP client sends it. `service/declared_routes.py` makes the routes,
and `service/identity` reads the permissions. Tests compare the declarations with the examples and the methods of
`Client`. By hand stay streams, downloads, probes and the OpenAPI document.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from outlast.operations import agent_operations as agents
from outlast.operations import approval_operations as approvals
from outlast.operations import attention_operations as attention
from outlast.operations import audit_operations as audit
from outlast.operations import cause_operations as causes
from outlast.operations import effect_operations as effects
from outlast.operations import fork_operations as forks
from outlast.operations import metric_operations as metrics
from outlast.operations import run_operations as runs
from outlast.operations import service_operations as service
from outlast.operations import view_operations as views
from outlast.operations import webhook_operations as webhooks
from outlast.operations.declaration import Operation, OperationRequest

R = TypeVar("R")

OPERATIONS: Final[tuple[Operation[Any, Any], ...]] = tuple(
    each
    for module in (runs, forks, effects, approvals, attention, audit, causes, agents, metrics, service, views, webhooks)
    for each in vars(module).values()
    if isinstance(each, Operation)
)
"""Every declaration. An operation has a second one if clients read a part of its answer."""
BY_REQUEST: Final[Mapping[type[OperationRequest[Any]], Operation[Any, Any]]] = {
    each.request: each for each in OPERATIONS
}


def operation_of(request: OperationRequest[R]) -> Operation[Any, R]:
    """Return the operation of a request."""
    return BY_REQUEST[type(request)]
