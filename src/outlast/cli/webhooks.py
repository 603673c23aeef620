"""`outlast webhooks`: who is told of what happens, what was not accepted, and what is done about it."""

from pathlib import Path
from typing import Any

import click

from outlast.cli.client import Client
from outlast.cli.exit_codes import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_client, reads_client
from outlast.cli.settings import Group
from outlast.cli.text import ago, duration
from outlast.core.durations import span
from outlast.core.machine import DeliveryStatus
from outlast.errors import Forbidden

NOT_ACCEPTED = 1
STATUSES = click.Choice([status.value for status in DeliveryStatus])


@click.group("webhooks", cls=Group)
def webhooks() -> None:
    """Tell other systems what happens: signed, in order, each event at least once."""


@webhooks.command("add")
@click.argument("address", metavar="URL")
@click.option("--name", default="", help="What people call it.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only these events; dev.outlast.workflow.* …")
@click.option("--workflow", "workflows", multiple=True, metavar="NAME", help="Only runs of these workflows.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A further header of each delivery, X-… or Api-Key; NAME=@FILE takes what the file holds. A secret.",
)
@click.option("--from-start", is_flag=True, help="Of everything that is there, not only from now on.")
@on_client
async def add(
    client: Client,
    screen: Screen,
    address: str,
    name: str,
    types: tuple[str, ...],
    workflows: tuple[str, ...],
    headers: tuple[str, ...],
    from_start: bool,
) -> int:
    """Tell URL of what happens from now on. Its secret is shown this once."""
    further = dict(map(_header, headers))
    if len(further) < len(headers):
        raise click.UsageError("--header names one of them twice")
    view = await client.webhooks.add(
        address, name=name, types=types, workflows=workflows, headers=further, from_start=from_start
    )
    if not screen.data(view):
        screen.line(f"{view['webhook']} is told of events at {view['url']}")
        _secret(screen, view, "shown this once: the receiver verifies signatures with it")
        screen.advice(f"→ outlast dispatcher   sends · outlast webhooks test {view['webhook']}")
    return OK


def _secret(screen: Screen, view: dict[str, Any], why: str) -> None:
    if view["secret"]:
        screen.line(f"secret  {view['secret']}  ({why})")
    else:  # a service answered twice, and the first answer, the only one with it, was lost on the way
        screen.line(f"its secret was lost on the way here → outlast webhooks rotate {view['webhook']}")


def _header(text: str) -> tuple[str, str]:
    """A name and its value, which never stands in an error."""
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
    """Say where events wait and nobody sends them."""
    try:
        waited = await client.webhooks.unsent()
    except Forbidden:
        return  # whose business webhooks are not
    if waited:
        screen.advice(f"events have waited for {span(waited)} and no dispatcher is alive → outlast dispatcher")


@webhooks.command("ls")
@reads_client
async def ls(client: Client, screen: Screen) -> int:
    """List the webhooks, and what each has not been told of."""
    views = await client.webhooks.all()
    if screen.listing("webhooks", views):
        return OK
    if not views:
        screen.line("nobody is told of events → outlast webhooks add https://…")
        return OK
    table = [
        (
            v["webhook"],
            v["status"],
            str(v[DeliveryStatus.DEAD]),
            str(v[DeliveryStatus.OWED]),
            f"{v['behind']}{'+' * v['more']}",
            v["url"],
        )
        for v in views
    ]
    screen.table(("WEBHOOK", "STATUS", "GIVEN UP", "RETRYING", "RUNS BEHIND", "URL"), table)
    for view in views:
        if view[DeliveryStatus.DEAD]:
            screen.advice(f"→ outlast webhooks deliveries {view['webhook']} --status {DeliveryStatus.DEAD.value}")
    await warn_unsent(client, screen)
    return OK


@webhooks.command("show")
@click.argument("webhook")
@reads_client
async def show(client: Client, screen: Screen, webhook: str) -> int:
    """Show one webhook and how it fares."""
    view = await client.webhooks.get(webhook)
    if screen.data(view):
        return OK
    screen.line(f"{view['webhook']}  {view['status']}{' · ' * bool(view['why'])}{view['why']}")
    said = {
        "url": view["url"],
        "name": view["name"],
        "told of": f"{', '.join(view['types']) or 'every event'} of {', '.join(view['workflows']) or 'every workflow'}",
        "from": screen.since(view["since"]) or "the first event that is in the store",
        "headers": ", ".join(view["headers"]),
        "made": f"{screen.since(view['created_at'])} by {view['created_by']}",
        "changed": f"{screen.since(view['changed_at'])} by {view['changed_by']}",
        "old secret": view["former_until_real"] and f"signs too until {view['former_until_real']}",
        "backlog": f"{view[DeliveryStatus.DEAD]} given up · {view[DeliveryStatus.OWED]} retrying · "
        f"{view['behind']}{'+' * view['more']} runs behind",
        "waits since": view["oldest_at_real"],
    }
    screen.pairs((name, [text]) for name, text in said.items() if text)
    if view[DeliveryStatus.DEAD]:
        screen.advice(f"→ outlast webhooks deliveries {view['webhook']} --status {DeliveryStatus.DEAD.value}")
    return OK


@webhooks.command("test")
@click.argument("webhook")
@on_client
async def test(client: Client, screen: Screen, webhook: str) -> int:
    """Send it a signed event of type dev.outlast.webhook.test now, and say what came back."""
    view = await client.webhooks.test(webhook)
    if not screen.data(view):
        if view["accepted"]:
            screen.line(f"accepted with {view['code']} after {view['took_ms']} ms")
        else:
            screen.line(f"not accepted after {view['took_ms']} ms: {view['error']}")
    return OK if view["accepted"] else NOT_ACCEPTED


@webhooks.command("deliveries")
@click.argument("webhook", default="")
@click.option("--status", type=STATUSES, default=None, help="Only these.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="At most so many [50].")
@click.option("--cursor", default="", help="Go on where the last page ended.")
@reads_client
async def deliveries(client: Client, screen: Screen, webhook: str, status: str | None, limit: int, cursor: str) -> int:
    """List events that were not accepted at the first attempt, the newest first. Others leave no row."""
    wanted = DeliveryStatus(status) if status else None
    views, further = await client.webhooks.deliveries(webhook, status=wanted, cursor=cursor, limit=limit)
    if screen.listing("deliveries", views, cursor=further):
        return OK
    if not views:
        none = "every event that was sent was accepted at its first attempt"
        screen.line(f"no delivery is {wanted.value}" if wanted else none)
        return OK
    table = [
        (v["delivery"], v["status"], str(v["attempts"]), v["error"], screen.ahead(v["next_at"]) or "-", v["type"])
        for v in views
    ]
    screen.table(("DELIVERY", "STATUS", "ATTEMPTS", "WHY", "NEXT", "TYPE"), table)
    screen.further("deliveries", further)
    if dead := [view for view in views if view["status"] == DeliveryStatus.DEAD]:
        again = "outlast webhooks redeliver"
        screen.advice(f"→ {again} {dead[0]['delivery']} · {again} {dead[0]['webhook']}")
    return OK


@webhooks.command("redeliver")
@click.argument("delivery", metavar="DELIVERY|WEBHOOK")
@on_client
async def redeliver(client: Client, screen: Screen, delivery: str) -> int:
    """Send an event again (WEBHOOK:RUN:SEQ), or all that were given up for a webhook: the same bytes and webhook-id."""
    count = await client.webhooks.redeliver(delivery)
    if not screen.data({"redelivered": delivery, "events": count}):
        screen.line(f"{count} event{'' if count == 1 else 's'} will be sent again")
    return OK


@webhooks.command("rotate")
@click.argument("webhook")
@click.option(
    "--keep", type=duration, default=None, metavar="DURATION", help="How long the old secret signs too [24h]."
)
@on_client
async def rotate(client: Client, screen: Screen, webhook: str, keep: int | None) -> int:
    """Give it a new secret, shown this once; meanwhile both sign, so that the receiver can change over."""
    view = await client.webhooks.rotate(webhook, keep=ago(keep))
    if not screen.data(view):
        _secret(screen, view, "shown this once")
        if view["former_until_real"]:
            screen.line(f"the old one signs too until {view['former_until_real']}")
    return OK


@webhooks.command("disable")
@click.argument("webhook")
@click.option("--reason", required=True, help="People will read it.")
@on_client
async def disable(client: Client, screen: Screen, webhook: str, reason: str) -> int:
    """Tell it nothing until it is enabled again; then it goes on where it was."""
    view = await client.webhooks.disable(webhook, reason=reason)
    if not screen.data(view):
        screen.line(f"{webhook} is told nothing → outlast webhooks enable {webhook}")
    return OK


@webhooks.command("enable")
@click.argument("webhook")
@on_client
async def enable(client: Client, screen: Screen, webhook: str) -> int:
    """Go on where it was: what happened meanwhile is told too."""
    view = await client.webhooks.enable(webhook)
    if not screen.data(view):
        screen.line(f"{webhook} goes on where it was")
    return OK


@webhooks.command("rm")
@click.argument("webhook")
@on_client
async def rm(client: Client, screen: Screen, webhook: str) -> int:
    """End a webhook for ever; its secret is forgotten."""
    view = await client.webhooks.remove(webhook)
    if not screen.data(view):
        screen.line(f"{webhook} is removed")
    return OK
