"""`outlast pause`, `release` and `holds`: the stop signs of operators and of circuit breakers (S-23)."""

from typing import get_args

import click

from outlast.cli.client import Client
from outlast.cli.exit_codes import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_client, reads_client
from outlast.cli.settings import Command
from outlast.engine.pauses import What

KINDS = click.Choice(get_args(What))


def _check(what: str, name: str) -> None:
    if (what == "tenant") == bool(name):
        raise click.UsageError(f"{what} takes no name: --tenant says which" if name else f"which {what}? name it")


@click.command("pause", cls=Command)
@click.argument("what", type=KINDS)
@click.argument("name", default="")
@click.option("--reason", required=True, help="People will read it while they wait.")
@on_client
async def pause(client: Client, screen: Screen, what: What, name: str, reason: str) -> int:
    """Stop new calls of an activity, of a provider or of a workflow, or everything of the tenant, until it is released.

    Workers know it within one heartbeat. Calls under way end; runs that meet the hold wait for it, and say so.
    """
    _check(what, name)
    view = await client.pause(what, name, reason=reason)
    if not screen.data(view):
        screen.line(f"{view['paused']} is held, says {view['by']}: {reason}")
        screen.advice(f"→ outlast resume {what} {name}".rstrip())
    return OK


@click.command("resume", cls=Command)
@click.argument("what", type=KINDS)
@click.argument("name", default="")
@on_client
async def resume(client: Client, screen: Screen, what: What, name: str) -> int:
    """Resume after a pause or an open circuit breaker, and make due every run that waited for it."""
    _check(what, name)
    view = await client.resume(what, name)
    if not screen.data(view):
        woken = view["runs"]
        runs = f"{woken} run{'' if woken == 1 else 's'} that waited for it go{'es' if woken == 1 else ''} on"
        screen.line(f"{view['resumed']} is released; {runs}")
    return OK


@click.command("pauses", cls=Command)
@reads_client
async def pauses(client: Client, screen: Screen) -> int:
    """List the holds and circuit breakers that are up, and how many runs wait for each."""
    views = await client.pauses()
    if screen.listing("pauses", views):
        return OK
    if not views:
        screen.line("nothing is held → outlast pause activity NAME --reason …")
        return OK
    table = [
        (str(v["paused"]), str(v["runs"]), screen.since(str(v["since"])), str(v["by"]), str(v["reason"])) for v in views
    ]
    screen.table(("HELD", "RUNS", "SINCE", "BY", "REASON"), table)
    for view in views:
        screen.advice(f"→ outlast resume {view['paused']}")
    return OK
