"""Pages of `outlast runs steps` and `outlast runs timeline`: tables of steps and of bars, and one step as a whole."""

from collections.abc import Sequence
from datetime import datetime

from outlast.cli.screen import Screen
from outlast.core.durations import measured_span
from outlast.insight.labels import visit_text
from outlast.insight.run_timeline import measured_ms
from outlast.insight.step_names import proposal_text
from outlast.models.steps import ProposedCall, Step
from outlast.models.timeline import Timeline, TimelineBar

INPUT_CHARS = 80
DETAIL_CHARS = 160


def print_steps(screen: Screen, steps: Sequence[Step]) -> None:
    """Print a table of steps with what each is about, and the ids below whose texts are cut."""
    rows = [
        (_when(screen, step.began or step.ended), step.kind, step.status, f"{step.visit}", step_line(step), step.id)
        for step in steps
    ]
    screen.table(("WHEN", "KIND", "STATUS", "VISIT", "WHAT", "STEP"), rows)
    screen.advice(f"{len(rows)} step{'s' if len(rows) > 1 else ''} · a whole one → the same with --step STEP")


def print_step(screen: Screen, step: Step) -> None:
    """Print everything about one step."""
    used = f"{step.tokens} tokens ({step.input_tokens} in, {step.output_tokens} out)" if step.tokens else ""
    model = " · ".join(filter(None, (step.model, used, step.money and f"{step.money} paid")))
    screen.line(f"{step.id}  {step.kind}  {step.status}   {step.what}")
    screen.pairs(
        (name, [text] if isinstance(text, str) and text else [] if isinstance(text, str) else text)
        for name, text in (
            ("node", visit_text(step.node, step.nth, step.visit)),
            ("began", _when(screen, step.began)),
            ("ended", _when(screen, step.ended)),
            ("detail", step.detail),
            ("by", step.by),
            ("model", model),
            ("proposed", [_proposal(call) for call in step.proposals]),
            ("key", step.key),
            ("digest", step.digest),
            ("attempts", str(step.attempts) if step.attempts else ""),
            ("external id", step.external_id if not step.child else ""),
            ("child run", f"{step.child} → outlast runs show {step.child}" if step.child else ""),
            ("settled by", step.settled_by),
            ("allowed by", step.allowed_by),
            ("approval", step.approval),
            ("input", step.input.text),
            ("output", step.output.text),
        )
    )


def print_timeline(screen: Screen, view: Timeline) -> None:
    """Print the bars and marks of a run as one table in the order of time, and its next deadline."""
    rows = [(bar.began, _bar_row(screen, bar)) for bar in view.bars]
    rows += [(m.at, (_when(screen, m.at), "", m.kind, m.node, f"{m.visit}", m.text, "")) for m in view.marks]
    rows.sort(key=lambda row: row[0])
    screen.table(("BEGAN", "TOOK", "KIND", "NODE", "VISIT", "WHAT", "OUTCOME"), [row for _, row in rows])
    if view.grouped:
        screen.advice(f"{view.total} bars, shown in groups → a part of the time with --from and --to")
    if view.next_deadline is not None:
        screen.line(f"next: {screen.ahead(view.next_deadline)}, {view.next_text}")


def _bar_row(screen: Screen, bar: TimelineBar) -> tuple[str, ...]:
    took = measured_span(ms) if (ms := measured_ms(bar)) is not None else ""
    cost = f" · {bar.tokens:,} tokens" * bool(bar.tokens) + f" · {bar.money} paid" * bool(bar.money)
    attempts = f" ({bar.attempt} of {bar.attempts})" if bar.attempts > 1 else ""
    what = " ".join(filter(None, (bar.wait, bar.what, bar.key if bar.key != bar.what else "")))
    kind = bar.kind if bar.count == 1 else f"{bar.count} {bar.kind}s"
    outcome = ": ".join(filter(None, (bar.outcome, bar.detail[:DETAIL_CHARS])))
    return _when(screen, bar.began), took, kind, bar.node, f"{bar.visit}", what + attempts + cost, outcome


def _when(screen: Screen, at: datetime | None) -> str:
    return screen.since(at) if at is not None else ""


def step_line(step: Step) -> str:
    """Return the step in a line: what, by whom, and its detail or its beginning."""
    parts = [step.what]
    if step.kind == "model_decision":
        parts = [step.model or step.what, *([f"{step.tokens} tokens"] if step.tokens else [])]
        parts += [step.detail[:DETAIL_CHARS], *(_proposal(call)[:DETAIL_CHARS] for call in step.proposals)]
    elif step.kind == "tool_call":
        parts += [_head(step.input.text), step.detail[:DETAIL_CHARS]]
    elif step.kind != "checkpoint" and step.by:
        parts += [f"by {step.by}", step.detail[:DETAIL_CHARS]]
    else:
        parts.append(step.detail[:DETAIL_CHARS])
    return " · ".join(filter(None, parts))


def _head(text: str) -> str:
    return text if len(text) <= INPUT_CHARS else f"{text[: INPUT_CHARS - 1]}…"


def _proposal(call: ProposedCall) -> str:
    why = ": ".join(filter(None, (call.code, call.reason)))
    return f"{call.tool} {proposal_text(call.outcome)}" + (f" ({why})" if why else "")
