"""A receiver of webhooks on this machine, which accepts everything, and a subscription that leads there."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.engines import Place
from bench.load.stack import dispatching
from bench.serving import ACTOR, TENANT, opened
from outlast.flow.people import EVERY_ROLE
from outlast.outbox.address import Reach
from outlast.runtime.operations import Operations
from outlast.runtime.port import Actor


class _Accepts(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read it and say that it has come."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def told(place: Place) -> Iterator[None]:
    """One subscription, its receiver, and a dispatcher in a process of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Accepts)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        asyncio.run(_subscribe(place.url, f"http://127.0.0.1:{server.server_port}/"))
        with dispatching(place.url, place.folder / "dispatcher.txt"):
            yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _subscribe(store_url: str, url: str) -> None:
    async with opened(store_url) as store:
        ops = Operations(store, tenant=TENANT, actor=Actor(ACTOR, EVERY_ROLE, (), person=True), workflows={})
        ops.webhooks.reach = Reach.of(private=True, plain=True)
        await ops.webhooks.add(url)
