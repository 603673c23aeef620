"""Maintenance of a store: `outlast fsck`, `backup`, `recover`, `purge` and `doctor`."""

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from outlast.cli.command_session import on_store, reads_store, unsure
from outlast.cli.exit_codes import OK, RUN_FAILED
from outlast.cli.global_options import Command, settings_now
from outlast.cli.screen import Screen
from outlast.cli.text import duration
from outlast.clocks import SystemClock
from outlast.core.durations import DAY, LEDGER_KEPT, RUNS_KEPT, span
from outlast.engine.store_maintenance import Recovered
from outlast.runtime.operations import Operations
from outlast.telemetry.redact import redact, redacted
from outlast.upkeep.fsck import Fsck, FsckReport
from outlast.upkeep.whole_store import adopt_moved, back_up, examine, purge, unfinished
from outlast.upkeep.whole_store import recover as recover_store

VIOLATIONS = 1
SHOWN = 100


@click.command("fsck", cls=Command)
@click.option("--chain", is_flag=True, help="Recompute every hash and digest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, as with -o json.")
@reads_store
async def fsck(ops: Operations, screen: Screen, chain: bool, as_json: bool) -> int:
    """Check every invariant of the store.

    It covers all tenants. It only reads, a page of runs at a time, and may run beside workers: a finding in a run that
    changes is checked again before it is reported. Exit code 1 if an invariant is broken.
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
        "threads": looked.threads,
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
    threads = f", {looked.threads:,} threads of LangGraph" if looked.threads else ""
    looked_at = f"{runs}, {looked.events:,} events, {effects}{threads} in {span(ms)}"
    screen.line(f"{verdict}: {looked_at}, generation {looked.generation}")
    if not chain:
        screen.advice("hashes and digests were not recomputed → --chain")
    if n:
        screen.advice("copy the file before any other step, then run outlast export RUN for each run named")


@click.command("backup", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Overwrite FILE.")
def backup(file: Path, replace: bool) -> None:
    """Copy the store to FILE while workers run.

    The copy shows one instant. It is checked (as by outlast fsck) before it gets its name; exit code 1 if an invariant
    is broken in it. After a restore: outlast recover --after-restore.
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
    click.get_current_context().exit(VIOLATIONS if made.findings else OK)


@click.command("recover", cls=Command)
@click.option("--after-restore", is_flag=True, help="Recover a restored backup, or another copy of a store.")
@click.option("--moved", is_flag=True, help="Recover a store moved between disks; the old file must be gone.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@partial(on_store, use="recover")
async def recover(ops: Operations, screen: Screen, after_restore: bool, moved: bool, yes: bool) -> int:
    """Make a restored or moved store usable again.

    With --moved nothing else changes. It is refused while the old file exists.

    With --after-restore a new generation of the store begins; run it before any worker starts. Workers and writers of
    the lost time are shut out. Every unfinished run of all tenants waits for a person, and its open effects may
    have happened. A continued run settles them, and every effect that its ledger does not have, as declared: by asking
    the receiver if the activity can, else a person.
    """
    if after_restore == moved:
        raise click.UsageError("use --after-restore (a backup or a copy) or --moved (the old file is gone)")
    if moved:
        await adopt_moved(ops)
        if not screen.data({"moved": True, "store": ops.store.url}):
            screen.line(f"{ops.store.url} continues in this file")
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
        screen.line(f"  waiting      {done.runs} runs, with {done.effects} open effects")
        screen.advice("now: start workers, check each run's receivers, then continue the runs:")
        screen.advice("  outlast attention ls;  outlast attention resolve --all restored continue --reason …")
        screen.advice("runs started after the backup are not in it: start them again from where they came, with the")
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
@click.option(
    "--older", type=duration, metavar="DURATION", help=f"Minimum time since the end of a run [{RUNS_KEPT // DAY}d]."
)
@click.option(
    "--ledgers",
    type=duration,
    metavar="DURATION",
    help=f"The same for the ledger alone [{LEDGER_KEPT // DAY}d].",
)
@click.option(
    "--threads", type=duration, metavar="DURATION", help="Delete also LangGraph threads unchanged for so long [none]."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@on_store
async def purge_command(
    ops: Operations, screen: Screen, older: int | None, ledgers: int | None, threads: int | None, yes: bool
) -> int:
    """Delete runs that ended long ago, and the ledgers of runs that ended less long ago.

    It covers all tenants. A ledger is the effects, memos and late answers of a run; its history, approvals and results
    remain until the run is deleted. Effects with once_per="tenant" and the keys of starts and signals remain after
    that: an order paid on day 1 is not paid again on day 31. Unfinished runs are never deleted, nor are their ledgers.
    It works in small transactions and may run beside workers.
    """
    older_ms = RUNS_KEPT if older is None else older  # 0: all that have ended
    ledgers_ms = LEDGER_KEPT if ledgers is None else ledgers
    question = (
        f"of all tenants, delete every run that ended more than {span(older_ms)} ago, "
        f"and every ledger of a run that ended more than {span(ledgers_ms)} ago"
        f"{'' if threads is None else f', and every thread of LangGraph unchanged for {span(threads)}'}?"
    )
    if not yes and (code := await unsure(screen, question)) is not None:
        return code
    done = await purge(ops, older_ms=older_ms, ledgers_ms=ledgers_ms, threads_ms=threads)
    view: dict[str, Any] = {"runs": done.runs, "older_ms": older_ms, "ledgers": done.ledgers, "ledgers_ms": ledgers_ms}
    view |= {"threads": done.threads, "threads_ms": threads}
    if not screen.data(view):
        screen.line(f"{done.runs:,} run{'' if done.runs == 1 else 's'} deleted, ended more than {span(older_ms)} ago")
        ledgers_text = f"{done.ledgers:,} ledger{'' if done.ledgers == 1 else 's'} of other runs deleted"
        screen.line(f"{ledgers_text}, ended more than {span(ledgers_ms)} ago")
        if threads is not None:
            deleted = f"{done.threads:,} thread{'' if done.threads == 1 else 's'} of LangGraph deleted"
            screen.line(f"{deleted}, unchanged for {span(threads)}")
    return OK


@click.command(cls=Command)
@reads_store
async def doctor(ops: Operations, screen: Screen) -> int:
    """Check store, clocks, workers and settings.

    Exit code 1 if a finding needs an operator.
    """
    findings = await examine(ops)
    ill = any(each.fix for each in findings)
    if not screen.listing("findings", [each._asdict() for each in findings], well=not ill):
        for each in findings:
            screen.line(f" {'✗' if each.fix else '!' if each.note else '✓'} {each.what:<18} {each.found}")
            if advice := each.fix or each.note:
                screen.line(f"   {'':<18} → {advice}")
    return RUN_FAILED if ill else OK
