"""`outlast runs`: list, show, continue, extend, move, detach and cancel runs."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, get_args

import click

from outlast.cli.bulk_jobs import Selection, answer_many
from outlast.cli.command_session import on_client, reads_client, says, unsure, warn_unserved
from outlast.cli.exit_codes import OK, RUN_FAILED, WAITING
from outlast.cli.global_options import Command, Group
from outlast.cli.screen import EFFECT_ID, Screen
from outlast.cli.text import ago, amount, duration, instant, results_text
from outlast.core.durations import RUN_CEILING, span
from outlast.core.lanes import OWN, SCHEDULERS, scheduler_of, worker_command
from outlast.core.machine import TERMINAL, Choice, RunStatus
from outlast.core.rows.run_columns import WaitingKind
from outlast.core.run_filters import RunOrder
from outlast.core.saved_views import view_named
from outlast.errors import NotFound
from outlast.insight.labels import ATTENTION, cost_text
from outlast.models.runs import RunDetail, RunList, RunListItem
from outlast.models.steps import StepKind
from outlast.operations.run_query import filters_of, merged, parse_query, query_terms
from outlast.runtime.client import Client

NO_MATCH = "no run matches"


LAZY = {
    "tail": "outlast.cli.tail:tail",
    "test": "outlast.cli.run_test_commands:test_command",
    "fork": "outlast.cli.fork_commands:fork",
}


@click.group(cls=Group, lazy=LAZY)
def runs() -> None:
    """List, show and follow runs; continue, extend or cancel one."""


@runs.command("ls")
@click.argument("query", nargs=-1)
@click.option("--view", "name", default="", metavar="NAME", help="Runs of a saved view. QUERY narrows it.")
@click.option("--status", type=click.Choice([s.value for s in RunStatus]), help="Only runs in this engine status.")
@click.option("--workflow", default="", metavar="NAME", help="Only runs of this workflow.")
@click.option("--attention", is_flag=True, help="Only runs that need a person.")
@click.option("--waiting-for", type=click.Choice(get_args(WaitingKind)), help="Only runs that wait for this.")
@click.option(
    "--search",
    default="",
    metavar="TEXT",
    help="Only runs with this text in id, correlation id, objective or attributes.",
)
@click.option("--where", multiple=True, metavar="NAME=VALUE", help="Only runs with this attribute. May be repeated.")
@click.option("--forked-from", default="", metavar="RUN", help="Only forks of this run.")
@click.option("--parent", default="", metavar="RUN", help="Only runs that this run has started.")
@click.option("--root", default="", metavar="RUN", help="Only runs of the tree below this run, at any depth.")
@click.option("--no-children", is_flag=True, help="Only runs that no run has started.")
@click.option("--sort", type=click.Choice(get_args(RunOrder)), help="Order of the newest runs [newest start first].")
@click.option("--since", type=duration, metavar="DURATION", help="Only runs started within this time, e.g. 24h.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="Maximum number of rows [50].")
@click.option("--cursor", default="", help="Continue after the previous page.")
@click.option("--watch", is_flag=True, help="Print the list again when it changes, until Ctrl-C.")
@reads_client
async def ls(
    client: Client,
    screen: Screen,
    query: Sequence[str],
    name: str,
    status: str | None,
    workflow: str,
    attention: bool,
    waiting_for: str | None,
    search: str,
    where: Sequence[str],
    forked_from: str,
    parent: str,
    root: str,
    no_children: bool,
    sort: str | None,
    since: int | None,
    limit: int,
    cursor: str,
    watch: bool,
) -> int:
    """List the runs of the tenant, newest first or in the order of --sort.

    QUERY is words and terms, as in the web UI: status:failed workflow:order@7 node:charge is:flagged customer:acme
    since:2h. A name that is no term is an attribute. The options are further terms.

    With --watch, a terminal shows the list as it is now. In a pipe a new table is printed when a run has changed. With
    -o json each change is the list on one line, with -o ndjson each new or changed run is a line.
    """

    asked = merged(
        parse_query(" ".join([view_named(await client.views(), name).query, *query] if name else query)),
        status=status,
        workflow=workflow,
        attention=attention,
        waiting_for=waiting_for,
        q=search,
        where=where,
        forked_from=forked_from,
        parent=parent,
        root=root,
        no_children=no_children,
        sort=sort,
        since=ago(since),
    )

    async def read() -> RunList:
        return await client.runs(**filters_of(asked), cursor=cursor, limit=limit)

    filtered = bool(cursor or since is not None or query_terms(asked))
    none = NO_MATCH if filtered else "no run yet → outlast run MODULE:NAME key=value …"
    if watch:
        from outlast.cli.watch import watch_runs

        return await watch_runs(client, screen, read, lambda page: _frame(screen, page, none))
    page = await read()
    if screen.listing("runs", page.runs, cursor=page.next_cursor):
        return OK
    columns, rows, notes = _frame(screen, page, none)
    if not page.runs:
        for note in (*notes, *await _why_none(client, asked.root, asked.parent)):
            screen.line(note)
    else:
        screen.table(columns, rows)
        for note in notes:
            screen.advice(note)
    screen.further("runs", page.next_cursor)
    return OK


async def _why_none(client: Client, root: str, parent: str) -> list[str]:
    """Return why the list of the runs below a run may be empty; nothing for other lists."""
    run = parent or root
    if not run:
        return []
    try:
        view = await client.run(run)
    except NotFound:
        return [f"there is no run {run}"]
    if view.parent and not parent:
        return [f"{run} is not the root of its tree → outlast runs ls --root {view.root}, or --parent {run}"]
    return [f"{run} has started other runs → outlast runs show {run}" if view.children else f"{run} has started no run"]


def _frame(screen: Screen, page: RunList, none: str) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
    """Return columns and rows of a list of runs, and the lines below it. `none`: line for an empty list."""
    if not page.runs:
        return [], [], [f"{none} so far, older runs are left" if page.next_cursor else none]
    columns = ["RUN", "WORKFLOW", "STATUS", "WAITING FOR", "SINCE", "LEFT"]
    rows = [_row(screen, view) for view in page.runs]
    if any(view.objective for view in page.runs):
        columns.insert(2, "OBJECTIVE")
        rows = [(*row[:2], view.objective, *row[2:]) for row, view in zip(rows, page.runs, strict=True)]
    if any(view.results for view in page.runs):  # most workflows emit none
        columns.append("RESULTS")
        rows = [(*row, str(view.results)) for row, view in zip(rows, page.runs, strict=True)]
    if any(view.cost != "0" or view.unpriced for view in page.runs):
        columns.append("COST")
        rows = [(*row, cost_text(view)) for row, view in zip(rows, page.runs, strict=True)]
    if any(view.parent for view in page.runs):
        columns.append("CHILD OF")
        rows = [(*row, view.parent) for row, view in zip(rows, page.runs, strict=True)]
    if any(view.scheduler != OWN for view in page.runs):
        columns.append("SCHEDULER")
        rows = [(*row, view.scheduler) for row, view in zip(rows, page.runs, strict=True)]
    notes = _footer(screen, page.runs)
    if page.sorted_among is not None:
        notes.append(f"sorted among the newest {page.sorted_among:,} that match → narrow the query to sort older ones")
    return columns, rows, notes


def _row(screen: Screen, view: RunListItem) -> tuple[str, ...]:
    waits = view.waiting_for
    ending = min(((w.until, w.then) for w in waits if w.until), key=lambda limit: limit[0], default=None)
    if view.status in TERMINAL:
        since = view.ended_at
    else:
        since = min((w.since for w in waits if w.since), default=view.entered_at)
    left = ""
    if ending is not None:
        until, then = ending
        left = f"{screen.left(until)} → {then}".replace(ATTENTION, "attention")
    waits_for = " · ".join([view.waiting_text, *(f"{each.verb} asked" for each in view.asked)])
    return view.run, view.workflow, view.shown, waits_for, screen.ago(since), left


def _footer(screen: Screen, views: Sequence[RunListItem]) -> list[str]:
    parts = [f"{len(views)} run{'s' if len(views) > 1 else ''}"]
    flagged = sum(1 for view in views if view.attention)
    if flagged:
        parts.append(f"{flagged} need{'s' if flagged == 1 else ''} attention → outlast runs show RUN")
    asked = sum(wait.kind == "approval" for view in views for wait in view.waiting_for)
    if asked:
        parts.append(f"{asked} approval{'s' if asked > 1 else ''} → outlast approvals ls")
    lines = [" · ".join(parts)]
    waiting = [view for view in views if view.due or any(wait.kind == "worker" for wait in view.waiting_for)]
    stranded = Counter(view.lane for view in waiting if not view.served)
    lines += [f"no worker serves {lane} ({n}) → {worker_command(scheduler_of(lane))}" for lane, n in stranded.items()]
    return lines


@runs.command("show")
@click.argument("run")
@click.option("--state", is_flag=True, help="Only its state at the last checkpoint, as JSON.")
@click.option(
    "--checkpoint", type=click.IntRange(1), metavar="N", help="With --state: the state that event N wrote [the last]."
)
@reads_client
async def show(client: Client, screen: Screen, run: str, state: bool, checkpoint: int | None) -> int:
    """Show a run: visits, waits, choices, effects and crashes.

    With --state, its state at a checkpoint, while it runs and after its end. Values that look like secrets are
    redacted. A service shows it to operators only.
    """
    if checkpoint is not None and not state:
        raise click.UsageError("--checkpoint needs --state")
    from outlast.cli.run_page import show_run, show_state  # imported when shown, because `runs ls` is called often

    return await (show_state(client, screen, run, checkpoint or 0) if state else show_run(client, screen, run))


@runs.command("effects")
@click.argument("run")
@reads_client
async def effects(client: Client, screen: Screen, run: str) -> int:
    """Show every effect of a run with its outcome."""
    views = await client.effects(run)
    if screen.listing("effects", views, without=EFFECT_ID):
        return OK
    from outlast.cli.effect_commands import print_effects, purged_text

    has_own = any(view.once_per != "tenant" for view in views)
    purged = "" if has_own else purged_text(await client.run(run))
    if views:
        print_effects(screen, views)
    if purged or not views:
        screen.line(purged or f"{run} has no effect yet → outlast runs show {run}")
    return OK


RESULTS_SHOWN = 50


@runs.command("results")
@click.argument("run")
@click.option("--limit", type=click.IntRange(1, 1_000), help="Maximum number of rows [50].")
@click.option("--cursor", type=click.IntRange(0), default=0, metavar="N", help="Continue after this row [0].")
@click.option("--follow", is_flag=True, help="Print each row when it is emitted, until the run has ended.")
@reads_client
async def results(client: Client, screen: Screen, run: str, limit: int | None, cursor: int, follow: bool) -> int:
    """Show the results of a run in the order of their emission.

    With --follow each row is one line, with -o json and ndjson as JSON. A row that the run replaces later is not
    printed again.
    """
    if follow:
        if limit is not None:
            raise click.UsageError("--follow prints every row: leave out --limit")
        from outlast.cli.watch import follow_results

        return await follow_results(client, screen, run, after=cursor)
    page = await client.results(run, after=cursor, limit=limit or RESULTS_SHOWN)
    if screen.listing("results", page.results, count=page.count, cursor=page.next_cursor):
        return OK
    if not page.count:
        screen.line(f"{run} has no result yet → outlast runs show {run}")
        return OK
    from outlast.cli.run_page import short_json

    rows = [(str(v.ordinal), v.key, v.kind, screen.since(v.at), short_json(v.data)) for v in page.results]
    screen.table(("N", "KEY", "KIND", "EMITTED", "DATA"), rows)
    screen.advice(f"{len(rows)} of {results_text(page.count)}")
    screen.further("results", page.next_cursor)
    return OK


@runs.command("steps")
@click.argument("run")
@click.option("--kind", type=click.Choice(get_args(StepKind)), help="Only steps of this kind.")
@click.option("--step", default="", metavar="ID", help="Only the step with this id, with its whole input and output.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="Maximum number of rows [50].")
@click.option("--cursor", default="", help="Continue after the previous page.")
@reads_client
async def steps(client: Client, screen: Screen, run: str, kind: str | None, step: str, limit: int, cursor: str) -> int:
    """Show the history of a run as steps: decisions of a model, calls, approvals and checkpoints.

    Inputs and outputs are redacted and cut. --step shows those of one step whole.
    """
    page = await client.steps(run, kind=kind or "", step=step, cursor=cursor, limit=limit)
    if screen.listing("steps", page.steps, cursor=page.next_cursor):
        return OK
    if not page.steps:
        none = f"no step of kind {kind} yet" if kind else "no step yet"
        screen.line(f"{run} has {none} → outlast runs show {run}" if not cursor else "no further step")
        return OK
    from outlast.cli.steps_page import print_step, print_steps

    if step:
        print_step(screen, page.steps[0])
        return OK
    print_steps(screen, page.steps)
    screen.further("steps", page.next_cursor)
    return OK


@runs.command("compare")
@click.argument("run", metavar="A")
@click.argument("other", metavar="B")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="Maximum number of differences [50].")
@click.option("--cursor", type=click.IntRange(0), default=0, metavar="N", help="Continue after this difference [0].")
@click.option("--all", "every", is_flag=True, help="Also list what is equal, so that both runs are side by side.")
@reads_client
async def compare(client: Client, screen: Screen, run: str, other: str, limit: int, cursor: int, every: bool) -> int:
    """Show where two runs of one workflow part, and their further differences.

    Equal visits and calls are only counted, unless --all lists them. Of values the places that differ are shown,
    redacted and cut.
    """
    found = await client.compare(run, other, after=cursor, limit=limit, every=every)
    if not screen.data(found):
        from outlast.cli.comparison_text import print_comparison

        print_comparison(screen, found)
    return OK


@runs.command("timeline")
@click.argument("run")
@click.option("--from", "begin", type=instant, help="Only what lasts until this instant (RFC 3339) or later.")
@click.option("--to", "end", type=instant, help="Only what began at this instant or earlier.")
@reads_client
async def timeline(client: Client, screen: Screen, run: str, begin: datetime | None, end: datetime | None) -> int:
    """Show visits, attempts and waits of a run in the order of time, with crashes and takeovers."""
    view = await client.timeline(run, begin=begin, end=end)
    if not screen.data(view):
        from outlast.cli.steps_page import print_timeline

        print_timeline(screen, view)
    return OK


@runs.command("events")
@click.argument("run")
@click.option("--after", type=int, default=0, metavar="N", help="Only events after this number [0].")
@click.option("--type", "of_type", default="", help="Only events of this type; a star at the end selects more.")
@click.option("--all", "everything", is_flag=True, help="Include effects and decisions, in order of time.")
@reads_client
async def events(client: Client, screen: Screen, run: str, after: int, of_type: str, everything: bool) -> int:
    """Show the events of a run; with --all its whole history."""
    if of_type and everything:
        raise click.UsageError("--all shows events of every type: leave out --type")
    from outlast.cli.run_page import all_approvals, all_events, event_text, history

    views = await all_events(client, run, after=after, of_type=of_type)
    effects = await client.effects(run) if everything else []
    approvals = await all_approvals(client, run) if everything else []
    entries = history(views, effects, approvals, from_start=not after)
    if screen.listing("events", [entry._asdict() for entry in entries] if everything else views):
        return OK
    table = [(f"{e.n or ''}", _since(screen, e.time), e.what, e.place, event_text(e.data)) for e in entries]
    screen.table(("N", "WHEN", "EVENT", "NODE", "DATA"), table)
    return OK


def _since(screen: Screen, time: str) -> str:
    return screen.since(datetime.fromisoformat(time)) if time else ""


@runs.command(Choice.CONTINUE.value)
@click.argument("run")
@click.option("--reason", default="", help="Reason for the history.")
@on_client
async def go_on(client: Client, screen: Screen, run: str, reason: str) -> int:
    """Continue a run that needs attention, in the same visit."""
    await client.continue_run(run, reason=reason)
    if not screen.data({"run": run, "by": (await client.whoami()).name}):
        screen.line(f"{run} goes on{await says(client)}")
    await warn_unserved(client, screen, run)
    return OK


@runs.command("cancel")
@click.argument("run", default="", metavar="[RUN]")
@click.option(
    "--all", "query", default="", metavar="QUERY", help="Cancel every unfinished run that `runs ls QUERY` lists."
)
@click.option(
    "--confirm",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="With --all: expected number of runs; required with --yes above 100.",
)
@click.option("--wait", is_flag=True, help="With --all: show the progress until the job ends.")
@click.option("--reason", required=True, help="Reason for the history.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@on_client
async def cancel(
    client: Client, screen: Screen, run: str, query: str, confirm: int | None, wait: bool, reason: str, yes: bool
) -> int:
    """Cancel a run and undo its effects, the latest first; or start a job that cancels many.

    Effects without an undo remain.
    """
    if bool(run) == bool(query):
        raise click.UsageError("expected RUN, or --all QUERY")
    if query:
        return await answer_many(
            client,
            screen,
            None,
            Choice.CANCEL,
            text=reason,
            of=Selection(query=query),
            by=None,
            yes=yes,
            confirm=confirm or 0,
            wait=wait,
        )
    if confirm or wait:
        raise click.UsageError("--confirm and --wait need --all")
    await client.run_summary(run)
    if not yes:
        for each in await client.to_undo(run):
            screen.advice(f"  will be undone: {each}")
        for each in await client.not_undone(run):
            screen.advice(f"  will remain: {each}")
        if (code := await unsure(screen, f"cancel {run}?", "not cancelled")) is not None:
            return code
    await client.cancel(run, reason=reason)
    if not screen.data({"run": run, "by": (await client.whoami()).name, "reason": reason}):
        screen.line(f"{run} is asked to end{await says(client)} → outlast runs show {run}")
    await warn_unserved(client, screen, run)
    return OK


END = "end"


@click.command(cls=Command)
@click.argument("run")
@click.option("--mermaid", is_flag=True, help="Print Mermaid, for a README.")
@reads_client
async def graph(client: Client, screen: Screen, run: str, mermaid: bool) -> int:
    """Show the workflow graph of RUN with its progress.

    ✓ visited, ▸ current, · not visited; then the plane of the node, if the workflow has planes.
    """
    view = await client.run(run)
    topology = await client.topology(view.workflow, view.lane)
    if topology is None:
        raise NotFound(
            f"the graph of {view.lane} is not known",
            "a worker records it when it starts to serve that version",
            f"start one: {worker_command(view.scheduler)}",
        )
    if not screen.data({"run": run, "node": view.node, "nodes": topology["nodes"]}):
        for line in _mermaid(view, topology) if mermaid else _text(view, topology):
            screen.line(line)
    return OK


def _text(view: RunDetail, topology: Mapping[str, Any]) -> list[str]:
    nodes = topology["nodes"]
    order = _order(topology)
    width = max(map(len, order))
    planes = max(len(_plane(nodes[name])) for name in order)
    margin = "  " if planes else ""
    return [
        f"{_mark(view, name)} {name:<{width}}  {_plane(nodes[name]):<{planes}}{margin}→ {', '.join(_to(nodes[name]))}"
        for name in order
    ]


def _plane(node: Mapping[str, Any]) -> str:
    return str(node.get("plane", ""))  # a topology that another release stored has none


def _mermaid(view: RunDetail, topology: Mapping[str, Any]) -> list[str]:
    nodes, been = topology["nodes"], {visit.node for visit in view.visits}
    lines = ["flowchart LR"]
    lines += [f"  {name}[{name}]" for name in _order(topology)]
    lines += [f"  {name} --> {to if to != END else '_end((end))'}" for name in nodes for to in _to(nodes[name])]
    for plane in sorted({*map(_plane, nodes.values())} - {""}):
        lines += [f"  subgraph {plane}", *(f"    {name}" for name in nodes if _plane(nodes[name]) == plane), "  end"]
    lines += [f"  class {name} been" for name in sorted(been & nodes.keys())]
    lines += ["  classDef been fill:#dfd", f"  style {view.node} stroke-width:3px"]
    return lines


def _mark(view: RunDetail, name: str) -> str:
    if name == view.node and view.status not in TERMINAL:
        return "▸"
    return "✓" if any(visit.node == name for visit in view.visits) else "·"


def _to(node: Mapping[str, Any]) -> list[str]:
    return [*node["to"], *([END] if node["ends"] else [])]


def _order(topology: Mapping[str, Any]) -> list[str]:
    """Return the nodes in breadth-first order from the start."""
    nodes = topology["nodes"]
    found = [name for name in nodes if nodes[name]["start"]]
    for name in found:
        found += [to for to in nodes[name]["to"] if to not in found]
    return found


@click.command("input", cls=Command)
@click.argument("run")
@reads_client
async def input_(client: Client, screen: Screen, run: str) -> int:
    """Print the input of RUN as JSON."""
    given = await client.run_input(run)
    if not screen.data(given):
        screen.line(json.dumps(given, ensure_ascii=False))
    return OK


@click.command(cls=Command)
@click.argument("run")
@reads_client
async def outcome(client: Client, screen: Screen, run: str) -> int:
    """Print the outcome of RUN as JSON.

    Exit code 1 if it failed or was cancelled, 5 if it has not ended.
    """
    view = await client.run(run)
    if view.status not in TERMINAL:
        screen.advice(f"{run} has not ended: {view.waiting_text or view.shown} → outlast runs tail {run}")
        return WAITING
    if view.status != RunStatus.COMPLETED:
        screen.advice(f"{run} {view.status.upper()}: {view.reason}")
        return RUN_FAILED
    if not screen.data(view.outcome):
        screen.line(json.dumps(view.outcome, ensure_ascii=False))
    return OK


@click.command(Choice.EXTEND.value, cls=Command)
@click.argument("run")
@click.option("--by", type=duration, metavar="DURATION", default=None, help="Time from now on [168h].")
@click.option("--reason", required=True, help="Reason for the history.")
@on_client
async def extend(client: Client, screen: Screen, run: str, by: int | None, reason: str) -> int:
    """Extend a run that has passed its ceiling."""
    ms = RUN_CEILING if by is None else by
    await client.extend(run, by=timedelta(milliseconds=ms), reason=reason)
    if not screen.data({"run": run, "by": (await client.whoami()).name, "extended_ms": ms, "reason": reason}):
        screen.line(f"{run} has {span(ms)} more{await says(client)}")
    await warn_unserved(client, screen, run)
    return OK


@click.command(Choice.RAISE.value, cls=Command)
@click.argument("run")
@click.option("--tokens", type=amount, default="0", metavar="N", help="Additional tokens, e.g. 50k or 1M.")
@click.option("--money", default="0", metavar="AMOUNT", help="Additional money, e.g. 5 or 0.25.")
@click.option("--calls", type=amount, default="0", metavar="N", help="Additional calls.")
@click.option("--minutes", type=click.FloatRange(0), default=0, metavar="N", help="Additional minutes.")
@click.option("--children", type=amount, default="0", metavar="N", help="Additional child runs.")
@click.option("--reason", required=True, help="Reason for the history.")
@on_client
async def raise_(
    client: Client,
    screen: Screen,
    run: str,
    tokens: int,
    money: str,
    calls: int,
    minutes: float,
    children: int,
    reason: str,
) -> int:
    """Raise the budget of a run.

    A run that waits for its budget goes on. No call that was paid is repeated.
    """
    from outlast.cli.run_page import number_text

    await client.raise_budget(
        run, tokens=tokens, money=money, calls=calls, minutes=minutes, children=children, reason=reason
    )
    given: dict[str, float | str] = {"tokens": tokens, "money": money, "calls": calls, "minutes": minutes}
    given["children"] = children
    more = {name: value for name, value in given.items() if value not in (0, "0")}
    listed = ", ".join(f"{number_text(value)} {name}" for name, value in more.items())
    if not screen.data({"run": run, "by": (await client.whoami()).name, **more, "reason": reason}):
        listed = ", ".join(
            f"{value:,} {name}" if value is not money else f"{money} {name}" for name, value in more.items()
        )
        screen.line(f"{run} may use {listed} more{await says(client)}")
    await warn_unserved(client, screen, run)
    return OK


@click.command("detach", cls=Command)
@click.argument("run")
@click.option("--reason", required=True, help="Reason for the history of the parent.")
@on_client
async def detach(client: Client, screen: Screen, run: str, reason: str) -> int:
    """Let the parent of a child run go on without it.

    The parent gets ChildFailed with the code detached. The child goes on, and keeps its attention.
    """
    await client.detach(run, reason=reason)
    if not screen.data({"run": run, "by": (await client.whoami()).name, "detached": True, "reason": reason}):
        screen.line(f"the parent of {run} goes on without it{await says(client)}")
    await warn_unserved(client, screen, run)
    return OK


@click.command("move", cls=Command)
@click.argument("run")
@click.option("--to", "scheduler", type=click.Choice(SCHEDULERS), required=True, help="Engine that schedules it.")
@click.option("--reason", default="", help="Reason for the history.")
@click.option("--force", is_flag=True, help="Move it even if no worker serves its version there.")
@on_client
async def move(client: Client, screen: Screen, run: str, scheduler: str, reason: str, force: bool) -> int:
    """Let another engine schedule a run.

    A worker must not execute it now. State, waits, approvals and effects stay.
    """
    await client.move_to(run, scheduler, reason=reason, force=force)
    if not screen.data({"run": run, "by": (await client.whoami()).name, "scheduler": scheduler, "reason": reason}):
        screen.line(f"{scheduler} schedules {run} from now on{await says(client)}")
    await warn_unserved(client, screen, run)
    return OK


runs.add_command(extend)
runs.add_command(move)
runs.add_command(raise_)
runs.add_command(detach)
runs.add_command(graph)
runs.add_command(input_)
runs.add_command(outcome)

__all__ = ["runs"]
