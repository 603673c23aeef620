"""`outlast explain`: the state of a run in one sentence, and the derivation of a worker's durations."""

from typing import Any

import click
from typing_extensions import override

from outlast.cli.command_session import reads_client
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Command, Group, settings_now
from outlast.cli.modules import load_workflows
from outlast.cli.screen import Screen, json_of_model
from outlast.cli.serving import liveness_of, liveness_options
from outlast.core.durations import CLOCK_DIFFERENCE_MAX, LOCK_KEPT, span
from outlast.runtime.client import Client
from outlast.runtime.local_worker import lease_view
from outlast.runtime.stores import skew_of


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
    """Show the durations of a worker's leases, and how they are computed.

    On DynamoDB they include the difference that clocks may have, and the recovery lock.
    """
    settings = settings_now()
    screen = Screen(settings)
    view = lease_view(load_workflows(module) if module else [], liveness_of(durations), skew_of(settings.store))
    if screen.data(view):
        return
    screen.pairs(_facts(view))


def _facts(view: dict[str, Any]) -> list[tuple[str, list[str]]]:
    window, every, skew = view["heartbeat_window_ms"], view["heartbeat_every_ms"], view["clock_skew_ms"]
    takeover, clocks = span(view["takeover_ms"]), f" + clocks {span(skew)}" if skew else ""
    sum_of_window = f": window {span(window)}{clocks}" if skew else ""
    return [
        ("heartbeat", [f"window {span(window)}, renewed every {span(every)}: two renewals may be lost",
                       f"a worker that dies is replaced within {takeover}{sum_of_window}"]),
        ("budget", [f"{span(view['execution_budget_ms'])} for one slice of a run (REC-2)", view["derivation"],
                    *([f"another worker takes the run {span(skew)} after that: clocks may differ"] if skew else [])]),
        ("start", [f"{span(view['start_budget_ms'])} from the intent of a call to the last moment it may be sent"]),
        ("settle time", [f"{span(view['settle_time_ms'])} from the intent until nothing of a call can still land:",
                        f"start {span(view['start_budget_ms'])} + attempt {span(view['attempt_timeout_ms'])}"
                        f" + margin {span(view['settle_margin_ms'])}{clocks}; then «did not happen» may be said"]),
        *_clocks(skew, takeover),
        *((each["lane"], [each["derivation"]]) for each in view["workflows"]),
    ]  # fmt: skip


def _clocks(skew: int, takeover: str) -> list[tuple[str, list[str]]]:
    if not skew:
        return []
    return [
        ("clocks", [f"{span(skew)} between two processes: each within {span(CLOCK_DIFFERENCE_MAX)} of the store's"]),
        ("lock", [f"at most {takeover} for who recovers a run: expires_at = end of the worker's lease + clocks",
                  "the next worker steps in from expires_at + 1 s; a live one renews its lease and needs no lock",
                  f"ttl = expires_at + {span(LOCK_KEPT)}: it only deletes the row"]),
    ]  # fmt: skip
