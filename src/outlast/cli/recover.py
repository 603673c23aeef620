"""`outlast recover --after-restore`: what the lost time may have done is proven or asked, never repeated unasked."""

from typing import Any

import click

from outlast.cli.acting import unsure
from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_store
from outlast.cli.settings import Command
from outlast.engine.restore import Recovered
from outlast.runtime.care import recover as recover_store
from outlast.runtime.care import unfinished
from outlast.runtime.operations import Operations


@click.command("recover", cls=Command)
@click.option("--after-restore", is_flag=True, required=True, help="The store was restored from a backup.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@on_store
async def recover(ops: Operations, screen: Screen, after_restore: bool, yes: bool) -> int:
    """Begin a new generation of the store, after a backup was restored and before any worker starts.

    Every worker and every writer of the lost time is shut out. Every unfinished run, of all tenants, waits for a
    person; its open effects are uncertain. A run that goes on asks about every effect that its ledger does not know:
    the receiver, where the activity can; else a person.
    """
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
