"""A worker process for the demo, until the command line has its own."""

import asyncio
import importlib
import signal
import sys

from outlast.core.budget import Liveness
from outlast.engine.worker import WorkerProcess
from outlast.runtime.clocks import SystemClock, chance, process_id
from outlast.runtime.open import open_store

LIVE = Liveness(
    heartbeat_window=3_000,
    heartbeat_every=1_000,
    drain_grace=5_000,
    attempt_timeout=2_000,
    start_budget=1_000,
    quiet_margin=1_000,
)


async def serve(url: str, module: str) -> None:
    """Serve until SIGTERM."""
    workflow = importlib.import_module(module).negotiation
    store = await open_store(url)
    worker = WorkerProcess(
        store, [workflow], worker=process_id("w"), clock=SystemClock(), chance=chance, live=LIVE, concurrency=8
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.drain)
    try:
        await worker.run()
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
