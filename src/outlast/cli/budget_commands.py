"""`outlast budgets`: limits of what the runs of a tenant may use on each day of business time."""

from collections.abc import Sequence

import click

from outlast.cli.command_session import on_client, reads_client, says
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Group
from outlast.cli.run_page import used_lines
from outlast.cli.screen import Screen, json_of_model
from outlast.cli.text import amount
from outlast.core.limits import USAGE_DAYS_MAX
from outlast.core.usage import Budget
from outlast.models.service import LimitShare
from outlast.runtime.client import Client


@click.group(cls=Group)
def budgets() -> None:
    """List and set what the runs of a tenant may use each day."""


@budgets.command("ls")
@reads_client
async def ls(client: Client, screen: Screen) -> int:
    """List the daily budget of the tenant with its usage today."""
    views = await client.budgets()
    if screen.listing("budgets", views):
        return OK
    if not views:
        screen.line("the tenant has no daily budget → outlast budgets set --tokens 1M")
        return OK
    rows = [
        (
            v.tenant,
            ", ".join(used_lines(v.used, v.limits)),
            _percent(v.shares),
            screen.ahead(v.resets_at),
            str(v.runs),
            screen.since(v.since),
            v.by,
            v.reason,
        )
        for v in views
    ]
    screen.table(("TENANT", "USED TODAY", "SHARE", "RESETS", "WAITING", "SINCE", "BY", "REASON"), rows)
    if any(v.runs for v in views):
        screen.advice("→ outlast attention ls")
    return OK


def _percent(shares: Sequence[LimitShare]) -> str:
    """Return the used part of the limit with the least left; '' without a limit."""
    return f"{shares[0].percent:,.1f} %" if shares else ""


@budgets.command()
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, help="Maximum number of runs [20].")
@reads_client
async def runs(client: Client, screen: Screen, limit: int) -> int:
    """List unfinished runs with a budget, the one that is nearest to a limit first."""
    found = await client.budgeted_runs(limit=limit)
    if screen.data(json_of_model(found)):
        return OK
    if not found.runs:
        screen.line("no unfinished run has a budget: give its workflow one, e.g. budget=Budget(tokens=200_000)")
        return OK
    rows = [
        (
            each.run,
            each.lane,
            each.shown,
            _percent(each.shares),
            ", ".join(f"{share.used} of {share.limit} {share.counts}" for share in each.shares),
            screen.since(each.created_at),
        )
        for each in found.runs
    ]
    screen.table(("RUN", "WORKFLOW", "STATUS", "SHARE", "USED", "STARTED"), rows)
    more = "" if found.every else "; there are more, and these began first"
    screen.line(f"{found.read:,} unfinished runs with a budget were compared{more}")
    screen.advice("→ outlast runs raise RUN --tokens 50k --reason WHY")
    return OK


@budgets.command()
@click.option("--days", type=click.IntRange(1, USAGE_DAYS_MAX), default=14, help="Number of business days [14].")
@reads_client
async def usage(client: Client, screen: Screen, days: int) -> int:
    """Add up the usage of each of the last business days (UTC) by workflow, model and activity."""
    found = await client.usage(days=days)
    if screen.data(found):
        return OK
    if not found.usage:
        screen.line(f"no call has reported usage since {found.since}")
        return OK
    rows = [
        (each.day, each.workflow, each.model, each.activity, each.money, f"{each.tokens:,}", f"{each.calls:,}")
        for each in found.usage
    ]
    screen.table(("DAY", "WORKFLOW", "MODEL", "ACTIVITY", "MONEY", "TOKENS", "CALLS"), rows)
    if not found.every:
        screen.line("these days have more reports than were added up: the numbers of the earliest days are too low")
    return OK


@budgets.command("set")
@click.option("--tokens", type=amount, metavar="N", help="Tokens of each day, e.g. 50k or 1M.")
@click.option("--money", metavar="AMOUNT", help="Money of each day, e.g. 50 or 0.25.")
@click.option("--calls", type=amount, metavar="N", help="Calls of each day.")
@click.option("--reason", default="", help="Reason, shown in the list.")
@on_client
async def set_(
    client: Client, screen: Screen, tokens: int | None, money: str | None, calls: int | None, reason: str
) -> int:
    """Set the daily budget of the tenant (--tenant), in place of the one before.

    Workers see it within one heartbeat. Runs that wait for a budget look again.
    """
    if tokens is None and money is None and calls is None:
        raise click.UsageError("give --tokens, --money or --calls, or use: outlast budgets remove")
    budget = Budget(tokens=tokens, money=money, calls=calls)
    await client.set_budget(budget, reason=reason)
    if not screen.data(await client.budgets()):
        for view in await client.budgets():
            used = ", ".join(used_lines(view.used, view.limits))
            screen.line(f"tenant {view.tenant} has a daily budget{await says(client)}; used today: {used}")
    return OK


@budgets.command("remove")
@click.option("--reason", default="", help="Reason for the history.")
@on_client
async def remove(client: Client, screen: Screen, reason: str) -> int:
    """Remove the daily budget of the tenant (--tenant). Runs that wait for it go on."""
    await client.set_budget(None, reason=reason)
    if not screen.data([]):
        screen.line(f"the tenant has no daily budget any more{await says(client)}")
    return OK
