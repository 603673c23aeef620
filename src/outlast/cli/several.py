"""`outlast serve --processes N`: what begins the others, and what each of them does besides serving."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from outlast.cli.settings import Settings, env_of, words_of
from outlast.errors import InvalidInput
from outlast.runtime.open import MEMORY


def several_of(
    settings: Settings, host: str, port: int, count: int, words: Sequence[str], parts: Sequence[Any]
) -> tuple[str, Any]:
    """The URL that they share, and the watch over them, a `ProcessGroup` of these parts. Raises InvalidInput."""
    from outlast.service.identity import shared_file
    from outlast.service.multiprocess import ProcessGroup
    from outlast.service.sockets import reserve, url_of

    if settings.store == MEMORY:
        raise InvalidInput("memory is no store for several processes", "each would have its own", "--store sqlite:…")
    reserved, shared = reserve(host, port), shared_file()
    command = [
        sys.executable, "-m", "outlast", *words_of(settings), "serve", *words, "--host", host,
        "--port", str(reserved.getsockname()[1]), "--no-worker", "--no-dispatcher",
        "--one-of-several", str(shared),
    ]  # fmt: skip
    return url_of(reserved), ProcessGroup(reserved, command, env_of(settings), count, parts, shared)


def tell_ready() -> None:
    """One of several answers."""
    click.echo("ready")


async def until_left(stop: Callable[[], None]) -> None:
    """Have `stop` called once the process that began this one has let go of it, or has died."""

    class Held(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            stop()

    await asyncio.get_running_loop().connect_read_pipe(Held, sys.stdin)
