"""What operators see of a process: what it counted, under the names they alarm on, its spans, and its logs."""

from outlast.telemetry.metrics import (
    DLQ_PUBLISH_FAILED,
    RECOVERY_LOCK_ACQUISITION_FAILURES,
    WORKFLOW_COMPENSATIONS,
    Counters,
)
from outlast.telemetry.observer import Observer

__all__ = [
    "DLQ_PUBLISH_FAILED",
    "RECOVERY_LOCK_ACQUISITION_FAILURES",
    "WORKFLOW_COMPENSATIONS",
    "Counters",
    "Observer",
]
