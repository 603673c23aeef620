"""`outlast causes`: why runs need a person, with the number of runs of each cause."""

import click

from outlast.cli.command_session import reads_client
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Group
from outlast.cli.screen import Screen, json_of_model
from outlast.core.machine import Reason
from outlast.runtime.client import Client

REASONS = click.Choice([each.value for each in Reason])


@click.group(cls=Group)
def causes() -> None:
    """List the causes for which runs need a person."""


@causes.command("ls")
@click.option("--reason-name", type=REASONS, metavar="REASON", help="Only causes of this reason.")
@click.option("--workflow", default="", metavar="NAME", help="Only causes in this workflow.")
@click.option("--node", default="", metavar="NAME", help="Only causes in this node.")
@reads_client
async def ls(client: Client, screen: Screen, reason_name: str | None, workflow: str, node: str) -> int:
    """List causes with the number of runs that each concerns."""
    found = await client.causes(reason=reason_name or "", workflow=workflow, node=node)
    if screen.listing("causes", found.causes):
        return OK
    if not found.causes:
        screen.line("no run needs a person")
        return OK
    about, more = "about " if found.about else "", " or more" if found.at_least else ""
    rows = [
        (
            each.cause,
            f"{about}{each.runs:,}{more}",
            each.reason,
            f"{each.workflow}@{each.version} {each.node}",
            screen.since(each.since),
            each.text,
        )
        for each in found.causes
    ]
    screen.table(("CAUSE", "RUNS", "REASON", "WHERE", "SINCE", "MESSAGE"), rows)
    if found.more:
        screen.line("there are further causes with fewer runs")
    screen.advice(f"outlast causes show {found.causes[0].cause}")
    return OK


@causes.command("show")
@click.argument("cause")
@reads_client
async def show(client: Client, screen: Screen, cause: str) -> int:
    """Show a CAUSE with what differs among its runs."""
    found = await client.cause(cause)
    if screen.data(json_of_model(found)):
        return OK
    where = f"{found.workflow}@{found.version} {found.node}"
    runs = f"{found.runs:,}{' or more' if found.at_least else ''} runs" if found.runs else "no run has it now"
    screen.line(f"{found.cause} · {found.reason} · {where} · {runs}, flagged {screen.since(found.since)}")
    screen.line(found.detail)
    if not found.runs:
        screen.line(f"flagged last: {found.run} {screen.since(found.last)}")
        return OK
    screen.line(f"of the {found.read:,} newest runs:")
    counted = [("version", found.versions, 0), *((each.name, each.values, each.others) for each in found.fields)]
    for name, values, others in counted:
        shown = ", ".join(f"{each.value} ({each.runs:,})" for each in values)
        screen.line(f"  {name}: {shown}" + (f" and {others:,} more values" if others else ""))
    for each in found.deploys:
        screen.line(f"  version {each.version} was first seen {screen.since(each.at)}")
    screen.advice(f"outlast attention ls --cause {found.cause}")
    return OK
