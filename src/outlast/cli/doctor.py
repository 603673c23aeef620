"""`outlast doctor`: what holds here and what does not, with what to do about it."""

import click

from outlast.cli.failure import OK, RUN_FAILED
from outlast.cli.screen import Screen
from outlast.cli.session import reads_store
from outlast.cli.settings import Command
from outlast.runtime.doctor import examine
from outlast.runtime.operations import Operations


@click.command(cls=Command)
@reads_store
async def doctor(ops: Operations, screen: Screen) -> int:
    """Look at the store, its durability, clocks, workers and settings; exit 1 where something needs somebody."""
    findings = await examine(ops)
    ill = any(each.fix for each in findings)
    if not screen.listing("findings", [each._asdict() for each in findings], well=not ill):
        for each in findings:
            screen.line(f" {'✗' if each.fix else '!' if each.note else '✓'} {each.what:<18} {each.found}")
            if told := each.fix or each.note:
                screen.line(f"   {'':<18} → {told}")
    return RUN_FAILED if ill else OK
