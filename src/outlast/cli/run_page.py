"""The page of one run: visits, waits, choices, effects, crashes, outcome and history."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from outlast.cli.exit_codes import OK, shown_traceback
from outlast.cli.screen import Screen, iso_of
from outlast.core.budget import NAMES, SHOWN, unpriced_text
from outlast.core.durations import span
from outlast.core.events import FAR_FROM, EventType, iso
from outlast.core.lanes import OWN, worker_command
from outlast.core.machine import HELD, TERMINAL, Choice, EffectStatus, Reason, RunStatus
from outlast.core.maps import WAITED
from outlast.core.paging import pages
from outlast.core.start_details import BY_PLACE
from outlast.insight.labels import (
    call_of,
    failed_child_text,
    happened_options,
    late_answer_label,
    map_text,
    nth_of,
    visit_text,
)
from outlast.models import milliseconds
from outlast.models.approvals import ApprovalSummary
from outlast.models.attention import RunAttention
from outlast.models.child_tree import TreeRun
from outlast.models.effects import EffectRecord
from outlast.models.runs import (
    AllowedAmounts,
    AttentionReason,
    CloudEvent,
    PendingRequest,
    Progress,
    RunDetail,
    RunMap,
    RunSummary,
    Takeover,
    UsedAmounts,
    Visit,
)
from outlast.runtime.client import Client


def progress_lines(screen: Screen, progress: Progress) -> list[str]:
    """Return the progress of a run: effects done of intended, and the last checkpoint."""
    here = f"{progress.here_done} of {progress.here_intended} effects of node {progress.node} done"
    all_ = f"{progress.effects_done} of {progress.effects_intended} in all"
    saved = progress.last_checkpoint_at
    last = f"checkpoint {progress.checkpoints} {screen.since(saved)}" if saved else "no checkpoint yet"
    return [f"{here}, {all_} · {last}"]


NO_BUDGET = AllowedAmounts(tokens=None, money=None, calls=None)


def used_lines(used: UsedAmounts, budget: AllowedAmounts) -> list[str]:
    """Return the usage of a run and its limits: «50,120 of 60,000 tokens, 3 reported calls»."""
    limits = {name: getattr(budget, name) for name in NAMES}
    shown = []
    for name, limit in limits.items():
        value = getattr(used, name)
        if limit is not None or (value not in (0, "0") and name not in ("minutes", "children")):
            shown.append(f"{number_text(value)}{'' if limit is None else f' of {number_text(limit)}'} {SHOWN[name]}")
    shown += unpriced_text(used.unpriced)
    return [", ".join(shown)] if shown else []


def number_text(value: float | str) -> str:
    """Return an amount for people; money is text already."""
    return value if isinstance(value, str) else f"{value:,}"


def trigger_text(entry: AttentionReason | RunAttention) -> str:
    """Return an attention reason with its key, and with its trigger if that has another name."""
    trigger = entry.trigger if entry.trigger != entry.reason else ""
    return " ".join(filter(None, (entry.reason, entry.key, f"({trigger})" if trigger else "")))


def assignment_text(screen: Screen, view: RunAttention) -> str:
    """Return who takes care of an attention item, with the note; '' if it is not assigned."""
    if not view.assigned_to:
        return ""
    note = f": {view.assigned_note}" if view.assigned_note else ""
    return f"assigned to {view.assigned_to} by {view.assigned_by} {screen.since(view.assigned_at)}{note}"


FOLDED_FROM = 3  # rounds of the same nodes
ROUND_MAX = 8  # nodes of the longest round that is recognized
PARTS_MAX = 20
JSON_WIDTH = 400  # characters; -o json shows all
EVENTS_PER_READ: Final = 1_000
APPROVALS_PER_READ: Final = 1_000
ENDED_ONLY: Final = frozenset({"outcome", "reason", "not_undone"})


def hidden_fields(view: RunDetail) -> frozenset[str]:
    """Return the fields that the JSON of a run omits."""
    return frozenset({"explained"}) | (frozenset() if view.status in TERMINAL else ENDED_ONLY)


async def all_events(client: Client, run: str, *, after: int = 0, of_type: str = "") -> list[CloudEvent]:
    """Return the events of a run after a number, of a type or all. Raises NotFound, InvalidInput."""
    read = partial(client.events, run, limit=EVENTS_PER_READ, of_type=of_type)
    found = pages(lambda cursor: read(after=int(cursor)), str(after))
    return [event async for page in found for event in page.events]


async def last_event(client: Client, run: str) -> int:
    """Return the number of a run's last event. Raises NotFound."""
    events = await all_events(client, run)
    return events[-1].number if events else 0


async def all_approvals(client: Client, run: str) -> list[ApprovalSummary]:
    """Return the approvals of a run, newest first."""
    read = partial(client.approvals, run=run, limit=APPROVALS_PER_READ)
    return [approval async for page in pages(read) for approval in page.approvals]


def data_of(event: CloudEvent) -> Mapping[str, Any]:
    """Return the data of an event, which is an object."""
    return event.data if isinstance(event.data, dict) else {}


STATED: Final = BY_PLACE["terminal"]
"""Facts about a run that its page shows as its start stated them."""
PURGED: Final = "deleted, because the retention of a ledger is over; the history remains"


async def show_state(client: Client, screen: Screen, run: str, checkpoint: int = 0) -> int:
    """Print the state of a run at a checkpoint, by default at its last one."""
    view = await client.run_state(run, checkpoint=checkpoint)
    if screen.data(view):
        return OK
    screen.line(json.dumps(view.state, ensure_ascii=False, indent=1))
    wrote = f"node {view.completed} completed" if view.completed else "no node wrote it since"
    screen.advice(f"event {view.seq} {screen.since(view.at)}: {wrote}, node {view.node}")
    if view.redacted:
        screen.advice(f"values that look like secrets are redacted → outlast export {run} --whole")
    return OK


def _ancestor(view: RunDetail) -> str:
    """Return the run and the checkpoint that a fork began with."""
    at = f" at checkpoint {view.forked_at}" if view.forked_at else ""
    return f"{view.forked_from}{at} → outlast runs compare {view.run} {view.forked_from}"


async def _tree(client: Client, screen: Screen, view: RunDetail) -> list[str]:
    """Return the runs below a run, one line each, indented below their parents."""
    if not view.children:
        return []
    tree = await client.tree(view.run)
    lines = [tree_line(each) for each in tree.children]
    if tree.more:
        lines.append(f"… {tree.more:,} more → outlast runs ls --parent {view.run}")
    return lines


def map_lines(view: RunDetail, each: RunMap) -> list[str]:
    """Return a map, and the first of its children that failed."""
    failed = [f"  {failed_child_text(child)}" for child in each.failed_children]
    if more := each.failed - len(failed):
        failed.append(f"  … {more:,} more → outlast runs ls --parent {view.run} --status failed")
    return [map_text(each), *failed]


def tree_line(each: TreeRun) -> str:
    """Return one run of a tree as text."""
    indent = "  " * (each.level - 1)
    waits = f" · {each.waiting_text}" if each.waiting_text else ""
    gone = " · detached" if each.detached else ""
    return f"{indent}{each.key}  {each.workflow}  {each.shown or 'PURGED'}  {each.run}{gone}{waits}"


def _parent(view: RunDetail) -> str:
    """Return the run that started a child, and the top of its tree if that is another one."""
    root = f" (root {view.root})" if view.root != view.parent else ""
    gone = "; detached: it goes on alone" if view.detached else ""
    return f"{view.parent}{root}{gone} → outlast runs show {view.parent}"


async def show_run(client: Client, screen: Screen, run_id: str) -> int:
    """Print the page of a run, or all its data as one JSON object."""
    view = await client.run(run_id)
    if screen.data(view, without=hidden_fields(view)):
        return OK
    counts, ended, of_tree = view.effects, view.status in TERMINAL, view.used_by_tree
    uncertain: dict[str, EffectRecord] = {}
    if counts[EffectStatus.UNCERTAIN]:
        uncertain = {e.key: e for e in await client.effects(run_id) if e.status == EffectStatus.UNCERTAIN}
    shown = f"{view.run}  {view.workflow} v{view.lane.rpartition('@')[2]}  {view.shown}"
    by, version = view.requested_by, view.version
    screen.line(f"{shown}   started {screen.since(view.created_at)} by {by}   version {version}")
    screen.line("  " + " · ".join(way(screen, view)))
    screen.pairs(
        (
            *((each.noun, [text] if (text := getattr(view, name)) else []) for name, each in STATED.items()),
            ("forked from", [_ancestor(view)] if view.forked_from else []),
            ("child of", [_parent(view)] if view.parent else []),
            ("history", [f"before visit {view.history_from:,} it was purged"] if view.history_from > 1 else []),
            ("children", await _tree(client, screen, view)),
            ("maps", [line for each in view.maps for line in map_lines(view, each)]),
            ("failed children", [failed_child_text(each) for each in view.failed_children]),
            ("scheduler", [view.scheduler] if view.scheduler != OWN else []),
            ("held by", await _holder(client, screen, view)),
            ("waiting for", _waiting(screen, view)),
            *((f"{each.verb} asked", [_asked(view, screen, each)]) for each in view.asked),
            (
                "attention",
                [
                    line
                    for each in view.attention
                    for line in _attention(screen, each, _ways_on(screen, view, each, uncertain))
                ],
            ),
            ("effects", [_count(counts, run_id, held=is_held(view))] if not view.ledger_purged else [PURGED]),
            ("results", [f"{view.results} → outlast runs results {run_id}"] if view.results else []),
            ("used", used_lines(view.used, view.budget if of_tree is None else NO_BUDGET)),
            ("used by its tree", used_lines(of_tree, view.budget) if of_tree is not None else []),
            ("crashes", _crashes(view.takeovers, nth_of(view.visits))),
            ("progress", [] if ended else progress_lines(screen, view.progress)),
            ("answer", [f"outlast attention show {run_id}"] if view.attention else []),
            *(_ending(view) if ended else ()),
        )
    )
    return OK


def way(screen: Screen, view: RunDetail) -> list[str]:
    """Return the last 20 visits of a run as text; three or more equal rounds are one part."""
    visits = view.visits
    done = sum(1 for visit in visits if visit.visit < view.visit or view.status == RunStatus.COMPLETED)
    parts, event_text = list[str](), list[int]()
    for first, size, times in rounds([visit.node for visit in visits[:done]]):
        last = first + size * times
        event_text.append(last)
        if times == 1:
            parts.append(shown_visit(screen, view, visits[first]))
            continue
        names = " · ".join(visit.node for visit in visits[first : first + size])
        took = _took(visits[first], visits[last - 1])
        parts.append(f"✓ {names if size == 1 else f'({names})'} ×{times} {took}")
    parts += [shown_visit(screen, view, visit) for visit in visits[done:]]
    event_text += range(done + 1, len(visits) + 1)
    if (more := len(parts) - PARTS_MAX) > 0:
        parts = [f"… {event_text[more - 1]} visits before → outlast runs events {view.run}", *parts[more:]]
    return parts


def rounds(nodes: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, nodes per round, number of rounds) for the visited nodes; a single visit is one round."""
    at = 0
    while at < len(nodes):
        found = 1, 1
        for size in range(1, min(ROUND_MAX, (len(nodes) - at) // FOLDED_FROM) + 1):
            times = 1
            while list(nodes[at + times * size : at + (times + 1) * size]) == list(nodes[at : at + size]):
                times += 1
            if times >= FOLDED_FROM and size * times > found[0] * found[1]:
                found = size, times
        yield at, *found
        at += found[0] * found[1]


def shown_visit(screen: Screen, view: RunDetail, visit: Visit) -> str:
    """Return a visit as text: mark, node, elapsed time, and the limit of a wait."""
    took = _took(visit, visit)
    if visit.visit < view.visit:
        return f"✓ {visit.node} {took}"
    if view.status in TERMINAL:
        return f"{'✓' if view.status == RunStatus.COMPLETED else '✗'} {visit.node} {took}"
    spent = _spent(screen, visit.entered_at)
    ends = [(w.since, w.until) for w in view.waiting_for if w.until and w.since]
    if ends and not view.attention and milliseconds(ends[0][1]) < FAR_FROM:
        since, until = ends[0]
        spent = f"{_spent(screen, since)} of {span(milliseconds(until) - milliseconds(since))}"
    mark = "!" if view.attention else "▸" if view.owner else "⏸"
    return f"{mark} {visit.node} {spent}"


def _took(first: Visit, last: Visit) -> str:
    """Return the time between the entry of a visit and the end of another; '' if it is still open."""
    if first.entered_at is None or last.left_at is None:
        return ""
    return span(milliseconds(last.left_at) - milliseconds(first.entered_at))


def _spent(screen: Screen, since: datetime | None) -> str:
    """Return the time since an instant, also with --utc."""
    return span(max(0, screen.now_ms - milliseconds(since))) if since is not None else ""


def is_held(view: RunSummary) -> bool:
    """True if a worker holds the run."""
    return view.status in HELD and bool(view.owner)


async def _holder(client: Client, screen: Screen, view: RunDetail) -> list[str]:
    if not is_held(view):
        return []
    events = await all_events(client, view.run)
    taken = next((e for e in reversed(events) if e.type in (EventType.CLAIMED, EventType.TAKEN_OVER)), None)
    return [view.owner + (f" since {screen.ago(datetime.fromisoformat(taken.time))}" if taken else "")]


def _asked(view: RunDetail, screen: Screen, each: PendingRequest) -> str:
    reason = f": {each.reason}" if each.reason else ""
    return f"by {each.by} {screen.since(each.at)}{reason}; {after_request(view, each.verb)}"


def after_request(view: RunDetail, verb: str) -> str:
    """Return when a request to the run takes effect, and what it does."""
    counts, cancel = view.effects, verb == Choice.CANCEL
    if is_held(view):
        return f"{view.owner} stops before its next call" if cancel else f"{view.owner} has taken it"
    if cancel and view.status == RunStatus.COMPENSATING:
        waits = any(wait.kind == "child" for wait in view.waiting_for)
        return f"ends once {'the child that it waits for has ended and ' if waits else ''}its effects are undone"
    if cancel and (counts[EffectStatus.INTENDED] or counts[EffectStatus.UNCERTAIN]):
        return "ends once a worker has taken it and open effects are settled"
    return f"{'ends' if cancel else 'continues'} once a worker takes it"


def _waiting(screen: Screen, view: RunDetail) -> list[str]:
    if view.status in TERMINAL or view.attention or is_held(view):
        return []
    lines = []
    children = sum(wait.kind == "child" and not wait.who.startswith(WAITED) for wait in view.waiting_for)
    if children:  # the tree above has a line for each
        lines.append(f"{children} {'child' if children == 1 else 'children'}")
    for wait in view.waiting_for:
        if wait.kind == "child":
            if wait.who.startswith(WAITED):
                lines.append(f"map {wait.what}")
            continue
        if wait.kind == "worker":
            lines.append(view.waiting_text + ("" if view.served else f" → {worker_command(view.scheduler)}"))
            continue
        by = f" by {wait.who}" if wait.who else ""
        left = f" · {screen.left(wait.until)} left, then {wait.then}" if wait.until else ""
        lines.append(f"{wait.kind} {wait.what}{by}{left}")
        if wait.kind == "approval":
            lines.append(f"→ outlast approvals show {wait.what.partition(' ')[0]}")
    return lines


def _attention(screen: Screen, each: AttentionReason, ways: Sequence[str]) -> list[str]:
    first, *rest = shown_traceback(each.detail) or [""]
    name = trigger_text(each)
    return [
        f"{name}, since {screen.ago(each.since)}: {first}",
        *(f"  {line}" for line in rest),
        f"choices: {', '.join(each.choices)} · ignored: {each.if_ignored}",
        *ways,
    ]


def _ways_on(
    screen: Screen, view: RunDetail, each: AttentionReason, uncertain: Mapping[str, EffectRecord]
) -> list[str]:
    if each.reason == Reason.EFFECT_UNCERTAIN:
        return (
            uncertain_lines(screen, uncertain[each.key])
            if each.key in uncertain
            else ["settled; the next worker continues"]
        )
    ways = []
    if Choice.CONTINUE in each.choices or each.reason == Reason.RETRIES_EXHAUSTED:
        ways.append(f"→ outlast runs continue {view.run} --reason …")
    if Choice.CANCEL in each.choices:
        ways.append(f"→ outlast runs cancel {view.run} --reason …")
    return ways


def _count(counts: dict[str, int], run_id: str, *, held: bool) -> str:
    parts = [f"{counts[EffectStatus.DONE]} executed", f"{counts[EffectStatus.UNCERTAIN]} uncertain"]
    if counts[EffectStatus.REFUSED]:
        parts.append(f"{counts[EffectStatus.REFUSED]} {EffectStatus.REFUSED}")
    if counts[EffectStatus.UNDONE]:
        parts.append(f"{counts[EffectStatus.UNDONE]} {EffectStatus.UNDONE}")
    if counts[EffectStatus.INTENDED]:
        parts.append(f"{counts[EffectStatus.INTENDED]} {'under way' if held else 'left open'}")
    if counts["asked_again"]:
        parts.append(f"asked again ×{counts['asked_again']}")
    return f"{' · '.join(parts)} → outlast runs effects {run_id}"


def _crashes(takeovers: Sequence[Takeover], nth: Mapping[int, int]) -> list[str]:
    if not takeovers:
        return []
    each = [
        f"{visit_text(t.node, nth.get(t.visit, 0), t.visit)}: {t.from_} → {t.to}"
        + (f", {span(t.after_ms)} after its last sign of life" if t.after_ms is not None else "")
        for t in takeovers
    ]
    return [f"{len(takeovers)}", *each]


def _ending(ending: RunDetail) -> list[tuple[str, list[str]]]:
    outcome = short_json(ending.outcome) if ending.outcome is not None else ""
    remaining = [*ending.not_undone]
    if remaining:
        remaining.append("these remain; undo by hand any that must not")
    return [
        ("outcome", [outcome] if outcome else []),
        ("reason", [ending.reason] if ending.reason else []),
        ("not undone", remaining),
    ]


def short_json(value: Any) -> str:
    """Return JSON on one line; a long value is cut, with a hint how to see all of it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= JSON_WIDTH else f"{text[:JSON_WIDTH]} … → -o json"


def uncertain_lines(screen: Screen, view: EffectRecord) -> list[str]:
    """Return the possible answers for an uncertain effect, and late answers that a replaced worker received."""
    resolve = f"outlast effects resolve {view.run} {shlex.quote(view.key)}"
    happened = happened_options(view.takes_response)
    late = [f"  {late_answer_label(each)}" for each in view.evidence]
    if not view.settles_in_ms:
        return [
            *late,
            f"→ check the receiver, then: {resolve} {happened} | --did-not-happen | --give-up --reason …",
        ]
    left = span(view.settles_in_ms)
    at = screen.clock(view.settle_after_real) if view.settle_after_real else ""
    return [
        *late,
        f"→ check the receiver, then: {resolve} {happened} | --give-up --reason …",
        f"  --did-not-happen from {at} on, in {left}: until then a sent call may still arrive",
    ]


WIDTH = 200  # characters; -o json shows all
IN_EVERY_EVENT = frozenset({"version", "epoch", "node", "visit"})
EMPTY: tuple[Any, ...] = ("", None, [], {})
INSTANTS = frozenset({"since", "until"})  # of a wait; 0: none
PLAIN = frozenset("._-/:@#+")


class HistoryEntry(NamedTuple):
    """A line of a run's history."""

    time: str
    """'' for an open effect, which comes last."""
    n: int
    """The number of an event; 0 for an effect or a step of an approval."""
    what: str
    place: str
    data: Mapping[str, Any]


def history(
    events: Sequence[CloudEvent],
    effects: Sequence[EffectRecord],
    approvals: Sequence[ApprovalSummary],
    *,
    from_start: bool = True,
) -> list[HistoryEntry]:
    """Return events, settled effects and the steps of approvals in order of time, open effects last.

    At equal times, effects and decisions come before the event they caused. `from_start`: `events` begins with the
    first event of the run; otherwise older effects and decisions are left out.
    """
    of_events = [
        HistoryEntry(e.time, e.number, e.type.rpartition(".")[2], _place(data_of(e)), data_of(e)) for e in events
    ]
    found = [_of_effect(each) for each in effects] + [entry for each in approvals for entry in _of_approval(each)]
    begin = "" if from_start else of_events[0].time if of_events else "~"
    found = [entry for entry in found if not entry.time or entry.time >= begin]
    return sorted([*found, *of_events], key=lambda entry: (entry.time or "~", entry.n > 0, entry.n))


def _place(data: Mapping[str, Any]) -> str:
    return f"{data['node']}#{data['visit']}" if data["visit"] else str(data["node"])


def _of_effect(effect: EffectRecord) -> HistoryEntry:
    names = ("effect", "key", "outcome", "external_id", "approval", "attempts", "settled_by")
    place = _place({"node": effect.node, "visit": effect.visit})
    return HistoryEntry(iso_of(effect.settled_at), 0, "effect", place, {name: getattr(effect, name) for name in names})


def _of_approval(approval: ApprovalSummary) -> Iterator[HistoryEntry]:
    named = {"approval": approval.approval}
    yield HistoryEntry(iso_of(approval.asked_at), 0, "asked", "", {**named, "who": approval.who, "asks": approval.asks})
    if approval.quorum > 1:
        for vote in approval.votes:
            by = {**_made(approval, vote.chosen), "by": vote.by, "reason": vote.reason}
            yield HistoryEntry(iso_of(vote.at), 0, "vote", "", {**named, **by})
    if approval.decided_at:
        by = {**_made(approval), "by": approval.decided_by, "reason": approval.reason}
        yield HistoryEntry(iso_of(approval.decided_at), 0, approval.status, "", {**named, **by})


def _made(approval: ApprovalSummary, chosen: str = "") -> dict[str, str]:
    """Return the approved call, if it is not the requested one."""
    call = call_of(approval, chosen)
    return {} if call == approval.asks else {"instead": call}


def event_text(data: Mapping[str, Any]) -> str:
    """Return the data of an event as text, without its place and empty values."""
    fields = {name: value for name, value in data.items() if name not in IN_EVERY_EVENT and value not in EMPTY}
    words = " ".join(f"{name}={_value(name, value)}" for name, value in fields.items())
    return words if len(words) <= WIDTH else f"{words[:WIDTH]} … → -o json"


def _value(name: str, value: Any) -> str:
    if isinstance(value, str) and all(sign.isalnum() or sign in PLAIN for sign in value):
        return value
    if name == "waiting_for":
        value = [_wait(each) for each in value]
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _wait(wait: dict[str, Any]) -> dict[str, Any]:
    """Return a wait with instants as text."""
    return {n: iso(item) if n in INSTANTS and isinstance(item, int) else item for n, item in wait.items() if item}
