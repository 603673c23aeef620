"""The report page of a run, written beside the store."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from outlast.core.durations import SECOND
from outlast.core.events import EventType
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_rows import Event
from outlast.runtime.in_process import state_of
from outlast.runtime.operations import Operations

from ..report import Moment, MomentKind, Report
from ..report_page import page
from ..state import Negotiation
from .proof import Proof

FILE: Final = "report.html"


async def report(operations: Operations, run: str, proof: Proof) -> Report:
    """Return the report of a run."""
    detail = await operations.run(run)
    approvals, _ = await operations.rows.approvals()
    mine = [approval for approval in approvals if approval.run == run]
    history = await operations.rows.full_history(run)
    return Report(
        run=run,
        ended=detail.shown,
        reason=detail.reason,
        s=Negotiation.model_validate(await state_of(operations, run)),
        moments=tuple(moments(history, mine)),
        proof=tuple(f"{each.text}{' (does not hold)' if each.holds is False else ''}" for each in proof.claims),
    )


def write(made: Report, folder: Path) -> Path:
    """Write the report as a page into the folder and return its path."""
    path = folder / FILE
    path.write_text(page(made), encoding="utf-8")
    return path


def moments(history: tuple[Event, ...], approvals: list[Approval]) -> list[Moment]:
    """Return each stage of the run, in order of time."""
    found: list[tuple[int, MomentKind, str, str, int]] = []
    entered, node = (history[0].at, history[0].node) if history else (0, "")
    waited = False
    for event in history:
        data = event.data()
        match event.type:
            case EventType.CHECKPOINT.value:
                text = "mostly waiting, no process held it" if waited else "executed"
                found.append((entered, "wait" if waited else "work", node, text, event.at - entered))
                entered, node, waited = event.at, event.node, False
            case EventType.PARKED.value:
                waited = True
            case EventType.TAKEN_OVER.value:
                found.append((event.at, "crash", event.node, "its worker died; another one took over", 0))
            case EventType.FLAGGED.value:
                found.append((event.at, "person", event.node, "a person is called", 0))
            case EventType.FINISHED_WELL.value | EventType.FAILED.value | EventType.CANCELLED.value:
                found.append((entered, "work", event.node, str(data.get("reason") or "the end"), event.at - entered))
    for each in approvals:
        ended = each.decided_at or each.asked_at
        said = f"{each.status.value} by {each.decided_by}: {each.reason}" if each.decided_at else f"asks {each.who}"
        found.append((each.asked_at, "person", "approval", said, ended - each.asked_at))
    found.sort(key=lambda moment: moment[0])
    return [Moment(_at(at), kind, name, text, timedelta(milliseconds=lasted)) for at, kind, name, text, lasted in found]


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / SECOND, UTC)
