"""`outlast notify`: tell approvers by mail, Slack, Teams or ntfy."""

from pathlib import Path

import click

from outlast.cli import webhook_commands as webhooks
from outlast.cli.command_session import on_client, reads_client
from outlast.cli.exit_codes import OK
from outlast.cli.fact_options import fact_options
from outlast.cli.global_options import Group
from outlast.cli.screen import Screen
from outlast.core.approver_rule import PERSON
from outlast.core.webhooks.approval_notices import EVERY, KINDS, short
from outlast.core.webhooks.webhook_details import WEBHOOK_DETAILS
from outlast.runtime.client import Client


@click.group("notify", cls=Group)
def notify() -> None:
    """Tell approvers by mail, Slack, Teams or ntfy.

    A new approval, a reminder before its deadline, and an approval that was not decided in time. Messages link to the
    approval; they cannot decide it.
    """


@notify.command("add")
@click.argument("address")
@click.option("--for", "audience", default="", metavar="ROLE|person:NAME", help="Approvals of this role or person.")
@click.option("--every", is_flag=True, help="Every approval.")
@click.option(
    "--on",
    "kinds",
    multiple=True,
    type=click.Choice([short(kind) for kind in KINDS]),
    help="Only these messages [all].",
)
@click.option("--workflow", "workflows", multiple=True, metavar="NAME", help="Only runs of this workflow; repeatable.")
@fact_options(WEBHOOK_DETAILS.by_place["option"])
@on_client
async def add(
    client: Client,
    screen: Screen,
    /,
    address: str,
    audience: str,
    every: bool,
    kinds: tuple[str, ...],
    workflows: tuple[str, ...],
    **facts: str,
) -> int:
    """Send messages about approvals to ADDRESS.

    ADDRESS is a secret: @FILE reads it from a file. Examples: mailtos://USER:PASSWORD@smtp.example.com?to=…,
    slack://A/B/C, ntfys://HOST/TOPIC, or the URL of a webhook as Slack and Teams show it.
    """
    given = _read(address) if address.startswith("@") else address
    person = audience.removeprefix(PERSON) if audience.startswith(PERSON) else ""
    role = "" if person else audience
    view = await client.webhooks.notify(
        given, role=role, person=person, every=every, kinds=kinds, workflows=workflows, **facts
    )
    if not screen.data(view):
        screen.line(f"{view.webhook} tells {audience_text(view.audience)} by {view.url}")
        screen.advice(f"→ outlast dispatcher   sends · outlast notify test {view.webhook}")
    return OK


def _read(given: str) -> str:
    try:
        return Path(given[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"the address cannot be read from its file: {error}") from None


def audience_text(audience: str) -> str:
    """Return an audience in words."""
    kind, _, name = audience.partition(":")
    return "about every approval" if audience == EVERY else f"{kind} {name}"


@notify.command("ls")
@reads_client
async def ls(client: Client, screen: Screen) -> int:
    """List the subscriptions of approvers."""
    views = [view for view in await client.webhooks.list() if view.audience]
    if screen.listing("notifications", views):
        return OK
    if not views:
        screen.line("approvers are not told yet → outlast notify add ADDRESS --for ROLE")
        return OK
    table = [
        (
            view.webhook,
            view.status,
            audience_text(view.audience),
            view.url,
            ", ".join(map(short, view.types)) or "all",
            str(view.dead),
            str(view.owed),
            view.name,
        )
        for view in views
    ]
    screen.table(("SUBSCRIPTION", "STATUS", "TELLS", "BY", "ON", "GIVEN UP", "RETRYING", "NAME"), table)
    await webhooks.warn_unsent(client, screen)
    return OK


for each in (webhooks.test, webhooks.deliveries, webhooks.redeliver, webhooks.disable, webhooks.enable, webhooks.rm):
    notify.add_command(each)
