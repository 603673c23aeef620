"""The inbox as a separate process in front of a service: `python -m examples.negotiation.portal`.

It needs OUTLAST_URL and OUTLAST_TOKEN. Suppliers post their bids here; each goes to its run as a signal over HTTP,
under the bid's id. The portal's credential is a program's with the role `starter`: it may signal, and decides nothing.
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
    """Leaves signals with a service."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def post(self, run_id: str, name: str, payload: dict[str, Any], signal_id: str) -> Posted:
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
    """Serves the inbox; prints one JSON line with its address when it takes bids."""
    cli = argparse.ArgumentParser(prog="negotiation.portal", description=__doc__)
    cli.add_argument("--port", type=int, default=0, help="0 takes a free one")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(cli.parse_args().port))


if __name__ == "__main__":
    main()
