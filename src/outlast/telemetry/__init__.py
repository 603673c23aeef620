"""What operators see of a process: what it counted, under the names they alarm on, its spans, and its logs."""

from outlast.telemetry.counters import Counters
from outlast.telemetry.names import DLQ_PUBLISH_FAILED, RECOVERY_LOCK_ACQUISITION_FAILURES, WORKFLOW_COMPENSATIONS
from outlast.telemetry.watch import Watch

__all__ = [
    "DLQ_PUBLISH_FAILED",
    "RECOVERY_LOCK_ACQUISITION_FAILURES",
    "WORKFLOW_COMPENSATIONS",
    "Counters",
    "Watch",
]
