"""A receiver of webhooks on this machine that accepts everything, and a subscription to it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.engines import Place
from bench.load.stack import dispatching
from bench.serving import ACTOR, TENANT, opened
from outlast.core.approvals import EVERY_ROLE, Actor
from outlast.outbox.address import AddressPolicy
from outlast.runtime.operations import Operations


class Accepts(BaseHTTPRequestHandler):
    """A request handler that accepts events of any tenant."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read the event and answer that it arrived."""
        self.got(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(204)
        self.end_headers()

    def got(self, body: bytes) -> None:
        """Ignore the event; subclasses record it."""

    def log_message(self, *args: object) -> None:
        """Suppress the server's own log lines."""


@contextmanager
def told(place: Place) -> Iterator[None]:
    """Run one subscription, its receiver, and a dispatcher in another process."""
    with receiving(Accepts) as url:
        asyncio.run(subscribe(place.url, TENANT, url))
        with dispatching(place.url, place.folder / "dispatcher.txt"):
            yield


@contextmanager
def receiving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Yield the URL of a receiver that answers in threads of this process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def subscribe(store_url: str, tenant: str, url: str) -> None:
    """Subscribe the receiver to every event of a tenant from now on."""
    async with opened(store_url) as store:
        ops = Operations(store, tenant=tenant, actor=Actor(ACTOR, EVERY_ROLE, (), person=True), workflows={})
        ops.webhooks.reach = AddressPolicy.of(private=True, plain=True)
        await ops.webhooks.add(url)
