"""Listening sockets, and a uvicorn server that leaves signals to the command."""

import socket
from typing import Final

import uvicorn
from typing_extensions import override

from outlast.errors import InvalidInput

UNREAD_MS: Final = 60_000
"""Time after which Linux ends a connection whose peer acknowledges nothing, so that answers are not buffered."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket bound to this address.

    If `shared`, other processes may bind to the same port, and the system distributes connections among them. Raises
    InvalidInput if the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # the protocol is named, because without it asyncio leaves Nagle's algorithm on
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise InvalidInput(
            f"cannot listen on {host}:{port}",
            error.strerror or str(error),
            "stop the process that listens there, or choose another port; 0 chooses a free one",
        ) from None
    made.set_inheritable(True)
    return made


def reserve(host: str, port: int) -> socket.socket:
    """Reserve a free port for processes that share it, without listening. Raises InvalidInput."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise InvalidInput(
            "processes cannot share a port on this system", "it has no SO_REUSEPORT",
            "start `outlast serve --no-worker` several times on different ports, behind a proxy",
        )  # fmt: skip
    with listen(host, port) as free:  # because a shared bind would silently join a port that is in use
        port = free.getsockname()[1]
    return listen(host, port, shared=True)


def url_of(listening: socket.socket) -> str:
    """Return the URL of this socket as seen from this machine."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


class Server(uvicorn.Server):
    """Uvicorn server without signal handlers, because the command drains it together with the worker."""

    @override
    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)
