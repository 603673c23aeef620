"""`outlast hold`, `release` and `holds`: the stop signs of operators and of circuit breakers (S-23)."""

from typing import Any, get_args

import click

from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_store
from outlast.cli.settings import Command
from outlast.core.events import iso
from outlast.core.rows import Hold
from outlast.engine.holds import BREAKER, What
from outlast.runtime.operations import Operations

KINDS = click.Choice(get_args(What))


def _check(what: str, name: str) -> None:
    if (what == "tenant") == bool(name):
        raise click.UsageError(f"{what} takes no name: --tenant says which" if name else f"which {what}? name it")


def _text(key: str) -> str:
    return key.replace("/", " ", 1)


@click.command("hold", cls=Command)
@click.argument("what", type=KINDS)
@click.argument("name", default="")
@click.option("--reason", required=True, help="People will read it while they wait.")
@on_store
async def hold(ops: Operations, screen: Screen, what: What, name: str, reason: str) -> int:
    """Stop new calls of an activity, of a provider or of a workflow, or everything of the tenant, until it is released.

    Workers know it within one heartbeat. Calls under way end; runs that meet the hold wait for it, and say so.
    """
    _check(what, name)
    await ops.hold(what, name, reason=reason)
    if not screen.data({"held": f"{what} {name}".strip(), "by": ops.actor.name, "reason": reason}):
        screen.line(f"{what} {name}".strip() + f" is held, says {ops.actor.name}: {reason}")
        screen.advice(f"→ outlast release {what} {name}".rstrip())
    return OK


@click.command("release", cls=Command)
@click.argument("what", type=KINDS)
@click.argument("name", default="")
@on_store
async def release(ops: Operations, screen: Screen, what: What, name: str) -> int:
    """Take a hold or a circuit breaker down, and make due every run that waited for it."""
    _check(what, name)
    woken = await ops.release(what, name)
    if not screen.data({"released": f"{what} {name}".strip(), "by": ops.actor.name, "runs": woken}):
        runs = f"{woken} run{'' if woken == 1 else 's'} that waited for it go{'es' if woken == 1 else ''} on"
        screen.line(f"{what} {name}".strip() + f" is released; {runs}")
    return OK


def view_of(hold: Hold, runs: int, ops: Operations) -> dict[str, Any]:
    """A stop sign as plain data; `again_at`: a breaker's, from when on one run tries whether the provider answers."""
    again = iso(ops.store.mapping().business(hold.again_at)) if hold.kind == BREAKER else None
    return {
        "held": _text(hold.key),
        "kind": hold.kind,
        "runs": runs,
        "by": hold.by,
        "since": iso(hold.since),
        "again_at": again,
        "reason": hold.reason,
    }


@click.command("holds", cls=Command)
@on_store
async def holds(ops: Operations, screen: Screen) -> int:
    """List the holds and circuit breakers that are up, and how many runs wait for each."""
    waiting = await ops.held_up()
    views = [view_of(h, waiting.get(h.key, 0), ops) for h in await ops.holds()]
    if screen.listing("holds", views):
        return OK
    if not views:
        screen.line("nothing is held → outlast hold activity NAME --reason …")
        return OK
    table = [
        (str(v["held"]), str(v["runs"]), screen.since(str(v["since"])), str(v["by"]), str(v["reason"])) for v in views
    ]
    screen.table(("HELD", "RUNS", "SINCE", "BY", "REASON"), table)
    for view in views:
        screen.advice(f"→ outlast release {view['held']}")
    return OK
