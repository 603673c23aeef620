"""`outlast recover --after-restore`: what the lost time may have done is proven or asked, never repeated unasked."""

from functools import partial
from typing import Any

import click

from outlast.cli.acting import unsure
from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_store
from outlast.cli.settings import Command
from outlast.engine.restore import Recovered
from outlast.runtime.care import adopt_moved, unfinished
from outlast.runtime.care import recover as recover_store
from outlast.runtime.operations import Operations


@click.command("recover", cls=Command)
@click.option("--after-restore", is_flag=True, help="The file is a restored backup, or another copy of a store.")
@click.option("--moved", is_flag=True, help="The file was moved here between disks, and the old one is gone.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@partial(on_store, use="recover")
async def recover(ops: Operations, screen: Screen, after_restore: bool, moved: bool, yes: bool) -> int:
    """Make a file that no worker takes a store again: a restored backup or a copy, or a store that was moved.

    With --moved nothing else changes. It is refused while the old file is still there.

    With --after-restore a new generation of the store begins; do it before any worker starts.
    Every worker and every writer of the lost time is shut out. Every unfinished run, of all tenants, waits for a
    person; its open effects are uncertain. A run that goes on asks about every effect that its ledger does not know:
    the receiver, where the activity can; else a person.
    """
    if after_restore == moved:
        raise click.UsageError("say which: --after-restore (a backup or a copy) or --moved (the old file is gone)")
    if moved:
        await adopt_moved(ops)
        if not screen.data({"moved": True, "store": ops.store.url}):
            screen.line(f"{ops.store.url} goes on in this file")
        return OK
    runs = await unfinished(ops)
    word = "1 unfinished run waits" if runs == 1 else f"{runs} unfinished runs wait"
    question = f"{word} for a person after this, and every worker has to start again: recover {ops.store.url}?"
    if not yes and (code := await unsure(screen, question)) is not None:
        return code
    done = await recover_store(ops)
    if not screen.data(_view(done)):
        screen.line(f"generation {done.generation.n} begins: {done.generation.id}")
        screen.line(f"  shut out     {done.workers} workers, {done.writers} writers")
        screen.line(f"  in doubt     {done.runs} runs, {done.effects} effects")
        screen.advice("now: start workers, look at each run's receivers, then let them go on:")
        screen.advice("  outlast attention ls;  outlast attention resolve --all restored continue --reason …")
        screen.advice("runs started after the backup are not in it: whoever started them starts them again, with the")
        screen.advice("  same idempotency key and the same run id, so that receivers see the same Idempotency-Key")
    return OK


def _view(done: Recovered) -> dict[str, Any]:
    return {
        "generation": done.generation.n,
        "id": done.generation.id,
        "workers": done.workers,
        "writers": done.writers,
        "runs": done.runs,
        "effects": done.effects,
    }
