"""One run on one page: its way, what it waits for, what a person may do, its effects, its crashes and its end."""

import json
from collections.abc import Sequence
from typing import Any

from outlast.cli.failure import OK, shown_traceback
from outlast.cli.progress import progress_lines, trigger_text
from outlast.cli.screen import Screen
from outlast.cli.text import ms_of
from outlast.core.events import EventType
from outlast.core.machine import Choice, EffectStatus, Reason, RunStatus
from outlast.core.overlay import waiting_of
from outlast.core.rows import Event, Run, is_over
from outlast.runtime.operations import Operations
from outlast.runtime.progress import progress_of
from outlast.runtime.spans import span
from outlast.runtime.views import effect_counts, effect_view, ending_of, instant, run_view, takeovers_of, visits_of
from outlast.runtime.words import is_held, late_words

JSON_WIDTH = 400  # an outcome longer than this is for -o json


async def show_run(ops: Operations, screen: Screen, run_id: str) -> int:
    """Print the page of a run, or all there is to know of it as one object."""
    row = await ops.run(run_id)
    events = await ops.whole_history(run_id)
    effects = await ops.effects(run_id)
    counts = effect_counts(effects)
    asked = await ops.asked(row)
    takeovers = takeovers_of(events, await ops.workers(), ops.store.mapping().real)
    view = run_view(row, await ops.serving())
    now = await ops.store.now()
    known = await ops.evidence(run_id) if counts[EffectStatus.UNCERTAIN] else ()
    doubts = {
        e.key: effect_view(e, now, [k for k in known if (k.visit, k.key) == (e.visit, e.key)])
        for e in effects
        if e.status is EffectStatus.UNCERTAIN
    }
    progress = progress_of(row, events, effects)
    way = visits_of(row, events)
    ending = ending_of(events)
    if screen.data(
        {
            **view,
            "asked": asked,
            "visits": way,
            "effects": counts,
            "takeovers": takeovers,
            "progress": progress,
            **(ending or {}),
        }
    ):
        return OK
    shown = f"{row.run}  {row.workflow} v{row.lane.rpartition('@')[2]}  {view['shown']}"
    screen.line(f"{shown}   started {screen.since(view['created_at'])} by {row.requested_by}   version {row.version}")
    screen.line("  " + " · ".join(_visit(screen, row, visit) for visit in way))
    screen.pairs(
        (
            ("walked by", _walked(screen, row, events)),
            ("waiting for", _waiting(screen, row, view)),
            *((f"{each['verb']} asked", [_asked(screen, row, counts, each)]) for each in asked),
            (
                "attention",
                [
                    line
                    for each in view["attention"]
                    for line in _attention(screen, each, _ways_on(screen, row, each, doubts))
                ],
            ),
            ("effects", [_count(counts, run_id)]),
            ("crashes", _crashes(takeovers)),
            ("progress", [] if is_over(row) else progress_lines(screen, progress)),
            ("answer", [f"outlast attention show {row.run}"] if view["attention"] else []),
            *(_ending(ending) if ending else ()),
        )
    )
    return OK


def _visit(screen: Screen, row: Run, visit: dict[str, Any]) -> str:
    took = ""
    if visit["left_at"]:
        took = span(ms_of(visit["left_at"]) - ms_of(visit["entered_at"]))
    if visit["visit"] < row.visit:
        return f"✓ {visit['node']} {took}"
    if is_over(row):
        return f"{'✓' if row.status is RunStatus.COMPLETED else '✗'} {visit['node']} {took}"
    spent = span(max(0, screen.now_ms - ms_of(visit["entered_at"])))
    ends = [w for w in waiting_of(row) if w.until]
    if ends and not row.attention:
        spent = f"{span(max(0, screen.now_ms - ends[0].since))} of {span(ends[0].until - ends[0].since)}"
    mark = "!" if row.attention else "▸" if row.owner else "⏸"
    return f"{mark} {visit['node']} {spent}"


def _walked(screen: Screen, row: Run, events: Sequence[Event]) -> list[str]:
    if not is_held(row):
        return []
    taken = next((e for e in reversed(events) if e.type in (EventType.CLAIMED, EventType.TAKEN_OVER)), None)
    return [f"{row.owner}" + (f" since {screen.ago(instant(taken.at))}" if taken else "")]


def _asked(screen: Screen, row: Run, counts: dict[str, int], each: dict[str, Any]) -> str:
    reason = f": {each['reason']}" if each["reason"] else ""
    cancel = each["verb"] == Choice.CANCEL
    if is_held(row):
        then = f"{row.owner} heeds it before its next call" if cancel else f"{row.owner} has taken it"
    elif cancel and (counts[EffectStatus.INTENDED] or counts[EffectStatus.UNCERTAIN]):
        then = "ends once a worker has taken it and what is open is settled"
    else:
        then = f"{'ends' if cancel else 'goes on'} once a worker takes it"
    return f"by {each['by']} {screen.since(each['at'])}{reason}; {then}"


def _waiting(screen: Screen, row: Run, view: dict[str, Any]) -> list[str]:
    if is_over(row) or row.attention or is_held(row):
        return []
    lines = []
    for wait in view["waiting_for"]:
        if wait["kind"] == "worker":
            lines.append(view["waiting_text"] + ("" if view["served"] else " → outlast worker MODULE"))
            continue
        by = f" by {wait['who']}" if wait["who"] else ""
        left = f" · {screen.left(wait['until'])} left, then {wait['then']}" if wait["until"] else ""
        lines.append(f"{wait['kind']} {wait['what']}{by}{left}")
        if wait["kind"] == "approval":
            lines.append(f"→ outlast approvals show {wait['what'].partition(' ')[0]}")
    return lines


def _attention(screen: Screen, each: dict[str, Any], ways: Sequence[str]) -> list[str]:
    first, *rest = shown_traceback(each["detail"]) or [""]
    name = trigger_text(each)
    return [
        f"{name}, since {screen.ago(each['since'])}: {first}",
        *(f"  {line}" for line in rest),
        f"choices: {', '.join(each['choices'])} · ignored: {each['if_ignored']}",
        *ways,
    ]


def _ways_on(screen: Screen, row: Run, each: dict[str, Any], doubts: dict[str, dict[str, Any]]) -> list[str]:
    if each["reason"] == Reason.EFFECT_UNCERTAIN:
        return (
            doubt_lines(screen, doubts[each["key"]])
            if each["key"] in doubts
            else ["settled; a worker takes it from here"]
        )
    ways = []
    if Choice.CONTINUE in each["choices"] or each["reason"] == Reason.RETRIES_EXHAUSTED:
        ways.append(f"→ outlast runs continue {row.run} --reason …")
    if Choice.CANCEL in each["choices"]:
        ways.append(f"→ outlast runs cancel {row.run} --reason …")
    return ways


def _count(counts: dict[str, int], run_id: str) -> str:
    parts = [f"{counts[EffectStatus.DONE]} executed", f"{counts[EffectStatus.UNCERTAIN]} uncertain"]
    if counts[EffectStatus.REFUSED]:
        parts.append(f"{counts[EffectStatus.REFUSED]} {EffectStatus.REFUSED}")
    if counts[EffectStatus.UNDONE]:
        parts.append(f"{counts[EffectStatus.UNDONE]} {EffectStatus.UNDONE}")
    if counts[EffectStatus.INTENDED]:
        parts.append(f"{counts[EffectStatus.INTENDED]} under way")
    if counts["asked_again"]:
        parts.append(f"asked again ×{counts['asked_again']}")
    return f"{' · '.join(parts)} → outlast runs effects {run_id}"


def _crashes(takeovers: Sequence[dict[str, Any]]) -> list[str]:
    if not takeovers:
        return []
    each = [
        f"{t['node']} (visit {t['visit']}): {t['from']} → {t['to']}"
        + (f", {span(t['after_ms'])} after its last sign of life" if t["after_ms"] is not None else "")
        for t in takeovers
    ]
    return [f"{len(takeovers)}", *each]


def _ending(ending: dict[str, Any]) -> list[tuple[str, list[str]]]:
    outcome = json.dumps(ending["outcome"], ensure_ascii=False) if ending["outcome"] is not None else ""
    if len(outcome) > JSON_WIDTH:
        outcome = f"{outcome[:JSON_WIDTH]} … → -o json"
    stands = [*ending["standing"]]
    if stands:
        stands.append("these are done and stay done: undo by hand what must be")
    return [
        ("outcome", [outcome] if outcome else []),
        ("reason", [ending["reason"]] if ending["reason"] else []),
        ("stands", stands),
    ]


def doubt_lines(screen: Screen, view: dict[str, Any]) -> list[str]:
    """What a person may say of an uncertain effect, and from when on; and what a replaced worker learnt too late."""
    resolve = f"outlast effects resolve {view['run']} {view['key']}"
    late = [f"  {late_words(each)}" for each in view["evidence"]]
    if not view["settles_in_ms"]:
        return [
            *late,
            f"→ look at the receiver, then: {resolve} --happened ID | --did-not-happen | --give-up --reason …",
        ]
    left, at = span(view["settles_in_ms"]), screen.clock(view["quiet_until_real"])
    return [
        *late,
        f"→ look at the receiver, then: {resolve} --happened ID | --give-up --reason …",
        f"  did not happen: from {at} on, in {left}: a call may still land until then",
    ]
