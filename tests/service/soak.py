"""Memory of a worker and a service over hours: `python -m tests.service.soak [SECONDS [RUNS_PER_SECOND]]`.

Prints one line per half minute, then the slope of the last half: the first minutes fill caches.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from bench.figures import slope
from tests.service.test_serve import banner

EVERY_S = 30
FLOWS = "tests.service.test_leaks:counted"
PORT = "7468"
Sample = tuple[float, int, int]


@contextmanager
def process(store: str, *words: str) -> Iterator[int]:
    """Run a command of Outlast during the block; yield its process id."""
    env = {**os.environ, "OUTLAST_STORE": store, "PYTHONUNBUFFERED": "1"}
    begun = subprocess.Popen(
        [sys.executable, "-m", "outlast", "-o", "ndjson", *words], env=env, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        banner(begun)
        yield begun.pid
    finally:
        begun.terminate()
        begun.communicate()


def resident_kb(pid: int) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0])


async def soak(worker: int, service: int, seconds: float, rate: float) -> list[Sample]:
    """Start runs at this rate, and record the memory of both processes."""
    found: list[Sample] = []
    clock = asyncio.get_running_loop().time
    began = clock()
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", timeout=60) as http:
        for number in range(int(seconds * rate) + 1):
            await asyncio.sleep(began + number / rate - clock())
            if clock() - began >= len(found) * EVERY_S:
                found.append((clock() - began, resident_kb(worker), resident_kb(service)))
                at, of_worker, of_service = found[-1]
                sys.stdout.write(f"{at:6.0f} s  {number:6} runs  worker {of_worker} KB  service {of_service} KB\n")
            answer = await http.post("/v1/workflows/counted/runs", json={"input": {"number": number}})
            answer.raise_for_status()
    return found


def main(seconds: float = 10_800, rate: float = 6) -> None:
    """Run the soak test and print the slopes."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:{folder}/outlast.db"
        serve = process(store, "serve", FLOWS, "--port", PORT, "--no-worker", "--no-dispatcher")
        with serve as service, process(store, "worker", FLOWS) as worker:
            found = asyncio.run(soak(worker, service, seconds, rate))
    half = found[len(found) // 2 :]
    of_worker, of_service = slope([(at, kb) for at, kb, _ in half]), slope([(at, kb) for at, _, kb in half])
    sys.stdout.write(f"last half: worker {of_worker:+.0f} KB/h, service {of_service:+.0f} KB/h\n")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
