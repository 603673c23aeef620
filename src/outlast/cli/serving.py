"""Parts of the commands that serve until stopped: durations, event loop, Ctrl-C, notifications, metrics."""

import asyncio
import atexit
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NoReturn, TypeVar

import click

from outlast.cli.exit_codes import ENDING, INTERRUPTED, OK, Unwritten, lost
from outlast.cli.text import duration, inert
from outlast.core.durations import DAY, HEARTBEAT_EVERY, SECOND, Liveness, span
from outlast.engine.alerts import Notifier
from outlast.engine.left_code import (
    UNKNOWN,
    busy_threads,
    end_tasks,
    left_threads,
    named_tasks,
    place_of_thread,
)
from outlast.engine.user_code import ends_process, text_of
from outlast.errors import InvalidInput, to_install
from outlast.runtime.metrics_text import Metrics
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
    ("threads_kept", "Retention of a LangGraph thread after its last change; 0s keeps it forever."),
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
    options = {name: value for name, value in given.items() if value is not None}
    window = options.get("heartbeat_window")
    if window is not None and "heartbeat_every" not in options:
        options["heartbeat_every"] = min(HEARTBEAT_EVERY, window // 3)
    try:
        return Liveness(**options).checked()
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

    If code ignores its end, this names that code. The process then ends within `END_WITHIN` (`leave`).
    """
    started: list[asyncio.Task[T]] = []

    async def goes_on() -> T:
        if not started:
            started.append(asyncio.create_task(main))
        return await started[0]

    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    runner = asyncio.Runner(loop_factory=_quickest())
    try:
        return _result(runner, goes_on, started)
    finally:
        _leave(runner)


def _result(runner: asyncio.Runner, goes_on: Callable[[], Coroutine[Any, Any, T]], started: list[asyncio.Task[T]]) -> T:
    while True:
        try:
            return runner.run(goes_on())
        except (SystemExit, KeyboardInterrupt) as error:
            if not started or started[0].done() or ends_process(error):
                raise
            log.error("a task of a workflow raised %s; this process goes on", text_of(error))


def _leave(runner: asyncio.Runner) -> None:
    """Close the event loop. If a task or thread ignores that it ends, name it.

    All is committed. What is left is kept until the process ends: collecting a task would cancel it once more.
    """
    ending, loop = ending_of(), runner.get_loop()
    _exit_after(END_WITHIN, ending, loop)
    tasks = end_tasks(loop)
    threads = left_threads(wait=not tasks)
    if tasks or threads:
        ending.kept = (runner, tasks)
        _say_left(named_tasks(tasks) + threads)
    else:
        runner.close()


class CommandEnd(threading.Event):
    """The end of a command that serves. It is set if the process goes on, because it is that of another program."""

    code: int = OK
    kept: object = None  # code that the command leaves behind


def ending_of() -> CommandEnd:
    """Return the end of the current command."""
    context = click.get_current_context(silent=True)
    found: CommandEnd = CommandEnd() if context is None else context.meta.setdefault(ENDING, CommandEnd())
    if context is None:
        found.set()  # no command: the process is that of another program
    return found


def _exit_after(
    seconds: float, ending: CommandEnd, loop: asyncio.AbstractEventLoop, started: threading.Event | None = None
) -> None:
    """Exit this time after `started`, and name the code that is still here. The caller is the main thread.

    Nothing stops it but the end of the process. Other workers take over the runs held here.
    """
    main = threading.current_thread()

    def watch() -> None:
        if started is not None:
            started.wait()
        if ending.wait(seconds):
            return
        reporter = threading.Thread(target=_say_left, args=(_still_here(main, loop),), daemon=True)
        reporter.start()
        reporter.join(SAY_S)
        os._exit(ending.code)

    threading.Thread(target=watch, name="outlast-end", daemon=True).start()


def _still_here(main: threading.Thread, loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return the code that keeps a process, as another thread sees it."""
    if at := place_of_thread(main, inside="outlast.cli"):
        return [f"thread {main.name}, blocked at {at}"]
    threads = [each for each in threading.enumerate() if each is not main and not each.daemon]
    tasks = [each for each in named_tasks(asyncio.all_tasks(loop)) if not each.endswith(UNKNOWN)]
    return tasks + busy_threads(threads) or [f"thread {main.name} at {UNKNOWN}"]


def leave(ending: CommandEnd, code: int) -> NoReturn:
    """End the process with an exit code, after its exit handlers.

    The interpreter is not ended, because that has no time limit: threads of a library wait there for the interpreter's
    lock, and it waits for them (decision 0111).
    """
    ending.code = code
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Unwritten as error:
        code = lost(error)
    os._exit(code)


def _say_left(what: Sequence[str]) -> None:
    click.echo(inert(f"left behind: {'; '.join(what)}. It ignored that its process ends"), err=True)
    sys.stdout.flush()
    sys.stderr.flush()


def _quickest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:  # not for this system, or the extra is not here
        return None
    return new_event_loop


SLOW_S: Final = 1.0  # after this time a line says the reason for the wait
END_WITHIN: Final = 4.5  # seconds for the end of a command, after its drain or its event loop
SAY_S: Final = 0.5  # to print a line; a full pipe takes none


def at_ctrl_c(stop: Callable[[], None], drain_ms: int, *, says: bool = False, watched: bool = False) -> None:
    """Call `stop` at the first SIGINT or SIGTERM, and exit at the second, which other workers recover from.

    A line says that stopping takes a while, unless `stop` prints one itself (`says`). `watched`: a parent process
    forwards Ctrl-C, prints these lines, and ends this process in time.

    From then on the process ends within `drain_ms` and `END_WITHIN`, whatever runs in it. Code of an author may block
    the event loop, which then sees no signal. So the handlers are Python's own, and a thread exits.
    """
    stops: list[None] = []
    loop, started = asyncio.get_running_loop(), threading.Event()

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
        started.set()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(in_loop)

    _exit_after(drain_ms / SECOND + END_WITHIN, ending_of(), loop, started)
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
    from outlast.outbox.delivery_client import HttpNotifier

    return HttpNotifier(url)


def counted_text(counters: Counters) -> str:
    """Return the counters of a worker as text, or '' if all are zero."""
    raised = sorted((name, n) for name, n in counters.all().items() if n)
    return "counted: " + ", ".join(f"{name} {n}" for name, n in raised) if raised else ""


def metrics_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option --metrics-port to a command."""
    return click.option(
        "--metrics-port",
        type=click.IntRange(0, 65_535),
        default=None,
        metavar="PORT",
        help="Port of /metrics for Prometheus, on loopback by default; 0: any free port [off].",
    )(command)


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
    loaded = load().metrics
    token = loaded.token.get_secret_value()
    check_bind(loaded.host, token)
    listening = listen(loaded.host, port)
    scrape = MetricsEndpoint(metrics, listening, token)
    task = asyncio.create_task(scrape.run())
    try:
        yield f"{url_of(listening)}/metrics"
    finally:
        scrape.drain()
        await task
