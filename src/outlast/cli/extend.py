"""`outlast runs extend`: more time for a run that has passed its ceiling (GATE-4)."""

from datetime import timedelta

import click

from outlast.cli.acting import says, warn_unserved
from outlast.cli.desk.port import Desk
from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_desk
from outlast.cli.settings import Command
from outlast.cli.text import duration
from outlast.core.budget import RUN_CEILING
from outlast.core.machine import Choice
from outlast.runtime.spans import span


@click.command(Choice.EXTEND.value, cls=Command)
@click.argument("run")
@click.option("--by", type=duration, metavar="DURATION", default=None, help="From now on [168h].")
@click.option("--reason", required=True, help="For the history; people will read it.")
@on_desk
async def extend(desk: Desk, screen: Screen, run: str, by: int | None, reason: str) -> int:
    """Give a run that has passed its ceiling more time; the ceiling is armed anew."""
    ms = RUN_CEILING if by is None else by
    await desk.extend(run, by=timedelta(milliseconds=ms), reason=reason)
    if not screen.data({"run": run, "by": await desk.caller(), "extended_ms": ms, "reason": reason}):
        screen.line(f"{run} has {span(ms)} more{await says(desk)}")
    await warn_unserved(desk, screen, run)
    return OK
