"""`outlast backup`: a copy of the store as of one instant, while workers run, looked at before it counts."""

import asyncio
from pathlib import Path

import click

from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import settings_now
from outlast.cli.settings import Command
from outlast.runtime.backup import back_up

FOUND = 1


@click.command("backup", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Overwrite FILE.")
def backup(file: Path, replace: bool) -> None:
    """Copy the store to FILE while workers run.

    The copy is of one instant. It is opened and looked at (as by outlast fsck) before it gets its name; exit code 1
    when an invariant is broken in it. After a restore from it: outlast recover --after-restore.
    """
    settings = settings_now()
    made = asyncio.run(back_up(settings.store, file, replace=replace))
    screen = Screen(settings)
    generation = made.generation.n if made.generation else 1
    view = {
        "file": str(made.path),
        "bytes": made.bytes,
        "runs": made.runs,
        "events": made.events,
        "generation": generation,
        "violations": [{"check": f.check, "kind": f.kind, "key": list(f.key), "what": f.text} for f in made.findings],
    }
    if not screen.data(view):
        sound = "every invariant holds in it" if not made.findings else f"{len(made.findings)} violations in it"
        screen.line(f"{made.path}: {made.runs:,} runs, {made.bytes:,} bytes, generation {generation}; {sound}")
        screen.advice(f"after a restore: outlast --store sqlite:{made.path} recover --after-restore")
    click.get_current_context().exit(FOUND if made.findings else OK)
