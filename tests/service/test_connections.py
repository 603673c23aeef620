"""Limits on unauthenticated connections, which leave descriptors for the store, worker and calls (S17)."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from outlast.clocks import SystemClock
from outlast.core.limits import CONNECTIONS_MAX, connections_within
from outlast.errors import Busy
from outlast.runtime.stores import open_store
from outlast.service.connections import STRANGERS_SHARE, Connections
from outlast.service.event_broadcaster import EventBroadcaster
from outlast.service.identity import AuthSettings, authenticator, new_token
from outlast.service.request_limits import Bounds
from tests.service.conftest import PATIENCE_S, Running
from tests.service.test_limits import answer_of, connect
from tests.service.test_serve import banner, eventually

DESCRIPTORS = 256
RUNS = 20
FLOWS = """
import os
from pydantic import BaseModel
from outlast import Context, Workflow, activity
from outlast.http import AsyncClient

class Call(BaseModel):
    order: str
    said: int = 0

flow = Workflow("call", state=Call)

@activity(key="call/{order}", once_per="run", no_undo="it rang")
async def ring(order: str) -> int:
    async with AsyncClient() as client:
        return (await client.post(os.environ["RECEIVER"], json={"order": order})).status_code

@flow.node(start=True)
async def dial(ctx: Context[Call]) -> None:
    ctx.state.said = await ctx.do(ring, ctx.state.order)
"""


class Receiver(BaseHTTPRequestHandler):
    """Takes every order."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Suppress the log of the server."""


@pytest.fixture
def receiver() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE_S)


@contextlib.contextmanager
def strangers(url: str, count: int) -> Iterator[list[socket.socket]]:
    """Open silent connections from different loopback addresses (Linux)."""
    port = int(url.rpartition(":")[2])
    there: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        for number in range(count):
            source = (f"127.0.1.{number % 200 + 1}", 0) if sys.platform == "linux" else None
            one = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=source)
            there.append(stack.enter_context(one))
        yield there


def test_silent_connections_leave_descriptors_for_the_worker_and_its_calls(tmp_path: Path, receiver: str) -> None:
    """Once, silent connections held all 256 descriptors: the worker ended with uncertain effects."""
    (tmp_path / "flows.py").write_text(FLOWS, encoding="utf-8")
    serve = f"ulimit -n {DESCRIPTORS} && exec {sys.executable} -m outlast -o ndjson serve flows.py --port 0"
    process = subprocess.Popen(
        ["sh", "-c", serve], cwd=tmp_path, text=True, env={"RECEIVER": receiver}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        url = banner(process)["url"]
        with strangers(url, 2 * DESCRIPTORS), httpx2.Client(base_url=url, timeout=PATIENCE_S) as client:
            for number in range(RUNS):
                started = client.post("/v1/workflows/call/runs", json={"input": {"order": f"o-{number}"}})
                assert started.status_code == 201, started.text

            def ended() -> Any:
                runs = client.get("/v1/runs?limit=100").json()["runs"]
                return runs if all(run["ended_at"] for run in runs) else None

            runs = eventually(ended)
            assert [run["status"] for run in runs] == ["completed"] * RUNS
            assert client.get("/v1/effects?status=uncertain").json()["effects"] == []
    finally:
        process.kill()
        _, err = process.communicate()
    assert "Too many open files" not in err, err[-2_000:]


def test_descriptors_are_reserved_under_every_limit() -> None:
    assert [connections_within(limit) for limit in (0, 64, 256, 1_024, 4_096)] == [1, 32, 128, 512, 3_584]
    assert connections_within(1 << 30) == CONNECTIONS_MAX


class Wire:
    """Fake transport for `Connections`."""

    def __init__(self) -> None:
        self.ended = False

    def abort(self) -> None:
        self.ended = True


def taken(connections: Connections, address: str) -> Any:
    """Return a registered connection from this address, or None."""
    wire: Any = Wire()
    return wire if connections.enter(wire, address) else None


def test_the_longest_idle_unauthenticated_connection_is_closed_first() -> None:
    connections = Connections(3)
    good, *wires = [taken(connections, f"192.0.2.{number}") for number in range(3)]
    connections.prove(good)
    assert taken(connections, "192.0.2.9") and [each.ended for each in (good, *wires)] == [False, True, False]
    assert taken(connections, "192.0.2.10") and [each.ended for each in (good, *wires)] == [False, True, True]
    assert len(connections) == 3


def test_a_busy_connection_is_never_closed() -> None:
    connections = Connections(2)
    wires = [taken(connections, f"192.0.2.{number}") for number in range(2)]
    for each in wires:
        connections.begin(each)
    assert taken(connections, "192.0.2.9") is None and not any(each.ended for each in wires)
    connections.rest(wires[1])
    assert taken(connections, "192.0.2.9") and wires[1].ended


def test_an_address_has_a_share_until_a_credential_arrives() -> None:
    connections = Connections(10 * STRANGERS_SHARE)
    first, *more = [taken(connections, "192.0.2.1") for _ in range(10)]
    assert taken(connections, "192.0.2.1") and first.ended and not any(each.ended for each in more)
    assert taken(connections, "198.51.100.1") and not any(each.ended for each in more)
    for each in more:
        connections.prove(each)
    assert taken(connections, "192.0.2.1") and not any(each.ended for each in more)
    for each in list(connections._open):
        connections.leave(each)
    assert not (connections._open or connections._waiting or connections._strangers), "nothing is kept of them"


def listed(there: socket.socket, ask: bytes) -> bool:
    """Return True if the list of runs was answered completely over this connection."""
    there.sendall(ask)
    got = b""
    while not got.endswith(b"}") and (more := there.recv(65536)):
        got += more
    return got.startswith(b"HTTP/1.1 200 ") and got.endswith(b"}") and b'"runs":[]' in got


def test_an_authenticated_connection_stays_while_others_come_and_go(folder_url: str) -> None:
    token, line = new_token("ops", tenant="acme", roles=["operator"], person=False)
    who = authenticator(AuthSettings(tokens=SecretStr(line)), SystemClock())
    with Running(folder_url, authenticator=who, worker=False) as service:
        service.state.connections.most = 8
        with connect(service) as good:
            ask = f"GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            assert listed(good, ask)
            with strangers(service.url, 30) as there:
                assert there[0].recv(1) == b"", "the one that waited longest made room"
                assert listed(good, ask)
                assert len(service.state.connections) <= 8


def test_a_refused_connection_gets_a_retry_time(folder_url: str) -> None:
    slow = b"POST /v1/workflows/refund/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" \
           b"Content-Length: 9\r\n\r\n{"  # fmt: skip
    with Running(folder_url, bounds=Bounds(body_s=PATIENCE_S), worker=False) as service:
        service.state.connections.most = 1
        with connect(service) as one:
            one.sendall(slow)
            eventually(lambda: not service.state.connections._waiting and len(service.state.connections))
            with connect(service) as more:
                answer = answer_of(more)
            assert answer.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in answer


def test_streams_leave_capacity_for_other_tenants_callers_and_addresses(folder_url: str) -> None:
    """Once, one tenant held all streams, and the first stream of another was refused."""

    async def story() -> None:
        store = await open_store(folder_url)
        live = EventBroadcaster(store, most=60)

        async def held(tenant: str, caller: str, address: str) -> int:
            count = 0
            with contextlib.suppress(Busy):
                while True:
                    await live.listen(tenant, "some", caller, address)
                    count += 1
            return count

        assert await held("acme", "ana", "192.0.2.1") == 20, "a caller: as many as half of those that stay free"
        assert await held("acme", "ben", "192.0.2.1") == 10, "an address, and a tenant: as many as stay free"
        assert await held("acme", "cia", "198.51.100.1") == 0
        assert await held("globex", "ana", "192.0.2.1") == 0, "the address has its share"
        assert await held("globex", "ana", "198.51.100.1") == 10
        with pytest.raises(Busy) as caught:
            await live.listen("globex", "some", "ana", "198.51.100.1")
        assert caught.value.retry_after_s > 0 and "caller" in caught.value.why
        for listener in [each for here in list(live._listeners.values()) for each in here]:
            live.leave(listener)
        assert len(live) == 0 and not live._shares, "nothing is kept of them"
        await store.close()

    asyncio.run(story())


def test_a_stream_is_counted_for_its_caller_and_address(folder_url: str) -> None:
    with Running(folder_url) as service:
        run = service.start("wish", text="?")
        with service.client.stream("GET", f"/v1/runs/{run}/events", headers={"Accept": "text/event-stream"}):
            held = dict(service.state.broadcaster._shares)
        assert held == {("tenant", "default"): 1, ("address", "127.0.0.1"): 1, ("caller", "default local:ana"): 1}
        assert json.loads(service.get("/healthz").text)["status"] == "ok"
