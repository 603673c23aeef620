"""`outlast attention`: list the runs that need a person, assign them, and answer one or many (S-21, S-23)."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby

import click

from outlast.cli.bulk_jobs import Selection, answer_many, followed, print_job
from outlast.cli.command_session import on_client, reads_client, says, unsure, warn_unserved
from outlast.cli.exit_codes import OK, shown_traceback
from outlast.cli.global_options import Command, Group
from outlast.cli.run_page import assignment_text, trigger_text
from outlast.cli.screen import Screen, json_of_model
from outlast.cli.text import duration
from outlast.cli.webhook_commands import warn_unsent
from outlast.core.durations import span
from outlast.core.machine import ApprovalStatus, Choice, EffectStatus, Reason
from outlast.core.paging import pages
from outlast.errors import InvalidInput
from outlast.insight.attention_reads import choice_commands_for_all
from outlast.insight.labels import count_of, counted, late_answer_label
from outlast.models.attention import (
    AttentionChoice,
    ProviderAttention,
    RunAttention,
    WebhookAttention,
)
from outlast.models.service import StatusSummary
from outlast.runtime.client import Client

UNCERTAIN = EffectStatus.UNCERTAIN.value


def print_away(screen: Screen, views: Sequence[ProviderAttention | WebhookAttention]) -> None:
    """Print one item per unavailable provider and per webhook with events given up."""
    for view in views:
        since = screen.ago(view.since)
        if isinstance(view, WebhookAttention):
            count = f"{view.events}{' or more' if view.more else ''} event{'' if view.events == 1 else 's'}"
            screen.line(f"{view.reason} {view.webhook}, since {since}: {count} given up")
            screen.line(f"  {view.url}")
        else:
            waits = f"{view.runs} run{'' if view.runs == 1 else 's'} wait{'s' if view.runs == 1 else ''}"
            screen.line(f"{view.reason} {view.provider}, since {since}: {waits}")
        screen.line(f"  {view.detail}")
        screen.line(f"  ignored: {view.if_ignored}")
        for each in view.choices:
            screen.line(f"  → {each.command}")
            screen.line(f"    {each.consequence}")
        screen.line()


def print_board(screen: Screen, views: Sequence[RunAttention], runs: int, cursor: str, *, also: bool = False) -> None:
    """Print the runs of each reason, then the choices as commands to copy.

    `also`: other items were listed, so an empty list prints nothing.
    """
    if not views and not also:
        further = " on this page" if cursor else ""
        screen.line(f"nothing needs a person{further} → outlast runs ls")
    for reason, items in groupby(views, key=lambda view: view.reason):
        _group(screen, Reason(reason), list(items))
    if views:
        screen.advice(f"{runs} run{'' if runs == 1 else 's'} need{'s' if runs == 1 else ''} a person")
    screen.further("runs", cursor)


def _group(screen: Screen, reason: Reason, items: Sequence[RunAttention]) -> None:
    screen.line(f"{reason.value} ({len(items)}) · ignored: {items[0].if_ignored}")
    owned = any(view.assigned_to for view in items)
    head = ("RUN", "WORKFLOW", "SINCE", "LEFT", *(("ASSIGNED",) if owned else ()), "WHAT")
    screen.table(head, [_row(screen, view, owned) for view in items])
    first = items[0]
    for each in first.choices:
        screen.line(f"  → {each.command}{not_yet(screen, each)}")
        screen.line(f"    {each.consequence}")
    if len(items) > 1:
        screen.line(f"  all {len(items)}:")
        for way in choice_commands_for_all(reason):
            screen.line(f"  → {way.command}")
    screen.line()


def _row(screen: Screen, view: RunAttention, owned: bool) -> tuple[str, ...]:
    detail = (view.detail.splitlines() or [""])[0]
    left = screen.left(view.until)
    own = view.trigger if view.trigger != view.reason else ""
    holds_up = f"holds up {view.holds_up} run{'' if view.holds_up == 1 else 's'};" if view.holds_up else ""
    what = " ".join(filter(None, (holds_up, view.key, f"({own})" if own else "", detail)))
    owner = (view.assigned_to,) if owned else ()
    return view.run, view.workflow, screen.ago(view.since), left, *owner, what


def not_yet(screen: Screen, choice: AttentionChoice) -> str:
    """Return from when on a choice is accepted, or '' if it is accepted now."""
    if not choice.accepted_in_ms or choice.from_real is None:
        return ""
    return f"   (from {screen.clock(choice.from_real)} on, in {span(choice.accepted_in_ms)})"


def print_run(screen: Screen, run: str, sentence: str, views: Sequence[RunAttention]) -> None:
    """Print each reason of one run: detail, consequence of ignoring it, and every choice as a command."""
    screen.line(sentence)
    if not views:
        screen.line(f"{run} needs no attention → outlast runs show {run}")
    for view in views:
        first, *rest = shown_traceback(view.detail) or [""]
        left = f", in {screen.left(view.until)}" if view.until else ""
        screen.line()
        screen.line(f"{trigger_text(view)}, since {screen.ago(view.since)}: {first}")
        for line in rest:
            screen.line(f"  {line}")
        for late in view.evidence:
            screen.line(f"  {late_answer_label(late)}")
        if assigned := assignment_text(screen, view):
            screen.line(f"  {assigned}")
        screen.line(f"  ignored: {view.if_ignored}{left}")
        for each in view.choices:
            screen.line(f"  {each.choice:<15}→ {each.command}{not_yet(screen, each)}")
            screen.line(f"{'':<19}{each.consequence}")


def print_status(screen: Screen, view: StatusSummary) -> None:
    """Print the counts that are not zero, each with the command that lists its items."""

    lines: list[tuple[str, list[str]]] = []
    if view.approvals_pending:
        named = (("approvals_pending", ApprovalStatus.PENDING.value), ("approvals_mine", "yours"))
        counts = ", ".join(f"{count_of(view, name)} {word}" for name, word in named)
        counts += f", {count_of(view, 'approvals_overdue')} overdue"
        lines.append(
            (
                "approvals",
                [
                    f"{counts}, next deadline {screen.ahead(view.next_deadline) or 'passed'}",
                    "→ outlast approvals ls --mine --sort deadline",
                ],
            )
        )
    for each in view.reasons:
        until = f", first in {screen.left(each.until)}" if each.until else ""
        lines.append(("attention", [f"{count_of(each, 'count')} {each.reason} · ignored: {each.if_ignored}{until}"]))
    if "reasons" in view.at_least:
        lines.append(("", ["older runs may have further reasons"]))
    if view.reasons:
        lines.append(("", ["→ outlast attention ls"]))
    if view.uncertain:
        uncertain = f"{count_of(view, UNCERTAIN)} {UNCERTAIN}"
        lines.append(("effects", [uncertain, f"→ outlast effects ls --status {UNCERTAIN}"]))
    most = view.count_max
    lines += [("workers", [f"no worker serves {n.lane}: {counted(n.runs, most)} runs"]) for n in view.unserved]
    lines += [("pauses", [f"{p.paused} ({p.kind}, since {screen.ago(p.since)}): {p.reason}"]) for p in view.pauses]
    lines += [("webhooks", [f"{h.webhook}: {h.events:,} given up: {h.detail}"]) for h in view.webhooks]
    if not lines:
        screen.line("nothing needs a person → outlast runs ls")
    screen.pairs(lines)


@click.command("status", cls=Command)
@reads_client
async def status(client: Client, screen: Screen) -> int:
    """Count what needs a person and what cannot continue.

    A count with + is a lower bound, so that the command takes a limited time with any number of runs.
    """
    view = await client.summary()
    if not screen.data(view):
        print_status(screen, view)
    return OK


REASONS = click.Choice([reason.value for reason in Reason])
ENDS_IT = frozenset({Choice.CANCEL, Choice.FAIL})  # need a confirmation


@click.group(cls=Group)
def attention() -> None:
    """List, assign and answer runs that need a person."""


@attention.command("ls")
@click.option("--reason-name", type=REASONS, metavar="REASON", help="Only this reason.")
@click.option("--workflow", default="", metavar="NAME", help="Only runs of this workflow.")
@click.option("--version", "of_version", type=click.IntRange(0), help="Only runs of this version of a workflow.")
@click.option("--node", default="", metavar="NAME", help="Only runs in this node.")
@click.option("--cause", default="", metavar="ID", help="Only items with this cause.")
@click.option("--assigned-to", default="", metavar="NAME", help="Only items of this person: a name, me or none.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, help="Approximate maximum number of runs [200].")
@click.option("--cursor", default="", help="Continue after the previous page.")
@reads_client
async def ls(
    client: Client,
    screen: Screen,
    reason_name: str | None,
    workflow: str,
    of_version: int | None,
    node: str,
    cause: str,
    assigned_to: str,
    limit: int,
    cursor: str,
) -> int:
    """List runs that need a person, by reason, with the choices."""
    reason = Reason(reason_name) if reason_name else None
    away: list[ProviderAttention | WebhookAttention] = []
    views: list[RunAttention] = []
    runs = 0
    read = partial(
        client.attention,
        reason=reason,
        workflow=workflow,
        version=of_version,
        node=node,
        cause=cause,
        assigned_to=assigned_to,
    )
    async for page in pages(read, cursor):
        for item in page.attention:
            if isinstance(item, RunAttention):
                views.append(item)
            else:
                away.append(item)
        cursor = page.next_cursor
        runs = len({view.run for view in views})
        if runs >= limit:
            break
    views.sort(key=lambda view: (view.reason, view.since))
    if not screen.listing("attention", [*away, *views], cursor=cursor):
        print_away(screen, away)
        if assigned_to and not views:
            screen.line(f"no item has --assigned-to {assigned_to}")
        print_board(screen, views, runs, cursor, also=bool(away or assigned_to))
        await warn_unsent(client, screen)
    return OK


@attention.command("show")
@click.argument("run")
@reads_client
async def show(client: Client, screen: Screen, run: str) -> int:
    """Show every attention reason of RUN with its choices."""
    views = await client.attention_of(run)
    explained = await client.explain(run)
    if not screen.data(
        {
            "run": run,
            "attention": [json_of_model(view) for view in views],
            "explained": json_of_model(explained),
        }
    ):
        print_run(screen, run, explained.sentence, views)
    return OK


@attention.command("assign")
@click.argument("run")
@click.argument("person", required=False, default="")
@click.option("--unassign", is_flag=True, help="Remove the assignment; without PERSON.")
@click.option("--reason-name", type=REASONS, metavar="REASON", help="Reason to assign; required if RUN has several.")
@click.option("--key", default="", metavar="KEY", help="Key of the effect, if several have this reason.")
@click.option("--note", default="", metavar="TEXT", help="Text beside the name.")
@on_client
async def assign(
    client: Client, screen: Screen, run: str, person: str, unassign: bool, reason_name: str | None, key: str, note: str
) -> int:
    """Assign an attention reason of RUN to PERSON; me is the caller.

    It informs other operators. It gives no right to answer and takes none, and ends when the reason is answered.
    """
    if bool(person.strip()) == unassign:
        raise click.UsageError("expected RUN PERSON, or RUN --unassign")
    reason = Reason(reason_name) if reason_name else None
    view = await client.assign(run, person, reason=reason, key=key, note=note)
    if not screen.data(view):
        screen.line(f"{run} {trigger_text(view)}: {assignment_text(screen, view) or 'not assigned'}")
    return OK


@attention.command("resolve")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] CHOICE")
@click.option(
    "--all", "every", type=REASONS, metavar="REASON", help="Answer every run with this reason instead of one RUN."
)
@click.option("--workflow", default="", metavar="NAME", help="With --all: only runs of this workflow.")
@click.option("--node", default="", metavar="NAME", help="With --all: only runs at this node.")
@click.option(
    "--activity", default="", metavar="NAME", help="With --all node_diverged: only if all missing calls are of it."
)
@click.option("--cause", default="", metavar="CAUSE", help="With --all: only runs with this cause.")
@click.option(
    "--version", "of_version", type=click.IntRange(1), default=None, metavar="N", help="With --all: only this version."
)
@click.option("--contains", default="", metavar="TEXT", help="With --all: only if the error contains this text.")
@click.option("--query", default="", metavar="TEXT", help="With --all: only runs that `runs ls` finds with this text.")
@click.option(
    "--confirm",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="With --all: expected number of runs; required with --yes to cancel or fail more than 100.",
)
@click.option("--wait", is_flag=True, help="With --all: show the progress until the job ends.")
@click.option("--reason-name", type=REASONS, metavar="REASON", help="Reason to answer; required if RUN has several.")
@click.option("--key", default="", metavar="KEY", help="Key of the effect, if several have this reason.")
@click.option("--by", type=duration, metavar="DURATION", help="With the choice extend: time to add [168h].")
@click.option("--reason", required=True, help="Reason for the history.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@on_client
async def resolve(
    client: Client,
    screen: Screen,
    words: tuple[str, ...],
    every: str | None,
    workflow: str,
    node: str,
    activity: str,
    cause: str,
    of_version: int | None,
    contains: str,
    query: str,
    confirm: int | None,
    wait: bool,
    reason_name: str | None,
    key: str,
    by: int | None,
    reason: str,
    yes: bool,
) -> int:
    """Answer an attention reason of a run, or start a job that answers many runs.

    \b
    outlast attention resolve RUN CHOICE --reason …
    outlast attention resolve --all REASON CHOICE --reason …
    """
    if len(words) != (1 if every else 2):
        raise click.UsageError("expected RUN CHOICE, or --all REASON CHOICE")
    if not reason.strip():
        raise InvalidInput("an answer needs a reason", "it is written to the run's history", "add --reason …")
    choice = _choice(words[-1])
    if by is not None and choice is not Choice.EXTEND:
        raise click.UsageError(f"--by needs the choice {Choice.EXTEND.value}")
    more = timedelta(milliseconds=by) if by is not None else None
    if every:
        if reason_name or key:
            raise click.UsageError("--reason-name and --key need a RUN; --all names the reason itself")
        of = Selection(cause, workflow, node, activity, of_version or 0, contains, query)
        return await answer_many(
            client,
            screen,
            Reason(every),
            choice,
            text=reason,
            of=of,
            by=more,
            yes=yes,
            confirm=confirm or 0,
            wait=wait,
        )
    if any((workflow, node, activity, cause, of_version, contains, query, confirm, wait)):
        raise click.UsageError("filters, --confirm and --wait need --all")
    run, named = words[0], Reason(reason_name) if reason_name else None
    if choice in ENDS_IT and not yes:
        await client.run_summary(run)  # an unknown run is refused before the question
        if (code := await unsure(screen, f"{choice.value} {run}?")) is not None:
            return code
    about = await client.answer(run, choice, reason=named, key=key, text=reason, by=more)
    if not screen.data({"run": run, "reason": about.value, "choice": choice.value, "by": (await client.whoami()).name}):
        screen.line(f"{run} {about.value}: {choice.value.replace('_', ' ')}{await says(client)}")
    await warn_unserved(client, screen, run)
    return OK


@attention.command("job")
@click.argument("job")
@click.option("--wait", is_flag=True, help="Show the progress until the job ends.")
@reads_client
async def show_job(client: Client, screen: Screen, job: str, wait: bool) -> int:
    """Show how many runs JOB has answered, and the refused ones; exit code 4 with --wait if there are some."""
    found = await client.bulk_answer(job)
    if wait:
        return await followed(client, screen, found)
    print_job(screen, found)
    return OK


def _choice(word: str) -> Choice:
    try:
        return Choice(word.replace("-", "_"))
    except ValueError:
        raise click.UsageError(f"{word!r} is not a choice; choices: {', '.join(c.value for c in Choice)}") from None
