"""The order in which routes are tried: those that are called most come first."""

import asyncio

import pytest
from starlette.routing import Match

from outlast.runtime.stores import open_store
from outlast.service.identity import Anonymous
from outlast.service.service_app import create
from outlast.service.service_state import ServiceState

CALLED_MOST = {
    "/v1/workflows/order/runs": "POST",
    "/v1/runs/run_1/signals/paid": "POST",
    "/v1/approvals/ap_1/decision": "POST",
    "/v1/runs/run_1": "GET",
}


@pytest.mark.parametrize("path", CALLED_MOST)
def test_routes_that_are_called_most_are_tried_first(path: str) -> None:
    """Each route before the one of a request costs four calls of Python: a start was tried after 46 others."""
    scope = {"type": "http", "method": CALLED_MOST[path], "path": path, "root_path": "", "headers": []}
    store = asyncio.run(open_store("memory:"))
    routes = create(ServiceState(store, Anonymous("local:ana"))).router.routes
    assert [route.matches(dict(scope))[0] for route in routes].index(Match.FULL) < len(CALLED_MOST)
