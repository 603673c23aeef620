"""Fake receivers for tests: HTTP servers on the loopback address that execute, fail, forget, and record every request.

They run in a thread of the test, outside the processes under test, so they survive when those are killed.
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
from typing import Any, Final, Literal, Self, get_args

from outlast.clocks import SystemClock
from outlast.core.argument_checks import Arguments
from outlast.core.durations import Duration, timedelta_of
from outlast.errors import InvalidInput
from outlast.testing.crash_values import OUTSIDE, RUN_ID, TENANT, CrashPoint
from outlast.testing.http_receiver import CutConnection, HttpReceiver, HttpRequest, Reply
from outlast.testing.record import Record, RecordEntry


@dataclass(frozen=True)
class Behaviour:
    """Behaviour of a receiver for one request. Created by the functions below."""

    name: str
    acts: bool = True
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    ending: Literal["answer", "silence", "reset", "garbage", "cut"] = "answer"
    after_s: float = 0.0
    padding: int = 0  # bytes appended to the answer


ok = Behaviour("ok")
"""Execute the request and answer."""


def status(code: int, *, acts: bool = False, retry_after: Duration | None = None) -> Behaviour:
    """Answer with the status `code`, and with `retry_after` as header. The request is executed only if `acts`."""
    check = Arguments("status")
    check.number("code", code, 100, 599)
    check.flag("acts", acts)
    headers: tuple[tuple[str, str], ...] = ()
    if retry_after is not None:
        headers = (("Retry-After", str(int(timedelta_of("retry_after", retry_after).total_seconds()))),)
    return Behaviour(f"status({code})", acts, code, headers)


def times_out(*, acts: bool = True) -> Behaviour:
    """Execute the request (if `acts`) and never answer: the caller's timeout ends the call."""
    Arguments("times_out").flag("acts", acts)
    return Behaviour("times_out", acts, ending="silence")


def resets(*, acts: bool = True) -> Behaviour:
    """Execute the request (if `acts`), then cut the connection."""
    Arguments("resets").flag("acts", acts)
    return Behaviour("resets", acts, ending="reset")


def slow(seconds: float) -> Behaviour:
    """Execute the request, and answer after this many real `seconds`."""
    Arguments("slow").amount("seconds", seconds, 0, SLOW_S_MAX)
    return Behaviour(f"slow({seconds})", after_s=seconds)


def too_many(retry_after: Duration = "1s") -> Behaviour:
    """Answer 429 with `retry_after` as header. Nothing is executed."""
    return status(429, retry_after=retry_after)


def huge(megabytes: int = 50) -> Behaviour:
    """Execute the request, and answer with this many `megabytes`."""
    Arguments("huge").number("megabytes", megabytes, 1, HUGE_MB_MAX)
    return Behaviour(f"huge({megabytes})", padding=megabytes * 1_000_000)


def garbage() -> Behaviour:
    """Execute the request, and answer 200 with bytes that are not JSON."""
    return Behaviour("garbage", ending="garbage")


def cuts() -> Behaviour:
    """Execute the request, and cut the connection in the middle of the answer."""
    return Behaviour("cuts", ending="cut")


WAIT_S: Final = 20
SLOW_S_MAX: Final = 3_600
HUGE_MB_MAX: Final = 1_000
VARIABLE: Final = "OUTLAST_RECEIVERS_VARIABLE"
"""Names, in a process under test, the environment variable that holds the address of its receivers."""
Duplicates = Literal["answer", "act", "conflict"]
CLOCK: Final = SystemClock()


@dataclass(frozen=True)
class Route:
    """Behaviour of the receiver at a path."""

    path: str = ""
    script: tuple[Behaviour, ...] = ()
    key: str = ""
    duplicates: Duplicates = "answer"
    remembers: timedelta | None = None
    askable: bool = True
    reply: Callable[[HttpRequest], Any] | None = None
    asked: Callable[[HttpRequest, Sequence[Any]], Any] | None = None
    script_of: Callable[[HttpRequest], Sequence[Behaviour]] | None = None
    encoded: Callable[[HttpRequest, Any], bytes] | None = None


class FakeReceivers:
    """Receivers at `url`. Use `with FakeReceivers() as bank:`, or pass them to `every_crash`.

    A module that creates its client at import needs the address by then: call `start()` before the import.

    By default, receivers execute a request, answer `{"id": …}`, deduplicate by `Idempotency-Key` without end, and can
    be asked: GET with that key as header, as `?key=` or as last part of the path returns the earlier answer, or 404.
    `env` is the environment variable that gives the address to the code under test.
    """

    def __init__(self, *, env: str = "OUTLAST_RECEIVERS") -> None:
        Arguments("FakeReceivers").text("env", env, 'env="BANK_URL"')
        self.env: Final = env
        self.record = Record(Path(os.devnull))
        self._routes: list[Route] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._receiver: HttpReceiver | None = None
        self._before: str | None = None
        self._kept = False
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._pid = 0
        self._point: CrashPoint | None = None
        self._watching = False
        self._seen: list[CrashPoint] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._killed_at: tuple[str, str, int] | None = None
        self._replaying = False
        self._clock: Callable[[], int] = CLOCK.wall

    # --- routes ------------------------------------------------------------
    def route(
        self,
        path: str,
        *script: Behaviour,
        key: str = "",
        duplicates: Duplicates = "answer",
        remembers: Duration | None = None,
        askable: bool = True,
        reply: Callable[[HttpRequest], Any] | None = None,
        asked: Callable[[HttpRequest, Sequence[Any]], Any] | None = None,
        script_of: Callable[[HttpRequest], Sequence[Behaviour]] | None = None,
        encoded: Callable[[HttpRequest, Any], bytes] | None = None,
    ) -> Self:
        """Define the receiver at all paths that begin with `path`.

        The n-th attempt with a key gets the n-th behaviour of `script`; later attempts are executed and answered.
        `key` restricts the route to activity keys with this ending. `duplicates` handles a key that was executed
        before: answer as before, execute again, or 409. `remembers` is the time for which keys are known [without end].
        `askable=False` answers GET with 405. `reply` builds the answer. `asked` answers a GET from the request and
        all answers of this path (None: 404), for receivers that are asked by their own id. `script_of` gives the
        script of a request, and `encoded` the bytes of an answer that is not sent as JSON.
        """
        check = Arguments("route")
        check.text("path", path, 'route("/charges")')
        check.members("script", script, Behaviour, "list behaviours: script=[resets(), ok]")
        check.is_text("key", key, 'key="order/A-7"')
        check.one_of("duplicates", duplicates, get_args(Duplicates))
        check.flag("askable", askable)
        kept = None if remembers is None else timedelta_of("remembers", remembers)
        route = Route(path, script, key, duplicates, kept, askable, reply, asked, script_of, encoded)
        self._routes.insert(0, route)
        return self

    def _route(self, path: str, key: str) -> Route:
        fitting = [r for r in self._routes if path.startswith(r.path) and key.endswith(r.key)]
        return max(fitting, key=lambda r: (len(r.path), len(r.key)), default=Route())

    # --- start and stop -------------------------------------------------------------------------------
    @property
    def url(self) -> str:
        """The address, here and in processes under test. Raises InvalidInput if the receivers are not running."""
        here = self._receiver.url if self._receiver is not None else os.environ.get(self.env, "")
        if not here:
            raise InvalidInput(
                "these fake receivers are not running",
                f"{self.env} is not set",
                f'use `with FakeReceivers() as bank:`, or FakeReceivers(env="{self.env}").start() before the import',
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
        """Listen until this process ends, and set the environment variable from now on.

        In a process started by `every_crash`, the variable already holds the address of the test's own receivers.
        """
        if os.environ.get(VARIABLE) != self.env and not self._kept:
            self._open()
            self._kept = True
            atexit.register(self._end)
        return self

    def listen(self, record: Path) -> None:
        """Listen and write to this record."""
        assert self._thread is None, "already listening"
        self.record = Record(record)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="outlast-receivers", daemon=True)
        self._thread.start()
        receiver = HttpReceiver(self._handle)
        self._do(receiver.open())
        self._receiver = receiver

    def stop(self) -> None:
        """Stop listening. The record stays readable."""
        assert self._loop is not None and self._thread is not None and self._receiver is not None
        self._do(self._receiver.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
        self._thread = self._receiver = self._loop = None

    def environment(self) -> dict[str, str]:
        """Return the environment of a process under test, in effect from its first import on."""
        return {self.env: self.url, VARIABLE: self.env}

    def clone(self) -> "FakeReceivers":
        """Return new receivers with the same routes and an empty record."""
        other = FakeReceivers(env=self.env)
        other._routes = list(self._routes)
        return other

    def enter(self, record: Path) -> None:
        """Continue with another record, after every open request has ended."""
        assert self._receiver is not None
        self._do(self._receiver.quiet())
        self.record = Record(record)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    # --- the record ------------------------------------------------------------------------------
    def executed(self, key: str = "", *, route: str = "") -> int:
        """Return how often a `key` or `route` (a path) was executed.

        `key` may be the activity's key or a whole Idempotency-Key.
        """
        return self.record.executed(key, route=route)

    def attempts(self, key: str = "", *, route: str = "") -> int:
        """Return how many requests of a `key` or `route` (a path) arrived for execution."""
        return len(self.record.of("attempt", key, route))

    @property
    def entries(self) -> list[RecordEntry]:
        """All entries of the record."""
        return list(self.record.entries)

    def assert_effects_once(self) -> None:
        """Raise AssertionError with a sentence for each call that was executed more than once."""
        self.record.assert_effects_once()

    # --- crash points of calls (driver.CallMonitor) ------------------------------------------------------------
    def sees(self, point: CrashPoint) -> bool:
        """Return True if the point is in the receivers."""
        return point.name in OUTSIDE

    def begin(self, point: CrashPoint | None, at: int) -> None:
        """Start to observe the calls of a process, and kill it at this crash point."""
        self._point, self._seen, self._killed_at, self._watching = point, [], None, True
        self._counts.clear()
        self._started.clear()
        offset = at - CLOCK.wall()
        self._clock = lambda: CLOCK.wall() + offset

    def process_started(self, pid: int) -> None:
        """Receive the id of the process to kill."""
        self._pid = pid
        self._started.set()

    def end(self) -> tuple[list[CrashPoint], tuple[str, str, int] | None]:
        """Wait for the requests of the process. Returns the points seen and the place of the kill."""
        assert self._receiver is not None
        self._do(self._receiver.quiet())
        self._watching = False
        return self._seen, self._killed_at

    def replay(self, on: bool) -> None:
        """While on, repeat recorded answers and execute nothing."""
        self._replaying = on

    def _reached(self, point: str, label: str) -> None:
        if not self._watching:
            return
        self._counts[point, label] += 1
        here = CrashPoint(point, label, self._counts[point, label])
        self._seen.append(here)
        if self._point is None or here.where != self._point.where:
            return
        if not self._started.wait(WAIT_S):
            raise AssertionError("the process of this request is unknown")
        os.kill(self._pid, signal.SIGKILL)
        self._killed_at = here.where
        raise CutConnection

    # --- requests -----------------------------------------------------------------------------
    async def _handle(self, request: HttpRequest) -> Reply | None:
        digest = hashlib.sha256(request.body).hexdigest()
        if self._replaying:
            return self._replayed(request, digest)
        if request.method in ("GET", "HEAD"):
            return self._ask(request)
        route = self._route(request.path, request.key)
        same = [e for e in self.record.of("attempt") if e.route == request.route and _alike(e, request.key, digest)]
        script = route.script_of(request) if route.script_of is not None else route.script
        behaviour = script[len(same)] if len(same) < len(script) else ok
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
        encode = route.encoded if route.encoded is not None and status == 200 else _json
        body = b"\xff{not json" if behaviour.ending == "garbage" else encode(request, answer)
        if behaviour.ending == "cut":
            return Reply(status, body[: len(body) // 2], behaviour.headers, len(body), cut=True)
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
        done = [e for e in self.record.of("executed") if e.key == key and e.route == route and e.at > since]
        return done[0] if done else None

    def _ask(self, request: HttpRequest) -> Reply:
        route = self._route(request.path, request.key)
        done = self.record.of("executed")
        named = request.key or next(iter(request.query.get("key", [])), "")
        ours = next(
            (e.key for e in done if e.key and request.path.endswith(f"/{e.key}")), ""
        )  # a key may contain a slash
        key = named or ours or request.path.rpartition("/")[2]
        if route.asked is not None:
            found = route.asked(request, [e.answer for e in done if e.route.partition(" ")[2].startswith(route.path)])
        else:
            found = next((e.answer for e in done if key and e.key == key), None)
        status = 405 if not route.askable else 404 if found is None else 200
        self.record.add("asked", request.route, key, "", self._clock(), status)
        self._reached("call:asked", _label(request))
        return Reply(status, json.dumps(found if status == 200 else {"error": "not found"}).encode())

    def _replayed(self, request: HttpRequest, digest: str) -> Reply:
        done = [e for e in self.record.of("executed") if e.route == request.route]
        found = next((e for e in done if _alike(e, request.key, digest)), None)
        if found is None:
            return Reply(404, b'{"error": "no record of it"}')
        return Reply(200, json.dumps(found.answer).encode())


def _json(request: HttpRequest, answer: Any) -> bytes:
    return json.dumps(answer).encode()


def _alike(entry: RecordEntry, key: str, digest: str) -> bool:
    return entry.key == key if key else entry.key == "" and entry.sha256 == digest


def _answer(request: HttpRequest, digest: str, times: int) -> dict[str, Any]:
    """Return an id built from the request alone, so that it depends on neither order nor keys."""
    what = request.path.strip("/").replace("/", "-") or "act"
    made = hashlib.sha256(f"{request.route} {digest} {times}".encode()).hexdigest()[:8]
    return {"id": f"{what}-{made}"}


def _label(request: HttpRequest) -> str:
    """Return run, verb and key of the call if the Idempotency-Key contains them, else its route."""
    parts = request.key.split(":", 3)
    ours = len(parts) == 4 and parts[0] == TENANT
    return f"{parts[1]} call {parts[3]}" if ours else f"{RUN_ID} call {request.route}"
