"""Engines that may schedule the same workflows: what each needs beside the store, and how callers reach it.

Every engine is driven through `ExecutionRuntime` and answered through the store, so a test names an engine and nothing
else of it.
"""

import importlib
from typing import Any, Final

from typing_extensions import override

from outlast.runtime.client import Client
from outlast.runtime.execution_runtime import ClientRuntime, ExecutionRuntime

NAMES: Final = ("own", "temporal", "langgraph")


class Engine:
    """Our own engine: workers that poll the store."""

    name = "own"
    options: tuple[str, ...] = ()
    """Options of `outlast worker`."""
    claims_each_node = False
    """True if a run is claimed again for each node: then policy is asked with the occasion `resume`."""

    def __init__(self) -> None:
        self.env: dict[str, str] = {}
        """Environment of the workers."""

    def start(self) -> None:
        """Start the server that the engine needs beside workers."""

    async def open(self) -> None:
        """Wait until the server answers, and connect callers of this event loop."""

    def runtime(self, client: Client) -> ExecutionRuntime:
        """Return the interface for callers over a client of the store."""
        return ClientRuntime(client)

    def stop(self) -> None:
        """Stop the server."""


class Temporal(Engine):
    """A Temporal server on the loopback address, and workers that execute slices for it."""

    name = "temporal"
    options = ("--runtime", "temporal")

    @override
    def start(self) -> None:
        self._server: Any = importlib.import_module("tests.temporal.server").TemporalServer()
        self.env = dict(self._server.environment)

    @override
    async def open(self) -> None:
        self._client = await self._server.client()

    @override
    def runtime(self, client: Client) -> ExecutionRuntime:
        found: ExecutionRuntime = importlib.import_module("outlast.temporal").TemporalRuntime(client, self._client)
        return found

    @override
    def stop(self) -> None:
        self._server.close()


class LangGraph(Engine):
    """Workers that execute runs as threads of LangGraph. Callers name the scheduler at the start."""

    name = "langgraph"
    options = ("--runtime", "langgraph")
    claims_each_node = True

    @override
    def runtime(self, client: Client) -> ExecutionRuntime:
        client.scheduler = "langgraph"
        return ClientRuntime(client)


_ENGINES: Final[dict[str, type[Engine]]] = {each.name: each for each in (Engine, Temporal, LangGraph)}
assert tuple(_ENGINES) == NAMES


def engine(name: str) -> Engine:
    """Return an engine that is not open."""
    return _ENGINES[name]()


def missing(name: str) -> str:
    """Return why an engine cannot run here; '' if it can."""
    if name == "own":
        return ""
    try:
        importlib.import_module(f"outlast.{name}")
        if name == "temporal":
            server = importlib.import_module("tests.temporal.server")
            return "" if server.PROGRAM.exists() else str(server.MISSING)
    except ImportError as error:
        return f"{name}: {error}"
    return ""
