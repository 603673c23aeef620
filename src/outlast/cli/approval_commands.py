"""`outlast approvals`: list, show and decide approvals."""

import asyncio
import json
from typing import Any, NamedTuple, get_args

import click

from outlast.cli.command_session import client as client_of
from outlast.cli.command_session import no_module_for_service, on_client, reads_client, warn_unserved
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import CliSettings, Group, settings_now
from outlast.cli.modules import load_workflows
from outlast.cli.run_page import all_events, data_of, last_event
from outlast.cli.screen import DECISION_SCHEMA, Screen, json_of_model
from outlast.cli.text import json_escaped
from outlast.clocks import SystemClock
from outlast.core.durations import span
from outlast.core.events import ENDINGS, TAKEN, EventType
from outlast.core.machine import TERMINAL, ApprovalStatus
from outlast.insight.labels import ATTENTION, call_of
from outlast.models.approvals import ApprovalDetail, ApprovalSort, ApprovalSummary, OfferedPlan
from outlast.runtime.client import Client

WITHIN_S = 5.0  # target for continuing after a decision (REQ-G201)
MOVED = frozenset({EventType.CHECKPOINT, EventType.PARKED, EventType.FLAGGED, *ENDINGS})


class Resumed(NamedTuple):
    """Real milliseconds until a worker had the run, and the node or status that followed."""

    ms: int
    then: str


async def resumed(client: Client, run: str, seq: int) -> Resumed | None:
    """Wait at most 5 s until the run continues after event `seq`. Return None if no worker takes it."""
    clock = SystemClock()
    asked = clock.mono()
    taken: list[int] = []

    async def look() -> str | None:
        events = await all_events(client, run, after=seq)
        if not taken and any(e.type in TAKEN or e.type in MOVED for e in events):
            taken.append(clock.mono() - asked)
        return next((str(data_of(e)["node"]) for e in events if e.type in MOVED), None)

    if not (await client.run_summary(run)).served:
        return None
    then = await client.until(look, within_s=WITHIN_S)
    if not taken:
        return None
    view = await client.run_summary(run)
    return Resumed(taken[0], view.status.upper() if view.status in TERMINAL else then or view.node)


STATUSES = click.Choice([status.value for status in ApprovalStatus])


@click.group(cls=Group)
def approvals() -> None:
    """List, show and decide approvals."""


@approvals.command("ls")
@click.option("--status", type=STATUSES, help="Only approvals in this status [pending].")
@click.option("--all", "every", is_flag=True, help="Include decided, expired and withdrawn approvals.")
@click.option("--mine", is_flag=True, help="Only approvals that you may decide.")
@click.option("--person", default="", metavar="NAME", help="Only approvals whose rule names this person.")
@click.option("--overdue", is_flag=True, help="Only approvals that were not decided in time.")
@click.option("--decided-by", default="", metavar="NAME", help="Only approvals that this person decided; me: yours.")
@click.option("--text", default="", metavar="WORDS", help="Only approvals that have each word in a text of theirs.")
@click.option(
    "--sort",
    type=click.Choice(get_args(ApprovalSort)),
    default="newest",
    help="Order; deadline: pending [newest].",
)
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="Maximum number of rows [50].")
@click.option("--cursor", default="", help="Continue after the previous page.")
@reads_client
async def ls(
    client: Client,
    screen: Screen,
    status: str | None,
    every: bool,
    mine: bool,
    person: str,
    overdue: bool,
    decided_by: str,
    text: str,
    sort: ApprovalSort,
    limit: int,
    cursor: str,
) -> int:
    """List the pending approvals, newest first or by deadline."""
    if status and every:
        raise click.UsageError("--status and --all exclude each other")
    every = every or bool(decided_by)
    wanted = status or ("" if every or overdue else ApprovalStatus.PENDING.value)
    page = await client.approvals(
        status=wanted,
        mine=mine,
        person=person,
        overdue=overdue,
        decided_by=decided_by,
        text=text,
        sort=sort,
        cursor=cursor,
        limit=limit,
    )
    views, further = page.approvals, page.next_cursor
    if screen.listing("approvals", views, cursor=further):
        return OK
    if not views:
        nothing = "no approval is pending → outlast approvals ls --all"
        none = "no approval was requested yet" if every else nothing
        screen.line("no approval matches" if mine or person or overdue or status or decided_by or text else none)
        screen.further("approvals", further)
        return OK
    decided = ("STATUS", "BY") if every or overdue or status else ()
    columns = ("APPROVAL", "ASKS", "RISK", "RUN", "WHO", "ASKED", "LEFT", *decided)
    screen.table(columns, [_row(screen, view)[: len(columns)] for view in views])
    screen.further("approvals", further)
    screen.advice("→ outlast approvals show APPROVAL")
    return OK


def _row(screen: Screen, view: ApprovalSummary) -> tuple[str, ...]:
    left = screen.left(view.within_until) if view.status == ApprovalStatus.PENDING else ""
    asked = screen.since(view.asked_at)
    warned = view.warnings or any(plan.warnings for plan in view.plans)
    asks = f"warning! {call_of(view)}" if warned else call_of(view)
    first = (view.approval, asks, view.risk, view.run, view.who, asked, left)
    return (*first, view.status, view.decided_by)


@approvals.command("show")
@click.argument("approval")
@reads_client
async def show(client: Client, screen: Screen, approval: str) -> int:
    """Show the exact call, who may decide, and until when."""
    view = await client.approval(approval)
    if screen.data(view, without=DECISION_SCHEMA):
        return OK
    name, may = view.approval, "may" if view.you_may_decide else "may not"
    screen.line(f"{name}  {view.status}" + (f"   risk {view.risk}" if view.risk else ""))
    several = view.quorum > 1
    screen.pairs(
        (
            ("asks", [view.asks]),
            ("run", [f"{view.run} → outlast runs show {view.run}"]),
            ("objective", [view.objective] if view.objective else []),
            *_above(view),
            ("who decides", [f"{view.who} ({client.me} {may})"]),
            ("asked", [f"{screen.since(view.asked_at)}, for {view.requested_by}"]),
            ("takes", _takes(view)),
            ("votes", [f"{v.by} {screen.since(v.at)}: {v.reason}" for v in view.votes if several]),
            ("reviewer", [view.claimed_by] if view.claimed_by else []),
            ("may change", [", ".join(view.editable)] if view.editable else []),
            ("warning", view.warnings),
            ("left", _left(screen, view)),
            ("decided", _decided(screen, view)),
        )
    )
    for plan in view.plans:
        _show_plan(screen, plan, view)
    if view.status == ApprovalStatus.PENDING and view.you_may_decide:
        screen.advice(f"→ outlast approvals approve {name} --reason …")
        screen.advice(f"  outlast approvals reject {name} --reason …")
        if view.editable:
            screen.advice(f"  outlast approvals approve {name} --set {view.editable[0]}=… --reason …")
        if view.another_round:
            screen.advice(f"  outlast approvals reject {name} --again --reason … ({_round(view)})")
    return OK


def _above(view: ApprovalDetail) -> list[tuple[str, list[str]]]:
    """Return where in its tree the run is, and what the tree is for."""
    if not view.path:
        return []
    root = view.path[0]
    path = " → ".join(f"{each.workflow} {each.run}" for each in view.path)
    shown = f"{root.run}: {root.objective}" if root.objective else root.run
    return [("root", [shown]), ("path", [f"{path} → {view.workflow} {view.run}"])]


def _round(view: ApprovalDetail) -> str:
    """Return the number of rounds left, if the workflow counts them."""
    return "another round" if view.rounds_left is None else f"{view.rounds_left} of {view.rounds_max} rounds left"


def _takes(view: ApprovalSummary) -> list[str]:
    n = view.quorum
    several = [f"{n} different people for the same plan; one rejection rejects it"] if n > 1 else []
    others = [f"{view.requested_by} requested the run and must not decide"] if view.not_requester else []
    return several + others


def _left(screen: Screen, view: ApprovalSummary) -> list[str]:
    if view.status != ApprovalStatus.PENDING:
        return []
    due = [f"due {view.due}"] if view.due else []
    return [*due, f"{screen.left(view.within_until)}, then {ATTENTION}; nothing is approved by waiting"]


def _decided(screen: Screen, view: ApprovalSummary) -> list[str]:
    if not view.decided_by:
        return []
    used = f", used by {view.consumed_by}" if view.consumed_by else ""
    verdict = _verdict(ApprovalStatus(view.status))
    return [f"{verdict} by {view.decided_by} {screen.since(view.decided_at)}: {view.reason}{used}"]


def _verdict(status: ApprovalStatus) -> str:
    return (
        f"{ApprovalStatus.REJECTED.value}, another round asked for" if status is ApprovalStatus.AGAIN else status.value
    )


def _show_plan(screen: Screen, plan: OfferedPlan, view: ApprovalSummary) -> None:
    screen.line(f"  {_role(plan, view)}")
    screen.line(f"    {plan.effect}   key {plan.key}   digest {plan.digest}")
    if plan.changed_by:
        screen.line(f"    edited by {plan.changed_by}: {json.dumps(plan.changes, ensure_ascii=False)}")
    for warning in plan.warnings:
        screen.line(f"    warning: {warning}")
    for line in json_escaped(json.dumps(plan.arguments, ensure_ascii=False, indent=2)).split("\n"):
        screen.line(f"    {line}")


def _role(plan: OfferedPlan, view: ApprovalSummary) -> str:
    """Return what became of an offered call, or how it is approved."""
    n, decided = plan.alternative, any(each.chosen for each in view.plans)
    if decided and not plan.chosen:
        return f"alternative {n}, not approved" if n else "requested; another call was approved"
    head = f"alternative {n} (--alternative {n})" if n else "exactly this call, once"
    if plan.changed_by and plan.chosen:
        head = "the call that was approved, once"
    valid = f", within {view.valid_days or span(view.valid_ms)} of the decision" if not n else ""
    return f"{head}{valid}{'   ← chosen' if plan.chosen else ''}"


@approvals.command("approve")
@click.argument("approval")
@click.option("--reason", required=True, help="Reason for the history.")
@click.option(
    "--alternative",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Alternative to approve [0, the call asked for].",
)
@click.option("--set", "changes", multiple=True, metavar="NAME=JSON", help="Argument to change; repeatable.")
@click.option("--module", metavar="MODULE", help="With --set: module that checks the argument [OUTLAST_MODULE].")
def approve(approval: str, reason: str, alternative: int, changes: tuple[str, ...], module: str | None) -> None:
    """Approve a call, or vote for it if it needs several people."""
    values = dict(_assignment(each) for each in changes)
    settings = settings_now()
    no_module_for_service(settings)
    code = asyncio.run(_approve(settings, approval, reason, alternative, values, module))
    click.get_current_context().exit(code)


async def _approve(
    settings: CliSettings, approval: str, reason: str, alternative: int, changes: dict[str, Any], module: str | None
) -> int:
    served = load_workflows(module) if module and changes and not settings.url else []
    async with client_of(settings, workflows=served) as (client, screen):
        seq = await last_event(client, (await client.approval(approval)).run)
        view = await client.approve(approval, reason=reason, alternative=alternative, changes=changes or None)
        if view.status != ApprovalStatus.PENDING:
            return await _report(client, screen, view, seq)
        if not screen.data(view):
            votes = view.votes
            so_far = f"{len(votes)} of {view.quorum}; {view.run} waits for the others"
            screen.line(f"vote of {votes[-1].by} · {so_far}")
    return OK


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--set {text}: write NAME=VALUE, e.g. --set cents=90000")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value  # plain text needs no quotes


@approvals.command("claim")
@click.argument("approval")
@on_client
async def claim(client: Client, screen: Screen, approval: str) -> int:
    """Record that you work on an approval; others may decide."""
    view = await client.claim_approval(approval)
    if not screen.data(view):
        screen.line(f"{view.approval}: {view.claimed_by} works on it")
    return OK


@approvals.command("reassign")
@click.argument("approval")
@click.option(
    "--to",
    "who",
    required=True,
    metavar="RULE",
    help='New rule, e.g. "finance & senior | person:ana".',
)
@click.option("--reason", required=True, help="Reason for the history.")
@on_client
async def reassign(client: Client, screen: Screen, approval: str, who: str, reason: str) -> int:
    """Let other people decide an approval.

    Allowed for its approvers and for the role admin.
    """
    view = await client.reassign(approval, who, reason=reason)
    if not screen.data(view):
        screen.line(f"{view.approval}: {view.who} decides now")
    return OK


@approvals.command("reject")
@click.argument("approval")
@click.option("--reason", required=True, help="Reason for the history.")
@click.option("--again", is_flag=True, help="Ask for another round, if the workflow offers it.")
@on_client
async def reject(client: Client, screen: Screen, approval: str, reason: str, again: bool) -> int:
    """Reject a call; it is not made."""
    seq = await last_event(client, (await client.approval(approval)).run)
    view = await client.reject(approval, reason=reason, again=again)
    return await _report(client, screen, view, seq)


async def _report(client: Client, screen: Screen, view: ApprovalSummary, seq: int) -> int:
    run = view.run
    outcome = f"{_verdict(ApprovalStatus(view.status))} by {view.decided_by}"
    after = await resumed(client, run, seq)
    went = {"resumed_ms": after.ms if after else None, "then": after.then if after else ""}
    if screen.data({**json_of_model(view), **went}):
        return OK
    if after is None:
        screen.line(f"{outcome} · {run} has not continued yet")
        await warn_unserved(client, screen, run)
        return OK
    screen.line(f"{outcome} · {run} resumed in {span(after.ms)} → {after.then}")
    return OK
