"""`outlast dispatcher`: sends what webhooks are to be told of, until it is told to stop."""

import asyncio
import sys

import click

from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import operations, settings_now
from outlast.cli.settings import Command, Settings
from outlast.cli.stopping import at_ctrl_c
from outlast.runtime.settings import load
from outlast.runtime.webhooks import dispatching, reach_of


@click.command(cls=Command)
def dispatcher() -> None:
    """Tell the webhooks of every tenant what happens, until stopped.

    Several may serve one store. Ctrl-C ends what is under way and stops; what is left is sent by the next one.
    """
    click.get_current_context().exit(asyncio.run(_dispatch(settings_now())))


async def _dispatch(settings: Settings) -> int:
    async with operations(settings, make=True) as bound:
        process = dispatching().dispatch(bound.store, reach=reach_of(load()))
        at_ctrl_c(process.drain)
        screen = Screen(settings)
        if not screen.data({"dispatcher": process.name, "store": bound.store.url}):
            screen.line(f"dispatcher {process.name} tells webhooks what happens · store {bound.store.url}")
        sys.stdout.flush()
        await process.run()
        click.echo("Stopped. What is left is sent by the next one: outlast dispatcher", err=True)
    return OK
