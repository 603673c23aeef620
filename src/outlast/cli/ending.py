"""`outlast runs input` and `outcome`: what a run began with and has come to, as JSON alone, for programs and pipes."""

import json

import click

from outlast.cli.desk.port import Desk
from outlast.cli.failure import OK, RUN_FAILED, WAITING
from outlast.cli.screen import Screen
from outlast.cli.session import reads_desk
from outlast.cli.settings import Command
from outlast.core.machine import TERMINAL, RunStatus


@click.command("input", cls=Command)
@click.argument("run")
@reads_desk
async def input_(desk: Desk, screen: Screen, run: str) -> int:
    """Print what RUN was started with as JSON, as its workflow took it."""
    given = await desk.input(run)
    if not screen.data(given):
        screen.line(json.dumps(given, ensure_ascii=False))
    return OK


@click.command(cls=Command)
@click.argument("run")
@reads_desk
async def outcome(desk: Desk, screen: Screen, run: str) -> int:
    """Print the outcome of RUN as JSON; exit code 1 where it failed or was cancelled, 5 where it has not ended."""
    view = await desk.run(run)
    if view["status"] not in TERMINAL:
        screen.advice(f"{run} has not ended: {view['waiting_text'] or view['shown']} → outlast runs tail {run}")
        return WAITING
    if view["status"] != RunStatus.COMPLETED:
        screen.advice(f"{run} {view['status'].upper()}: {view['reason']}")
        return RUN_FAILED
    if not screen.data(view["outcome"]):
        screen.line(json.dumps(view["outcome"], ensure_ascii=False))
    return OK
