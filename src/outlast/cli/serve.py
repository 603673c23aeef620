"""`outlast serve`: HTTP, a worker and a dispatcher in one process; `outlast dev`: the same, anew at each change."""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from outlast.cli.failure import CONFLICT, OK
from outlast.cli.liveness import liveness_of, liveness_options
from outlast.cli.modules import load_workflows, split
from outlast.cli.notify import notifier_of
from outlast.cli.screen import Screen
from outlast.cli.session import local_actor, operations, settings_now
from outlast.cli.settings import Command, Settings
from outlast.cli.stopping import at_ctrl_c
from outlast.cli.text import inert
from outlast.cli.worker import log_to_stderr
from outlast.core.budget import Liveness
from outlast.engine.worker import WorkerProcess
from outlast.errors import InvalidInput
from outlast.flow.workflow import Workflow
from outlast.runtime.clocks import SystemClock
from outlast.runtime.operations import Operations
from outlast.runtime.serve import Serving, eyes, worker_of
from outlast.runtime.settings import load
from outlast.runtime.webhooks import dispatching, reach_of
from outlast.telemetry import Counters

DEV_LEASE_MS = 4_000  # a worker that is killed while you try things is replaced soon


@click.command(cls=Command)
@click.argument("module", metavar="MODULE[:NAME]", required=False)
@click.option("--host", default="127.0.0.1", help="The address to listen on; others than loopback take credentials.")
@click.option("--port", type=click.IntRange(0, 65_535), default=7168, help="The port; 0: one that is free [7168].")
@click.option("--no-worker", is_flag=True, help="Walk no runs here: outlast worker does, elsewhere.")
@click.option("--no-dispatcher", is_flag=True, help="Send no webhooks here: outlast dispatcher does, elsewhere.")
@click.option("-c", "--concurrency", type=click.IntRange(1, 10_000), default=100, help="Runs walked at once [100].")
@click.option("--name", default="", help="What people call this worker.")
@click.option("--notify", default="", metavar="URL", help="POST a small JSON there when a run needs a person.")
@click.option("--proxies", hidden=True, multiple=True)
@liveness_options
def serve(
    module: str | None,
    host: str,
    port: int,
    no_worker: bool,
    no_dispatcher: bool,
    concurrency: int,
    name: str,
    notify: str,
    proxies: Sequence[str],
    **durations: int | None,
) -> None:
    """Serve HTTP, walk the runs of MODULE's workflows and send webhooks, in one process, until stopped.

    Without MODULE nothing can be started or walked here; what is in the store can be looked at and decided. Ctrl-C
    ends streams, answers what is under way, gives runs back and stops.
    """
    settings = settings_now()
    live = liveness_of(durations)
    log_to_stderr()
    served = load_workflows(module) if module else []
    again = f"outlast serve {module or ''}".rstrip()
    code = asyncio.run(
        _serve(
            settings, served, live, host=host, port=port, worker=bool(served) and not no_worker,
            dispatcher=not no_dispatcher, concurrency=concurrency, name=name, notify=notify, again=again,
        )
    )  # fmt: skip
    click.get_current_context().exit(code)


@click.command(cls=Command)
@click.argument("module", metavar="FILE")
@click.option("--port", type=click.IntRange(0, 65_535), default=7168, help="The port; 0: one that is free [7168].")
@click.option("--once", is_flag=True, hidden=True, help="The process that serves until the code changes.")
def dev(module: str, port: int, once: bool) -> None:
    """Serve FILE on this machine while you write it: every change of the code begins anew, and runs go on.

    Runs stand in the store, so a change, a crash and Ctrl-C leave them where they are.
    """
    settings = settings_now()
    log_to_stderr()
    if once:
        live = liveness_of({"heartbeat_window": DEV_LEASE_MS})
        again = f"outlast dev {module}"
        served = load_workflows(module)
        code = asyncio.run(_serve(settings, served, live, host="127.0.0.1", port=port, again=again, watched=True))
        click.get_current_context().exit(code)
    load_workflows(module)  # a mistake is told before anything is watched
    click.get_current_context().exit(_watch(settings, module, port))


def _watch(settings: Settings, module: str, port: int) -> int:
    """Run the serving process anew at each change of a Python file beside the module."""
    try:
        from watchfiles import PythonFilter, run_process
    except ModuleNotFoundError:
        raise _extra("watchfiles") from None
    logging.getLogger("watchfiles").setLevel(logging.ERROR)  # it warns of Ctrl-C
    path = Path(split(module)[0])
    folder = path.resolve().parent if path.suffix == ".py" else Path.cwd()
    os.environ["OUTLAST_STORE"] = settings.store  # it may have a password, which every process list would show (S29)
    command = [sys.executable, "-m", "outlast", "dev", module, "--port", str(port), "--once"]

    def changed(changes: set[Any]) -> None:
        names = sorted({Path(name).name for _, name in changes})
        click.echo(inert(f"{', '.join(names)} changed: begun anew"), err=True)

    run_process(
        folder, target=_spelt(command), target_type="command", callback=changed, watch_filter=PythonFilter(),
        debounce=200, sigint_timeout=15,
    )  # fmt: skip
    return OK


def _spelt(command: Sequence[str]) -> str:
    import shlex

    return shlex.join(command)


async def _serve(
    settings: Settings,
    served: Sequence[Workflow[Any]],
    live: Liveness,
    *,
    host: str,
    port: int,
    worker: bool = True,
    dispatcher: bool = True,
    concurrency: int = 100,
    name: str = "",
    notify: str = "",
    again: str,
    watched: bool = False,
) -> int:
    try:
        from outlast.service.house import House
        from outlast.service.identity import Anonymous, authenticator, check_bind, proxy_options
        from outlast.service.process import Part, Process
        from outlast.service.sockets import listen, url_of
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("outlast"):
            raise
        raise _extra(error.name or "") from None
    said = load()
    auth = said.auth
    check_bind(host, authenticates=auth.any)
    async with operations(settings, make=True, workflows=served) as bound:
        who = authenticator(auth, SystemClock()) if auth.any else _local(Anonymous, settings)
        house = House(bound.store, who, tuple(served), reach=reach_of(said))
        parts: list[Part] = []
        serving: Serving | None = None
        if worker:
            serving = _worker(bound, house, served, live, concurrency, name, notify)
            parts.append(serving)
        if dispatcher:
            sender = dispatching().dispatch(bound.store, reach=house.reach)
            house.counters.append(sender.counters)
            parts.append(sender)
        listening = listen(host, port)
        process = Process(house, listening, parts, proxy_options(said.serve.proxies))
        at_ctrl_c(process.stop, watched=watched)
        url = url_of(listening)
        answers = await process.run(
            lambda: _banner(Screen(settings), url, bound, served, auth.any, serving, dispatcher, again)
        )
    where = settings.where()
    if serving is not None and answers and answers[0] is False:
        click.echo(inert(f"The store was restored, or is another one. Start anew: {again}{where}"), err=True)
        return CONFLICT
    click.echo(inert(f"Stopped. Every run is safe in {bound.store.url} and goes on with: {again}{where}"), err=True)
    return OK


def _local(anonymous: Any, settings: Settings) -> Any:
    return anonymous(local_actor(()).name, tenant=settings.tenant)


def _worker(
    bound: Operations, house: Any, served: Sequence[Workflow[Any]], live: Liveness, concurrency: int, name: str,
    notify: str,
) -> Serving:  # fmt: skip
    notifier = notifier_of(notify)
    watched = Counters()  # what is counted and measured by all workers of this process
    house.counters.append(watched)
    watch = eyes(watched)

    def make() -> WorkerProcess:
        return worker_of(
            bound.store, served, live=live, concurrency=concurrency, name=name, notifier=notifier, watch=watch
        )  # fmt: skip

    return Serving(bound.store, make)


def _banner(
    screen: Screen, url: str, bound: Operations, served: Sequence[Workflow[Any]], secured: bool,
    serving: Serving | None, dispatcher: bool, again: str,
) -> None:  # fmt: skip
    lanes = [workflow.lane for workflow in served]
    worker = serving.worker.id if serving is not None else ""
    data = {"url": url, "store": bound.store.url, "serves": lanes, "worker": worker, "dispatcher": dispatcher,
            "authentication": secured}  # fmt: skip
    if not screen.data(data) and not screen.quiet:
        who = "credentials are asked for" if secured else "no credentials: whoever reaches it is you (loopback only)"
        screen.line(f"outlast  {url}/v1   {', '.join(lanes) or 'no workflow is loaded'}")
        screen.line(f"  store       {bound.store.url}")
        screen.line(f"  who         {who}")
        screen.line(f"  walks runs  {worker or 'not here: outlast worker MODULE'}")
        screen.line(f"  webhooks    {'sent from here' if dispatcher else 'not here: outlast dispatcher'}")
        if lanes:
            first = served[0].name
            screen.line(f"  try         curl {url}/v1/workflows/{first}   Ctrl-C stops, and loses nothing")
    sys.stdout.flush()


def _extra(name: str) -> InvalidInput:
    return InvalidInput(
        "the service needs the extra `service`", f"{name} is not installed", "uv add 'outlast[service]'"
    )
