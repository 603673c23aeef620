"""`outlast effects`: list and show the effects of all runs, and resolve uncertain ones (EFF-2, EFF-7)."""

import asyncio
import json
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from outlast.cli.command_session import client as client_of
from outlast.cli.command_session import no_module_for_service, reads_client, says, warn_unserved
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import CliSettings, Group, settings_now
from outlast.cli.modules import load_workflows
from outlast.cli.run_page import PURGED, uncertain_lines
from outlast.cli.screen import DECISION_SCHEMA, EFFECT_ID, Screen, iso_of, json_of_model
from outlast.cli.start_commands import json_of
from outlast.cli.text import ago, duration
from outlast.core.durations import span
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_columns import ANSWER_NOT_STORED
from outlast.core.rows.effect_rows import WITHHELD
from outlast.errors import InvalidInput
from outlast.insight.labels import happened_options, late_answer_label
from outlast.models import milliseconds
from outlast.models.approvals import ApprovalDetail
from outlast.models.attention import Verb
from outlast.models.effects import EffectRecord
from outlast.models.runs import RunDetail
from outlast.runtime.client import Client


def print_effects(
    screen: Screen, views: Sequence[EffectRecord], *, across: bool = False, now: datetime | None = None
) -> None:
    """Print effects as a table, with the possible answers for uncertain ones. `across`: of several runs."""
    first = ("RUN",) if across else ()
    last = ("WHEN",) if across else ("APPROVAL",) if any(view.approval for view in views) else ()
    rows = [
        (
            *((view.run,) if across else ()),
            *_row(view),
            *((_ago(view.first_at_real, now),) if across else (view.approval,) if last else ()),
        )
        for view in views
    ]
    screen.table((*first, "EFFECT", "KEY", "OUTCOME", "EXTERNAL ID", *last), rows)
    for view in views:
        if view.status == EffectStatus.UNCERTAIN:
            for line in uncertain_lines(screen, view):
                screen.line(line)


def purged_text(view: RunDetail) -> str:
    """Return where to look if the ledger of a run was purged; '' if it was not."""
    return f"the effects of {view.run} are {PURGED} → outlast runs history {view.run}" if view.ledger_purged else ""


def _row(view: EffectRecord) -> tuple[str, ...]:
    doubtful = view.status == EffectStatus.UNCERTAIN
    detail = f": {view.detail}" if view.detail and view.code and view.code in view.outcome else ""
    return view.effect, view.key, view.outcome + detail, view.external_id or ("?" if doubtful else "")


def print_effect(
    screen: Screen, view: EffectRecord, requested_by: str, decision: ApprovalDetail | None, now: datetime
) -> None:
    """Print all data of one effect."""
    screen.line(f"{view.effect}  {view.key}   {view.outcome}")
    in_visit = f" {view.visit} of the run" if view.visit else ""
    waited = f", {span(view.waited_ms)} of waits between them" if view.waited_ms else ""
    attempts = f"{view.attempts} attempt{'' if view.attempts == 1 else 's'}{waited}"
    why = f"{view.code}: {view.detail}" if view.code else ""
    screen.pairs(
        (
            ("run", [f"{view.run}, node {view.node} → outlast runs show {view.run}"]),
            ("once per", [f"{view.once_per}{in_visit}"]),
            ("asked by", [requested_by]),
            ("policy", [view.allowed_by] if view.allowed_by else []),
            ("approval", _approval(decision)),
            ("digest", [view.digest]),
            ("attempts", [attempts]),
            ("first intent", [f"{_ago(view.first_at_real, now)} ago, {iso_of(view.first_at_real)}"]),
            ("last moment", [f"{iso_of(view.not_after_real)} to send the latest attempt"]),
            ("settled", _settled(screen, view)),
            ("why", [why] if why else []),
            ("external id", [view.external_id] if view.external_id and not view.child else []),
            ("child run", [f"{view.child} → outlast runs show {view.child}"] if view.child else []),
            ("undo", [view.undo] if view.undo else []),
            ("request", _json(view.arguments)),
            ("response", _response(view)),
            ("evidence", [late_answer_label(each) for each in view.evidence]),
        )
    )
    if view.status == EffectStatus.UNCERTAIN:
        for line in uncertain_lines(screen, view.model_copy(update={"evidence": []})):
            screen.line(line)


def _approval(view: ApprovalDetail | None) -> list[str]:
    if view is None:
        return []
    by = f" by {view.decided_by}: {view.reason}" if view.decided_by else ""
    return [f"{view.approval} {view.status}{by} → outlast approvals show {view.approval}"]


def _settled(screen: Screen, view: EffectRecord) -> list[str]:
    if not view.settled_at:
        return []
    ways = {"call": "by its answer", "reconcile": "by asking the receiver", WITHHELD: "without a call"}
    by = ways.get(view.settled_by, f"by {view.settled_by}")
    lines = [f"{screen.since(view.settled_at)}, {by}"]
    if view.correctable:
        resolve = f"outlast effects resolve {view.run} {shlex.quote(view.key)} --correct"
        lines.append(f"nothing has used this answer; if it is wrong: {resolve} {happened_options(view.takes_response)}")
    return lines


def _response(view: EffectRecord) -> list[str]:
    """Return the response of an effect that is done; no lines if its answer is not stored."""
    return _json(view.response) if view.status == EffectStatus.DONE and view.code != ANSWER_NOT_STORED else []


def _json(value: Any) -> list[str]:
    return json.dumps(value, ensure_ascii=False, indent=2).split("\n")


def _ago(instant: datetime | None, now: datetime | None) -> str:
    return span(max(0, milliseconds(now) - milliseconds(instant))) if instant and now else ""


@click.group(cls=Group)
def effects() -> None:
    """List and show effects; resolve uncertain ones."""


@effects.command("ls")
@click.option("--uncertain", is_flag=True, help="Only uncertain effects.")
@click.option("--status", type=click.Choice([s.value for s in EffectStatus]), help="Only effects in this status.")
@click.option("--unknown", is_flag=True, help="Only effects that a person gave up: they may have happened.")
@click.option("--activity", default="", metavar="NAME", help="Only calls of this activity.")
@click.option("--run", default="", metavar="RUN", help="Only effects of this run.")
@click.option("--since", type=duration, metavar="DURATION", help="Only effects of this period, e.g. 24h.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="Maximum number of rows [50].")
@click.option("--cursor", default="", help="Continue after the previous page.")
@reads_client
async def ls(
    client: Client,
    screen: Screen,
    uncertain: bool,
    status: str | None,
    unknown: bool,
    activity: str,
    run: str,
    since: int | None,
    limit: int,
    cursor: str,
) -> int:
    """List the effects of all runs, newest first."""
    if bool(uncertain) + bool(status) + bool(unknown) > 1:
        raise click.UsageError("--uncertain, --status and --unknown exclude each other")
    page = await client.ledger(
        status=EffectStatus.UNCERTAIN if uncertain else EffectStatus(status) if status else None,
        unknown=unknown,
        activity=activity,
        run=run,
        since=ago(since),
        cursor=cursor,
        limit=limit,
    )
    if screen.listing("effects", page.effects, without=EFFECT_ID, cursor=page.next_cursor):
        return OK
    if not page.effects:
        if run and (gone := purged_text(await client.run(run))):
            screen.line(gone)
            return OK
        filtered = uncertain or status or unknown or activity or run or since is not None or cursor
        screen.line("no effect matches" if filtered else "no effect yet → outlast runs ls")
        return OK
    print_effects(screen, page.effects, across=True, now=await client.now())
    screen.further("effects", page.next_cursor)
    screen.advice("→ outlast effects show RUN KEY")
    return OK


@effects.command("show")
@click.argument("run")
@click.argument("key")
@click.option(
    "--visit",
    type=click.IntRange(0),
    default=None,
    metavar="N",
    help="Number of the visit [the latest]; 0 for effects of the run.",
)
@reads_client
async def show(client: Client, screen: Screen, run: str, key: str, visit: int | None) -> int:
    """Show an effect: request, response, attempts and decisions."""
    effect = await client.effect(run, key, visit=visit)
    asked_by = (await client.run_summary(run)).requested_by
    approval = await client.approval(effect.approval) if effect.approval else None
    view = {
        **json_of_model(effect, EFFECT_ID),
        "requested_by": asked_by,
        "decision": json_of_model(approval, DECISION_SCHEMA),
    }
    if not screen.data(view):
        print_effect(screen, effect, asked_by, approval, await client.now())
    return OK


@effects.command("resolve")
@click.argument("run")
@click.argument("key")
@click.option("--happened", metavar="EXTERNAL_ID", help="The call happened; its id at the receiver.")
@click.option(
    "--response", metavar="JSON|@FILE|-", help="With --happened: the call's return value, unless its type is None."
)
@click.option("--did-not-happen", is_flag=True, help="The call did not happen; the run calls again.")
@click.option("--give-up", is_flag=True, help="Unknown; the run treats the call as refused.")
@click.option("--reason", default="", help="Reason for the history; required with --give-up.")
@click.option("--correct", is_flag=True, help="Replace another answer of a person, which nothing has used yet.")
@click.option("--module", metavar="MODULE", help="Module that checks the response with its code [OUTLAST_MODULE].")
def resolve(
    run: str,
    key: str,
    happened: str | None,
    response: str | None,
    did_not_happen: bool,
    give_up: bool,
    reason: str,
    correct: bool,
    module: str | None,
) -> None:
    """Record the outcome of the uncertain effect KEY of RUN."""
    if [happened is not None, did_not_happen, give_up].count(True) != 1:
        raise click.UsageError("use one of --happened EXTERNAL_ID, --did-not-happen, --give-up")
    if response is not None and happened is None:
        raise click.UsageError("--response needs --happened")
    if give_up and not reason.strip():
        raise InvalidInput(
            "giving up needs a reason", "the run continues as if the call were refused", "add --reason …"
        )
    verb: Verb = "did_not_happen" if did_not_happen else "give_up" if give_up else "happened"
    answer = json_of(response, "the response")
    settings = settings_now()
    no_module_for_service(settings)
    code = asyncio.run(_resolve(settings, run, key, verb, happened or "", answer, reason, correct, module))
    click.get_current_context().exit(code)


async def _resolve(
    settings: CliSettings,
    run: str,
    key: str,
    verb: Verb,
    external_id: str,
    response: Any,
    reason: str,
    correct: bool,
    module: str | None,
) -> int:
    served = load_workflows(module) if module and not settings.url else []
    async with client_of(settings, workflows=served) as (client, screen):
        await client.resolve_effect(
            run, key, verb, reason=reason, external_id=external_id, response=response, correct=correct
        )
        view = {
            "run": run,
            "key": key,
            "resolved": verb,
            "by": (await client.whoami()).name,
            "external_id": external_id,
        }
        if not screen.data(view):
            outcome = f"happened, as {external_id}" if external_id else verb.replace("_", " ")
            screen.line(f"{key} of {run}: {outcome}{await says(client)} → outlast runs show {run}")
        await warn_unserved(client, screen, run)
    return OK
