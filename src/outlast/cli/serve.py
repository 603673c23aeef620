"""`outlast serve`: HTTP, a worker and a dispatcher in one process, or HTTP in several."""

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, Final

import click
from click.core import ParameterSource

from outlast.cli.command_session import operations
from outlast.cli.developer import DeveloperQuestions
from outlast.cli.exit_codes import CONFLICT, OK, OUR_FAULT
from outlast.cli.global_options import CliSettings, Command, env_of, settings_now, words_of
from outlast.cli.modules import load_workflows
from outlast.cli.screen import Screen
from outlast.cli.serving import (
    at_ctrl_c,
    liveness_of,
    liveness_options,
    metrics_at,
    metrics_option,
    notifier_of,
    run,
    stopped,
)
from outlast.cli.text import inert
from outlast.cli.worker_commands import log_to_stderr
from outlast.clocks import SystemClock
from outlast.core.durations import SECOND, Liveness
from outlast.engine.call_errors import CallErrors
from outlast.engine.worker import WorkerProcess
from outlast.errors import InvalidInput, StoreReplaced, to_install
from outlast.flow.workflow import Workflow
from outlast.runtime.execution_runtime import local_actor
from outlast.runtime.local_worker import Serving, StoreFileWatch, observability, worker_of
from outlast.runtime.operations import Operations
from outlast.runtime.settings import DEFAULT_HOST, DEFAULT_PORT, load
from outlast.runtime.stores import MEMORY
from outlast.runtime.webhooks import new_dispatcher, reach_of
from outlast.telemetry import Counters


def several_of(
    settings: CliSettings, host: str, port: int, count: int, words: Sequence[str], parts: Sequence[Any]
) -> tuple[str, Any]:
    """Return the shared URL and a `ProcessGroup` that runs the HTTP processes and `parts`. Raises InvalidInput."""
    from outlast.service.connections import reserve, url_of
    from outlast.service.identity import shared_file
    from outlast.service.multiprocess import ProcessGroup

    if settings.store == MEMORY:
        raise InvalidInput(
            "a store in memory cannot be shared by processes", "each would have its own", "--store sqlite:…"
        )
    reserved, shared = reserve(host, port), shared_file()
    command = [
        sys.executable, "-m", "outlast", *words_of(settings), "serve", *words, "--host", host,
        "--port", str(reserved.getsockname()[1]), "--no-worker", "--no-dispatcher",
        "--one-of-several", str(shared),
    ]  # fmt: skip
    return url_of(reserved), ProcessGroup(reserved, command, env_of(settings), count, parts, shared)


def notify_ready() -> None:
    """Print that one of several processes accepts requests."""
    click.echo("ready")


async def stop_when_left() -> None:
    """Stop this process once the parent process closes the standard input or dies."""

    class ParentPipe(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            signal.raise_signal(signal.SIGTERM)

    await asyncio.get_running_loop().connect_read_pipe(ParentPipe, sys.stdin)


port_option: Final = click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    help=f"Port to listen on; 0: any free port [{DEFAULT_PORT}].",
)


@click.command(cls=Command)
@click.argument("module", metavar="MODULE[:NAME]", required=False)
@click.option(
    "--host",
    default=DEFAULT_HOST,
    help=f"Address to listen on; others than loopback need credentials [{DEFAULT_HOST}].",
)
@port_option
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="Number of processes for HTTP; this one runs workflows and sends webhooks [1].",
)
@click.option("--no-worker", is_flag=True, help="Do not run workflows here; outlast worker does.")
@click.option("--no-dispatcher", is_flag=True, help="Do not send webhooks here; outlast dispatcher does.")
@click.option(
    "-c", "--concurrency", type=click.IntRange(1, 10_000), default=100, help="Maximum number of concurrent runs [100]."
)
@click.option("--name", default="", help="Display name of the worker.")
@click.option("--notify", default="", metavar="URL", help="URL to POST to when a run needs a person.")
@metrics_option
@click.option("--proxies", hidden=True, multiple=True)
@click.option(
    "--one-of-several",
    type=int,
    hidden=True,
    help="Descriptor of the shared file; the process ends with its standard input.",
)
@liveness_options
def serve(
    module: str | None,
    host: str,
    port: int,
    processes: int,
    no_worker: bool,
    no_dispatcher: bool,
    concurrency: int,
    name: str,
    notify: str,
    metrics_port: int | None,
    proxies: Sequence[str],
    one_of_several: int | None,
    **durations: int | None,
) -> None:
    """Serve HTTP, run workflows and send webhooks until stopped.

    Without MODULE no run can be started or continued here; the runs in the store can be read and decided. Ctrl-C ends
    streams, answers open requests, gives runs back and stops.
    """
    settings = settings_now()
    one = one_of_several is not None
    log_to_stderr(first=not one)
    served = load_workflows(module) if module else []
    again = f"outlast serve{f' {module}' if module else ''}{_given(host=host, port=port, processes=processes)}"
    code = run_service(
        settings,
        served,
        durations,
        host=host,
        port=port,
        worker=bool(served) and not no_worker,
        dispatcher=not no_dispatcher,
        concurrency=concurrency,
        name=name,
        notify=notify,
        again=again,
        metrics_port=metrics_port,
        watched=one,
        shared=one_of_several,
        processes=1 if one else processes,
        module=module or "",
    )
    click.get_current_context().exit(code)


def _given(**options: str | int) -> str:
    """Return those of the options that the command line sets; settings need no repetition."""
    source = click.get_current_context().get_parameter_source
    here = [name for name in options if source(name) is ParameterSource.COMMANDLINE]
    return "".join(f" --{name} {options[name]}" for name in here)


@dataclass(frozen=True)
class ServiceOptions:
    """Parts and options of a service process."""

    host: str
    port: int
    again: str
    worker: bool = True
    dispatcher: bool = True
    concurrency: int = 100
    name: str = ""
    notify: str = ""
    watched: bool = False
    """True in a child process: the parent names the store, forwards Ctrl-C, and prints messages."""
    developed: bool = False
    """True for `outlast dev`: questions about calls appear in the terminal, and a call that returned can be denied."""
    metrics_port: int | None = None
    module: str = ""
    processes: int = 1
    shared: int | None = None
    """Descriptor of the file in which several processes count failed credentials; None in a single process."""

    @property
    def one_of_several(self) -> bool:
        """True if the process shares the port, and its parent holds its standard input."""
        return self.shared is not None


def run_service(
    settings: CliSettings, served: Sequence[Workflow[Any]], durations: Mapping[str, int | None], **more: Any
) -> int:
    """Serve until stopped and return the exit code. `more`: the fields of `ServiceOptions`."""
    form = ServiceOptions(**more)
    if form.watched:
        settings.url = ""  # the parent process named the store
    return run(_serve(settings, served, liveness_of(durations), form))


async def _serve(settings: CliSettings, served: Sequence[Workflow[Any]], live: Liveness, form: ServiceOptions) -> int:
    try:
        from outlast.service.connections import listen, url_of
        from outlast.service.identity import Anonymous, authenticator, check_bind, proxy_options
        from outlast.service.multiprocess import GRACE_S, ProcessGroup, ServicePart, ServiceProcess
        from outlast.service.service_state import ServiceState
        from outlast.ui.app import error_page, pages
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("outlast"):
            raise
        raise extra(error.name or "") from None
    loaded = load()
    auth = loaded.auth
    check_bind(form.host, authenticates=auth.any)
    async with operations(settings, make=True, workflows=served) as bound:
        who = authenticator(auth, SystemClock(), shared=form.shared) if auth.any else _local(Anonymous, settings)
        state = ServiceState(
            bound.store,
            who,
            tuple(served),
            reach=reach_of(loaded),
            scheduler=loaded.scheduler,
            pages=pages(),
            error_page=error_page,
            public_url=loaded.serve.public_url,
            currency=loaded.serve.currency,
        )
        parts: list[ServicePart] = [StoreFileWatch(bound.store)]
        serving: Serving | None = None
        if form.worker:
            serving = _worker(bound, state, served, live, form, settings)
            parts.append(serving)
        if form.dispatcher:
            sender = new_dispatcher(bound.store, reach=state.reach, public_url=loaded.serve.public_url)
            state.counters.append(sender.counters)
            parts.append(sender)
        grace_s = min(GRACE_S, ceil(live.drain_grace / SECOND))
        process: ServiceProcess | ProcessGroup
        if form.processes > 1:
            words = [form.module] if form.module else []
            url, process = several_of(settings, form.host, form.port, form.processes, words, parts)
        else:
            listening = listen(form.host, form.port, shared=form.one_of_several or form.watched)
            options = {**proxy_options(loaded.serve.proxies), "timeout_graceful_shutdown": grace_s}
            url, process = url_of(listening), ServiceProcess(state, listening, parts, options)
        drain = grace_s * SECOND if form.one_of_several else live.drain_grace  # one of several has no worker
        at_ctrl_c(process.stop, drain, watched=form.watched)
        if form.one_of_several:
            await stop_when_left()
        if serving is not None:
            await serving.open()
        async with metrics_at(form.metrics_port, bound.store, state.counters) as metrics:
            banner = partial(_banner, settings, form, url, bound, served, auth.any, serving, metrics)
            gone: StoreReplaced | None = None
            try:
                await process.run(notify_ready if form.one_of_several else banner)
            except StoreReplaced as error:
                gone = error
    if form.one_of_several:
        return OK if gone is None else CONFLICT  # the parent process prints the cause
    again = f"{form.again}{settings.where()}"
    if gone is not None:
        click.echo(inert(f"{gone}\nStart it again: {again}", lines=True), err=True)
        return CONFLICT
    if isinstance(process, ProcessGroup) and process.failed is not None:
        click.echo(inert(f"A process that serves HTTP has ended, so the service stops. Start again: {again}"), err=True)
        return OUR_FAULT
    click.echo(inert(stopped(bound.store.url, again)), err=True)
    return OK


def _local(anonymous: Any, settings: CliSettings) -> Any:
    return anonymous(local_actor(()).name, tenant=settings.tenant)


def _worker(
    bound: Operations,
    state: Any,
    served: Sequence[Workflow[Any]],
    live: Liveness,
    form: ServiceOptions,
    settings: CliSettings,
) -> Serving:
    errors = CallErrors() if form.developed else None
    notifier = notifier_of(form.notify) if errors is None else DeveloperQuestions(bound.store, errors, settings)
    watched = Counters()  # shared by all workers of this process
    state.counters.append(watched)
    watch = observability(watched)

    def make() -> WorkerProcess:
        return worker_of(
            bound.store,
            served,
            live=live,
            concurrency=form.concurrency,
            name=form.name,
            notifier=notifier,
            watch=watch,
            errors=errors,
        )

    return Serving(bound.store, make, stays=True)


def _banner(
    settings: CliSettings,
    form: ServiceOptions,
    url: str,
    bound: Operations,
    served: Sequence[Workflow[Any]],
    secured: bool,
    serving: Serving | None,
    metrics: str,
) -> None:
    screen = Screen(settings)
    lanes = [workflow.lane for workflow in served]
    worker = serving.worker.id if serving is not None else ""
    data = {"url": url, "store": bound.store.url, "serves": lanes, "worker": worker, "dispatcher": form.dispatcher,
            "authentication": secured, "processes": form.processes,
            "metrics": metrics or f"{url}/metrics"}  # fmt: skip
    if not screen.data(data) and not screen.quiet:
        who = "credentials are required" if secured else "no credentials: every caller is you (loopback only)"
        screen.line(f"outlast  {url}/ui/   {', '.join(lanes) or 'no workflow is loaded'}")
        screen.line(f"  API         {url}/v1")
        screen.line(f"  store       {bound.store.url}")
        screen.line(f"  who         {who}")
        if form.processes > 1:
            screen.line(f"  HTTP        {form.processes} processes")
        screen.line(f"  worker      {worker or 'not here: outlast worker MODULE'}")
        screen.line(f"  webhooks    {'sent from here' if form.dispatcher else 'not here: outlast dispatcher'}")
        if metrics:
            screen.line(f"  metrics     {metrics}")
        if lanes:
            first = served[0].name
            curl = "curl -H 'Authorization: Bearer TOKEN'" if secured else "curl"
            screen.line(f"  try         {curl} {url}/v1/workflows/{first}   Ctrl-C stops, and loses nothing")
    sys.stdout.flush()


def extra(name: str) -> InvalidInput:
    """Return the error for a missing library of the extra `service`."""
    return InvalidInput("the service needs the extra `service`", f"{name} is not installed", to_install("service"))
