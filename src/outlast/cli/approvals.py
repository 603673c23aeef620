"""`outlast approvals`: what waits for people, exactly what they would approve, and their decisions."""

import asyncio
import json
from typing import Any

import click

from outlast.cli.failure import OK
from outlast.cli.modules import load_workflows
from outlast.cli.resumed import resumed
from outlast.cli.screen import Screen
from outlast.cli.session import on_store, operations, screen_of, settings_now
from outlast.cli.settings import Group, Settings
from outlast.core.machine import ApprovalStatus
from outlast.core.people import votes_of
from outlast.core.rows import Approval
from outlast.flow.people import Rule
from outlast.runtime.operations import Operations
from outlast.runtime.spans import span
from outlast.runtime.views import approval_view
from outlast.runtime.words import ATTENTION


@click.group(cls=Group)
def approvals() -> None:
    """List, look at and decide what waits for people."""


@approvals.command("ls")
@click.option("--all", "every", is_flag=True, help="Those decided, expired and withdrawn too.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="At most so many [50].")
@click.option("--cursor", default="", help="Go on where the last page ended.")
@on_store
async def ls(ops: Operations, screen: Screen, every: bool, limit: int, cursor: str) -> int:
    """List what waits for a decision, newest first."""
    status = "" if every else ApprovalStatus.PENDING.value
    rows, further = await ops.approvals(status=status, cursor=cursor, limit=limit)
    views = [approval_view(row) for row in rows]
    if screen.listing("approvals", views, cursor=further):
        return OK
    if not views:
        nothing = "nothing waits for a decision → outlast approvals ls --all"
        screen.line("nobody has been asked yet" if every else nothing)
        return OK
    columns = ("APPROVAL", "ASKS", "RISK", "RUN", "WHO", "ASKED", "LEFT") + (("STATUS", "BY") if every else ())
    screen.table(columns, [_row(screen, view)[: len(columns)] for view in views])
    if further:
        screen.advice(f"further approvals → outlast approvals ls --cursor {further}")
    screen.advice("→ outlast approvals show APPROVAL")
    return OK


def _row(screen: Screen, view: dict[str, Any]) -> tuple[str, ...]:
    left = screen.left(view["within_until"]) if view["status"] == ApprovalStatus.PENDING else ""
    asked = screen.since(view["asked_at"])
    first = (view["approval"], view["asks"], view["risk"], view["run"], view["who"], asked, left)
    return (*first, view["status"], view["decided_by"])


@approvals.command("show")
@click.argument("approval")
@on_store
async def show(ops: Operations, screen: Screen, approval: str) -> int:
    """Show exactly what would be approved, who may decide, and until when."""
    row = await ops.approval(approval)
    view = approval_view(row)
    may = ops.may_decide(row)
    if screen.data({**view, "you_may_decide": may}):
        return OK
    screen.line(f"{row.id}  {row.status.value}" + (f"   risk {row.risk}" if row.risk else ""))
    screen.pairs(
        (
            ("asks", [row.summary]),
            ("run", [f"{row.run} → outlast runs show {row.run}"]),
            ("who decides", [f"{row.who} ({ops.actor.name} {'may' if may else 'may not'})"]),
            ("asked", [f"{screen.since(view['asked_at'])}, for {row.requested_by}"]),
            ("takes", _takes(row)),
            ("votes", [f"{v['by']} {screen.since(v['at'])}: {v['reason']}" for v in view["votes"] if row.quorum > 1]),
            ("looks at it", [row.claimed_by] if row.claimed_by else []),
            ("may change", [", ".join(view["editable"])] if view["editable"] else []),
            ("beware", view["warnings"]),
            ("left", _left(screen, row, view)),
            ("decided", _decided(screen, view)),
        )
    )
    for plan in view["plans"]:
        _show_plan(screen, plan, row)
    if row.status is ApprovalStatus.PENDING:
        screen.advice(f"→ outlast approvals approve {row.id} --reason …")
        screen.advice(f"  outlast approvals reject {row.id} --reason …")
        if view["editable"]:
            screen.advice(f"  outlast approvals approve {row.id} --set {view['editable'][0]}=… --reason …")
        if row.again:
            screen.advice(f"  outlast approvals reject {row.id} --again --reason … (another round)")
    return OK


def _takes(row: Approval) -> list[str]:
    several = [f"{row.quorum} different people, for the same plan; one rejection rejects"] if row.quorum > 1 else []
    return several + ([f"{row.requested_by}, who requested the run, does not decide"] if row.not_requester else [])


def _left(screen: Screen, row: Approval, view: dict[str, Any]) -> list[str]:
    if row.status is not ApprovalStatus.PENDING:
        return []
    return [f"{screen.left(view['within_until'])}, then {ATTENTION}; nothing is approved by waiting"]


def _decided(screen: Screen, view: dict[str, Any]) -> list[str]:
    if not view["decided_by"]:
        return []
    used = f", used by {view['consumed_by']}" if view["consumed_by"] else ""
    verdict = _verdict(ApprovalStatus(view["status"]))
    return [f"{verdict} by {view['decided_by']} {screen.since(view['decided_at'])}: {view['reason']}{used}"]


def _verdict(status: ApprovalStatus) -> str:
    return (
        f"{ApprovalStatus.REJECTED.value}, another round asked for" if status is ApprovalStatus.AGAIN else status.value
    )


def _show_plan(screen: Screen, plan: dict[str, Any], row: Approval) -> None:
    n = plan["alternative"]
    head = f"alternative {n} (--alternative {n})" if n else "exactly this call, once"
    valid = f", within {span(row.valid_ms)} of the decision" if not n else ""
    screen.line(f"  {head}{valid}{'   ← chosen' if plan['chosen'] else ''}")
    screen.line(f"    {plan['effect']}   key {plan['key']}   digest {plan['digest']}")
    if plan["changed_by"]:
        screen.line(f"    changed by {plan['changed_by']}: {json.dumps(plan['changes'], ensure_ascii=False)}")
    for warning in plan["warnings"]:
        screen.line(f"    beware: {warning}")
    for line in json.dumps(plan["arguments"], ensure_ascii=False, indent=2).split("\n"):
        screen.line(f"    {line}")


@approvals.command("approve")
@click.argument("approval")
@click.option("--reason", required=True, help="For the history; people will read it.")
@click.option("--alternative", type=click.IntRange(0), default=0, metavar="N", help="Approve this alternative instead.")
@click.option("--set", "changes", multiple=True, metavar="NAME=JSON", help="Approve it with this argument changed.")
@click.option("--module", metavar="MODULE", help="With --set: the code [OUTLAST_MODULE].")
def approve(approval: str, reason: str, alternative: int, changes: tuple[str, ...], module: str | None) -> None:
    """Approve the call asked for, or one of its alternatives; where it takes several people, vote for it."""
    values = dict(_assignment(each) for each in changes)
    code = asyncio.run(_approve(settings_now(), approval, reason, alternative, values, module))
    click.get_current_context().exit(code)


async def _approve(
    settings: Settings, approval: str, reason: str, alternative: int, changes: dict[str, Any], module: str | None
) -> int:
    served = load_workflows(module) if module and changes else []
    async with operations(settings, workflows=served) as ops:
        screen = await screen_of(ops, settings)
        before = await ops.run((await ops.approval(approval)).run)
        row = await ops.approve(approval, reason=reason, alternative=alternative, changes=changes or None)
        if row.status is not ApprovalStatus.PENDING:
            return await _tell(ops, screen, row, before.seq)
        if not screen.data(approval_view(row)):
            so_far = len(votes_of(row))
            screen.line(f"voted for by {ops.actor.name} · {so_far} of {row.quorum}; {row.run} waits for the others")
    return OK


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--set {text}: write NAME=VALUE, e.g. --set cents=90000")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # plain text needs no quotes


@approvals.command("claim")
@click.argument("approval")
@on_store
async def claim(ops: Operations, screen: Screen, approval: str) -> int:
    """Say that you look at it. It binds nobody: others may still decide."""
    row = await ops.claim_approval(approval)
    if not screen.data(approval_view(row)):
        screen.line(f"{row.id}: {row.claimed_by} looks at it")
    return OK


@approvals.command("reassign")
@click.argument("approval")
@click.option("--to", "who", required=True, metavar="RULE", help='Who decides instead: "lead", "finance & senior".')
@click.option("--reason", required=True, help="For the history; people will read it.")
@on_store
async def reassign(ops: Operations, screen: Screen, approval: str, who: str, reason: str) -> int:
    """Let others decide: for whoever may decide, and for the role admin."""
    row = await ops.reassign(approval, Rule.parse(who), reason=reason)
    if not screen.data(approval_view(row)):
        screen.line(f"{row.id}: {row.who} decides now")
    return OK


@approvals.command("reject")
@click.argument("approval")
@click.option("--reason", required=True, help="For the history; people will read it.")
@click.option("--again", is_flag=True, help="Go round once more, where the workflow offers that.")
@on_store
async def reject(ops: Operations, screen: Screen, approval: str, reason: str, again: bool) -> int:
    """Reject it: the call is not made."""
    before = await ops.run((await ops.approval(approval)).run)
    row = await ops.reject(approval, reason=reason, again=again)
    return await _tell(ops, screen, row, before.seq)


async def _tell(ops: Operations, screen: Screen, row: Approval, seq: int) -> int:
    said = f"{_verdict(row.status)} by {row.decided_by}"
    after = await resumed(ops, row.run, seq)
    went = {"resumed_ms": after.ms if after else None, "then": after.then if after else ""}
    if screen.data({**approval_view(row), **went}):
        return OK
    if after is None:
        screen.line(f"{said} · {row.run} has not gone on yet")
        run = await ops.run(row.run)
        if run.lane not in await ops.serving():
            screen.advice(f"no worker serves {run.lane}; start one: outlast worker MODULE")
        return OK
    screen.line(f"{said} · {row.run} resumed in {span(after.ms)} → {after.then}")
    return OK
