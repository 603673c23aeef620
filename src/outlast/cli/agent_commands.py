"""`outlast prompts` and `outlast tools`: requests to models by prompt, and calls by tool."""

from typing import Final

import click

from outlast.cli.command_session import reads_client
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Command, Group
from outlast.cli.screen import Screen, json_of_model
from outlast.cli.text import took
from outlast.core.limits import USAGE_DAYS_MAX
from outlast.models.agents import ToolFilter
from outlast.runtime.client import Client

MARKS: Final = {"same": "  ", "old": "- ", "new": "+ ", "left_out": "… "}


@click.group(cls=Group)
def prompts() -> None:
    """List and compare prompts of requests to models."""


@prompts.command("ls")
@click.option("--workflow", default="", metavar="NAME", help="Only runs of this workflow.")
@click.option("--model", default="", metavar="NAME", help="Only requests that this model answered.")
@click.option("--days", type=click.IntRange(1, USAGE_DAYS_MAX), default=30, help="Number of business days [30].")
@reads_client
async def ls(client: Client, screen: Screen, workflow: str, model: str, days: int) -> int:
    """Count requests by instructions, tools, model and version of the workflow."""
    found = await client.prompts(workflow=workflow, model=model, days=days)
    if screen.data(json_of_model(found)):
        return OK
    if not found.uses:
        screen.line(f"no request to a model in the last {days} business days")
        return OK
    rows = [
        (
            f"{use.workflow}@{use.version}" if use.workflow else "",
            use.prompt or "not recorded",
            use.model,
            f"{use.requests:,}",
            f"{use.unusable + use.errors:,}",
            f"{use.tokens:,}",
            use.money,
            took(use.p50_ms or None),
            took(use.p95_ms or None),
        )
        for use in found.uses
    ]
    screen.table(("WORKFLOW", "PROMPT", "MODEL", "REQUESTS", "FAILED", "TOKENS", "MONEY", "P50", "P95"), rows)
    if not found.every:
        screen.line(f"only the newest {found.read:,} requests are counted")
    if found.uses[0].prompt:
        screen.advice(f"outlast prompts show {found.uses[0].prompt}")
    return OK


@prompts.command("show")
@click.argument("prompt")
@click.option("--workflow", default="", metavar="NAME", help="Workflow whose previous text is compared.")
@reads_client
async def show(client: Client, screen: Screen, prompt: str, workflow: str) -> int:
    """Show the instructions or tools with the digest PROMPT, and what changed in them."""
    found = await client.prompt(prompt, workflow=workflow)
    if screen.data(json_of_model(found)):
        return OK
    since = f", first sent {screen.since(found.since)}" if found.since else ""
    screen.line(f"{found.kind or 'text that is not stored'} · {found.workflow}@{found.version}{since}")
    for line in found.text.splitlines():
        screen.line(f"  {line}")
    if found.previous:
        screen.line(f"difference to {found.previous}:" if found.difference else f"before: {found.previous}")
        for each in found.difference:
            screen.line(f"  {MARKS[each.mark]}{each.text}")
    return OK


@click.command(cls=Command)
@click.argument("tool", default="")
@click.option("--workflow", default="", metavar="NAME", help="Only calls of runs of this workflow.")
@click.option("--version", type=click.IntRange(0), metavar="N", help="Only calls of this version, with TOOL.")
@click.option(
    "--outcome",
    type=click.Choice([each.value for each in ToolFilter]),
    help="Only calls that ended so, or were sent again; with TOOL.",
)
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="Maximum number of calls of TOOL [50].")
@click.option("--cursor", default="", help="Continue after the previous page of calls.")
@reads_client
async def tools(
    client: Client,
    screen: Screen,
    tool: str,
    workflow: str,
    version: int | None,
    outcome: str | None,
    limit: int,
    cursor: str,
) -> int:
    """List tools with their calls, refusals and times, or the counted calls of TOOL."""
    if not tool:
        if version is not None or outcome or cursor:
            raise click.UsageError("--version, --outcome and --cursor need TOOL")
        return await _tools(client, screen, workflow)
    page = await client.tool_calls(
        tool=tool,
        workflow=workflow,
        version=version,
        outcome=ToolFilter(outcome) if outcome else None,
        limit=limit,
        cursor=cursor,
    )
    if screen.data(json_of_model(page)):
        return OK
    if not page.calls:
        screen.line("no counted call matches")
        return OK
    rows = [
        (
            screen.since(each.at),
            each.outcome,
            f"{each.workflow}@{each.version}" if each.workflow else "",
            each.run,
            each.key,
            f"{each.attempts}" if each.attempts else "",
            took(each.took_ms),
        )
        for each in page.calls
    ]
    screen.table(("AT", "OUTCOME", "WORKFLOW", "RUN", "KEY", "ATTEMPTS", "TOOK"), rows)
    screen.further("calls", page.next_cursor)
    return OK


async def _tools(client: Client, screen: Screen, workflow: str) -> int:
    found = await client.tools(workflow=workflow)
    if screen.data(json_of_model(found)):
        return OK
    if not found.tools:
        screen.line("no call has been recorded")
        return OK
    rows = [
        (
            use.tool,
            f"{use.workflow}@{use.version}" if use.workflow else "",
            f"{use.calls:,}{' read-only' if use.read_only else ''}",
            *(f"{n:,}" for n in (use.refused, use.denied, use.rejected, use.uncertain, use.again)),
            took(use.p50_ms),
            took(use.p95_ms),
        )
        for use in found.tools
    ]
    names = ("TOOL", "WORKFLOW", "CALLS", "REFUSED", "DENIED", "REJECTED", "UNCERTAIN", "AGAIN", "P50", "P95")
    screen.table(names, rows)
    older = "" if found.every else f"only the newest {found.read:,} calls are counted; "
    rest = "" if found.every_lookup else ", of which there are more than were counted"
    screen.line(f"{older}lookups and denials are those of the newest {found.newest_runs} runs{rest}")
    screen.line("times are those of calls that were answered at their first attempt")
    screen.advice(f"outlast tools {found.tools[0].tool}")
    return OK
