"""`outlast webhooks`: list, add and change webhooks, and send failed events again."""

from pathlib import Path

import click

from outlast.cli.command_session import on_client, reads_client
from outlast.cli.exit_codes import OK
from outlast.cli.fact_options import fact_options
from outlast.cli.global_options import Group
from outlast.cli.screen import Screen, iso_of
from outlast.cli.text import ago, duration
from outlast.core.durations import span
from outlast.core.machine import DeliveryStatus
from outlast.core.webhooks.webhook_details import WEBHOOK_DETAILS
from outlast.errors import Forbidden
from outlast.runtime.client import Client

NOT_ACCEPTED = 1
STATUSES = click.Choice([status.value for status in DeliveryStatus])


@click.group("webhooks", cls=Group)
def webhooks() -> None:
    """List and change webhooks; send failed events again.

    Events are signed and sent in order, each at least once.
    """


@webhooks.command("add")
@click.argument("address", metavar="URL")
@fact_options(WEBHOOK_DETAILS.by_place["option"])
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only events of this type, e.g. dev.outlast.workflow.*; repeatable.",
)
@click.option("--workflow", "workflows", multiple=True, metavar="NAME", help="Only runs of this workflow; repeatable.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Header to send, X-… or Api-Key; NAME=@FILE reads a file. The value is a secret; repeatable.",
)
@click.option("--from-start", is_flag=True, help="Send existing events too, not only new ones.")
@click.option("--forks", is_flag=True, help="Also events of forks.")
@on_client
async def add(
    client: Client,
    screen: Screen,
    /,
    address: str,
    types: tuple[str, ...],
    workflows: tuple[str, ...],
    headers: tuple[str, ...],
    from_start: bool,
    forks: bool,
    **facts: str,
) -> int:
    """Add a webhook that sends events to URL.

    The secret is shown only once.
    """
    further = dict(map(_header, headers))
    if len(further) < len(headers):
        raise click.UsageError("--header names a header twice")
    view = await client.webhooks.add(
        address, types=types, workflows=workflows, headers=further, from_start=from_start, forks=forks, **facts
    )
    if not screen.data(view):
        screen.line(f"{view.webhook} sends events to {view.url}")
        screen.line(f"secret  {view.secret}  (shown only once: the receiver verifies signatures with it)")
        screen.advice(f"→ outlast dispatcher   sends · outlast webhooks test {view.webhook}")
    return OK


def _header(text: str) -> tuple[str, str]:
    """Split a header into name and value. Errors never contain the value."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError("--header takes NAME=VALUE, or NAME=@FILE")
    if value.startswith("@"):
        try:
            value = Path(value[1:]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"the value of {name} cannot be read from its file: {error}") from None
    return name, value


async def warn_unsent(client: Client, screen: Screen) -> None:
    """Print advice if events wait and no dispatcher is alive."""
    try:
        waited = await client.webhooks.unsent_ms()
    except Forbidden:
        return  # this caller may not see webhooks
    if waited:
        screen.advice(f"events have waited for {span(waited)} and no dispatcher is alive → outlast dispatcher")


@webhooks.command("ls")
@reads_client
async def ls(client: Client, screen: Screen) -> int:
    """List the webhooks with their undelivered events."""
    views = await client.webhooks.list()
    if screen.listing("webhooks", views):
        return OK
    if not views:
        screen.line("no webhook yet → outlast webhooks add https://…")
        return OK
    table = [
        (
            v.webhook,
            v.status,
            str(v.dead),
            str(v.owed),
            f"{v.behind}{'+' * v.more}",
            v.url,
        )
        for v in views
    ]
    screen.table(("WEBHOOK", "STATUS", "GIVEN UP", "RETRYING", "RUNS BEHIND", "URL"), table)
    for view in views:
        if view.dead:
            screen.advice(f"→ outlast webhooks deliveries {view.webhook} --status {DeliveryStatus.DEAD.value}")
    await warn_unsent(client, screen)
    return OK


@webhooks.command("show")
@click.argument("webhook")
@reads_client
async def show(client: Client, screen: Screen, webhook: str) -> int:
    """Show a webhook with its delivery counts."""
    view = await client.webhooks.get(webhook)
    if screen.data(view):
        return OK
    screen.line(f"{view.webhook}  {view.status}{' · ' * bool(view.why)}{view.why}")
    shown = {
        "audience": view.audience,
        "url": view.url,
        **{each.noun: getattr(view, name) for name, each in WEBHOOK_DETAILS.by_place["terminal"].items()},
        "events": f"{', '.join(view.types) or 'every event'} of {', '.join(view.workflows) or 'every workflow'}",
        "from": screen.since(view.since) or "the first event in the store",
        "headers": ", ".join(view.headers),
        "created": f"{screen.since(view.created_at)} by {view.created_by}",
        "changed": f"{screen.since(view.changed_at)} by {view.changed_by}",
        "old secret": view.former_until_real and f"signs too until {iso_of(view.former_until_real)}",
        "backlog": f"{view.dead} given up · {view.owed} retrying · {view.behind}{'+' * view.more} runs behind",
        "waiting since": iso_of(view.oldest_at_real),
    }
    screen.pairs((name, [text]) for name, text in shown.items() if text)
    if view.dead:
        screen.advice(f"→ outlast webhooks deliveries {view.webhook} --status {DeliveryStatus.DEAD.value}")
    return OK


@webhooks.command("test")
@click.argument("webhook")
@on_client
async def test(client: Client, screen: Screen, webhook: str) -> int:
    """Send a signed test event, or a test message, now and show the response.

    The event's type is dev.outlast.webhook.test. Exit code 1 if the receiver does not accept it.
    """
    view = await client.webhooks.test(webhook)
    if not screen.data(view):
        if view.accepted:
            screen.line(f"accepted{f' with {view.code}' if view.code else ''} after {view.took_ms} ms")
        else:
            screen.line(f"not accepted after {view.took_ms} ms: {view.error}")
    return OK if view.accepted else NOT_ACCEPTED


@webhooks.command("deliveries")
@click.argument("webhook", default="")
@click.option("--status", type=STATUSES, default=None, help="Only deliveries in this status.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="Maximum number of rows [50].")
@click.option("--cursor", default="", help="Continue after the previous page.")
@reads_client
async def deliveries(client: Client, screen: Screen, webhook: str, status: str | None, limit: int, cursor: str) -> int:
    """List events not accepted at the first attempt, and messages to approvers.

    The newest come first. Events accepted at the first attempt leave no row.
    """
    wanted = DeliveryStatus(status) if status else None
    page = await client.webhooks.deliveries(webhook, status=wanted, cursor=cursor, limit=limit)
    views, further = page.deliveries, page.next_cursor
    if screen.listing("deliveries", views, cursor=further):
        return OK
    if not views:
        none = "every sent event was accepted at the first attempt"
        screen.line(f"no delivery is {wanted.value}" if wanted else none)
        return OK
    table = [(v.delivery, v.status, str(v.attempts), v.error, screen.ahead(v.next_at) or "-", v.type) for v in views]
    screen.table(("DELIVERY", "STATUS", "ATTEMPTS", "WHY", "NEXT", "TYPE"), table)
    screen.further("deliveries", further)
    if dead := [view for view in views if view.status == DeliveryStatus.DEAD]:
        again = "outlast webhooks redeliver"
        screen.advice(f"→ {again} {dead[0].delivery} · {again} {dead[0].webhook}")
    return OK


@webhooks.command("redeliver")
@click.argument("delivery", metavar="DELIVERY|WEBHOOK")
@on_client
async def redeliver(client: Client, screen: Screen, delivery: str) -> int:
    """Send an event again, or all events given up.

    An event is named WEBHOOK:RUN:SEQ. Its bytes and its webhook-id do not change.
    """
    count = await client.webhooks.redeliver(delivery)
    if not screen.data({"redelivered": delivery, "events": count}):
        screen.line(f"{count} event{'' if count == 1 else 's'} will be sent again")
    return OK


@webhooks.command("rotate")
@click.argument("webhook")
@click.option(
    "--keep", type=duration, default=None, metavar="DURATION", help="Time in which the old secret signs too [24h]."
)
@on_client
async def rotate(client: Client, screen: Screen, webhook: str, keep: int | None) -> int:
    """Give a webhook a new secret, shown only once.

    The former secrets sign for a time, too, so that the receiver can change over.
    """
    view = await client.webhooks.rotate(webhook, keep=ago(keep))
    if not screen.data(view):
        screen.line(f"secret  {view.secret}  (shown only once)")
        if view.former_until_real:
            screen.line(f"the old one signs too until {iso_of(view.former_until_real)}")
    return OK


@webhooks.command("disable")
@click.argument("webhook")
@click.option("--reason", required=True, help="Reason, shown to other operators.")
@on_client
async def disable(client: Client, screen: Screen, webhook: str, reason: str) -> int:
    """Stop deliveries until the webhook is enabled again."""
    view = await client.webhooks.disable(webhook, reason=reason)
    if not screen.data(view):
        screen.line(f"{webhook} is disabled → outlast webhooks enable {webhook}")
    return OK


@webhooks.command("enable")
@click.argument("webhook")
@on_client
async def enable(client: Client, screen: Screen, webhook: str) -> int:
    """Resume deliveries; events since then are sent too."""
    view = await client.webhooks.enable(webhook)
    if not screen.data(view):
        screen.line(f"{webhook} continues after its last delivery")
    return OK


@webhooks.command("rm")
@click.argument("webhook")
@on_client
async def rm(client: Client, screen: Screen, webhook: str) -> int:
    """Remove a webhook and its secret."""
    view = await client.webhooks.remove(webhook)
    if not screen.data(view):
        screen.line(f"{webhook} is removed")
    return OK
