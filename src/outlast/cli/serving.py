"""The liveness durations as options, shared by the worker and by what explains them."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import click

from outlast.cli.exit_codes import INTERRUPTED
from outlast.cli.text import duration
from outlast.core.durations import DAY, HEARTBEAT_EVERY, SECOND, Liveness, span
from outlast.engine.alerts import Notifier
from outlast.engine.user_code import ends_process, text_of
from outlast.errors import InvalidInput, to_install
from outlast.runtime.metrics import Metrics
from outlast.runtime.settings import load
from outlast.runtime.stores import MEMORY
from outlast.store.port import Store
from outlast.telemetry import Counters

OPTIONS: tuple[tuple[str, str], ...] = (
    ("heartbeat_window", "A worker that is silent for so long is replaced."),
    ("heartbeat_every", "How often it renews its lease; at most a third of the window."),
    ("attempt_timeout", "How long one attempt of a call may take, where the activity does not say."),
    ("start_budget", "From the intent of a call to the last moment it may be sent."),
    ("settle_margin", "Beyond that and the timeout: how long a call may still be in the air."),
    ("backoff_ceiling", "The longest wait between two attempts."),
    ("checkpoint_write", "How long writing a checkpoint may take."),
    ("drain_grace", "How long a worker that stops waits for calls under way."),
    ("runs_kept", "How long a run is kept after its end, until the daily purge; 0s: for ever."),
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
    """The durations given, the defaults for the rest; a short window brings its own rhythm along.

    Raises click.UsageError for durations that contradict each other.
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


def run(main: Coroutine[Any, Any, T], *, fast: bool = True) -> T:
    """Run `main` to its end and return its result.

    `fast`: use the loop in C if the extra `service` has brought one, because HTTP costs a quarter less on it.

    A task that ends with SystemExit or KeyboardInterrupt ends an event loop, and workflow code may create tasks. Unless
    a signal raised it, the loop goes on: the exception is the result of that task, and its awaiter receives it.
    """
    begun: list[asyncio.Task[T]] = []

    async def goes_on() -> T:
        if not begun:
            begun.append(asyncio.create_task(main))
        return await begun[0]

    with asyncio.Runner(loop_factory=_quickest() if fast else None) as runner:
        while True:
            try:
                return runner.run(goes_on())
            except (SystemExit, KeyboardInterrupt) as error:
                if not begun or begun[0].done() or ends_process(error):
                    raise
                log.error("a task of a workflow raised %s; this process goes on", text_of(error))


def _quickest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:  # not for this system, or the extra is not here
        return None
    return new_event_loop


SLOW_S: Final = 1.0  # from then on a person wants to know what it is doing


def at_ctrl_c(stop: Callable[[], None], *, says: bool = False, watched: bool = False) -> None:
    """Call `stop` at the first SIGINT or SIGTERM; leave at the second: what still runs is taken over by others.

    Where stopping takes a while a line says so, unless `stop` `says` it. `watched`: by a process that hands on the
    Ctrl-C which the terminal gave to both, that tells people, and that ends this one in time.
    """
    stops: list[None] = []
    loop = asyncio.get_running_loop()

    def told() -> None:
        stops.append(None)
        if len(stops) > 1 and not watched:
            os._exit(INTERRUPTED)
        if not says and not watched:
            loop.call_later(SLOW_S, slowly)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told)


def stopped(store: str, again: str) -> str:
    """The last line of a process that served a store: where the runs are, and what takes them on."""
    if store == MEMORY:
        return f"Stopped. Its store was this process's memory: what it held is gone. Anew: {again}"
    return f"Stopped. Every run is safe in {store} and goes on with: {again}"


def slowly() -> None:
    """Say what is waited for, and how not to wait."""
    click.echo("stopping: what is under way ends first; once more to leave at once, which is safe too", err=True)


def notifier_of(url: str) -> Notifier | None:
    """The notifier for a URL; None for ''. Raises click.UsageError for what is no address of HTTP."""
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise click.UsageError("--notify takes an http:// or https:// address")
    from outlast.outbox.client import HttpNotifier

    return HttpNotifier(url)


def counted_text(counters: Counters) -> str:
    """What the worker counted, by name; '' where there was nothing to count."""
    raised = sorted((name, n) for name, n in counters.all().items() if n)
    return "counted: " + ", ".join(f"{name} {n}" for name, n in raised) if raised else ""


def metrics_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option."""
    return click.option(
        "--metrics-port", type=click.IntRange(0, 65_535), default=None, metavar="PORT",
        help="Answer Prometheus at /metrics there, on loopback unless told otherwise; 0: one that is free [off].",
    )(command)  # fmt: skip


@asynccontextmanager
async def metrics_at(port: int | None, store: Store, counters: Sequence[Counters]) -> AsyncIterator[str]:
    """Show them while the body runs, where a port is given. Gives the URL, '' without. Raises InvalidInput."""
    if port is None:
        yield ""
        return
    metrics = Metrics(store, counters)  # says which extra is missing
    try:
        from outlast.service.metrics_endpoint import MetricsEndpoint, check_bind
        from outlast.service.sockets import listen, url_of
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
