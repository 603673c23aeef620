"""Metrics, traces and logs of a process, under the names that operators use in alerts."""

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
