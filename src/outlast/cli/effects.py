"""`outlast effects resolve`: a person says what became of an effect that may or may not have happened (EFF-2)."""

import asyncio
from typing import Any, Literal

import click

from outlast.cli.failure import OK
from outlast.cli.modules import load_workflows
from outlast.cli.runs import warn_unserved
from outlast.cli.session import operations, screen_of, settings_now
from outlast.cli.settings import Group, Settings
from outlast.cli.signals import json_of
from outlast.errors import InvalidInput

Verb = Literal["happened", "did_not_happen", "give_up"]


@click.group(cls=Group)
def effects() -> None:
    """Settle an effect that may or may not have happened."""


@effects.command("resolve")
@click.argument("run")
@click.argument("key")
@click.option("--happened", metavar="EXTERNAL_ID", help="It did; this is its id at the receiver.")
@click.option("--response", metavar="JSON|@FILE|-", help="With --happened: what the call would have returned [null].")
@click.option("--did-not-happen", is_flag=True, help="It did not: the run calls again.")
@click.option("--give-up", is_flag=True, help="Nobody can tell: the run takes it as refused.")
@click.option("--reason", default="", help="For the history; needed to give up.")
@click.option("--module", envvar="OUTLAST_MODULE", metavar="MODULE", help="Checks the response [OUTLAST_MODULE].")
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
    served = load_workflows(module) if module else []
    async with operations(settings, workflows=served) as ops:
        screen = await screen_of(ops, settings)
        await ops.resolve_effect(run, key, verb, reason=reason, external_id=external_id, response=response)
        if verb == "happened" and not served:
            screen.advice("the response was not checked against the activity: --module does that")
        view = {"run": run, "key": key, "resolved": verb, "by": ops.actor.name, "external_id": external_id}
        if not screen.data(view):
            said = f"happened, as {external_id}" if external_id else verb.replace("_", " ")
            screen.line(f"{key} of {run}: {said}, says {ops.actor.name} → outlast runs show {run}")
        await warn_unserved(ops, screen, run)
    return OK
