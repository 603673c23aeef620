"""`--metrics-port`: a worker or a dispatcher shows Prometheus what it counts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click

from outlast.errors import InvalidInput, to_install
from outlast.runtime.metrics import Metrics
from outlast.runtime.settings import load
from outlast.store.port import Store
from outlast.telemetry import Counters


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
