"""`outlast policy test`: replay recorded policy requests against another policy."""

import asyncio
from typing import Any

import click

from outlast.cli.command_session import operations, screen_of
from outlast.cli.exit_codes import OK, RUN_FAILED
from outlast.cli.global_options import CliSettings, Group, settings_now
from outlast.cli.modules import load_policy
from outlast.cli.screen import Screen
from outlast.cli.text import duration
from outlast.core.durations import span
from outlast.core.events import iso
from outlast.flow.policy import Policy
from outlast.models import exact_instant
from outlast.upkeep.policy_replay import ChangedVerdict, PolicyReplay, replay

WORDS = {
    "blocks": "done, would be DENIED",
    "asks": "done, would need an approval",
    "asks_no_more": "approved by people, would not need it",
    "allows": "denied, would be allowed",
}


@click.group(cls=Group)
def policy() -> None:
    """Test a policy on recorded effects."""


@policy.command("test")
@click.argument("policy")
@click.option("--since", type=duration, default="30d", metavar="DURATION", help="Age of the oldest effect [30d].")
@click.option("--workflow", default="", metavar="NAME", help="Only runs of this workflow.")
def test(policy: str, since: int, workflow: str) -> None:
    """Test POLICY on recorded effects and denials.

    POLICY is MODULE:NAME or a file of rules. Nothing is written.

    Exit code 1 if the policy denies an executed effect.
    """
    code = asyncio.run(_test(settings_now(), load_policy(policy), since, workflow))
    click.get_current_context().exit(code)


async def _test(settings: CliSettings, policy: Policy, since: int, workflow: str) -> int:
    async with operations(settings, use="read") as ops:
        screen = await screen_of(ops, settings)
        tried = await replay(ops, policy, since_ms=since, workflow=workflow)
    _print_result(screen, tried, since)
    return RUN_FAILED if tried.count("blocks") else OK


def _print_result(screen: Screen, tried: PolicyReplay, since: int) -> None:
    head: dict[str, Any] = {"policy_version": tried.policy_version, "effects": tried.effects, "denials": tried.denials}
    if screen.listing("findings", [_view(each) for each in tried.findings], **head):
        return
    screen.line(
        f"policy {tried.policy_version} · the last {span(since)} · {tried.effects} effects, {tried.denials} denials"
    )
    if not tried.findings:
        screen.line("no decision would change")
        return
    rows = [
        (WORDS[f.change], f.activity, f.key, f.run, f.now["rule"], f.was, screen.since(exact_instant(f.at)))
        for f in tried.findings
    ]
    screen.table(("WOULD", "EFFECT", "KEY", "RUN", "RULE", "WAS", "WHEN"), rows)


def _view(finding: ChangedVerdict) -> dict[str, Any]:
    return {**finding._asdict(), "at": iso(finding.at) if finding.at else None}
