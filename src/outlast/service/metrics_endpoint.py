"""HTTP endpoint for Prometheus in a worker or dispatcher that serves nothing else."""

import hmac
import socket

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from outlast.errors import InvalidInput
from outlast.runtime.metrics_text import MEDIA_TYPE, Metrics
from outlast.service.connections import AdmittedConnection, Connections, Server
from outlast.service.identity.listen import is_loopback

HEAD_BYTES_MAX = 16 * 1024
BACKLOG = 20


def check_bind(host: str, token: str) -> None:
    """Raise InvalidInput if other machines could read the metrics without a credential (S38)."""
    if not token and not is_loopback(host):
        raise InvalidInput(
            f"metrics on {host or 'every address'} need a token",
            "other machines can reach this address",
            "set OUTLAST_METRICS__TOKEN_FILE and give Prometheus the same bearer token, or listen on 127.0.0.1",
        )


class MetricsEndpoint:
    """Server that answers GET /metrics from `run` until `drain`."""

    def __init__(self, metrics: Metrics, listening: socket.socket, token: str = "") -> None:
        """Listen on the socket. With an empty `token`, any caller is answered."""
        self._metrics = metrics
        self._listening = listening
        listening.listen(BACKLOG)  # a request from now on waits for `run` instead of being refused
        self._token = token
        self._server = Server(
            uvicorn.Config(
                Starlette(routes=[Route("/metrics", self._answer)]),
                http=type("Scraped", (AdmittedConnection, H11Protocol), {"admitted": Connections(BACKLOG)}),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=1,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            )
        )

    def drain(self) -> None:
        """Stop accepting connections, and let `run` return."""
        self._server.should_exit = True

    async def run(self) -> None:
        """Serve requests until `drain` is called."""
        await self._server.serve(sockets=[self._listening])

    async def _answer(self, request: Request) -> Response:
        if self._token:
            given = request.headers.get("authorization", "").partition(" ")[2].strip()
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                return PlainTextResponse("a bearer token is required\n", 401, {"www-authenticate": "Bearer"})
        return Response(await self._metrics.text(), media_type=MEDIA_TYPE)
