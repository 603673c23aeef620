"""Methods of the clients that are one request each, found in their source; a call of one with a declared example."""

import inspect
import re
from collections.abc import Awaitable, Mapping
from dataclasses import fields
from typing import Any, Final, get_type_hints

from outlast.operations import BY_REQUEST
from outlast.operations.declaration import OperationRequest, Sent
from outlast.runtime.client import Client
from outlast.runtime.webhook_client import WebhookClient

COMPOSED: Final = {
    "Client.close": "it asks nothing",
    "Client.now": "a service is not asked",
    "Client.until": "it calls the given function",
    "Client.start": "it has overloads and returns a handle",
    "Client.get": "it asks nothing and returns a handle",
    "Client.start_run": "it takes a workflow object, and the input as JSON text",
    "Client.ended": "it follows a stream",
    "Client.run_end": "it follows a stream, then reads the run",
    "Client.worker": "it needs a store",
    "Client.follow": "it is a stream",
    "Client.updates": "it is a stream",
    "Client.to_undo": "it selects from list_effects",
    "Client.not_undone": "it selects from list_effects",
    "Client.effect": "it selects from list_effects",
    "Client.approve": "it decides with one verb of decide_approval",
    "Client.reject": "it decides with two verbs of decide_approval",
    "Client.attention_of": "it reads pages of list_attention",
    "Client.workers": "it asks for all of list_workers",
    "Client.input_schema": "it is a part of get_workflow",
    "Client.topology": "it is a part of get_workflow",
    "Client.unfinished": "it reads pages of list_runs",
    "Client.move_runs": "it sends one request for each run",
    "Client.set_budget": "it takes a Budget",
    "WebhookClient.list": "it reads each webhook of the list",
    "WebhookClient.unsent_ms": "it is a part of list_webhooks, of which this process reads less",
    "WebhookClient.deliveries": "it asks one webhook or all",
    "WebhookClient.redeliver": "it sends one event or all of a webhook",
}
"""Methods that no single request describes, with the reason."""
_REQUEST: Final = re.compile(r"\._call\(\s*\w+\.(\w+)\(")
_BY_NAME: Final = {each.__name__: each for each in BY_REQUEST}


def public_methods() -> Mapping[str, Any]:
    """Return the methods of the clients by their qualified names."""
    return {
        f"{kind.__name__}.{name}": each
        for kind in (Client, WebhookClient)
        for name, each in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(each)
    }


def requests_of(method: Any) -> list[type[OperationRequest[Any]]]:
    """Return the requests that a method makes."""
    return [_BY_NAME[name] for name in _REQUEST.findall(inspect.getsource(method))]


METHODS: Final[Mapping[str, type[OperationRequest[Any]]]] = {
    name: requests_of(method)[0]
    for name, method in public_methods().items()
    if name not in COMPOSED and len(requests_of(method)) == 1
}
"""Methods whose parameters are the fields of one request."""


def parts_of(hint: Any) -> Mapping[str, Any] | None:
    """Return the names of the facts in a field of a request, which its method takes one by one; None for others."""
    how = (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Sent))
    return next((each.parts for each in how), None)


def call_of(client: Client, request: OperationRequest[Any]) -> Awaitable[Any]:
    """Call the method of a client that makes this request, with the values of the request."""
    (name,) = (name for name, each in METHODS.items() if each is type(request))
    kind, _, method = name.partition(".")
    of = client if kind == Client.__name__ else client.webhooks
    hints, given = get_type_hints(type(request), include_extras=True), dict[str, Any]()
    for each in fields(request):  # type: ignore[arg-type]  # a dataclass
        value, parts = getattr(request, each.name), parts_of(hints[each.name])
        given |= {each.name: value} if parts is None else {part: getattr(value, part) for part in parts}
    called: Awaitable[Any] = getattr(of, method)(**given)
    return called
