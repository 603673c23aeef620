"""The example's market and an inbox over HTTP, in a thread of the parent, so that they survive every process.

A scenario that continues in another folder reopens the market on that folder's record, which has every execution.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.negotiation.inbox import Posted, inbox_app
from examples.negotiation.loopback import serve
from examples.negotiation.market.app import market_app
from examples.negotiation.market.behaviour import Scenario

App = Callable[..., Awaitable[None]]
WAIT_S = 20


class MarketServer:
    """One market at a time, at a fixed address."""

    def __init__(self, scenario: Scenario) -> None:
        self.url = ""
        self.folder = Path()
        self._scenario = scenario
        self._market: App | None = None
        self._inbox = inbox_app(self._keep)
        self._closing: asyncio.Event | None = None
        self._closed: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="market", daemon=True)

    def enter(self, folder: Path) -> None:
        """Open the market on the record in this folder, and close the previous one."""
        asyncio.run_coroutine_threadsafe(self._enter(folder), self._loop).result(WAIT_S)

    async def _enter(self, folder: Path) -> None:
        await self._leave()
        self.folder = folder
        self._market = market_app(self._scenario, folder / "market.jsonl")
        self._closing, opened = asyncio.Event(), asyncio.Event()
        self._closed = asyncio.create_task(_lifespan(self._market, opened, self._closing))
        await opened.wait()

    async def _leave(self) -> None:
        if self._closing is not None and self._closed is not None:
            self._closing.set()
            await self._closed

    async def _keep(self, run: str, name: str, payload: dict[str, Any], signal_id: str) -> Posted:
        """Write bids beside the record. The scenario sends them to the run."""
        line = json.dumps([name, payload, signal_id]) + "\n"
        with (self.folder / "bids.jsonl").open("a", encoding="utf-8") as bids:
            bids.write(line)
        return "accepted"

    async def _app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _no_lifespan(receive, send)
            return
        app = self._inbox if scope["path"].startswith("/runs/") else self._market
        assert app is not None
        await app(scope, receive, send)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async def app(
            scope: dict[str, Any], receive: Any, send: Any
        ) -> None:  # a function, by which uvicorn recognises ASGI 3
            await self._app(scope, receive, send)

        async with serve(app) as self.url:
            self._ready.set()
            await self._stop.wait()
            await self._leave()

    def open(self) -> None:
        self._thread.start()
        assert self._ready.wait(WAIT_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@contextmanager
def market_server(scenario: Scenario) -> Iterator[MarketServer]:
    """Run a market server for this block."""
    one = MarketServer(scenario)
    one.open()
    try:
        yield one
    finally:
        one.close()


async def _lifespan(app: App, opened: asyncio.Event, closing: asyncio.Event) -> None:
    """Run an app's lifespan by the messages of the protocol."""
    begun = False

    async def receive() -> dict[str, str]:
        nonlocal begun
        if not begun:
            begun = True
            return {"type": "lifespan.startup"}
        await closing.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: dict[str, str]) -> None:
        assert not message["type"].endswith(".failed"), message
        if message["type"] == "lifespan.startup.complete":
            opened.set()

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)


async def _no_lifespan(receive: Any, send: Any) -> None:
    for what in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{what}.complete"})
