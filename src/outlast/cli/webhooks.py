"""`outlast webhooks`: who is told of what happens, what was not accepted, and what is done about it."""

import functools
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_store
from outlast.cli.settings import Command, Group
from outlast.cli.text import duration, inert
from outlast.core.budget import SECRET_KEPT
from outlast.core.events import iso
from outlast.core.machine import DeliveryStatus
from outlast.core.outgoing import Delivery, Subscription
from outlast.runtime.operations import Operations
from outlast.runtime.settings import load
from outlast.runtime.webhooks import Standing, id_of, reach_of

NOT_ACCEPTED = 1
STATUSES = click.Choice([status.value for status in DeliveryStatus])


@click.group("webhooks", cls=Group)
def webhooks() -> None:
    """Tell other systems what happens: signed, in order, each event at least once."""


def _command(name: str) -> Callable[[Any], click.Command]:
    """A command on webhooks, which may lead where the settings allow."""

    def decorate(body: Any) -> click.Command:
        @functools.wraps(body)
        async def act(ops: Operations, screen: Screen, *args: Any, **kwargs: Any) -> int:
            ops.webhooks.reach = reach_of(load())
            answer: int = await body(ops, screen, *args, **kwargs)
            return answer

        return webhooks.command(name, cls=Command)(on_store(act))

    return decorate


def view_of(row: Subscription, standing: Standing | None = None) -> dict[str, Any]:
    """A subscription as plain data; its secret is not among it."""
    view: dict[str, Any] = {
        "webhook": row.subscription,
        "status": row.status.value,
        "url": row.url,
        "name": row.name,
        "types": json.loads(row.types) if row.types else [],
        "workflows": json.loads(row.workflows) if row.workflows else [],
        "since": iso(row.since) if row.since else None,
        "why": row.why,
        "created_at": iso(row.created_at),
        "created_by": row.created_by,
    }
    if standing is not None:
        view |= {"given_up": standing.dead, "retrying": standing.owed, "runs_behind": standing.behind}
    return view


def delivery_view(row: Delivery, ops: Operations) -> dict[str, Any]:
    """A delivery as plain data; `answer` is a stranger's text."""
    return {
        "delivery": id_of(row),
        "status": row.status.value,
        "webhook": row.subscription,
        "run": row.run,
        "sequence": row.seq,
        "type": row.type,
        "webhook_id": row.event,
        "attempts": row.attempts,
        "code": row.code or None,
        "error": row.error,
        "answer": row.answer,
        "took_ms": row.took_ms,
        "first_at": iso(row.first_at),
        "last_at": iso(row.last_at),
        "next_at": iso(ops.store.mapping().business(row.due_at)) if row.due_at else None,
    }


@_command("add")
@click.argument("url")
@click.option("--name", default="", help="What people call it.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only these events; dev.outlast.workflow.* …")
@click.option("--workflow", "workflows", multiple=True, metavar="NAME", help="Only runs of these workflows.")
@click.option("--from-start", is_flag=True, help="Of everything that is there, not only from now on.")
async def add(
    ops: Operations,
    screen: Screen,
    url: str,
    name: str,
    types: tuple[str, ...],
    workflows: tuple[str, ...],
    from_start: bool,
) -> int:
    """Tell URL of what happens from now on. Its secret is shown this once."""
    made = await ops.webhooks.add(url, name=name, types=types, workflows=workflows, from_start=from_start)
    if not screen.data({**view_of(made.subscription), "secret": made.secret}):
        screen.line(f"{made.subscription.subscription} is told of events at {inert(made.subscription.url)}")
        screen.line(f"secret  {made.secret}  (shown this once: the receiver verifies signatures with it)")
        screen.advice(f"→ outlast dispatcher   sends · outlast webhooks test {made.subscription.subscription}")
    return OK


@_command("ls")
async def ls(ops: Operations, screen: Screen) -> int:
    """List the webhooks, and what each has not been told of."""
    rows = await ops.webhooks.list()
    views = [view_of(row, await ops.webhooks.standing(row.subscription)) for row in rows]
    if screen.listing("webhooks", views):
        return OK
    if not views:
        screen.line("nobody is told of events → outlast webhooks add https://…")
        return OK
    table = [
        (v["webhook"], v["status"], str(v["given_up"]), str(v["retrying"]), str(v["runs_behind"]), inert(v["url"]))
        for v in views
    ]
    screen.table(("WEBHOOK", "STATUS", "GIVEN UP", "RETRYING", "RUNS BEHIND", "URL"), table)
    for view in views:
        if view["given_up"]:
            screen.advice(f"→ outlast webhooks deliveries {view['webhook']} --status {DeliveryStatus.DEAD.value}")
    return OK


@_command("show")
@click.argument("webhook")
async def show(ops: Operations, screen: Screen, webhook: str) -> int:
    """Show one webhook and how it fares."""
    view = view_of(await ops.webhooks.get(webhook), await ops.webhooks.standing(webhook))
    if not screen.data(view):
        for name, value in view.items():
            text = ", ".join(value) or "all" if isinstance(value, list) else "-" if value in (None, "") else str(value)
            screen.line(f"{name.replace('_', ' '):<12} {inert(text)}")
    return OK


@_command("test")
@click.argument("webhook")
async def test(ops: Operations, screen: Screen, webhook: str) -> int:
    """Send it a signed event of type dev.outlast.webhook.test now, and say what came back."""
    attempt = await ops.webhooks.test(webhook)
    view = {"webhook": webhook, "accepted": not attempt.error, **attempt._asdict()}
    if not screen.data(view):
        if attempt.error:
            screen.line(f"not accepted after {attempt.took_ms} ms: {inert(attempt.error)}")
        else:
            screen.line(f"accepted with {attempt.code} after {attempt.took_ms} ms")
    return NOT_ACCEPTED if attempt.error else OK


@_command("deliveries")
@click.argument("webhook", default="")
@click.option("--status", type=STATUSES, default=None, help="Only these.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="At most so many [50].")
async def deliveries(ops: Operations, screen: Screen, webhook: str, status: str | None, limit: int) -> int:
    """List events that were not accepted at the first attempt, the newest first. Others leave no row."""
    wanted = DeliveryStatus(status) if status else None
    rows, _ = await ops.webhooks.deliveries(webhook, status=wanted, limit=limit)
    views = [delivery_view(row, ops) for row in rows]
    if screen.listing("deliveries", views):
        return OK
    if not views:
        screen.line("every event that was sent was accepted at its first attempt")
        return OK
    table = [
        (v["delivery"], v["status"], str(v["attempts"]), inert(v["error"]), v["next_at"] or "-", v["type"])
        for v in views
    ]
    screen.table(("DELIVERY", "STATUS", "ATTEMPTS", "WHY", "NEXT", "TYPE"), table)
    if dead := [row for row in rows if row.status is DeliveryStatus.DEAD]:
        again = "outlast webhooks redeliver"
        screen.advice(f"→ {again} {id_of(dead[0])} · {again} {dead[0].subscription}")
    return OK


@_command("redeliver")
@click.argument("delivery", metavar="DELIVERY|WEBHOOK")
async def redeliver(ops: Operations, screen: Screen, delivery: str) -> int:
    """Send an event again (WEBHOOK:RUN:SEQ), or all that were given up for a webhook: the same bytes and webhook-id."""
    if ":" in delivery:
        await ops.webhooks.redeliver(delivery)
        count = 1
    else:
        count = await ops.webhooks.redeliver_dead(delivery)
    if not screen.data({"redelivered": delivery, "events": count}):
        screen.line(f"{count} event{'' if count == 1 else 's'} will be sent again")
    return OK


@_command("rotate")
@click.argument("webhook")
@click.option("--keep", default=None, metavar="DURATION", help="How long the old secret signs too [24h].")
async def rotate(ops: Operations, screen: Screen, webhook: str, keep: str | None) -> int:
    """Give it a new secret, shown this once; meanwhile both sign, so that the receiver can change over."""
    made = await ops.webhooks.rotate(webhook, keep=timedelta(milliseconds=duration(keep) if keep else SECRET_KEPT))
    if not screen.data({**view_of(made.subscription), "secret": made.secret}):
        screen.line(f"secret  {made.secret}  (shown this once)")
        if made.subscription.former_until:
            until = iso(ops.store.mapping().business(made.subscription.former_until))
            screen.line(f"the old one signs too until {until}")
    return OK


@_command("disable")
@click.argument("webhook")
@click.option("--reason", required=True, help="People will read it.")
async def disable(ops: Operations, screen: Screen, webhook: str, reason: str) -> int:
    """Tell it nothing until it is enabled again; then it goes on where it was."""
    row = await ops.webhooks.disable(webhook, reason=reason)
    if not screen.data(view_of(row)):
        screen.line(f"{webhook} is told nothing → outlast webhooks enable {webhook}")
    return OK


@_command("enable")
@click.argument("webhook")
async def enable(ops: Operations, screen: Screen, webhook: str) -> int:
    """Go on where it was: what happened meanwhile is told too."""
    row = await ops.webhooks.enable(webhook)
    if not screen.data(view_of(row)):
        screen.line(f"{webhook} goes on where it was")
    return OK


@_command("rm")
@click.argument("webhook")
async def rm(ops: Operations, screen: Screen, webhook: str) -> int:
    """End a webhook for ever; its secret is forgotten."""
    row = await ops.webhooks.remove(webhook)
    if not screen.data(view_of(row)):
        screen.line(f"{webhook} is removed")
    return OK
