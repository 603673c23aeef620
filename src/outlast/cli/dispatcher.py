"""`outlast dispatcher`: sends what webhooks are to be told of, until it is told to stop."""

import asyncio
import sys

import click

from outlast.cli.failure import OK
from outlast.cli.metrics_port import metrics_at, metrics_option
from outlast.cli.screen import Screen
from outlast.cli.session import operations, settings_now
from outlast.cli.settings import Command, Settings
from outlast.cli.stopping import at_ctrl_c
from outlast.cli.worker import log_to_stderr
from outlast.runtime.settings import load
from outlast.runtime.webhooks import load_sender, new_dispatcher, reach_of


@click.command(cls=Command)
@metrics_option
def dispatcher(metrics_port: int | None) -> None:
    """Tell the webhooks of every tenant what happens, until stopped.

    `outlast serve` has one within, `outlast worker` has none. Several may serve one store. Ctrl-C ends what is under
    way and stops; what is left is sent by the next one.
    """
    settings = settings_now()
    log_to_stderr()
    click.get_current_context().exit(asyncio.run(_dispatch(settings, metrics_port)))


async def _dispatch(settings: Settings, metrics_port: int | None) -> int:
    load_sender()  # first, because a missing extra must not leave a new store behind
    async with operations(settings, make=True) as bound:
        process = new_dispatcher(bound.store, reach=reach_of(load()))
        at_ctrl_c(process.drain)
        screen = Screen(settings)
        async with metrics_at(metrics_port, bound.store, [process.counters]) as metrics:
            if not screen.data({"dispatcher": process.name, "store": bound.store.url, "metrics": metrics}):
                screen.line(f"dispatcher {process.name} tells webhooks what happens · store {bound.store.url}")
                if metrics:
                    screen.line(f"  metrics  {metrics}")
            sys.stdout.flush()
            await process.run()
        click.echo("Stopped. What is left is sent by the next one: outlast dispatcher", err=True)
    return OK
