"""`outlast effects`: every call of every run, one of them whole, and the answer to an uncertain one (EFF-2, EFF-7)."""

import asyncio
from typing import Any

import click

from outlast.cli.acting import says, warn_unserved
from outlast.cli.desk.port import Desk, Verb
from outlast.cli.effect_page import print_effect, print_effects
from outlast.cli.failure import OK
from outlast.cli.modules import load_workflows
from outlast.cli.screen import Screen
from outlast.cli.session import desk as desk_of
from outlast.cli.session import reads_desk, settings_now
from outlast.cli.settings import Group, Settings
from outlast.cli.signals import json_of
from outlast.cli.text import ago, duration
from outlast.core.machine import EffectStatus
from outlast.errors import InvalidInput


@click.group(cls=Group)
def effects() -> None:
    """List and look at what was done to the world; settle what may or may not have happened."""


@effects.command("ls")
@click.option("--uncertain", is_flag=True, help="Only those that may or may not have happened.")
@click.option("--status", type=click.Choice([s.value for s in EffectStatus]), help="Only these.")
@click.option("--activity", default="", metavar="NAME", help="Only calls of this activity.")
@click.option("--run", default="", metavar="RUN", help="Only those of this run.")
@click.option("--since", type=duration, metavar="DURATION", help="Only those first intended so recently (24h).")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="At most so many [50].")
@click.option("--cursor", default="", help="Go on where the last page ended.")
@reads_desk
async def ls(
    desk: Desk,
    screen: Screen,
    uncertain: bool,
    status: str | None,
    activity: str,
    run: str,
    since: int | None,
    limit: int,
    cursor: str,
) -> int:
    """List the calls of all runs, newest first, and what became of each."""
    if uncertain and status:
        raise click.UsageError("--uncertain is a --status: say one of them")
    views, further = await desk.ledger(
        status=EffectStatus.UNCERTAIN if uncertain else EffectStatus(status) if status else None,
        activity=activity,
        run=run,
        since=ago(since),
        cursor=cursor,
        limit=limit,
    )
    if screen.listing("effects", views, cursor=further):
        return OK
    if not views:
        filtered = uncertain or status or activity or run or since is not None or cursor
        screen.line("no such effect" if filtered else "nothing was done to the world yet → outlast runs ls")
        return OK
    print_effects(screen, views, across=True, now_real=await desk.now_real())
    screen.further("effects", further)
    screen.advice("→ outlast effects show RUN KEY")
    return OK


@effects.command("show")
@click.argument("run")
@click.argument("key")
@click.option(
    "--visit", type=click.IntRange(0), default=None, metavar="N", help="Of this visit [the latest; 0: the run's]."
)
@reads_desk
async def show(desk: Desk, screen: Screen, run: str, key: str, visit: int | None) -> int:
    """Show one call whole: who asked, what policy said, request, response, attempts, evidence, timing."""
    effect = await desk.effect(run, key, visit=visit)
    asked_by = (await desk.glance(run))["requested_by"]
    approval = await desk.approval(effect["approval"]) if effect["approval"] else None
    view = {**effect, "requested_by": asked_by, "decision": approval}
    if not screen.data(view):
        print_effect(screen, view, await desk.now_real())
    return OK


@effects.command("resolve")
@click.argument("run")
@click.argument("key")
@click.option("--happened", metavar="EXTERNAL_ID", help="It did; this is its id at the receiver.")
@click.option("--response", metavar="JSON|@FILE|-", help="With --happened: what the call would have returned [null].")
@click.option("--did-not-happen", is_flag=True, help="It did not: the run calls again.")
@click.option("--give-up", is_flag=True, help="Nobody can tell: the run takes it as refused.")
@click.option("--reason", default="", help="For the history; needed to give up.")
@click.option("--module", metavar="MODULE", help="Checks the response [OUTLAST_MODULE].")
def resolve(
    run: str,
    key: str,
    happened: str | None,
    response: str | None,
    did_not_happen: bool,
    give_up: bool,
    reason: str,
    module: str | None,
) -> None:
    """Say what became of the uncertain effect KEY of RUN, once."""
    if [happened is not None, did_not_happen, give_up].count(True) != 1:
        raise click.UsageError("say one of --happened EXTERNAL_ID, --did-not-happen, --give-up")
    if response is not None and happened is None:
        raise click.UsageError("--response belongs to --happened")
    if give_up and not reason.strip():
        raise InvalidInput("giving up needs a reason", "the run goes on as if it were refused", "say --reason …")
    verb: Verb = "did_not_happen" if did_not_happen else "give_up" if give_up else "happened"
    answer = json_of(response, "the response")
    code = asyncio.run(_resolve(settings_now(), run, key, verb, happened or "", answer, reason, module))
    click.get_current_context().exit(code)


async def _resolve(
    settings: Settings, run: str, key: str, verb: Verb, external_id: str, response: Any, reason: str, module: str | None
) -> int:
    served = load_workflows(module) if module and not settings.url else []
    async with desk_of(settings, workflows=served) as (desk, screen):
        await desk.resolve_effect(run, key, verb, reason=reason, external_id=external_id, response=response)
        if verb == "happened" and not served and desk.codes:
            screen.advice("the response was not checked against the activity: --module does that")
        view = {"run": run, "key": key, "resolved": verb, "by": await desk.caller(), "external_id": external_id}
        if not screen.data(view):
            said = f"happened, as {external_id}" if external_id else verb.replace("_", " ")
            screen.line(f"{key} of {run}: {said}{await says(desk)} → outlast runs show {run}")
        await warn_unserved(desk, screen, run)
    return OK
