"""Every metric with its help and labels, and the counts of one process. Labels are never ids of runs or tenants."""

import threading
from bisect import bisect_left
from collections import Counter
from typing import Final, Literal, NamedTuple

from outlast.core.machine import DeliveryStatus

PREFIX: Final = "outlast_"
BUCKETS_S: Final = (
    0.005,
    0.05,
    0.25,
    1.0,
    5.0,
    15.0,
    30.0,
    60.0,
    300.0,
    1_800.0,
    3_600.0,
    21_600.0,
    86_400.0,
    345_600.0,
)
"""From one call to the 96 h of an approval."""


class Metric(NamedTuple):
    """One metric. Prometheus adds `_total` to the exposed name of a counter."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    help: str
    labels: tuple[str, ...] = ()
    known: tuple[tuple[str, ...], ...] = ()
    """Series exposed as 0 before the first event, because an alert on a rise misses one that starts at 1."""


DLQ_PUBLISH_FAILED: Final = "dlq_publish_failed"
WORKFLOW_COMPENSATIONS: Final = "workflow_compensations_total"
RECOVERY_LOCK_ACQUISITION_FAILURES: Final = "recovery_lock_acquisition_failures"
WORKFLOW_DURATION: Final = "workflow_duration_seconds"
NODE_DURATION: Final = "node_duration_seconds"
ACTIVITY_RETRIES: Final = "activity_retries_total"
EFFECTS: Final = "effects_total"
INTERRUPT_WAIT: Final = "interrupt_wait_seconds"
RECOVERY: Final = "recovery_seconds"
MODEL_TOKENS: Final = "model_tokens_total"
WEBHOOK_DELIVERIES: Final = "webhook_deliveries_total"
RUNS: Final = "runs"
RUNS_ATTENTION: Final = "runs_attention"
APPROVALS_PENDING: Final = "approvals_pending"
SLOTS: Final = "slots"
WORKERS: Final = "workers"
OUTBOX_LAG: Final = "outbox_lag_seconds"

# Outcomes of an attempt to deliver (WEBHOOK_DELIVERIES).
ACCEPTED, RETRIED, GONE, DEAD = "accepted", "retried", "gone", DeliveryStatus.DEAD.value
OUTCOMES: Final = (ACCEPTED, RETRIED, GONE, DEAD)
# States of the oldest event that is due or not delivered (OUTBOX_LAG).
DUE: Final = "due"
"""Should have been sent, and no dispatcher sends it."""
OWED: Final = DeliveryStatus.OWED.value
"""Was not accepted yet, whether it was tried or not."""

METRICS: Final[dict[str, Metric]] = {
    meter.name: meter
    for meter in (
        Metric(WORKFLOW_DURATION, "histogram", "Duration of a run.", ("workflow", "status")),
        Metric(
            NODE_DURATION, "histogram", "Duration from the entry into a node to its checkpoint.", ("workflow", "node")
        ),
        Metric(ACTIVITY_RETRIES, "counter", "Attempts of a call after the first.", ("activity", "reason")),
        Metric(EFFECTS, "counter", "Effects whose outcome became known or uncertain.", ("activity", "outcome")),
        Metric(WORKFLOW_COMPENSATIONS, "counter", "Effects undone.", ("workflow", "step")),
        Metric(INTERRUPT_WAIT, "histogram", "Duration of a wait that has ended.", ("workflow", "kind")),
        Metric(RECOVERY, "histogram", "Duration from a worker's last heartbeat to the takeover of its run."),
        Metric(MODEL_TOKENS, "counter", "Tokens that calls used, as stored.", ("model", "direction")),
        Metric(RECOVERY_LOCK_ACQUISITION_FAILURES, "counter", "Takeovers that failed or that another worker won."),
        Metric(DLQ_PUBLISH_FAILED, "counter", "Alerts to operators that could not be delivered."),
        Metric(
            WEBHOOK_DELIVERIES, "counter", "Attempts to deliver an event.", ("outcome",), tuple((o,) for o in OUTCOMES)
        ),
        Metric(RUNS, "gauge", "Runs in the store.", ("workflow", "status")),
        Metric(RUNS_ATTENTION, "gauge", "Runs that require attention.", ("workflow", "reason")),
        Metric(APPROVALS_PENDING, "gauge", "Approvals without a decision.", ("role",)),
        Metric(SLOTS, "gauge", "Slots of the admission limits.", ("state",)),
        Metric(WORKERS, "gauge", "Workers with a valid lease, closed workers and silent workers.", ("state",)),
        Metric(OUTBOX_LAG, "gauge", "Age of the oldest event that is due and not sent, or not delivered.", ("state",)),
    )
}


LABEL_CHARS_MAX: Final = 100
SERIES_MAX: Final = 1_000
"""Maximum series of one metric; further ones are counted together under the label `other`."""
Labels = tuple[str, ...]


class Histogram:
    """Number of values in each bucket, and their sum."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add a value to its bucket."""
        self.buckets[bisect_left(BUCKETS_S, value)] += 1
        self.sum += value


class Counters:
    """Counts of one process or one worker. They only rise. Safe to use from any thread."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[Labels]] = {}
        self._measured: dict[str, dict[Labels, Histogram]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, *labels: str, number: int = 1) -> None:
        """Add a number. `labels` are in the order of METRICS; missing ones are empty."""
        with self._lock:
            series = self._counts.setdefault(name, Counter())
            series[_known(name, labels, series)] += number

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration, in seconds, to a histogram."""
        with self._lock:
            series = self._measured.setdefault(name, {})
            series.setdefault(_known(name, labels, series), Histogram()).observe(max(seconds, 0.0))

    def __getitem__(self, name: str) -> int:
        return self._counts.get(name, Counter()).total()

    def all(self) -> dict[str, int]:
        """Return every counter that was raised, summed over all labels."""
        return {name: series.total() for name, series in self._counts.items()}

    def series(self, name: str) -> dict[Labels, int]:
        """Return the values of a counter by labels."""
        with self._lock:
            return dict(self._counts.get(name, {}))

    def measured(self, name: str) -> dict[Labels, tuple[list[int], float]]:
        """Return a histogram by labels: the counts of the buckets and the sum."""
        with self._lock:
            return {labels: (list(h.buckets), h.sum) for labels, h in self._measured.get(name, {}).items()}


def _known(name: str, labels: Labels, series: "dict[Labels, int] | dict[Labels, Histogram]") -> Labels:
    meter = METRICS.get(name)
    width = len(meter.labels) if meter else 0
    key = (*(label[:LABEL_CHARS_MAX] for label in labels[:width]), *[""] * (width - len(labels)))
    return key if key in series or len(series) < SERIES_MAX else ("other",) * width
