"""`outlast explain`: how durations come about, from the defaults or from a module's own activities."""

from typing import Any

import click

from outlast.cli.liveness import liveness_of, liveness_options
from outlast.cli.modules import load_workflows
from outlast.cli.screen import Screen
from outlast.cli.session import settings_now
from outlast.cli.settings import Group
from outlast.cli.text import span
from outlast.runtime.serve import lease_view


@click.group(cls=Group)
def explain() -> None:
    """Show how durations come about."""


@explain.command("lease")
@click.argument("module", metavar="[MODULE[:NAME]]", required=False)
@liveness_options
def lease(module: str | None, **durations: int | None) -> None:
    """Show the heartbeat window and the execution budget of a worker, with the derivation."""
    screen = Screen(settings_now())
    view = lease_view(load_workflows(module) if module else [], liveness_of(durations))
    if screen.data(view):
        return
    screen.pairs(_said(view))


def _said(view: dict[str, Any]) -> list[tuple[str, list[str]]]:
    window, every = view["heartbeat_window_ms"], view["heartbeat_every_ms"]
    quiet = view["start_budget_ms"] + view["attempt_timeout_ms"] + view["quiet_margin_ms"]
    return [
        ("heartbeat", [f"window {span(window)}, renewed every {span(every)}: two renewals may be lost",
                       f"a worker that dies is replaced within {span(window)}"]),
        ("budget", [f"{span(view['execution_budget_ms'])} for one slice of a run (REC-2)", view["derivation"]]),
        ("start", [f"{span(view['start_budget_ms'])} from the intent of a call to the last moment it may be sent"]),
        ("quiet time", [f"{span(quiet)} from the intent until nothing of a call can still land:",
                        f"start {span(view['start_budget_ms'])} + attempt {span(view['attempt_timeout_ms'])}"
                        f" + margin {span(view['quiet_margin_ms'])}; then «did not happen» may be said"]),
        *((each["lane"], [each["derivation"]]) for each in view["workflows"]),
    ]  # fmt: skip
