"""The inbox as a separate process in front of a service: `python -m examples.negotiation.portal`.

It needs OUTLAST_URL and OUTLAST_TOKEN. Suppliers post their bids to it, and it sends each to its run as a signal over
HTTP, with the bid's id. The token belongs to a program with the role `starter`, which may signal but not decide.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
from typing import Any

import httpx2

from .inbox import Posted, inbox_app
from .loopback import serve

ANSWERS: dict[int, Posted] = {202: "accepted", 410: "ended", 404: "unknown", 409: "conflict", 422: "conflict"}


class Portal:
    """Sender of signals to a service."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def post(self, run_id: str, name: str, payload: dict[str, Any], signal_id: str) -> Posted:
        """Send a signal and translate the status code; this method is an `inbox.Signal`."""
        ask = {"payload": payload, "signal_id": signal_id}
        try:
            answer = await self._http.post(f"/v1/runs/{run_id}/signals/{name}", json=ask)
        except httpx2.TransportError:
            return "unavailable"
        return ANSWERS.get(answer.status_code, "unavailable")


async def _run(port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    headers = {"Authorization": f"Bearer {os.environ['OUTLAST_TOKEN']}"}
    async with (
        httpx2.AsyncClient(base_url=os.environ["OUTLAST_URL"], headers=headers, timeout=10) as http,
        serve(inbox_app(Portal(http).post), port) as url,
    ):
        print(json.dumps({"url": url}), flush=True)
        await stop.wait()


def main() -> None:
    """Serve the inbox. Print one JSON line with its address once it accepts bids."""
    cli = argparse.ArgumentParser(prog="negotiation.portal", description=__doc__)
    cli.add_argument("--port", type=int, default=0, help="port to listen on; 0 selects a free port [0]")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(cli.parse_args().port))


if __name__ == "__main__":
    main()
