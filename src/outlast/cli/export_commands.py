"""`outlast export` and `outlast verify`: write a run to a file, and check such a file."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from outlast.cli.command_session import reads_store
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Command, settings_now
from outlast.cli.screen import Screen
from outlast.cli.text import json_escaped
from outlast.errors import InvalidInput
from outlast.runtime.operations import Operations
from outlast.upkeep.export import REDACTED, VerifiedExport, export, verify

FOUND = 1


@click.command("export", cls=Command)
@click.argument("run", metavar="RUN")
@click.option("--to", "file", type=click.Path(path_type=Path), metavar="FILE", help="File to write to [stdout].")
@click.option("--whole", is_flag=True, help="Do not redact values that look like secrets.")
@click.option("--tree", is_flag=True, help="Also export the runs below it, each to a file in the folder --to.")
@reads_store
async def export_command(ops: Operations, screen: Screen, run: str, file: Path | None, whole: bool, tree: bool) -> int:
    """Write all data of a run as one JSON document.

    It has the rows, the exact bytes of the events, decisions with the claims of the approvers, policy answers,
    approvals with the digests of their plans, effects with request and response, evidence, and the generation of the
    store. Values that look like secrets are redacted, and their rows say so. Protect the file like the store.
    """
    if tree:
        return await _export_tree(ops, screen, run, file, whole)
    document = await export(ops, run, whole=whole)
    text = _text_of(document)
    if file is None:
        click.echo(text, nl=False)
        return OK
    await asyncio.to_thread(_write, file, text)
    rows = sum(REDACTED in row for part in document.values() if isinstance(part, list) for row in part)
    events, seal = len(document["events"]), document["seal"]
    if not screen.data({"file": str(file), "run": run, "events": events, "seal": seal, "redacted": rows}):
        screen.line(f"{file}: {events} events of {run}, seal {seal}")
        if rows:
            screen.line(f"  {rows} rows are redacted, as they look like secrets → --whole")
        screen.advice(f"check it without the store: outlast verify {file}")
    return OK


async def _export_tree(ops: Operations, screen: Screen, run: str, folder: Path | None, whole: bool) -> int:
    """Write one document for a run and for each run below it. Each is verified alone."""
    if folder is None:
        raise InvalidInput("--tree needs a folder", "each run has a separate file", "name one with --to FOLDER")
    runs = [run, *await ops.runs_below(run)]
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be made", error.strerror or str(error), "name another folder") from error
    files = list[str]()
    for each in runs:
        file = folder / f"{quote(each, safe='')}.json"
        await asyncio.to_thread(_write, file, _text_of(await export(ops, each, whole=whole)))
        files.append(str(file))
    if not screen.data({"folder": str(folder), "run": run, "files": files}):
        screen.line(f"{folder}: {run} and {len(runs) - 1} runs below it, one file each")
        screen.advice("check each without the store: outlast verify FILE")
    return OK


def _text_of(document: dict[str, Any]) -> str:
    return json_escaped(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written", error.strerror or str(error), "name another file") from error


@click.command("verify", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seal", default="", metavar="DIGEST", help="Expected seal, as the export printed it.")
def verify_command(file: Path, seal: str) -> None:
    """Check an exported run without a store.

    Checks the digests, the chain of events, approvals and effects. Exit code 1 and the row if a value was changed, or
    if a row broke an invariant in the store already; the last line says which. An attacker who rewrites the file can
    recompute its digests; --seal, noted at the export, finds that too.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read", error.strerror or str(error), "name an export") from error
    looked = verify(data)
    changed = looked.changed or (bool(seal) and json.loads(data).get("seal") != seal)
    wrong = changed or bool(looked.findings)
    screen = Screen(settings_now())
    if not screen.data(_view(looked, changed)):
        for f in looked.findings:
            screen.line(f"{f.check}  {f.kind} {' '.join(map(str, f.key))}")
            screen.line(f"  {f.text}")
        if changed and not looked.changed:
            screen.line("seal  does not match: this is another export, or a rewritten one")
        verdict = "was changed after the export" if changed else _verdict(looked)
        counts = f"{looked.events} events, {looked.effects} effects, {looked.approvals} approvals"
        if looked.redacted:
            screen.advice(f"{looked.redacted} rows are redacted: their own bytes cannot be checked here")
        screen.line(f"{file} {verdict}: run {looked.run}, {counts}, generation {looked.generation}")
    click.get_current_context().exit(FOUND if wrong else OK)


def _verdict(looked: VerifiedExport) -> str:
    if not looked.findings:
        return "is intact"
    n = len(looked.findings)
    return f"was not changed, its digests fit; {n} invariant{'s' if n > 1 else ''} broken in the store it came from"


def _view(looked: VerifiedExport, changed: bool) -> dict[str, Any]:
    return {
        "run": looked.run,
        "whole": not changed and not looked.findings,
        "changed": changed,
        "events": looked.events,
        "effects": looked.effects,
        "approvals": looked.approvals,
        "generation": looked.generation,
        "redacted": looked.redacted,
        "violations": [{"check": f.check, "kind": f.kind, "key": list(f.key), "what": f.text} for f in looked.findings],
    }
