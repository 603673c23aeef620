"""The buyer's HTTP client with crash points: before a request leaves, and after the supplier has answered."""

from typing import Any

import httpx2

from examples.negotiation import suppliers
from outlast import this_call
from outlast.testing.crash_values import CrashHook


class _Watched(httpx2.AsyncHTTPTransport):
    """Transport that reports to the crash hook before each request, and after each answer before the caller sees it."""

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
    """Make the example's HTTP client report to the crash hook."""

    def client() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=_Watched(trace, verify=suppliers._trust(), trust_env=False), trust_env=False
        )

    suppliers._client = client  # type: ignore[assignment]
