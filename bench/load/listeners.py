"""The process of the listeners: `python -m bench.load.listeners CONFIG`.

CONFIG is JSON: url, token, runs (a list of lists: each listener's runs in turn; an empty list listens to all runs). It
prints `ready` when every stream is open. Each line on standard input gets one line of JSON. `check FILE` (the last
event of each run) waits until every listener has all events, and reports missing events and delays. `reset` forgets
the delays.
"""

import asyncio
import json
import re
import resource
import sys
import time
from array import array
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.figures import Figures

FRAME = re.compile(rb'id: ([^\n]+)\nevent: [^\n]+\ndata: .*?"subject":"([^"]+)","time":"([^"]+)".*?"sequence":"(\d+)"')
LATE_MAX = 120_000
PATIENCE_S = 90.0
LOOK_S = 0.5


class Delays:
    """A histogram of event delays in ms."""

    def __init__(self) -> None:
        self._counts = array("L", bytes(8 * (LATE_MAX + 1)))
        self.count = 0

    def note(self, ms: int) -> None:
        """Add one delay to the histogram."""
        self._counts[min(max(ms, 0), LATE_MAX)] += 1
        self.count += 1

    def at(self, share: float) -> float:
        """Return how many events were not later than this."""
        left = share * self.count
        for ms, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                return float(ms)
        return 0.0

    def figures(self, name: str) -> Figures:
        """Return the figures in ms."""
        return {f"{name}_p50_ms": self.at(0.5), f"{name}_p99_ms": self.at(0.99), f"{name}_max_ms": self.at(1.0)}


_seconds: dict[bytes, int] = {}


def _ms(text: bytes) -> int:
    """Parse the time of an event into ms since 1970."""
    second = _seconds.get(text[:19])
    if second is None:
        second = _seconds[text[:19]] = int(datetime.fromisoformat(text[:19].decode() + "+00:00").timestamp()) * 1_000
    return second + int(text[20:23])


class Listener(asyncio.Protocol):
    """One stream after the other, and the events received of each run in order and once."""

    def __init__(self, house: "House", runs: list[str]) -> None:
        self._house = house
        self._runs = runs
        self._at = 0
        self._transport: asyncio.Transport | None = None
        self._raw = bytearray()
        self._text = bytearray()
        self._head = False
        self.all = not runs
        self.heard: dict[str, int] = {}
        self.wrong: list[str] = []
        self.opened = asyncio.get_running_loop().create_future()
        self.frames = 0

    @property
    def run(self) -> str:
        """The run it listens to; '' = all."""
        return self._runs[self._at] if not self.all else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request of the stream."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._head = transport, False
        self._raw.clear()
        self._text.clear()
        path = f"/v1/runs/{self.run}/events" if self.run else "/v1/events"
        head = f"GET {path} HTTP/1.1\r\nHost: {self._house.host}\r\nAccept: text/event-stream\r\n"
        transport.write(f"{head}Authorization: Bearer {self._house.token}\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Parse the frames of the chunks."""
        self._raw += data
        if not self._head:
            head, sep, rest = bytes(self._raw).partition(b"\r\n\r\n")
            if not sep:
                return
            if b" 200 " not in head[:20]:
                self._fail(f"answered {head[:60]!r}")
                return
            self._head, self._raw = True, bytearray(rest)
            if not self.opened.done():
                self.opened.set_result(None)
        self._chunks()

    def _chunks(self) -> None:
        over = False
        while not over and (at := self._raw.find(b"\r\n")) >= 0:
            size = int(self._raw[:at], 16)
            if len(self._raw) < at + 2 + size + 2:
                break
            self._text += self._raw[at + 2 : at + 2 + size]
            del self._raw[: at + 2 + size + 2]
            over = size == 0
        end = self._text.rfind(b"\n\n")
        if end >= 0:
            self._frames(bytes(self._text[: end + 2]))
            del self._text[: end + 2]
        if over and self._transport is not None:  # continue with the next run, as when a run's stream ends
            self._transport.close()

    def _frames(self, text: bytes) -> None:
        now = time.time_ns() // 1_000_000
        delays = self._house.delays_all if self.all else self._house.delays_run
        for frame in text.split(b"\n\n"):
            if not frame.startswith(b"id: "):
                if frame.startswith(b"event: gap"):
                    self.wrong.append("gap")
                continue
            match = FRAME.match(frame)
            assert match, frame[:200]
            run, seq = match[2].decode(), int(match[4])
            before = self.heard.get(run)
            if before is None and not self.all:
                before = 0  # because a run's stream starts with its history
            if before is not None and seq != before + 1:
                self.wrong.append(f"{run}: {seq} after {before}, {'all runs' if self.all else 'its own stream'}")
            self.heard[run] = seq
            self.frames += 1
            at = _ms(match[3])
            if at > self._house.since:  # earlier events are not new
                delays.note(now - at)

    def connection_lost(self, _error: Exception | None) -> None:
        """Continue with the next run."""
        if self._house.closing:
            return
        if self.all:
            self._fail("the stream of all runs has ended")
        elif self._at + 1 < len(self._runs):
            self._at += 1
            self._house.connect(self)
        else:
            self._at += 1

    def _fail(self, why: str) -> None:
        self.wrong.append(why)
        if not self.opened.done():
            self.opened.set_exception(RuntimeError(why))

    def close(self) -> None:
        """Disconnect without notice, as a browser does."""
        if self._transport is not None:
            self._transport.abort()

    def missed(self, last: dict[str, int], first: dict[str, int]) -> int:
        """Return events not received: of its runs so far, or of all runs since it connected."""
        return sum(last[run] - seq for run, seq in self.behind(last, first).items())

    def behind(self, last: dict[str, int], first: dict[str, int]) -> dict[str, int]:
        """Return runs with missing events, and the last event received of each."""
        runs = last if self.all else self._runs[: self._at + 1]
        heard = {run: self.heard.get(run, first[run] if self.all else 0) for run in runs}
        return {run: seq for run, seq in heard.items() if seq < last[run]}


class House:
    """All listeners of this process."""

    def __init__(self, config: dict[str, Any]) -> None:
        parts = urlsplit(config["url"])
        self.host, self.token = parts.netloc, config["token"]
        self._where = (parts.hostname, parts.port)
        self.closing = False
        self.since = config["since"]
        self.delays_run, self.delays_all = Delays(), Delays()
        self._tasks: set[asyncio.Task[None]] = set()
        self.listeners = [Listener(self, runs) for runs in config["runs"]]

    def connect(self, listener: Listener) -> None:
        """Open the listener's next stream."""
        task = asyncio.get_running_loop().create_task(self._connect(listener))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, listener: Listener) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: listener, *self._where)
        except OSError as error:
            listener.wrong.append(str(error))

    async def begin(self) -> None:
        """Open the streams of all listeners."""
        for at in range(0, len(self.listeners), 50):
            some = self.listeners[at : at + 50]
            for listener in some:
                self.connect(listener)
            await asyncio.gather(*(listener.opened for listener in some))

    def reset(self) -> Figures:
        """Measure delays from now on."""
        found = self._delays()
        self.delays_run, self.delays_all = Delays(), Delays()
        return found

    def _delays(self) -> Figures:
        return {**self.delays_run.figures("sse_run"), **self.delays_all.figures("sse_all")}

    async def check(self, path: str) -> dict[str, Any]:
        """Wait until every listener has all events. Returns missing events and errors."""
        told = json.loads(Path(path).read_text())  # noqa: ASYNC240 - the loop has no other work
        last, first = told["last"], told["first"]
        end = time.monotonic() + PATIENCE_S
        while missed := sum(each.missed(last, first) for each in self.listeners):
            if time.monotonic() > end:
                break
            await asyncio.sleep(LOOK_S)
        wrong = [text for each in self.listeners for text in each.wrong]
        for each in self.listeners if missed else ():
            kind = "all runs" if each.all else "its own stream"
            wrong += [f"{run}: {seq} of {last[run]}, {kind}" for run, seq in each.behind(last, first).items()]
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            **self._delays(),
            "sse_missed": missed,
            "sse_wrong": len([text for each in self.listeners for text in each.wrong]),
            "sse_events": sum(each.frames for each in self.listeners),
            "wrong": wrong[:5],
            "cpu_s": used.ru_utime + used.ru_stime,
        }

    def close(self) -> None:
        """Disconnect all listeners at once."""
        self.closing = True
        for listener in self.listeners:
            listener.close()


async def main(config: dict[str, Any]) -> None:
    """Listen until standard input ends."""
    house = House(config)
    await house.begin()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while words := (await loop.run_in_executor(None, sys.stdin.readline)).split():
        if words[0] == "check":
            print(json.dumps(await house.check(words[1])), flush=True)
        elif words[0] == "reset":
            print(json.dumps(house.reset()), flush=True)
    house.close()
    await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
