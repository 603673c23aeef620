"""Where a process listens, and a server there that leaves signals to the command."""

import socket

import uvicorn

from outlast.errors import InvalidInput


def listen(host: str, port: int) -> socket.socket:
    """The socket to serve on. Raises InvalidInput with a sentence where the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or asyncio leaves Nagle's delay on
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
