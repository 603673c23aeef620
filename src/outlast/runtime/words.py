"""What a run's row says to people: the status shown, and one sentence on what it waits for."""

from outlast.core.machine import HELD
from outlast.core.overlay import attention_of, waiting_of
from outlast.core.rows import Run, is_over

ATTENTION = "REQUIRES_ATTENTION"
APPROVAL = "PENDING_APPROVAL"


def shown_status(run: Run) -> str:
    """REQUIRES_ATTENTION if a person must look, else the node's business status, else the engine's (RUN-2)."""
    if attention_of(run):
        return ATTENTION
    if is_over(run):
        return run.status.upper()
    if run.label:
        return run.label
    if any(w.kind == "approval" for w in waiting_of(run)):
        return APPROVAL
    return run.status.upper()


def is_held(run: Run) -> bool:
    """Does a worker hold it at this moment?"""
    return run.status in HELD and bool(run.owner)
