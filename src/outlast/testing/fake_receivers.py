"""A hostile receivers for tests: real HTTP receivers on the loopback address that act, forget, fail, and write it all down.

It lives outside the processes under test (in a thread of the test's own), so it outlives every one of their deaths.
"""

import asyncio
import atexit
import hashlib
import json
import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from outlast.errors import InvalidInput
from outlast.runtime.clocks import SystemClock
from outlast.testing.crash_points import RUN_ID, TENANT, CrashPoint
from outlast.testing.http_receiver import CutConnection, HttpReceiver, HttpRequest, Reply
from outlast.testing.record import Record, RecordEntry


@dataclass(frozen=True)
class Behaviour:
    """One way to take a request. Made by the functions below."""

    name: str
    acts: bool = True
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    ending: Literal["answer", "silence", "reset", "garbage"] = "answer"
    after_s: float = 0.0
    padding: int = 0  # bytes added to the answer


ok = Behaviour("ok")
"""Acts, and answers."""


def status(code: int, *, acts: bool = False, retry_after: timedelta | None = None) -> Behaviour:
    """Answers this status; `acts`: and has acted nevertheless."""
    headers = (("Retry-After", str(int(retry_after.total_seconds()))),) if retry_after is not None else ()
    return Behaviour(f"status({code})", acts, code, headers)


def times_out(*, acts: bool = True) -> Behaviour:
    """Acts, then says nothing until the caller goes away: the caller's own timeout ends it."""
    return Behaviour("times_out", acts, ending="silence")


def resets(*, acts: bool = True) -> Behaviour:
    """Acts, then cuts the connection."""
    return Behaviour("resets", acts, ending="reset")


def slow(seconds: float) -> Behaviour:
    """Acts, and answers after so many real seconds."""
    return Behaviour(f"slow({seconds})", after_s=seconds)


def too_many(retry_after: timedelta = timedelta(seconds=1)) -> Behaviour:
    """429 with Retry-After; nothing happened."""
    return status(429, retry_after=retry_after)


def huge(megabytes: int = 50) -> Behaviour:
    """Acts, and answers far more than anybody wants."""
    return Behaviour(f"huge({megabytes})", padding=megabytes * 1_000_000)


def garbage() -> Behaviour:
    """Acts, and answers 200 with bytes that are no JSON."""
    return Behaviour("garbage", ending="garbage")


WAIT_S: Final = 20
JUDGED: Final = (
    "OUTLAST_RECEIVERS_VARIABLE"  # in the environment of a process under test: the variable of its receivers
)
Duplicates = Literal["answer", "act", "conflict"]
CLOCK: Final = SystemClock()


@dataclass(frozen=True)
class Route:
    """What the receiver at a path is like."""

    path: str = ""
    script: tuple[Behaviour, ...] = ()
    key: str = ""
    duplicates: Duplicates = "answer"
    remembers: timedelta | None = None
    askable: bool = True
    reply: Callable[[HttpRequest], Any] | None = None
    asked: Callable[[HttpRequest, Sequence[Any]], Any] | None = None


class FakeReceivers:
    """Receivers at `url`. Use it as `with FakeReceivers() as bank:`, or give it to `every_crash`.

    A module that makes its client when it is imported needs the address by then: call `start()` before the import.

    Without a word about them, receivers act, answer `{"id": …}`, dedupe by `Idempotency-Key` for ever, and can be
    asked: GET with that key as header, as `?key=` or as the last part of the path answers what was answered, or 404.
    `env` names the environment variable that tells the code under test where the receivers is.
    """

    def __init__(self, *, env: str = "OUTLAST_RECEIVERS") -> None:
        self.env: Final = env
        self.record = Record(Path(os.devnull))
        self._routes: list[Route] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receiver: HttpReceiver | None = None
        self._before: str | None = None
        self._kept = False  # it was started, and listens until the process ends
        self._thread: threading.Thread | None = None
        self._born = threading.Event()
        self._pid = 0
        self._cell: CrashPoint | None = None
        self._watching = False
        self._seen: list[CrashPoint] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._killed_at: tuple[str, str, int] | None = None
        self._recalling = False
        self._clock: Callable[[], int] = CLOCK.wall

    # --- what its receivers are like ------------------------------------------------------------
    def route(
        self,
        path: str,
        *script: Behaviour,
        key: str = "",
        duplicates: Duplicates = "answer",
        remembers: timedelta | None = None,
        askable: bool = True,
        reply: Callable[[HttpRequest], Any] | None = None,
        asked: Callable[[HttpRequest, Sequence[Any]], Any] | None = None,
    ) -> "FakeReceivers":
        """The receiver at paths that begin so. The n-th attempt under one key is taken as the n-th of `script` says,
        later ones are answered. `key`: only for activity keys that end so.

        `duplicates`: a key that was acted upon comes again: answer as before, act once more, or 409. `remembers`:
        how long keys are known (default: for ever). `askable=False`: GET answers 405. `reply` makes the answer.
        `asked` answers a GET from the request and all answers given at this path (None: 404), for a receiver that is
        asked by an id of its own.
        """
        self._routes.insert(0, Route(path, script, key, duplicates, remembers, askable, reply, asked))
        return self

    def _route(self, path: str, key: str) -> Route:
        fitting = [r for r in self._routes if path.startswith(r.path) and key.endswith(r.key)]
        return max(fitting, key=lambda r: (len(r.path), len(r.key)), default=Route())

    # --- its life -------------------------------------------------------------------------------
    @property
    def url(self) -> str:
        """Its address: also in the processes under test. Raises InvalidInput where it does not run."""
        here = self._receiver.url if self._receiver is not None else os.environ.get(self.env, "")
        if not here:
            raise InvalidInput(
                "this receivers does not run",
                f"{self.env} is not set",
                f'with FakeReceivers() as receivers: …, or FakeReceivers(env="{self.env}").start() before a module makes its client',
            )
        return here

    def __enter__(self) -> Self:
        return self if self._kept else self._open()

    def _open(self) -> Self:
        handle, path = tempfile.mkstemp(prefix="outlast-receivers-")
        os.close(handle)
        self.listen(Path(path))
        self._before = os.environ.get(self.env)
        os.environ[self.env] = self.url
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._kept:
            self._end()

    def _end(self) -> None:
        if self._before is None:
            os.environ.pop(self.env, None)
        else:
            os.environ[self.env] = self._before
        self.stop()
        self.record.path.unlink(missing_ok=True)

    def start(self) -> Self:
        """Listen until this process ends, with the address in the environment from now on.

        In a process that `every_crash` made, the variable holds the address of the receivers that judges it already.
        """
        if os.environ.get(JUDGED) != self.env and not self._kept:
            self._open()
            self._kept = True
            atexit.register(self._end)
        return self

    def listen(self, record: Path) -> None:
        """Listen, on this record."""
        assert self._thread is None, "a receivers listens once"
        self.record = Record(record)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="outlast-receivers", daemon=True)
        self._thread.start()
        receiver = HttpReceiver(self._handle)
        self._do(receiver.open())
        self._receiver = receiver

    def stop(self) -> None:
        """Stop listening. What it recorded stays readable."""
        assert self._loop is not None and self._thread is not None and self._receiver is not None
        self._do(self._receiver.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
        self._thread = self._receiver = self._loop = None

    def told(self) -> dict[str, str]:
        """Return the environment of a process that it judges, from the first import on."""
        return {self.env: self.url, JUDGED: self.env}

    def twin(self) -> "FakeReceivers":
        """Another receivers of the same kind, with a record of its own."""
        other = FakeReceivers(env=self.env)
        other._routes = list(self._routes)
        return other

    def enter(self, record: Path) -> None:
        """Go on from another record, once all is quiet."""
        assert self._receiver is not None
        self._do(self._receiver.quiet())
        self.record = Record(record)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    # --- what it saw ------------------------------------------------------------------------------
    def executed(self, key: str = "", *, route: str = "") -> int:
        """How often it acted: under this key (an activity's, or a whole Idempotency-Key), at this path."""
        return self.record.executed(key, route=route)

    def attempts(self, key: str = "", *, route: str = "") -> int:
        """How many requests to act arrived."""
        return len(self.record.of("attempt", key, route))

    @property
    def entries(self) -> list[RecordEntry]:
        """Every line of its record."""
        return list(self.record.entries)

    def assert_effects_once(self) -> None:
        """Raises AssertionError with a sentence for each thing that was done more than once."""
        self.record.assert_effects_once()

    # --- watching a life (see story.Watch) ------------------------------------------------------------
    def begin(self, cell: CrashPoint | None, at: int) -> None:
        """See Watch."""
        self._cell, self._seen, self._killed_at, self._watching = cell, [], None, True
        self._counts.clear()
        self._born.clear()
        offset = at - CLOCK.wall()
        self._clock = lambda: CLOCK.wall() + offset

    def born(self, pid: int) -> None:
        """See Watch."""
        self._pid = pid
        self._born.set()

    def end(self) -> tuple[list[CrashPoint], tuple[str, str, int] | None]:
        """See Watch. Returns once all that the process sent has come to its end."""
        assert self._receiver is not None
        self._do(self._receiver.quiet())
        self._watching = False
        return self._seen, self._killed_at

    def recall(self, on: bool) -> None:
        """While on, it answers what it answered before, and does nothing."""
        self._recalling = on

    def _reached(self, point: str, label: str) -> None:
        if not self._watching:
            return
        self._counts[point, label] += 1
        cell = CrashPoint(point, label, self._counts[point, label])
        self._seen.append(cell)
        if self._cell is None or cell.where != self._cell.where:
            return
        if not self._born.wait(WAIT_S):
            raise AssertionError("nobody told whose request this is")
        os.kill(self._pid, signal.SIGKILL)
        self._killed_at = cell.where
        raise CutConnection

    # --- taking a request -----------------------------------------------------------------------------
    async def _handle(self, request: HttpRequest) -> Reply | None:
        digest = hashlib.sha256(request.body).hexdigest()
        if self._recalling:
            return self._recalled(request, digest)
        if request.method in ("GET", "HEAD"):
            return self._ask(request)
        route = self._route(request.path, request.key)
        same = [e for e in self.record.of("attempt") if e.route == request.route and _alike(e, request.key, digest)]
        behaviour = route.script[len(same)] if len(same) < len(route.script) else ok
        self.record.add("attempt", request.route, request.key, digest, self._clock())
        label = _label(request)
        self._reached("call:flight", label)
        status, answer = self._act(request, digest, route, behaviour)
        self._reached("call:inside", label)
        if behaviour.after_s:
            await asyncio.sleep(behaviour.after_s)
        if behaviour.ending == "silence":
            return None
        if behaviour.ending == "reset":
            raise CutConnection
        body = b"\xff{not json" if behaviour.ending == "garbage" else json.dumps(answer).encode()
        return Reply(status, body, behaviour.headers, behaviour.padding)

    def _act(self, request: HttpRequest, digest: str, route: Route, behaviour: Behaviour) -> tuple[int, Any]:
        known = self._known(request.key, request.route, route)
        if known is not None and known.sha256 != digest:
            return 422, {"error": "this key was used with another body"}
        if known is not None and route.duplicates == "conflict":
            return 409, {"error": "this key was used before"}
        if not behaviour.acts:
            return behaviour.status, {"error": behaviour.name}
        if known is not None and route.duplicates == "answer":
            return behaviour.status, known.answer
        times = sum(e.sha256 == digest and e.route == request.route for e in self.record.of("executed"))
        answer = route.reply(request) if route.reply is not None else _answer(request, digest, times)
        self.record.add("executed", request.route, request.key, digest, self._clock(), behaviour.status, answer)
        return behaviour.status, answer

    def _known(self, key: str, route: str, spec: Route) -> RecordEntry | None:
        if not key:
            return None
        since = self._clock() - spec.remembers / timedelta(milliseconds=1) if spec.remembers is not None else 0
        done = [e for e in self.record.of("executed") if e.key == key and e.route == route and e.at >= since]
        return done[0] if done else None

    def _ask(self, request: HttpRequest) -> Reply:
        route = self._route(request.path, request.key)
        done = self.record.of("executed")
        named = request.key or next(iter(request.query.get("key", [])), "")
        ours = next((e.key for e in done if e.key and request.path.endswith(f"/{e.key}")), "")  # a key may hold a slash
        key = named or ours or request.path.rpartition("/")[2]
        if route.asked is not None:
            found = route.asked(request, [e.answer for e in done if e.route.partition(" ")[2].startswith(route.path)])
        else:
            found = next((e.answer for e in done if key and e.key == key), None)
        status = 405 if not route.askable else 404 if found is None else 200
        self.record.add("asked", request.route, key, "", self._clock(), status)
        self._reached("call:asked", _label(request))
        return Reply(status, json.dumps(found if status == 200 else {"error": "not found"}).encode())

    def _recalled(self, request: HttpRequest, digest: str) -> Reply:
        done = [e for e in self.record.of("executed") if e.route == request.route]
        found = next((e for e in done if _alike(e, request.key, digest)), None)
        if found is None:
            return Reply(404, b'{"error": "no record of it"}')
        return Reply(200, json.dumps(found.answer).encode())


def _alike(entry: RecordEntry, key: str, digest: str) -> bool:
    return entry.key == key if key else entry.key == "" and entry.sha256 == digest


def _answer(request: HttpRequest, digest: str, times: int) -> dict[str, Any]:
    """An id made of what was asked, so that it depends neither on the order of requests nor on their keys."""
    what = request.path.strip("/").replace("/", "-") or "act"
    made = hashlib.sha256(f"{request.route} {digest} {times}".encode()).hexdigest()[:8]
    return {"id": f"{what}-{made}"}


def _label(request: HttpRequest) -> str:
    """The run, verb and key of the call, where its Idempotency-Key says so; else its route."""
    parts = request.key.split(":", 3)
    ours = len(parts) == 4 and parts[:2] == [TENANT, RUN_ID]
    return f"{RUN_ID} call {parts[3]}" if ours else f"{RUN_ID} call {request.route}"
