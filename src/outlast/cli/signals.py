"""`outlast signal`: leaves a signal for a run, once."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from outlast.cli.acting import warn_unserved
from outlast.cli.desk.port import Desk
from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_desk
from outlast.cli.settings import Command
from outlast.errors import InvalidInput


def json_of(text: str | None, what: str) -> Any:
    """JSON as given on the line, after @ in a file, or for - on stdin; None for nothing. Raises InvalidInput."""
    if text is None:
        return None
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{what} cannot be read from {text[1:]}", str(error), "name a file of JSON") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        ways = """e.g. '{"price": 42}', @file.json, or - for stdin"""
        raise InvalidInput(f"{what} is not JSON", str(error), ways) from error


@click.command(cls=Command)
@click.argument("run")
@click.argument("name")
@click.option("--data", metavar="JSON|@FILE|-", help="What it says: a JSON object [{}].")
@click.option("--id", "signal_id", default="", metavar="ID", help="A second signal of this id is ignored.")
@on_desk
async def signal(desk: Desk, screen: Screen, run: str, name: str, data: str | None, signal_id: str) -> int:
    """Leave the signal NAME for RUN."""
    payload = json_of(data, "the signal's data")
    if payload is not None and not isinstance(payload, dict):
        raise InvalidInput("the signal's data is not a JSON object", fix="""write e.g. '{"price": 42}'""")
    waits = [each["what"] for each in (await desk.glance(run))["waiting_for"] if each["kind"] == "signal"]
    new = await desk.signal(run, name, payload or {}, signal_id=signal_id)
    if not screen.data({"run": run, "name": name, "signal_id": signal_id, "new": new}):
        again = f"{name} {signal_id} had been left for {run} before: nothing changes"
        screen.line(f"{name} left for {run}" if new else again)
    if waits and name not in waits:  # a name that is misspelt would otherwise wait unseen
        screen.advice(f"{run} waits for the signal {', '.join(waits)}; {name} is kept until it is asked for")
    await warn_unserved(desk, screen, run)
    return OK
