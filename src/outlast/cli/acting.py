"""What commands that act say around it: who acts, whether a person is sure, and that nobody is there to do it."""

import asyncio

import click

from outlast.cli.desk.port import Desk
from outlast.cli.failure import OK, USAGE
from outlast.cli.screen import Screen


async def says(desk: Desk) -> str:
    """Who says it."""
    return f", says {await desk.caller()}"


async def warn_unserved(desk: Desk, screen: Screen, run: str) -> None:
    """Say so when no worker is there to do what was just asked for."""
    view = await desk.glance(run)
    if not view["served"]:
        screen.advice(f"no worker serves {view['lane']}; start one: outlast worker MODULE")


async def unsure(screen: Screen, question: str, nothing: str = "not answered") -> int | None:
    """Ask a person: None for a yes; else the exit code, once it was said that `nothing` was done."""
    answer = await asyncio.to_thread(_confirm, question[0].upper() + question[1:])
    if answer is None:
        screen.advice(f"{nothing}: nobody was there to ask → --yes")
        return USAGE
    if not answer:
        screen.line(nothing)
        return OK
    return None


def _confirm(question: str) -> bool | None:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return None
