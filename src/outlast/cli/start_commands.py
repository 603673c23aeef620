"""`outlast run` and `outlast signal`: start a run, wait for its end, send it a signal."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import click

from outlast.cli.command_session import client as client_of
from outlast.cli.command_session import no_module_for_service, on_client, warn_unserved
from outlast.cli.exit_codes import OK, RUN_FAILED, WAITING
from outlast.cli.fact_options import fact_options
from outlast.cli.global_options import CliSettings, Command, settings_now
from outlast.cli.modules import load_workflows, split
from outlast.cli.run_page import hidden_fields
from outlast.cli.screen import Screen
from outlast.cli.tail import print_update, shown
from outlast.cli.text import results_text
from outlast.core.events import EventType
from outlast.core.lanes import SCHEDULERS, worker_command
from outlast.core.machine import TERMINAL, RunStatus
from outlast.core.start_details import BY_PLACE
from outlast.errors import InvalidInput
from outlast.flow.workflow import Workflow, workflows_by_name
from outlast.models.runs import CloudEvent, RunDelta
from outlast.runtime.client import Client

# Waits that need an external action: --wait ends there.
FROM_OUTSIDE = frozenset({"approval", "signal", "attention", "pause", "budget"})
NOT_IN_SUMMARY = frozenset({"asked", "visits", "effects", "takeovers", "progress"})
RESTS = frozenset({EventType.PARKED, EventType.FLAGGED})  # events after which a run may wait


@click.command(cls=Command)
@click.argument("name", metavar="[MODULE:]NAME")
@click.argument("given", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--module", metavar="MODULE", help="Module that declares the workflow [OUTLAST_MODULE].")
@click.option("--input", "source", type=click.File("rb"), metavar="FILE", help="Read the input as JSON; - reads stdin.")
@click.option("--id", "run_id", default="", metavar="ID", help="Id of the run [a new one].")
@click.option("--key", default="", metavar="KEY", help="Idempotency key: the same key returns the same run.")
@click.option("--scheduler", type=click.Choice(SCHEDULERS), help="Engine that schedules the run [OUTLAST_SCHEDULER].")
@fact_options(BY_PLACE["option"])
@click.option("--wait", is_flag=True, help="Wait until the run ends, or needs a person or a signal (exit code 5).")
def run(
    name: str,
    given: Sequence[str],
    module: str | None,
    source: Any,
    run_id: str,
    key: str,
    scheduler: str | None,
    wait: bool,
    **details: str,
) -> None:
    """Start a run of a workflow.

    A VALUE is JSON unless the input declares text.

    \b
    outlast run flows.py:refund order_id=A-17 cents=4200
    outlast run refund --module flows.py --input refund.json
    """
    settings = settings_now()
    inline, workflow_name = split(name) if ":" in name else ("", name)
    spec = inline or module
    everything: list[Workflow[Any]] = []
    no_module_for_service(settings)
    if settings.url:
        if inline:
            raise click.UsageError(f"the service has the code: outlast run {workflow_name} …")
        spec = "MODULE"
    elif not spec:
        if name.endswith(".py"):
            raise click.UsageError(f"which workflow of {name}?\n  outlast run {name}:NAME …")
        raise click.UsageError(
            f"which module declares {name}? Its input is checked against it.\n"
            f"  outlast run flows.py:{name} …, or --module flows.py, or OUTLAST_MODULE=flows.py"
        )
    else:
        everything = load_workflows(spec.partition(":")[0] if spec == module else spec)
    given_pairs = _pairs(given)
    text = source.read() if source else None
    options = {"run_id": run_id, "key": key, "scheduler": scheduler or "", **details}
    click.get_current_context().exit(
        asyncio.run(_start(settings, everything, spec, workflow_name, text, given_pairs, options, wait))
    )


async def _start(
    settings: CliSettings,
    everything: Sequence[Workflow[Any]],
    spec: str,
    name: str,
    text: bytes | None,
    given: Sequence[tuple[str, str]],
    options: Mapping[str, str],
    wait: bool,
) -> int:
    workflow = workflows_by_name(list(everything)).get(name)
    if everything:  # a wrong input is reported before a store is created
        data = _input(workflow.input_schema() if workflow is not None else {}, text, given)
    async with client_of(settings, make=True, workflows=everything) as (client, screen):
        if not everything:
            data = _input(await client.input_schema(name) if given else {}, text, given)
        view = await client.start_run(name, data, **options)
        if not view.served:
            screen.advice(f"no worker serves {name}; start one: {worker_command(view.scheduler, spec)}")
        if not wait:
            if not screen.data(view):
                screen.line(view.run if screen.quiet else _started_line(view.run, name, view.created))
            return OK
        screen.advice(_started_line(view.run, name, view.created))
        return await _wait(client, screen, view.run)


def _started_line(run_id: str, name: str, created: bool) -> str:
    if not created:
        return f"{run_id}  {name} was started before with this key: outlast runs show {run_id}"
    return f"{run_id}  {name} started: outlast runs show {run_id}"


async def _wait(client: Client, screen: Screen, run_id: str) -> int:
    """Follow a run until it ends or waits for an external action, and return the exit code."""
    async with shown(client, screen, run_id) as take, aclosing(client.updates(run_id)) as updates:
        async for update in updates:
            event = update if isinstance(update, RunDelta) else CloudEvent.model_validate_json(update)
            if take is not None:
                take(event)
            elif screen.for_people:
                print_update(screen, update, err=True)
            if isinstance(event, CloudEvent) and event.type in RESTS and await _rests(client, run_id):
                break
    view = await client.run(run_id)
    ended = view.status in TERMINAL
    if not screen.data(view, without=NOT_IN_SUMMARY | hidden_fields(view)):
        if ended:
            result = view.reason or json.dumps(view.outcome, ensure_ascii=False)
            screen.line(f"{run_id}  {view.shown}  {result}")
        else:
            screen.line(f"{run_id}  {view.shown}  waits for {view.waiting_text}")
        if view.results:
            screen.advice(f"{results_text(view.results)} → outlast runs results {run_id}")
    if not ended:
        return WAITING
    return OK if view.status == RunStatus.COMPLETED else RUN_FAILED


async def _rests(client: Client, run_id: str) -> bool:
    """True if the run waits for an external action."""
    return any(each.kind in FROM_OUTSIDE for each in (await client.run_summary(run_id)).waiting_for)


# --- the input ---------------------------------------------------------------------------------
def _pairs(given: Sequence[str]) -> list[tuple[str, str]]:
    """Split each KEY=VALUE. Raises click.UsageError."""
    found = []
    for pair in given:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise click.UsageError(
                f"{pair!r} is not key=value\n"
                '  e.g. size=3 or \'tags=["a", "b"]\'; the whole as JSON: --input FILE (- reads stdin)'
            )
        found.append((key, value))
    return found


def _input(schema: Mapping[str, Any], text: bytes | None, given: Sequence[tuple[str, str]]) -> bytes:
    """Return the input as JSON, from the file and the pairs; pairs win. Raises InvalidInput."""
    if text is not None and not given:
        return text
    data: Any = {}
    if text is not None:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput("the input is not JSON", str(error), "correct the file") from error
        if not isinstance(data, dict):
            raise InvalidInput("the input is not a JSON object", fix="write { … }")
    for key, value in given:
        data[key] = _value(schema, key, value)
    return json.dumps(data).encode()


def _value(schema: Mapping[str, Any], key: str, text: str) -> Any:
    if _is_text(schema, schema.get("properties", {}).get(key, {})):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_text(schema: Mapping[str, Any], field: Mapping[str, Any]) -> bool:
    """True if the schema declares text, so that 17 remains "17"."""
    if "$ref" in field:
        name = str(field["$ref"]).rpartition("/")[2]
        return _is_text(schema, schema.get("$defs", {}).get(name, {}))
    options = field.get("anyOf") or field.get("oneOf")
    if options:
        return any(_is_text(schema, each) for each in options)
    return field.get("type") == "string"


def json_of(text: str | None, what: str) -> Any:
    """Parse JSON from the command line, from @FILE, or from stdin for `-`. None stays None. Raises InvalidInput."""
    if text is None:
        return None
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{what} cannot be read from {text[1:]}", str(error), "name a JSON file") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        ways = """e.g. '{"price": 42}', @file.json, or - for stdin"""
        raise InvalidInput(f"{what} is not JSON", str(error), ways) from error


@click.command(cls=Command)
@click.argument("run")
@click.argument("name")
@click.option("--data", metavar="JSON|@FILE|-", help="Payload of the signal: a JSON object [{}].")
@click.option("--id", "signal_id", default="", metavar="ID", help="Idempotency id: a second signal with it is ignored.")
@on_client
async def signal(client: Client, screen: Screen, run: str, name: str, data: str | None, signal_id: str) -> int:
    """Send the signal NAME to RUN."""
    payload = json_of(data, "the signal's data")
    if payload is not None and not isinstance(payload, dict):
        raise InvalidInput("the signal's data is not a JSON object", fix="""write e.g. '{"price": 42}'""")
    waits = [each.what for each in (await client.run_summary(run)).waiting_for if each.kind == "signal"]
    new = await client.signal(run, name, payload or {}, signal_id=signal_id)
    if not screen.data({"run": run, "name": name, "signal_id": signal_id, "new": new}):
        again = f"{name} {signal_id} was sent to {run} before: nothing changes"
        screen.line(f"{name} sent to {run}" if new else again)
    if waits and name not in waits:  # otherwise a misspelt name would go unnoticed
        screen.advice(f"{run} waits for the signal {', '.join(waits)}; {name} is kept until the run waits for it")
    await warn_unserved(client, screen, run)
    return OK
