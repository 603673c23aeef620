"""`outlast export` and `outlast verify`: everything of a run in one file, and whether such a file is whole."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from outlast.cli.exit_codes import OK
from outlast.cli.screen import Screen
from outlast.cli.session import reads_store, settings_now
from outlast.cli.settings import Command
from outlast.cli.text import json_escaped
from outlast.errors import InvalidInput
from outlast.runtime.export import REDACTED, VerifiedExport, export, verify
from outlast.runtime.operations import Operations

FOUND = 1


@click.command("export", cls=Command)
@click.argument("run", metavar="RUN")
@click.option("--to", "file", type=click.Path(path_type=Path), metavar="FILE", help="Write it there [stdout].")
@click.option("--whole", is_flag=True, help="Leave nothing out: what looks like a secret stands in it too.")
@reads_store
async def export_command(ops: Operations, screen: Screen, run: str, file: Path | None, whole: bool) -> int:
    """Write everything of RUN as one JSON document.

    Its rows, the exact bytes of its events, who decided what with which claims, what policy said, approvals with the
    digests of their plans, effects with request and response, evidence, and the store's generation. What looks like a
    secret is left out, and its row says so; all else is what the run holds: keep it as you keep the store.
    """
    document = await export(ops, run, whole=whole)
    text = json_escaped(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"
    if file is None:
        click.echo(text, nl=False)
        return OK
    await asyncio.to_thread(_write, file, text)
    rows = sum(REDACTED in row for part in document.values() if isinstance(part, list) for row in part)
    events, seal = len(document["events"]), document["seal"]
    if not screen.data({"file": str(file), "run": run, "events": events, "seal": seal, "redacted": rows}):
        screen.line(f"{file}: {events} events of {run}, seal {seal}")
        if rows:
            screen.line(f"  {rows} rows without what looks like a secret; all of it: --whole")
        screen.advice(f"check it anywhere, without the store: outlast verify {file}")
    return OK


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written", error.strerror or str(error), "name another file") from error


@click.command("verify", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seal", default="", metavar="DIGEST", help="The seal that the export told of.")
def verify_command(file: Path, seal: str) -> None:
    """Check an export without any store: digests, the chain of its events, approvals and effects.

    Exit code 1, and the row, when something was changed. Whoever can rewrite the file can compute its digests anew:
    with --seal, as noted when it was exported, that is found too.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read", error.strerror or str(error), "name an export") from error
    looked = verify(data)
    wrong = bool(looked.findings) or (bool(seal) and json.loads(data).get("seal") != seal)
    screen = Screen(settings_now())
    if not screen.data(_view(looked, wrong)):
        for f in looked.findings:
            screen.line(f"{f.check}  {f.kind} {' '.join(map(str, f.key))}")
            screen.line(f"  {f.text}")
        if wrong and not looked.findings:
            screen.line("seal  it is not the one named: this is another export, or one that was written anew")
        verdict = "is not what was exported" if wrong else "is whole"
        counts = f"{looked.events} events, {looked.effects} effects, {looked.approvals} approvals"
        if looked.redacted:
            screen.advice(f"{looked.redacted} rows are redacted: their own bytes cannot be checked here")
        screen.line(f"{file} {verdict}: run {looked.run}, {counts}, generation {looked.generation}")
    click.get_current_context().exit(FOUND if wrong else OK)


def _view(looked: VerifiedExport, wrong: bool) -> dict[str, Any]:
    return {
        "run": looked.run,
        "whole": not wrong,
        "events": looked.events,
        "effects": looked.effects,
        "approvals": looked.approvals,
        "generation": looked.generation,
        "redacted": looked.redacted,
        "violations": [{"check": f.check, "kind": f.kind, "key": list(f.key), "what": f.text} for f in looked.findings],
    }
