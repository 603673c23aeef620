"""Where a process listens, and a server there that leaves signals to the command."""

import socket
from typing import Final

import uvicorn

from outlast.errors import InvalidInput

UNREAD_MS: Final = 60_000
"""A connection whose other side takes nothing for so long is ended by the system: what is ready for it is not kept."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """The socket to serve on; `shared`: with other processes, among which the system deals out connections.

    Raises InvalidInput with a sentence where the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or asyncio leaves Nagle's delay on
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
            f"{host}:{port} cannot be listened on",
            error.strerror or str(error),
            "stop what is there, or take another port; 0 is one that is free",
        ) from None
    made.set_inheritable(True)
    return made


def reserve(host: str, port: int) -> socket.socket:
    """A port that is free, kept for processes that share it; nobody is answered here. Raises InvalidInput."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise InvalidInput(
            "processes cannot share a port on this system", "it has no SO_REUSEPORT",
            "start `outlast serve --no-worker` several times at ports of their own, behind a proxy",
        )  # fmt: skip
    with listen(host, port) as free:  # a port that others share would be joined without a word
        port = free.getsockname()[1]
    return listen(host, port, shared=True)


def url_of(listening: socket.socket) -> str:
    """Where the service is reached from this machine."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


class Server(uvicorn.Server):
    """Takes no signal: the command drains it, and the worker beside it."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit`."""
        await self._serve(sockets)
