"""`outlast fsck`: whether every invariant that the store's rows can show holds, with the row of each that does not."""

import sys
from typing import Any

import click

from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import reads_store
from outlast.cli.settings import Command
from outlast.runtime.clocks import SystemClock
from outlast.runtime.fsck.look import Fsck, Looked
from outlast.runtime.operations import Operations
from outlast.runtime.spans import span
from outlast.telemetry.redact import redact, redacted

FOUND = 1
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
    looked = await Fsck(ops.store, chain=chain).look(_progress if sys.stderr.isatty() and not screen.quiet else None)
    ms = clock.mono() - began
    screen = screen.for_programs() if as_json else screen
    if not screen.data(_view(looked, ms, chain)):
        _say(screen, looked, ms, chain)
    return FOUND if looked.findings else OK


def _progress(runs: int) -> None:
    click.echo(f"\r{runs:,} runs", nl=False, err=True)


def _view(looked: Looked, ms: int, chain: bool) -> dict[str, Any]:
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


def _say(screen: Screen, looked: Looked, ms: int, chain: bool) -> None:
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
