"""One DynamoDB emulator per test process, from the wheel `roto-aws`, or a real endpoint from the environment."""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session

from outlast.store.dynamodb.connection import Connection, DynamoAddress

GIVEN = "OUTLAST_TEST_DYNAMODB"
"""A real endpoint to use instead, for example https://dynamodb.eu-central-1.amazonaws.com."""
REGION = os.environ.get("AWS_REGION", "us-east-1")
TABLES = ("checkpoints", "idempotency", "recovery-locks", "runs")
START_S = 30.0
PROGRAM = Path(sys.executable).parent / "roto-server"
MISSING = "the DynamoDB emulator of scripts/servers.txt is not installed, and OUTLAST_TEST_DYNAMODB is not set"


class Server:
    """An emulator on a free port. A durable one keeps its data in a folder and syncs each commit."""

    def __init__(self, inside: str | None = None, *, durable: bool = False) -> None:
        """Start it. A durable one creates its data in a folder `inside`, by default the machine's temporary folder."""
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-dynamodb-", dir=inside))
        self.port = _free_port()
        self._data = ["--durable", "--data-dir", str(self.folder / "data")] if durable else ["--ephemeral"]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def endpoint(self) -> str:
        """The address for a client."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it listens."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "--host", "127.0.0.1", "--port", str(self.port), *self._data], stdout=log, stderr=log
            )
        until = time.monotonic() + START_S
        while True:
            with suppress(OSError), closing(socket.create_connection(("127.0.0.1", self.port))):
                return
            assert self._process.poll() is None and time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
            threading.Event().wait(0.01)

    def kill(self) -> None:
        """Kill the server at once, as `kill -9` does."""
        self.stop(signal.SIGKILL)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to the server and wait until it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(START_S)

    def close(self) -> None:
        """Stop the server and delete its data."""
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_port() -> int:
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@cache
def endpoint() -> str:
    """Return the endpoint of the tests: the given one, or the emulator, which ends with this process."""
    if given := os.environ.get(GIVEN):
        return given
    return emulator()


@cache
def emulator() -> str:
    """Return the address of this process's emulator, also if a real endpoint is given."""
    if not PROGRAM.exists():
        pytest.skip(MISSING)
    credentials()
    server, pid = Server(), os.getpid()
    atexit.register(lambda: server.close() if os.getpid() == pid else None)  # not at the end of a forked child
    return server.endpoint


def credentials() -> None:
    """Set credentials that an emulator accepts, here and in child processes. A real endpoint needs real ones."""
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "nobody")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "nothing")
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"


def url(env: str, at: str = "") -> str:
    """Return the URL of a store on the session's server, or at another endpoint, such as a proxy."""
    return f"dynamodb://{REGION}/{env}?endpoint={at or endpoint()}"


@cache
def _session() -> AioSession:
    return get_session()  # kept, because it reads the description of the service once


def client(at: str = "") -> AbstractAsyncContextManager[Any]:
    """Open a raw client, which never tries again by itself."""
    config = AioConfig(retries={"total_max_attempts": 1}, parameter_validation=False, max_pool_connections=64)
    context: AbstractAsyncContextManager[Any] = _session().create_client(
        "dynamodb", region_name=REGION, endpoint_url=at or endpoint(), config=config
    )
    return context


async def discard(env: str) -> None:
    """Delete the tables of an environment that is no longer needed. Those of an emulator end with it."""
    if GIVEN in os.environ:
        await drop(env)


async def drop(env: str) -> None:
    """Delete the tables of an environment."""
    async with client() as dynamodb:
        for table in TABLES:
            with suppress(dynamodb.exceptions.ResourceNotFoundException):
                await dynamodb.delete_table(TableName=f"{env}-{table}")


@asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Connection]:
    """Open the connection of a store."""
    connection = Connection(DynamoAddress.parse(url), **options)
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()
