"""Parts of the commands that serve until stopped: durations, event loop, Ctrl-C, notifications, metrics."""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import click

from outlast.cli.exit_codes import INTERRUPTED, LEFT, OK
from outlast.cli.text import duration, inert
from outlast.core.durations import DAY, HEARTBEAT_EVERY, SECOND, Liveness, span
from outlast.engine.alerts import Notifier
from outlast.engine.left_code import (
    LEAVE_WITHIN,
    UNKNOWN,
    end_tasks,
    left_threads,
    named_tasks,
    place_of_thread,
)
from outlast.engine.user_code import ends_process, text_of
from outlast.errors import InvalidInput, to_install
from outlast.runtime.metrics import Metrics
from outlast.runtime.settings import load
from outlast.runtime.stores import MEMORY
from outlast.store.port import Store
from outlast.telemetry import Counters

OPTIONS: tuple[tuple[str, str], ...] = (
    ("heartbeat_window", "Silence after which a worker is replaced."),
    ("heartbeat_every", "Interval of lease renewals; at most a third of the window."),
    ("attempt_timeout", "Timeout of one attempt of a call, unless the activity sets one."),
    ("start_budget", "Maximum time from the intent of a call until it is sent."),
    ("settle_margin", "Time after the timeout in which a sent call may still arrive."),
    ("backoff_ceiling", "Maximum wait between two attempts."),
    ("checkpoint_write", "Maximum time to write a checkpoint."),
    ("drain_grace", "Maximum wait of a stopping worker for its calls."),
    ("runs_kept", "Retention of a run after its end; 0s keeps it forever."),
    ("ledger_kept", "Retention of its effects and memos; 0s keeps them as long as the run."),
)


def liveness_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add one option for each liveness duration."""
    defaults = Liveness()._asdict()
    for name, text in reversed(OPTIONS):
        shown = f"{text} [{_shown(defaults[name])}]"
        command = click.option("--" + name.replace("_", "-"), type=duration, metavar="DURATION", help=shown)(command)
    return command


def _shown(ms: int) -> str:
    return span(ms) if ms >= DAY else f"{ms / SECOND:g}s"


def liveness_of(given: Mapping[str, int | None]) -> Liveness:
    """Return the given durations with defaults for the rest; a short window shortens the renewal interval.

    Raises click.UsageError if the durations contradict each other.
    """
    said = {name: value for name, value in given.items() if value is not None}
    window = said.get("heartbeat_window")
    if window is not None and "heartbeat_every" not in said:
        said["heartbeat_every"] = min(HEARTBEAT_EVERY, window // 3)
    try:
        return Liveness(**said).checked()
    except ValueError as error:
        raise click.UsageError(str(error)) from error


T = TypeVar("T")
log = logging.getLogger("outlast.engine")


GC_THRESHOLDS: Final = (50_000, 20, 100)
"""With Python's 700, the collector walks the objects of 1,000 runs in flight again and again (bench/journal.md)."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end and return its result. Call it after the modules of the process are loaded.

    The event loop is uvloop's if it is installed. The garbage collector of this process is set for a worker: it leaves
    out the objects that exist now, and collects less often.

    A task that ends with SystemExit or KeyboardInterrupt ends an event loop, and workflow code may create tasks. Unless
    a signal raised it, the loop goes on: the exception is the result of that task, and its awaiter receives it.

    If code ignores its end, this names that code, and the process leaves with the exit code of the command.
    """
    begun: list[asyncio.Task[T]] = []

    async def goes_on() -> T:
        if not begun:
            begun.append(asyncio.create_task(main))
        return await begun[0]

    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    runner = asyncio.Runner(loop_factory=_quickest())
    try:
        return _result(runner, goes_on, begun)
    finally:
        _leave(runner)


def _result(runner: asyncio.Runner, goes_on: Callable[[], Coroutine[Any, Any, T]], begun: list[asyncio.Task[T]]) -> T:
    while True:
        try:
            return runner.run(goes_on())
        except (SystemExit, KeyboardInterrupt) as error:
            if not begun or begun[0].done() or ends_process(error):
                raise
            log.error("a task of a workflow raised %s; this process goes on", text_of(error))


def _leave(runner: asyncio.Runner) -> None:
    """Close the event loop. If a task or thread ignores that it ends, name it and let the command leave the process.

    All is committed. What is left is kept until the process ends: collecting a task would cancel it once more.
    """
    ended = threading.Event()
    _exit_unless(ended, LEAVE_WITHIN + LOOP_S)
    tasks = end_tasks(runner.get_loop())
    threads = left_threads(wait=not tasks)
    ended.set()
    if not tasks and not threads:
        runner.close()
        return
    _say_left("; ".join(named_tasks(tasks) + threads))
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[LEFT] = (runner, tasks)


def _exit_unless(ended: threading.Event, seconds: float) -> None:
    """Exit after this time, unless the event is set: code that was cancelled blocks this thread."""
    main = threading.current_thread()

    def watch() -> None:
        if not ended.wait(seconds):
            _exit_from(main)

    threading.Thread(target=watch, name="outlast-leave", daemon=True).start()


def _exit_from(blocked: threading.Thread) -> None:
    """Name the code that blocks a thread and exit. The runs held here are taken over by other workers."""
    _say_left(f"thread {blocked.name}, blocked at {place_of_thread(blocked) or UNKNOWN}")
    os._exit(OK)


def _say_left(what: str) -> None:
    click.echo(inert(f"left behind: {what}. It ignored that its process ends"), err=True)
    sys.stdout.flush()
    sys.stderr.flush()


def _quickest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:  # not for this system, or the extra is not here
        return None
    return new_event_loop


SLOW_S: Final = 1.0  # after this time a line says the reason for the wait
LOOP_S: Final = 1.0  # an event loop that does not answer within this time is blocked


def at_ctrl_c(stop: Callable[[], None], drain_ms: int, *, says: bool = False, watched: bool = False) -> None:
    """Call `stop` at the first SIGINT or SIGTERM, and exit at the second, which other workers recover from.

    A line says that stopping takes a while, unless `stop` prints one itself (`says`). `watched`: a parent process
    forwards Ctrl-C, prints these lines, and ends this process in time.

    Code of an author may block the event loop, which then sees no signal. So the handlers are Python's own, and the
    process exits if the loop does not answer when `drain_ms` and a moment are over.
    """
    stops: list[None] = []
    loop, first, ended = asyncio.get_running_loop(), threading.Event(), threading.Event()

    def in_loop() -> None:
        if not says and not watched:
            loop.call_later(SLOW_S, slowly)
        stop()

    def on_signal(*_: Any) -> None:
        stops.append(None)
        if len(stops) > 1:
            if not watched:
                os._exit(INTERRUPTED)
            return
        first.set()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(in_loop)

    def watch(main: threading.Thread) -> None:
        first.wait()
        patience = drain_ms / SECOND + LEAVE_WITHIN
        while not ended.wait(patience):
            answered, patience = threading.Event(), LOOP_S
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(answered.set)
            if not answered.wait(LOOP_S) and not ended.is_set():
                _exit_from(main)

    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(lambda _: ended.set())
    threading.Thread(target=watch, args=(threading.current_thread(),), name="outlast-stop", daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)


def stopped(store: str, again: str) -> str:
    """Return the last line of a serving process: where the runs are, and the command that continues them."""
    if store == MEMORY:
        return f"Stopped. The store was in memory, and its runs are gone. Start again: {again}"
    return f"Stopped. Every run is safe in {store} and continues with: {again}"


def slowly() -> None:
    """Print the reason for the wait, and how to skip it."""
    click.echo("stopping: calls in flight end first; Ctrl-C again exits at once, which is safe, too", err=True)


def notifier_of(url: str) -> Notifier | None:
    """Return the notifier of a URL, or None for ''. Raises click.UsageError if the URL is not HTTP."""
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise click.UsageError("--notify takes an http:// or https:// URL")
    from outlast.outbox.client import HttpNotifier

    return HttpNotifier(url)


def counted_text(counters: Counters) -> str:
    """Return the counters of a worker as text, or '' if all are zero."""
    raised = sorted((name, n) for name, n in counters.all().items() if n)
    return "counted: " + ", ".join(f"{name} {n}" for name, n in raised) if raised else ""


def metrics_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option --metrics-port to a command."""
    return click.option(
        "--metrics-port", type=click.IntRange(0, 65_535), default=None, metavar="PORT",
        help="Port of /metrics for Prometheus, on loopback by default; 0: any free port [off].",
    )(command)  # fmt: skip


@asynccontextmanager
async def metrics_at(port: int | None, store: Store, counters: Sequence[Counters]) -> AsyncIterator[str]:
    """Serve metrics while the block runs, if a port is given. Give the URL, else ''. Raises InvalidInput."""
    if port is None:
        yield ""
        return
    metrics = Metrics(store, counters)  # raises InvalidInput if its extra is missing
    try:
        from outlast.service.connections import listen, url_of
        from outlast.service.metrics_endpoint import MetricsEndpoint, check_bind
    except ModuleNotFoundError as error:
        raise InvalidInput(
            "metrics need the extra `service`", f"{error.name} is not installed", to_install("service")
        ) from None
    said = load().metrics
    token = said.token.get_secret_value()
    check_bind(said.host, token)
    listening = listen(said.host, port)
    scrape = MetricsEndpoint(metrics, listening, token)
    task = asyncio.create_task(scrape.run())
    try:
        yield f"{url_of(listening)}/metrics"
    finally:
        scrape.drain()
        await task
