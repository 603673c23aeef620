"""A receiver of webhooks beside a terminal, and what a dispatcher there is allowed."""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook

ALLOWED = {"OUTLAST_WEBHOOKS__ALLOW_PRIVATE": "true", "OUTLAST_WEBHOOKS__ALLOW_HTTP": "true"}


@dataclass
class Hooks:
    """A real server that answers as told, and keeps what it is sent."""

    status: int = 204
    url: str = ""
    got: "queue.Queue[tuple[dict[str, str], bytes]]" = field(default_factory=queue.Queue)

    def next(self, secret: str = "", within_s: float = 30.0) -> dict[str, Any]:
        """The next event, verified by the library where the secret is given."""
        headers, body = self.got.get(timeout=within_s)
        if secret:
            Webhook(secret).verify(body, headers)
        event: dict[str, Any] = json.loads(body)
        return {"webhook-id": headers["webhook-id"], **event}


@contextmanager
def listening(status: int = 204) -> Iterator[Hooks]:
    """Listen on a free port."""
    hooks = Hooks(status)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hooks.got.put(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(hooks.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hooks.url = f"http://127.0.0.1:{server.server_port}/hooks"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield hooks
    finally:
        server.shutdown()
        server.server_close()
