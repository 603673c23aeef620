"""The worker of a measurement that needs several processes: `python -m bench.serve STORE WORKFLOW [WINDOW EVERY]`."""

import asyncio
import json
import os
import signal
import sys
import threading
import time

from bench import flows
from bench.serving import worker
from bench.usage import resident
from outlast.core.budget import Liveness
from outlast.flow.workflow import workflows_of
from outlast.runtime.open import open_store


def answer_reports() -> None:
    """Each line on standard input asks for one line of JSON: CPU seconds, wall seconds and memory of this process."""
    for _ in sys.stdin:
        report = {"cpu_s": time.process_time(), "wall_s": time.monotonic(), "resident": resident()}
        os.write(1, (json.dumps(report) + "\n").encode())


async def serve(path: str, name: str, live: Liveness | None) -> None:
    """Serve one workflow of bench/flows.py until SIGTERM."""
    store = await open_store(f"sqlite:{path}")
    workflow = next(w for w in workflows_of(flows) if w.name == name)
    serving = worker(store, workflow, live)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.drain)
    task = asyncio.create_task(serving.run())
    await asyncio.sleep(0.1)
    os.write(1, f"serving - {os.getpid()} {time.monotonic_ns()}\n".encode())
    await task
    await store.close()


if __name__ == "__main__":
    times = [int(ms) for ms in sys.argv[3:5]]
    threading.Thread(target=answer_reports, daemon=True).start()
    lives = Liveness(heartbeat_window=times[0], heartbeat_every=times[1]) if times else None
    asyncio.run(serve(sys.argv[1], sys.argv[2], lives))
