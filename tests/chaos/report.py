"""Reports of rounds: JSON for programs, a summary in Markdown for people."""

import json
from pathlib import Path
from typing import Any

HELD = {"one": "which held all runs", "half": "the fullest of all"}


def summary(report: dict[str, Any]) -> str:
    """Return a summary in Markdown."""
    took, wrong = report["takeover"], len(report["wrong"])
    lines = [
        f"## {report['store']}, seed {report['seed']}, {report['seconds']:g} s, {report['workers']} workers",
        "",
        f"- verdict: **{f'{wrong} things wrong' if wrong else 'nothing wrong'}**",
        f"- nemeses: {', '.join(f'{name} {n}' for name, n in sorted(report['nemeses'].items()))}",
        f"- runs {report['runs']:,} ({', '.join(f'{k} {v}' for k, v in sorted(report['runs_by_status'].items()))}), "
        f"{report['effects']:,} effects, {report['requests']:,} requests, {report['executed']:,} acts",
        f"- executed twice without a decision: {report['executed_twice']}; acknowledged and lost: "
        f"{report['acknowledged_lost']}; refused and yet there: {report['refused_yet_there']}; "
        f"stuck: {report['stuck']}",
        f"- takeover after SIGKILL: {took['runs']} runs"
        + (f", p50 {took['p50_ms']} ms, p99 {took['p99_ms']} ms (heartbeat window 3 s)" if took["runs"] else ""),
        f"- settled {report['settled_s']} s after the last nemesis; fsck {report.get('fsck')}",
    ]
    return "\n".join([*lines, *(f"- WRONG: {each}" for each in report["wrong"]), ""])


def of_any(report: dict[str, Any]) -> str:
    """Return the summary of a round or of a measurement with runs in flight."""
    return of_flight(report) if "in_flight" in report else summary(report)


def of_flight(report: dict[str, Any]) -> str:
    """Return the summary of a measurement with runs in flight."""
    wrong, lines = report["wrong"], []
    for what in ("takeover", "executed"):
        each = report[what]
        times = f", p50 {each['p50_ms']} ms, p99 {each['p99_ms']} ms, max {each['max_ms']} ms" if each["runs"] else ""
        lines.append(f"- {what} after SIGKILL: {each['runs']:,} runs{times}")
    return "\n".join(
        [
            f"## {report['store']}, {report['in_flight']:,} runs in flight, {report['killed']} of {report['workers']} "
            f"workers killed, {HELD[report['holders']]}, heartbeat window {report['heartbeat_window_s']:g} s",
            "",
            f"- verdict: **{f'{len(wrong)} things wrong' if wrong else 'nothing wrong'}**",
            *lines,
            f"- all in flight after {report['in_flight_s']} s, ended within {report['ended_s']} s; "
            f"{report['cpu_ms_a_run']} ms of CPU for each taken over; fsck {report.get('fsck')}",
            f"- {report['workers'] - report['killed']} left, each with -c {report['concurrency']}, which claimed "
            f"{' and '.join(f'{n:,}' for n in report['shared']) or 'none'}; load "
            f"{report['load_before']:.1f} before, {report['load_at_kill']:.1f} at the kill, {report['load']:.1f} after",
            *(f"- WRONG: {each}" for each in wrong),
            "",
        ]
    )


def write(path: Path, reports: list[dict[str, Any]]) -> None:
    """Write PATH as JSON, and the summary beside it."""
    path.write_text(json.dumps(reports, indent=1) + "\n")
    path.with_suffix(".md").write_text("# Chaos\n\n" + "\n".join(map(of_any, reports)))
