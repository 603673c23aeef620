"""The world of a round: a process that acts, fails and hangs up by a seed, and writes down what it did first.

    python -m tests.chaos.world RECORD SEED LONGEST     prints its address

A call takes up to LONGEST seconds, and is carried out though its caller dies. `/repeat/…` and `/slow/…` remember keys
and act once for each; every other place acts each time it is asked. `/slow/…` answers once somebody has posted to
`/go`. GET says what was done.
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
BUSY, DEAF, MUTE = 0.04, 0.03, 0.04  # says 503; hangs up before it acts; acts and hangs up


class World:
    """What was done, by path, and the file that says so."""

    def __init__(self, record: Path, seed: int, longest_s: float) -> None:
        self._dice = random.Random(seed)
        self._longest_s = longest_s
        self._go = asyncio.Event()
        self._file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._did: Counter[str] = Counter()

    async def handle(self, request: HttpRequest) -> Reply | None:
        """One request."""
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
    """Serve until killed."""
    receiver = HttpReceiver(World(record, seed, longest_s).handle)
    await receiver.open()
    sys.stdout.write(receiver.url + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
