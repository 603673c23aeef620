"""`outlast explain`: the state of a run in one sentence, and the derivation of a worker's durations."""

from typing import Any

import click
from typing_extensions import override

from outlast.cli.exit_codes import OK
from outlast.cli.modules import load_workflows
from outlast.cli.screen import Screen, json_of_model
from outlast.cli.serving import liveness_of, liveness_options
from outlast.cli.session import reads_client, settings_now
from outlast.cli.settings import Command, Group
from outlast.core.durations import span
from outlast.runtime.client import Client
from outlast.runtime.in_process import lease_view


class Explain(Group):
    """A group in which any other word is the id of a run."""

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or Command(cmd_name, callback=lambda: of_run(cmd_name))


@click.group(cls=Explain, subcommand_metavar="RUN | lease [MODULE]")
def explain() -> None:
    """Explain the state of RUN in one sentence.

    It names the holder, the next step and the commands that unblock the run. `outlast explain lease` shows how the
    durations of a worker are derived.
    """


@reads_client
async def of_run(client: Client, screen: Screen, run: str) -> int:
    """Print the explanation of a run."""
    explained = await client.explain(run)
    if screen.data({"run": run, **json_of_model(explained)}):
        return OK
    screen.line(explained.sentence)
    unblock = [each if each.startswith("outlast ") else f"({each})" for each in explained.unblock]
    screen.pairs(
        [
            *((name, [text]) for name, text in explained.facts.items()),
            ("next", [explained.next]),
            ("unblock", unblock),
        ]
    )
    return OK


@explain.command("lease")
@click.argument("module", metavar="[MODULE[:NAME]]", required=False)
@liveness_options
def lease(module: str | None, **durations: int | None) -> None:
    """Show a worker's heartbeat window and execution budget."""
    screen = Screen(settings_now())
    view = lease_view(load_workflows(module) if module else [], liveness_of(durations))
    if screen.data(view):
        return
    screen.pairs(_said(view))


def _said(view: dict[str, Any]) -> list[tuple[str, list[str]]]:
    window, every = view["heartbeat_window_ms"], view["heartbeat_every_ms"]
    quiet = view["start_budget_ms"] + view["attempt_timeout_ms"] + view["settle_margin_ms"]
    return [
        ("heartbeat", [f"window {span(window)}, renewed every {span(every)}: two renewals may be lost",
                       f"a worker that dies is replaced within {span(window)}"]),
        ("budget", [f"{span(view['execution_budget_ms'])} for one slice of a run (REC-2)", view["derivation"]]),
        ("start", [f"{span(view['start_budget_ms'])} from the intent of a call to the last moment it may be sent"]),
        ("settle time", [f"{span(quiet)} from the intent until nothing of a call can still land:",
                        f"start {span(view['start_budget_ms'])} + attempt {span(view['attempt_timeout_ms'])}"
                        f" + margin {span(view['settle_margin_ms'])}; then «did not happen» may be said"]),
        *((each["lane"], [each["derivation"]]) for each in view["workflows"]),
    ]  # fmt: skip
