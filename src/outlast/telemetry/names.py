"""Every metric: its name (the sources' as suffix), what it is, its labels. Labels are never ids of runs or tenants."""

from typing import Final, Literal, NamedTuple

from outlast.core.machine import DeliveryStatus

PREFIX: Final = "outlast_"
SECONDS: Final = (0.005, 0.05, 0.25, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 21_600.0, 86_400.0, 345_600.0)
"""From one call to the 96 h of an approval."""


class Meter(NamedTuple):
    """One metric. A counter's exposed name ends in `_total`, which Prometheus adds where it is not said."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    help: str
    labels: tuple[str, ...] = ()
    known: tuple[tuple[str, ...], ...] = ()
    """Series that are 0 before they are raised: an alert on a rise sees none where nothing was before."""


DLQ_PUBLISH_FAILED: Final = "dlq_publish_failed"  # source A, REQ-G306
WORKFLOW_COMPENSATIONS: Final = "workflow_compensations_total"  # source B; one for each effect undone
RECOVERY_LOCK_ACQUISITION_FAILURES: Final = "recovery_lock_acquisition_failures"  # source A, REQ-R502
WORKFLOW_DURATION: Final = "workflow_duration_seconds"  # source B
NODE_DURATION: Final = "node_duration_seconds"
ACTIVITY_RETRIES: Final = "activity_retries_total"  # source B
EFFECTS: Final = "effects_total"
INTERRUPT_WAIT: Final = "interrupt_wait_seconds"  # source A
RECOVERY: Final = "recovery_seconds"
WEBHOOK_DELIVERIES: Final = "webhook_deliveries_total"
RUNS: Final = "runs"
RUNS_ATTENTION: Final = "runs_attention"
APPROVALS_PENDING: Final = "approvals_pending"
SLOTS: Final = "slots"
WORKERS: Final = "workers"
OUTBOX_LAG: Final = "outbox_lag_seconds"

# How an attempt to deliver ended (WEBHOOK_DELIVERIES).
ACCEPTED, RETRIED, GONE, DEAD = "accepted", "retried", "gone", DeliveryStatus.DEAD.value
OUTCOMES: Final = (ACCEPTED, RETRIED, GONE, DEAD)
# Of what is owed to webhooks, the oldest (OUTBOX_LAG).
DUE: Final = "due"
"""Should have been sent, and nobody sends it."""
OWED: Final = DeliveryStatus.OWED.value
"""Was not accepted yet, whether it was tried or not."""

METERS: Final[dict[str, Meter]] = {
    meter.name: meter
    for meter in (
        Meter(WORKFLOW_DURATION, "histogram", "From a run's start to its end.", ("workflow", "status")),
        Meter(NODE_DURATION, "histogram", "From the entry into a node to its checkpoint.", ("workflow", "node")),
        Meter(ACTIVITY_RETRIES, "counter", "Further attempts of a call.", ("activity", "reason")),
        Meter(EFFECTS, "counter", "Writes whose outcome became known, or uncertain.", ("activity", "outcome")),
        Meter(WORKFLOW_COMPENSATIONS, "counter", "Effects undone.", ("workflow", "step")),
        Meter(INTERRUPT_WAIT, "histogram", "How long a run waited for something that has come.", ("workflow", "kind")),
        Meter(RECOVERY, "histogram", "From the last sign of life of a worker to the takeover of a run of it."),
        Meter(RECOVERY_LOCK_ACQUISITION_FAILURES, "counter", "Takeovers that another worker was faster at, or failed."),
        Meter(DLQ_PUBLISH_FAILED, "counter", "Notices to people that could not be delivered."),
        Meter(
            WEBHOOK_DELIVERIES, "counter", "Attempts to deliver an event.", ("outcome",), tuple((o,) for o in OUTCOMES)
        ),
        Meter(RUNS, "gauge", "Runs in the store.", ("workflow", "status")),
        Meter(RUNS_ATTENTION, "gauge", "Runs that a person must look at.", ("workflow", "reason")),
        Meter(APPROVALS_PENDING, "gauge", "Approvals that nobody has decided.", ("role",)),
        Meter(SLOTS, "gauge", "Places of the admission limits.", ("state",)),
        Meter(WORKERS, "gauge", "Workers whose lease runs, and those that were closed or are silent.", ("state",)),
        Meter(OUTBOX_LAG, "gauge", "For how long an event has been due and not sent, or owed.", ("state",)),
    )
}
