"""Serve an ASGI app on the loopback address."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn

HOST = "127.0.0.1"


class _Server(uvicorn.Server):
    """A uvicorn server that installs no signal handlers, because the owner of the event loop ends it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serve(app: Callable[..., Any], port: int = 0) -> AsyncIterator[str]:
    """Serve `app` in this event loop for the duration of the block, and yield its address.

    The address accepts connections when it is yielded. Port 0 selects a free port. Raises OSError if the port is in
    use.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(256)
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=1)
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://{HOST}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
