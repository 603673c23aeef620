"""The report beside the store: the run's story, told by the example from what the store and the suppliers say."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from outlast.cli.story.example import Example
from outlast.cli.story.proof import Proof
from outlast.core.budget import SECOND
from outlast.core.events import EventType
from outlast.core.rows import Approval, Event
from outlast.runtime.in_process import state_of
from outlast.runtime.operations import Operations

FILE = "report.html"


async def report(operations: Operations, run: str, example: Example, proof: Proof) -> Any:
    """The example's report of a run."""
    module = example.part("report")
    state = await state_of(operations, run)
    approvals, _ = await operations.approvals()
    mine = [approval for approval in approvals if approval.run == run]
    history = await operations.whole_history(run)
    return module.Report(
        run=run,
        ended=state.shown,
        reason=state.reason,
        s=example.part("state").Negotiation.model_validate(state.state),
        moments=tuple(module.Moment(*moment) for moment in moments(history, mine)),
        proof=tuple(f"{claim.text}{'' if claim.holds else ' (does not hold)'}" for claim in proof.claims),
    )


def write(told: Any, folder: Path, example: Example) -> Path:
    """The report as a page beside the store; its path."""
    path = folder / FILE
    path.write_text(example.part("report_page").page(told), encoding="utf-8")
    return path


Told = tuple[datetime, str, str, str, timedelta]


def moments(history: tuple[Event, ...], approvals: list[Approval]) -> list[Told]:
    """What happened, in order of time: (when, kind, name, text, how long it lasted)."""
    found: list[tuple[int, str, str, str, int]] = []
    entered, node = (history[0].at, history[0].node) if history else (0, "")
    waited = False
    for event in history:
        data = json.loads(event.body)["data"]
        match event.type:
            case EventType.CHECKPOINT.value:
                kind, text = ("wait", "mostly waiting, no process held it") if waited else ("work", "walked")
                found.append((entered, kind, node, text, event.at - entered))
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
    return [(_at(at), kind, name, text, timedelta(milliseconds=lasted)) for at, kind, name, text, lasted in found]


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / SECOND, UTC)
