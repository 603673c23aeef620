"""How far a run has come, counted from its rows and never from a process's memory (RUN-7)."""

from collections.abc import Sequence
from typing import Any

from outlast.core.events import EventType, iso
from outlast.core.machine import EffectStatus
from outlast.core.overlay import waiting_of
from outlast.core.rows import Effect, Event, Run


def progress_of(run: Run, events: Sequence[Event], effects: Sequence[Effect]) -> dict[str, Any]:
    """Node and visit, effects done of intended (in this visit and in all), the last checkpoint, what it waits for."""
    here = [e for e in effects if e.node == run.node and e.visit in (0, run.visit)]
    saved = next((e for e in reversed(events) if e.type == EventType.CHECKPOINT), None)
    waits = waiting_of(run)
    return {
        "node": run.node,
        "visit": run.visit,
        "effects_done": _done(effects),
        "effects_intended": len(effects),
        "here_done": _done(here),
        "here_intended": len(here),
        "checkpoints": sum(1 for e in events if e.type == EventType.CHECKPOINT),
        "last_checkpoint_at": iso(saved.at) if saved is not None else None,
        "waits_for": [f"{w.kind} {w.what}" for w in waits],
        "until": iso(min(w.until for w in waits if w.until)) if any(w.until for w in waits) else None,
    }


def _done(effects: Sequence[Effect]) -> int:
    return sum(1 for e in effects if e.status is EffectStatus.DONE)
