"""`outlast views`: named queries of lists of runs, which the whole tenant sees."""

from collections.abc import Sequence

import click

from outlast.cli.command_session import on_client, reads_client, says
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Group
from outlast.cli.screen import Screen
from outlast.runtime.client import Client


@click.group(cls=Group)
def views() -> None:
    """List, save and remove named queries of runs."""


@views.command("ls")
@reads_client
async def ls(client: Client, screen: Screen) -> int:
    """List the saved views of the tenant."""
    found = await client.views()
    if screen.listing("views", found):
        return OK
    if not found:
        screen.line("no view is saved → outlast views save NAME QUERY")
        return OK
    screen.table(("NAME", "QUERY", "BY", "SAVED"), [(v.name, v.query, v.by, screen.since(v.at)) for v in found])
    screen.advice("outlast runs ls --view NAME")
    return OK


@views.command("save")
@click.argument("name")
@click.argument("query", nargs=-1, required=True)
@on_client
async def save(client: Client, screen: Screen, name: str, query: Sequence[str]) -> int:
    """Save a QUERY of `runs ls` under a NAME, in place of an earlier view of this name."""
    saved = await client.save_view(name, " ".join(query))
    if not screen.data(saved):
        screen.line(f"saved the view {saved.name}: {saved.query}{await says(client)}")
    return OK


@views.command("rm")
@click.argument("name")
@on_client
async def rm(client: Client, screen: Screen, name: str) -> int:
    """Remove the view of a NAME. No run is changed."""
    left = await client.remove_view(name)
    if not screen.listing("views", left):
        screen.line(f"removed the view {name}{await says(client)}")
    return OK
