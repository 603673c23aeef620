"""`outlast runs fork`: start a new run from a checkpoint of another, or list its checkpoints."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Literal

import click

from outlast.cli.command_session import client as client_of
from outlast.cli.command_session import no_module_for_service, warn_unserved
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import CliSettings, Command, settings_now
from outlast.cli.modules import load_workflows
from outlast.cli.screen import Screen
from outlast.core.machine import EffectStatus
from outlast.errors import InvalidInput
from outlast.insight.fork_words import OUTCOMES
from outlast.models.fork_answers import ForkPreview, LaterCall, RunForked
from outlast.runtime.client import Client

SHOWN_MAX = 20
Effects = Literal["ask", "recorded", "live"]
Lookups = Literal["recorded", "live"]


@click.command(cls=Command)
@click.argument("run")
@click.option("--from", "point", default="", metavar="CHECKPOINT|NODE", help="Where it begins [list the checkpoints].")
@click.option("--state", type=click.File("rb"), metavar="FILE", help="State to begin with, as JSON; - reads stdin.")
@click.option(
    "--effects",
    type=click.Choice(["ask", "recorded", "live"]),
    default="ask",
    help="Who permits its writes: a person, the recording or else a person, the policy [ask].",
)
@click.option(
    "--lookups",
    type=click.Choice(["recorded", "live"]),
    default="recorded",
    help="Answer lookups from the recording, or make them again [recorded].",
)
@click.option("--approvers", default="", metavar="RULE", help="Who approves where the policy names no approvers.")
@click.option("--signals", default="", metavar="ID,…|all", help="Later signals that it gets [none].")
@click.option("--accept-undone", is_flag=True, help="Begin although effects of the past may not be in force.")
@click.option("--both-go-on", default="", metavar="REASON", help="Why a run that has not ended and its fork both act.")
@click.option("--dry-run", is_flag=True, help="Print what the fork would do, and start nothing.")
@click.option("--id", "fork_id", default="", metavar="ID", help="Id of the fork: the same id is the same fork [new].")
@click.option("--module", metavar="MODULE", help="Module that declares the workflow [OUTLAST_MODULE].")
def fork(
    run: str,
    point: str,
    state: Any,
    effects: Effects,
    lookups: Lookups,
    approvers: str,
    signals: str,
    accept_undone: bool,
    both_go_on: str,
    dry_run: bool,
    fork_id: str,
    module: str | None,
) -> None:
    """Start a new run from a checkpoint of RUN.

    Its past is copied and never repeated. Without --from, list the checkpoints. A RUN that has not ended needs
    --both-go-on, because it and the fork may both act.

    \b
    outlast runs fork RUN
    outlast runs fork RUN --from review --approvers lead
    outlast runs fork RUN --from review --approvers lead --dry-run
    outlast runs fork RUN --from 4 --effects recorded --approvers lead --state changed.json
    """
    settings = settings_now()
    no_module_for_service(settings)
    if point and not module and not settings.url:
        raise click.UsageError("the state is checked by the code of the workflow: --module flows.py")
    if effects == "live" and approvers:
        raise click.UsageError("--approvers is for --effects ask and recorded: in a live fork the policy decides")
    given = _state(state.read()) if state else None
    wanted = [each for each in signals.split(",") if each]
    options: dict[str, Any] = {
        "lookups": lookups,
        "signals": wanted,
        "accept_undone": accept_undone,
        "both_go_on": both_go_on,
        "state": given,
    }
    if not dry_run:
        options["fork_id"] = fork_id or None
    code = asyncio.run(_fork(settings, module, run, point, effects, approvers, options, dry_run=dry_run))
    click.get_current_context().exit(code)


def _state(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidInput("the state is no JSON", str(error), "write it as `runs show --state` does") from error
    if not isinstance(found, dict):
        raise InvalidInput("the state is no JSON object", "", "write it as `runs show --state` does")
    return found


async def _fork(
    settings: CliSettings,
    module: str | None,
    run: str,
    point: str,
    effects: Effects,
    approvers: str,
    options: dict[str, Any],
    *,
    dry_run: bool,
) -> int:
    served = load_workflows(module) if module and not settings.url else []
    async with client_of(settings, workflows=served) as (client, screen):
        if not point:
            return await _list_points(client, screen, run)
        if dry_run:
            found = await client.fork_preview(run, point, approvers=approvers, effects=effects, **options)
            if not screen.data(found):
                _print_preview(screen, found)
            return OK
        if effects == "live":
            view = await client.fork_run_live(run, point, **options)
        else:
            view = await client.fork_run(run, point, approvers=approvers, effects=effects, **options)
        if not screen.data(view):
            _print(screen, view)
        await warn_unserved(client, screen, view.fork)
    return OK


async def _list_points(client: Client, screen: Screen, run: str) -> int:
    found = await client.fork_points(run)
    if screen.listing("points", found.points):
        return OK
    rows = [
        (str(p.checkpoint), p.node, screen.since(p.at), str(p.past), str(len(p.later)), "; ".join(p.to_accept))
        for p in found.points
    ]
    screen.table(("CHECKPOINT", "NODE", "AT", "CALLS BEFORE", "AFTER", "TO ACCEPT"), rows)
    both = " --both-go-on REASON" if found.in_flight else ""
    screen.advice(f"outlast runs fork {run} --from CHECKPOINT --approvers RULE{both}")
    return OK


def _print(screen: Screen, view: RunForked) -> None:
    """Print what the fork reads, asks and sends."""
    verb = "forked from" if view.created else "was forked before from"
    screen.line(f"{view.fork} {verb} {view.run} at checkpoint {view.checkpoint}, node {view.node}")
    writes = [call for call in view.later if call.kind == "write"]
    lookups = [call for call in view.later if call.kind == "lookup"]
    once = [call for call in writes if call.once_per == "run" and call.status == EffectStatus.DONE]
    screen.pairs(
        (
            ("both act", [f"{view.run} had not ended and goes on, too: {view.both_go_on}"] if view.both_go_on else []),
            ("past", [f"{view.copied} calls copied, none is made again"]),
            ("changed", [", ".join(view.changed)] if view.changed else []),
            ("accepted", view.accepted),
            ("answered", _calls(once) if view.effects != "recorded" else _calls(writes)),
            ("asks", [] if view.effects == "live" else [f"{view.approvers}, or whom the policy names, for each write"]),
            ("sends", ["writes that the policy allows"] if view.effects == "live" else []),
            ("reads", _calls(lookups) if view.lookups == "recorded" else ["each lookup is made again"]),
        )
    )


def _print_preview(screen: Screen, found: ForkPreview) -> None:
    """Print what a fork would begin with, read, ask for and send, and why its start would be refused."""
    screen.line(f"a fork of {found.run} at checkpoint {found.checkpoint} would begin with node {found.node}")
    more = [f"… and {found.more_calls} more"] if found.more_calls else []
    calls = [
        f"{each.activity} {each.key} ({each.status} in visit {each.visit} of the run): {OUTCOMES[each.outcome]}"
        for each in found.calls
    ]
    changes = [f"{each.path or 'state'}: {each.checkpoint or '–'} → {each.fork or '–'}" for each in found.changes]
    screen.pairs(
        (
            ("both act", [f"{found.run} has not ended and goes on, too"] if found.in_flight else []),
            ("prevents it", found.refused),
            ("past", [f"{found.copied} calls copied, none is made again"]),
            ("changed", [*changes, *([f"… and {found.more_changes} more"] if found.more_changes else [])]),
            ("to accept", found.to_accept),
            ("after it", [*calls, *more]),
            ("signals", [f"{s.signal} {s.name} by {s.by}{'' if s.sent else ', not sent'}" for s in found.signals]),
        )
    )


def _calls(calls: Sequence[LaterCall]) -> list[str]:
    """Return calls that the recording answers, as lines."""
    lines = [
        f"{call.activity} {call.key}: {call.status} in visit {call.visit} of the run, recorded"
        for call in calls[:SHOWN_MAX]
    ]
    return [*lines, f"… and {len(calls) - SHOWN_MAX} more"] if len(calls) > SHOWN_MAX else lines
