"""The receivers of a round: a process that executes, fails and cuts connections by a seed, and records its executions.

    python -m tests.chaos.receivers RECORD SEED LONGEST     prints its address

A call takes up to LONGEST seconds and is executed even if its caller dies. `/repeat/…` and `/slow/…` deduplicate by
key; every other path executes each request. `/slow/…` answers after a POST to `/go`. GET returns the executions.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from outlast.testing.http_receiver import CutConnection, HttpReceiver, HttpRequest, Reply

GO = "/go"
REMEMBER = ("/repeat/", "/slow/")
BUSY, DEAF, MUTE = 0.04, 0.03, 0.04  # 503; cut before execution; execute and cut


class World:
    """The executions by path, and the file that records them."""

    def __init__(self, record: Path, seed: int, longest_s: float) -> None:
        self._dice = random.Random(seed)
        self._longest_s = longest_s
        self._go = asyncio.Event()
        self._file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._did: Counter[str] = Counter()

    async def handle(self, request: HttpRequest) -> Reply | None:
        """Handle one request by its method and path."""
        path = request.path
        if request.method == "GET":
            return Reply(200, path.encode()) if self._did[path] else Reply(404, b"")
        if path == GO:
            self._go.set()
            return Reply(200, b"")
        chance = self._dice.random()
        self._write("asked", request)
        if path.startswith("/slow/"):
            await self._go.wait()
            return self._act(request)
        if chance < BUSY:
            return Reply(503, b"busy", (("Retry-After", "1"),))
        if chance < BUSY + DEAF:
            raise CutConnection
        await asyncio.sleep(self._dice.random() * self._longest_s)
        reply = self._act(request)
        if chance < BUSY + DEAF + MUTE:
            raise CutConnection
        return reply

    def _act(self, request: HttpRequest) -> Reply:
        path = request.path
        if not (self._did[path] and path.startswith(REMEMBER)):
            self._did[path] += 1
            self._write("did", request)
        return Reply(200, path.encode())

    def _write(self, what: str, request: HttpRequest) -> None:
        line = {"what": what, "path": request.path, "key": request.key, "at": time.time_ns() // 1_000_000}
        os.write(self._file, json.dumps(line).encode() + b"\n")


async def main(record: Path, seed: int, longest_s: float) -> None:
    """Serve requests until the process is killed."""
    receiver = HttpReceiver(World(record, seed, longest_s).handle)
    await receiver.open()
    sys.stdout.write(receiver.url + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
