"""`outlast pause`, `resume` and `pauses`: the pauses of operators and of circuit breakers (S-23)."""

from typing import get_args

import click

from outlast.cli.command_session import on_client, reads_client
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Command
from outlast.cli.screen import Screen
from outlast.core.rows.run_columns import What
from outlast.runtime.client import Client

KINDS = click.Choice(get_args(What))


def _check(what: str, name: str) -> None:
    if (what == "tenant") == bool(name):
        raise click.UsageError(f"{what} takes no name: use --tenant" if name else f"which {what}? name it")


@click.command("pause", cls=Command)
@click.argument("what", type=KINDS)
@click.argument("name", default="")
@click.option("--reason", required=True, help="Reason, shown wherever a run waits for it.")
@on_client
async def pause(client: Client, screen: Screen, what: What, name: str, reason: str) -> int:
    """Pause calls or runs until they are resumed.

    Workers see it within one heartbeat. Calls in flight end; no new call begins, and runs wait until it is resumed.
    """
    _check(what, name)
    view = await client.pause(what, name, reason=reason)
    if not screen.data(view):
        screen.line(f"{view.paused} is paused, says {view.by}: {reason}")
        screen.advice(f"→ outlast resume {what} {name}".rstrip())
    return OK


@click.command("resume", cls=Command)
@click.argument("what", type=KINDS)
@click.argument("name", default="")
@on_client
async def resume(client: Client, screen: Screen, what: What, name: str) -> int:
    """End a pause or a circuit breaker; waiting runs continue."""
    _check(what, name)
    view = await client.resume(what, name)
    if not screen.data(view):
        woken = view.runs
        runs = f"{woken} waiting run{'' if woken == 1 else 's'} continue{'s' if woken == 1 else ''}"
        screen.line(f"{view.resumed} is resumed; {runs}")
    return OK


@click.command("pauses", cls=Command)
@reads_client
async def pauses(client: Client, screen: Screen) -> int:
    """List the pauses and the runs that wait for them."""
    views = await client.pauses()
    if screen.listing("pauses", views):
        return OK
    if not views:
        screen.line("nothing is paused → outlast pause activity NAME --reason …")
        return OK
    table = [(v.paused, str(v.runs), screen.since(v.since), v.by, v.reason) for v in views]
    screen.table(("PAUSED", "RUNS", "SINCE", "BY", "REASON"), table)
    for view in views:
        screen.advice(f"→ outlast resume {view.paused}")
    return OK
