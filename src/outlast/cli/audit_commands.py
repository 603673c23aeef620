"""`outlast audit`: who did what, on which run, and why."""

from typing import get_args

import click

from outlast.cli.command_session import reads_client
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Group
from outlast.cli.screen import Screen
from outlast.cli.text import ago, duration
from outlast.models.audit_entries import AuditKind
from outlast.runtime.client import Client

KINDS = click.Choice(get_args(AuditKind))


@click.group(cls=Group)
def audit() -> None:
    """List the acts of people and programs over all runs."""


@audit.command("ls")
@click.option("--by", default="", metavar="NAME", help="Only acts of this caller.")
@click.option("--kind", type=KINDS, metavar="KIND", help="Only acts of this kind, for example decision or cancel.")
@click.option("--since", type=duration, metavar="DURATION", help="Only acts of this period, e.g. 24h.")
@click.option("--cursor", default="", help="Continue after the previous page.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="Maximum number of acts [50].")
@reads_client
async def ls(
    client: Client, screen: Screen, by: str, kind: AuditKind | None, since: int | None, cursor: str, limit: int
) -> int:
    """List acts, newest first: decisions, answers, cancellations, signals, forks, jobs and changes of the tenant."""
    found = await client.audit(by=by, kind=kind, since=ago(since), cursor=cursor, limit=limit)
    if screen.listing("entries", found.entries, cursor=found.next_cursor):
        return OK
    if not found.entries:
        screen.line("no act matches")
        return OK
    rows = [(screen.since(each.at), each.by, each.kind, each.what, each.run, each.reason) for each in found.entries]
    screen.table(("WHEN", "BY", "KIND", "WHAT", "RUN", "REASON"), rows)
    screen.further("acts", found.next_cursor)
    return OK
