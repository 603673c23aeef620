"""`outlast fsck`: whether every invariant that the store's rows can show holds, with the row of each that does not."""

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from outlast.cli.exit_codes import OK, RUN_FAILED
from outlast.cli.screen import Screen
from outlast.cli.session import on_store, reads_store, settings_now, unsure
from outlast.cli.settings import Command
from outlast.cli.text import duration
from outlast.core.durations import DAY, RUNS_KEPT, span
from outlast.engine.restore import Recovered
from outlast.runtime.clocks import SystemClock
from outlast.runtime.doctor import examine
from outlast.runtime.fsck import Fsck, FsckReport
from outlast.runtime.maintenance import adopt_moved, back_up, purge, unfinished
from outlast.runtime.maintenance import recover as recover_store
from outlast.runtime.operations import Operations
from outlast.telemetry.redact import redact, redacted

VIOLATIONS = 1
SHOWN = 100


@click.command("fsck", cls=Command)
@click.option("--chain", is_flag=True, help="Compute every hash and digest anew.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, as with -o json.")
@reads_store
async def fsck(ops: Operations, screen: Screen, chain: bool, as_json: bool) -> int:
    """Check every invariant over the whole store, of all tenants.

    Reads only, a page of runs at a time, and may run beside workers: what is found in a run that moves is looked at
    again before it is told. Exit code 1 when an invariant is broken.
    """
    clock = SystemClock()
    began = clock.mono()
    looked = await Fsck(ops.store, chain=chain).look(
        _print_progress if sys.stderr.isatty() and not screen.quiet else None
    )
    ms = clock.mono() - began
    screen = screen.for_programs() if as_json else screen
    if not screen.data(_fsck_view(looked, ms, chain)):
        _print_findings(screen, looked, ms, chain)
    return VIOLATIONS if looked.findings else OK


def _print_progress(runs: int) -> None:
    click.echo(f"\r{runs:,} runs", nl=False, err=True)


def _fsck_view(looked: FsckReport, ms: int, chain: bool) -> dict[str, Any]:
    return {
        "runs": looked.runs,
        "events": looked.events,
        "effects": looked.effects,
        "generation": looked.generation,
        "chain": chain,
        "ms": ms,
        "violations": [
            redacted({"check": f.check, "kind": f.kind, "key": list(f.key), "what": f.text}) for f in looked.findings
        ],
    }


def _print_findings(screen: Screen, looked: FsckReport, ms: int, chain: bool) -> None:
    for f in looked.findings[:SHOWN]:
        screen.line(redact(f"{f.check}  {f.kind} {' '.join(map(str, f.key))}"))
        screen.line(f"  {redact(f.text)}")
    if len(looked.findings) > SHOWN:
        screen.line(f"and {len(looked.findings) - SHOWN} more → -o json")
    n = len(looked.findings)
    verdict = "every invariant holds" if not n else "1 violation" if n == 1 else f"{n} violations"
    runs = "1 run" if looked.runs == 1 else f"{looked.runs:,} runs"
    effects = "1 effect" if looked.effects == 1 else f"{looked.effects:,} effects"
    looked_at = f"{runs}, {looked.events:,} events, {effects} in {span(ms)}"
    screen.line(f"{verdict}: {looked_at}, generation {looked.generation}")
    if not chain:
        screen.advice("hashes and digests were not computed anew → --chain")
    if n:
        screen.advice("keep the file as it is: copy it before anything else, then outlast export RUN of each run named")


BACKUP_BROKEN = 1


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
    click.get_current_context().exit(BACKUP_BROKEN if made.findings else OK)


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
    if not screen.data(_recovered_view(done)):
        screen.line(f"generation {done.generation.n} begins: {done.generation.id}")
        screen.line(f"  shut out     {done.workers} workers, {done.writers} writers")
        screen.line(f"  in doubt     {done.runs} runs, {done.effects} effects")
        screen.advice("now: start workers, look at each run's receivers, then let them go on:")
        screen.advice("  outlast attention ls;  outlast attention resolve --all restored continue --reason …")
        screen.advice("runs started after the backup are not in it: whoever started them starts them again, with the")
        screen.advice("  same idempotency key and the same run id, so that receivers see the same Idempotency-Key")
    return OK


def _recovered_view(done: Recovered) -> dict[str, Any]:
    return {
        "generation": done.generation.n,
        "id": done.generation.id,
        "workers": done.workers,
        "writers": done.writers,
        "runs": done.runs,
        "effects": done.effects,
    }


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
