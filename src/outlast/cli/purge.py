"""`outlast purge`: runs that ended long ago are forgotten; what keeps a payment from being made twice is not."""

import click

from outlast.cli.acting import unsure
from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_store
from outlast.cli.settings import Command
from outlast.cli.text import duration
from outlast.core.budget import DAY, RUNS_KEPT
from outlast.runtime.care import purge
from outlast.runtime.operations import Operations
from outlast.runtime.spans import span


@click.command("purge", cls=Command)
@click.option("--older", type=duration, metavar="DURATION", help=f"Since its end [{RUNS_KEPT // DAY}d].")
@click.option("--yes", is_flag=True, help="Do not ask.")
@on_store
async def purge_command(ops: Operations, screen: Screen, older: int | None, yes: bool) -> int:
    """Forget the runs of all tenants that ended longer ago than this, with their ledgers and histories.

    What is of scope tenant and the keys of starts and signals stay: an order paid on day 1 is not paid again on day
    31. Runs that have not ended are never touched. Done in small transactions, beside workers.
    """
    older_ms = older or RUNS_KEPT
    question = f"forget every run that ended more than {span(older_ms)} ago, of all tenants?"
    if not yes and (code := await unsure(screen, question)) is not None:
        return code
    done = await purge(ops, older_ms=older_ms)
    if not screen.data({"runs": done.runs, "older_ms": older_ms}):
        screen.line(f"{done.runs:,} run{'' if done.runs == 1 else 's'} forgotten, ended more than {span(older_ms)} ago")
    return OK
