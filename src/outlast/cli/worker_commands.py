"""`outlast worker` and `outlast dispatcher`: run workflows, or send webhooks, until stopped."""

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import click

from outlast.cli.command_session import operations
from outlast.cli.exit_codes import CONFLICT, OK
from outlast.cli.global_options import CliSettings, Command, settings_now
from outlast.cli.modules import load_workflows
from outlast.cli.screen import Screen
from outlast.cli.serving import (
    at_ctrl_c,
    counted_text,
    liveness_of,
    liveness_options,
    metrics_at,
    metrics_option,
    notifier_of,
    run,
    stopped,
)
from outlast.cli.text import inert
from outlast.core.durations import DRAIN_GRACE, Liveness, span
from outlast.core.lanes import OWN, is_built_in, worker_command
from outlast.engine.alerts import Notifier
from outlast.engine.guest import Guest
from outlast.engine.worker import WorkerProcess
from outlast.errors import InvalidInput, StoreError, StoreReplaced, to_install
from outlast.flow.workflow import Workflow
from outlast.runtime.local_worker import Serving, lease_view, observability, worker_of
from outlast.runtime.settings import UNKNOWN_SETTING, load, unknown_variables
from outlast.runtime.stores import skew_of
from outlast.runtime.webhooks import dispatcher_missing, load_sender, new_dispatcher, reach_of
from outlast.store.port import Store
from outlast.telemetry import Counters
from outlast.telemetry.logs import configure_logs

log = logging.getLogger("outlast.settings")


GuestMaker: TypeAlias = Callable[[Store, Sequence[Workflow[Any]], int], Guest]
"""Returns the engine of a worker that serves these workflows, at most so many runs at once."""


def _temporal() -> GuestMaker:
    from outlast.temporal import TemporalGuest

    return lambda store, workflows, concurrency: TemporalGuest(concurrency=concurrency)


def _langgraph() -> GuestMaker:
    from outlast.langgraph import LangGraphGuest

    return lambda store, workflows, concurrency: LangGraphGuest(store, workflows, concurrency=concurrency)


GUEST_MAKERS: Final[dict[str, Callable[[], GuestMaker]]] = {"langgraph": _langgraph, "temporal": _temporal}
"""Engines that `--runtime` names. Each is an extra."""


def _guest_maker(runtime: str) -> GuestMaker | None:
    """Return what makes the engine of a worker; None for our own. Raises InvalidInput if its extra is missing."""
    if runtime == OWN:
        return None
    try:
        return GUEST_MAKERS[runtime]()
    except ImportError as error:
        why = str(error)
        raise InvalidInput(f"--runtime {runtime} needs the extra `{runtime}`", why, to_install(runtime)) from error


@click.command(cls=Command)
@click.argument("module", metavar="MODULE[:NAME]")
@click.option(
    "-c", "--concurrency", type=click.IntRange(1, 10_000), default=100, help="Maximum number of concurrent runs [100]."
)
@click.option("--name", default="", help="Display name of the worker.")
@click.option("--notify", default="", metavar="URL", help="URL to POST to when a run needs a person.")
@click.option(
    "--runtime",
    type=click.Choice(sorted({OWN, *GUEST_MAKERS})),
    default=OWN,
    help=f"Engine that schedules the runs [{OWN}].",
)
@metrics_option
@liveness_options
def worker(
    module: str,
    concurrency: int,
    name: str,
    notify: str,
    runtime: str,
    metrics_port: int | None,
    **durations: int | None,
) -> None:
    """Serve the workflows of a module until stopped.

    MODULE is a file (flows.py) or a dotted name. A worker sends no webhooks: `outlast dispatcher` does, and `outlast
    serve` has both. Ctrl-C gives back the runs and stops. A second Ctrl-C exits at once, which is safe, too: another
    worker takes over after the heartbeat window.

    With --runtime, it executes the runs that another engine schedules (`outlast run --scheduler`), and no others. The
    connection to Temporal is that of TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY and Temporal's other
    variables. Threads of LangGraph are in memory, and none is kept while its run waits.
    """
    live = liveness_of(durations)
    settings = settings_now()
    log_to_stderr()
    served = load_workflows(module)
    notifier = notifier_of(notify)
    guest_of = _guest_maker(runtime)  # first, because a missing extra must not leave a new store behind
    click.get_current_context().exit(
        run(_serve(settings, module, served, live, concurrency, name, notifier, runtime, guest_of, metrics_port))
    )


async def _serve(
    settings: CliSettings,
    module: str,
    served: Sequence[Workflow[Any]],
    live: Liveness,
    concurrency: int,
    name: str,
    notifier: Notifier | None,
    runtime: str,
    guest_of: GuestMaker | None,
    metrics_port: int | None,
) -> int:
    async with operations(settings, make=True, workflows=served) as bound:
        counters: list[Counters] = []
        watch = observability(
            None if metrics_port is None else Counters()
        )  # without a reader only rare failures are counted

        def make() -> WorkerProcess:
            guest = guest_of(bound.store, served, concurrency) if guest_of is not None else None
            made = worker_of(
                bound.store,
                served,
                live=live,
                concurrency=concurrency,
                name=name,
                notifier=notifier,
                watch=watch,
                guest=guest,
            )
            if made.counters not in counters:
                counters.append(made.counters)
            return made

        serving = Serving(bound.store, make)

        def stop() -> None:
            _say(f"stopping: {serving.worker.held} runs are given back; Ctrl-C again exits at once")
            serving.drain()

        at_ctrl_c(stop, live.drain_grace, says=True)
        await serving.open()
        async with metrics_at(metrics_port, bound.store, counters) as metrics:
            _announce(Screen(settings), serving.worker, served, live, bound.store.url, metrics)
            with suppress(StoreError):  # the store became unavailable; the worker waits for it
                if await dispatcher_missing(bound.store):
                    _say("webhooks are not sent: no dispatcher is alive → outlast dispatcher")
            gone: StoreReplaced | None = None
            try:
                await serving.run(_replaced)
            except StoreReplaced as error:
                gone = error
        for each in counters:
            if counted := counted_text(each):
                _say(counted)
        again = f"{worker_command(runtime, module)}{settings.where()}"
        if gone is None:
            _say(stopped(bound.store.url, again))
            return OK
    click.echo(inert(f"{gone}\nStart this worker again: {again}", lines=True), err=True)
    return CONFLICT


def _replaced(old: WorkerProcess, new: WorkerProcess) -> None:
    _say(f"{old.id} lost its lease and was replaced; its runs are safe. This process continues as {new.id}")


def _announce(
    screen: Screen, process: WorkerProcess, served: Sequence[Workflow[Any]], live: Liveness, store: str, metrics: str
) -> None:
    lanes = [lane for lane in process.lanes if not is_built_in(lane)]
    data = {
        "worker": process.id,
        "store": store,
        "serves": lanes,
        "metrics": metrics,
        **lease_view(served, live, skew_of(store)),
    }
    if screen.data(data) or screen.quiet:
        sys.stdout.flush()
        return
    screen.line(f"worker {process.id} serves {', '.join(lanes)} · store {store}")
    screen.line(f"  heartbeat window  {span(live.heartbeat_window)}, renewed every {span(live.heartbeat_every)}")
    screen.line(f"  execution budget  {process.claim_time.derivation}")
    if metrics:
        screen.line(f"  metrics           {metrics}")
    sys.stdout.flush()


def _say(text: str) -> None:
    click.echo(inert(text), err=True)


def log_to_stderr(*, first: bool = True) -> None:
    """Log to stderr with control characters escaped, because authors and models write parts of the lines.

    `first`: warn of unknown OUTLAST_ variables; a child process does not repeat it.
    """
    configure_logs(sys.stderr, lambda text: inert(text, lines=True))
    for name in unknown_variables() if first else ():
        log.warning(UNKNOWN_SETTING, name)


@click.command(cls=Command)
@metrics_option
def dispatcher(metrics_port: int | None) -> None:
    """Send webhooks and messages to approvers until stopped.

    It serves every tenant. `outlast serve` includes a dispatcher, `outlast worker` does not. Several dispatchers can
    share a store. Ctrl-C ends the attempts in flight and stops; the next dispatcher sends the rest.
    """
    settings = settings_now()
    log_to_stderr()
    load_sender()  # first, because a missing extra must not leave a new store behind
    click.get_current_context().exit(run(_dispatch(settings, metrics_port)))


async def _dispatch(settings: CliSettings, metrics_port: int | None) -> int:
    async with operations(settings, make=True) as bound:
        loaded = load()
        process = new_dispatcher(bound.store, reach=reach_of(loaded), public_url=loaded.serve.public_url)
        at_ctrl_c(process.drain, DRAIN_GRACE)
        screen = Screen(settings)
        async with metrics_at(metrics_port, bound.store, [process.counters]) as metrics:
            if not screen.data({"dispatcher": process.name, "store": bound.store.url, "metrics": metrics}):
                screen.line(f"dispatcher {process.name} sends webhooks · store {bound.store.url}")
                if metrics:
                    screen.line(f"  metrics  {metrics}")
            sys.stdout.flush()
            await process.run()
        click.echo("Stopped. The next dispatcher sends the rest: outlast dispatcher", err=True)
    return OK
