"""`outlast run`: starts a run with a checked input, says whether anybody serves it, and waits for its end if asked."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import click

from outlast.cli.failure import OK, RUN_FAILED, WAITING
from outlast.cli.modules import load_workflows, split
from outlast.cli.screen import Screen
from outlast.cli.session import operations, screen_of, settings_now
from outlast.cli.settings import Command, Settings
from outlast.core.machine import RunStatus
from outlast.core.overlay import waiting_of
from outlast.core.rows import Run, is_over
from outlast.errors import InvalidInput
from outlast.flow.workflow import Workflow
from outlast.runtime.operations import Operations, workflows_by_name
from outlast.runtime.views import ending_of, run_view
from outlast.runtime.watch import until

# What a run may wait for that does not come by itself: --wait ends there.
FROM_OUTSIDE = frozenset({"approval", "signal", "attention", "hold"})


@click.command(cls=Command)
@click.argument("name", metavar="[MODULE:]NAME")
@click.argument("given", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--module", metavar="MODULE", help="Declares the workflow [OUTLAST_MODULE].")
@click.option("--input", "source", type=click.File("rb"), metavar="FILE", help="The input as JSON; - reads stdin.")
@click.option("--id", "run_id", default="", metavar="ID", help="The run's id [a new one].")
@click.option("--key", default="", metavar="KEY", help="Idempotency key: the same key answers the same run.")
@click.option("--wait", is_flag=True, help="Wait until it ends, or waits for a person or a signal (exit code 5).")
def run(name: str, given: Sequence[str], module: str | None, source: Any, run_id: str, key: str, wait: bool) -> None:
    """Start a run of a workflow.

    \b
    outlast run flows.py:refund order_id=A-17 cents=4200
    outlast run refund --module flows.py --input refund.json
    """
    settings = settings_now()
    inline, workflow_name = split(name) if ":" in name else ("", name)
    spec = inline or module
    if not spec:
        raise click.UsageError(
            f"which module declares {name}? Its input is checked against it.\n"
            f"  outlast run flows.py:{name} …, or --module flows.py, or OUTLAST_MODULE=flows.py"
        )
    everything = load_workflows(spec.partition(":")[0] if spec == module else spec)
    data = _input(workflows_by_name(everything).get(workflow_name), source.read() if source else None, given)
    click.get_current_context().exit(
        asyncio.run(_start(settings, everything, spec, workflow_name, data, run_id, key, wait))
    )


async def _start(
    settings: Settings,
    everything: Sequence[Workflow[Any]],
    spec: str,
    name: str,
    data: bytes,
    run_id: str,
    key: str,
    wait: bool,
) -> int:
    async with operations(settings, make=True, workflows=everything) as bound:
        started = await bound.start(name, data, run_id=run_id, idempotency_key=key)
        row = await bound.run(started.run)
        serving = await bound.serving()
        screen = await screen_of(bound, settings)
        if not is_over(row) and row.lane not in serving:
            screen.advice(f"no worker serves {name}; start one: outlast worker {spec}")
        if not wait:
            if not screen.data({**run_view(row, serving), "created": started.created}):
                screen.line(started.run if screen.quiet else _told(started.run, name, started.created))
            return OK
        screen.advice(_told(started.run, name, started.created))
        return await _wait(bound, screen, started.run)


def _told(run_id: str, name: str, created: bool) -> str:
    if not created:
        return f"{run_id}  {name} had been started before under this key: outlast runs show {run_id}"
    return f"{run_id}  {name} started: outlast runs show {run_id}"


async def _wait(bound: Operations, screen: Screen, run_id: str) -> int:
    async def rests() -> Run | None:
        row = await bound.run(run_id)
        return row if is_over(row) or any(w.kind in FROM_OUTSIDE for w in waiting_of(row)) else None

    row = await until(bound.store, rests)
    assert row is not None
    ending = ending_of(await bound.history(run_id, after=row.seq - 1))
    view = {**run_view(row, await bound.serving()), **(ending or {})}
    if not screen.data(view):
        if ending is None:
            screen.line(f"{run_id}  {view['shown']}  waits for {view['waiting_text']}")
        else:
            said = ending["reason"] or json.dumps(ending["outcome"], ensure_ascii=False)
            screen.line(f"{run_id}  {view['shown']}  {said}")
    if ending is None:
        return WAITING
    return OK if row.status is RunStatus.COMPLETED else RUN_FAILED


# --- the input ---------------------------------------------------------------------------------
def _input(workflow: Workflow[Any] | None, text: bytes | None, given: Sequence[str]) -> bytes:
    """The input as JSON: the file, or the pairs, or both, where the pairs come on top. Raises InvalidInput."""
    if text is not None and not given:
        return text
    data: Any = {}
    if text is not None:
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InvalidInput("the input is not JSON", str(error), "correct the file") from error
        if not isinstance(data, dict):
            raise InvalidInput("the input is not a JSON object", fix="write { … }")
    schema = workflow.input_schema() if workflow is not None else {}
    for pair in given:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise click.UsageError(f"{pair!r} is not key=value")
        data[key] = _value(schema, key, value)
    return json.dumps(data).encode()


def _value(schema: dict[str, Any], key: str, text: str) -> Any:
    if _is_text(schema, schema.get("properties", {}).get(key, {})):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_text(schema: dict[str, Any], field: dict[str, Any]) -> bool:
    """Does the schema take text here, so that 17 stays "17"?"""
    if "$ref" in field:
        name = str(field["$ref"]).rpartition("/")[2]
        return _is_text(schema, schema.get("$defs", {}).get(name, {}))
    options = field.get("anyOf") or field.get("oneOf")
    if options:
        return any(_is_text(schema, each) for each in options)
    return field.get("type") == "string"
