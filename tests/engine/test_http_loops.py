"""One `outlast.http.AsyncClient` in several event loops, as a client at the top of a module has them."""

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from typing_extensions import override

import outlast.http
from outlast import Context, Workflow, activity
from outlast.testing import App


class Keeping(ThreadingHTTPServer):
    """A server that keeps its connections open, and counts them and those that are still open."""

    def __init__(self) -> None:
        self.accepted = 0
        self.open = 0
        self.changed = threading.Condition()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    @override
    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self.changed:
            self.accepted, self.open = self.accepted + 1, self.open + 1
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.changed:
                self.open -= 1
                self.changed.notify_all()

    def is_left(self) -> bool:
        """Wait until no connection is open. False if one is after ten seconds."""
        with self.changed:
            return self.changed.wait_for(lambda: self.open == 0, 10)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Keeping]:
    with Keeping() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def ask(http: httpx2.AsyncClient, server: Keeping, times: int = 1) -> None:
    for _ in range(times):
        assert (await http.get(server.url)).status_code == 200


def test_each_loop_has_connections_that_end_with_it(server: Keeping) -> None:
    http = outlast.http.AsyncClient()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        for loop in range(1, 4):
            asyncio.run(ask(http, server, times=3))
            assert server.is_left(), "the loop that ended has closed its connection"
            assert server.accepted == loop, "in one loop the connection is used again"
        del http
        gc.collect()
    assert not [each for each in warned if "unclosed" in str(each.message)]


def test_a_loop_that_was_closed_without_its_end_leaves_the_client_usable(server: Keeping) -> None:
    http = outlast.http.AsyncClient()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(ask(http, server))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loop.close()
        asyncio.run(ask(http, server, times=2))
        del loop, http
        gc.collect()
    assert server.accepted == 2


def test_two_loops_at_once(server: Keeping) -> None:
    http = outlast.http.AsyncClient()

    async def beside() -> None:
        await ask(http, server)
        await asyncio.to_thread(asyncio.run, ask(http, server, times=2))
        await ask(http, server)

    asyncio.run(beside())
    assert server.accepted == 2
    assert server.is_left()


def test_a_closed_client_has_closed_its_connections(server: Keeping) -> None:
    async def test() -> None:
        async with outlast.http.AsyncClient() as http:
            await asyncio.gather(*(ask(http, server) for _ in range(5)))
        assert await asyncio.to_thread(server.is_left)
        with pytest.raises(RuntimeError, match="closed"):
            await ask(http, server)

    asyncio.run(test())


def test_wrong_parameters_are_named_where_the_client_is_made() -> None:
    with pytest.raises(ValueError, match="proxy"):
        outlast.http.AsyncClient(proxy="gopher://127.0.0.1")


class Seen(BaseModel):
    status: int = 0


def test_a_client_of_a_module_serves_one_app_after_the_other(server: Keeping) -> None:
    """The call of the second app failed with "Event loop is closed", and was uncertain."""
    http = outlast.http.AsyncClient()
    asks = Workflow("asks", state=Seen)

    @activity(key="ask", no_undo="the server keeps nothing")
    async def look() -> int:
        return (await http.get(server.url)).status_code

    @asks.node(start=True)
    async def begin(ctx: Context[Seen]) -> None:
        ctx.state.status = await ctx.do(look.plan())

    for _ in range(2):
        app = App((asks,))
        try:
            run = app.start(asks, {})
            app.clock.skip("1h")
            assert (run.now.shown, run.state.status) == ("COMPLETED", 200), run.now.reason
        finally:
            app.close()
