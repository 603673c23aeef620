"""The buyer's side of the wire, watched: a cell may end the process when the supplier has acted and answered."""

from typing import Any

import httpx2

from examples.negotiation import suppliers
from outlast import this_call
from outlast.testing.crash_points import CrashHook


class _Watched(httpx2.AsyncHTTPTransport):
    """Tells the trace before a request leaves, and when its answer has come but nobody above has seen it."""

    def __init__(self, trace: CrashHook, **given: Any) -> None:
        super().__init__(**given)
        self._trace = trace

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        label = f"{this_call().run_id} call {this_call().key}"
        asks = request.method == "GET"
        if not asks:
            self._trace.reached("call:flight", label)
        response = await super().handle_async_request(request)
        self._trace.reached("call:asked" if asks else "call:inside", label)
        return response


def watch_mail(trace: CrashHook) -> None:
    """Have the example's HTTP client report to the trace."""

    def client() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=_Watched(trace, verify=suppliers._trust(), trust_env=False), trust_env=False
        )

    suppliers._client = client  # type: ignore[assignment]
