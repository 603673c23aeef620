"""What one process counted and measured since it started; exporters read it."""

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

METRICS: Final[dict[str, Metric]] = {
    meter.name: meter
    for meter in (
        Metric(WORKFLOW_DURATION, "histogram", "From a run's start to its end.", ("workflow", "status")),
        Metric(NODE_DURATION, "histogram", "From the entry into a node to its checkpoint.", ("workflow", "node")),
        Metric(ACTIVITY_RETRIES, "counter", "Further attempts of a call.", ("activity", "reason")),
        Metric(EFFECTS, "counter", "Writes whose outcome became known, or uncertain.", ("activity", "outcome")),
        Metric(WORKFLOW_COMPENSATIONS, "counter", "Effects undone.", ("workflow", "step")),
        Metric(INTERRUPT_WAIT, "histogram", "How long a run waited for something that has come.", ("workflow", "kind")),
        Metric(RECOVERY, "histogram", "From the last sign of life of a worker to the takeover of a run of it."),
        Metric(
            RECOVERY_LOCK_ACQUISITION_FAILURES, "counter", "Takeovers that another worker was faster at, or failed."
        ),
        Metric(DLQ_PUBLISH_FAILED, "counter", "Notices to people that could not be delivered."),
        Metric(
            WEBHOOK_DELIVERIES, "counter", "Attempts to deliver an event.", ("outcome",), tuple((o,) for o in OUTCOMES)
        ),
        Metric(RUNS, "gauge", "Runs in the store.", ("workflow", "status")),
        Metric(RUNS_ATTENTION, "gauge", "Runs that a person must look at.", ("workflow", "reason")),
        Metric(APPROVALS_PENDING, "gauge", "Approvals that nobody has decided.", ("role",)),
        Metric(SLOTS, "gauge", "Places of the admission limits.", ("state",)),
        Metric(WORKERS, "gauge", "Workers whose lease runs, and those that were closed or are silent.", ("state",)),
        Metric(OUTBOX_LAG, "gauge", "For how long an event has been due and not sent, or owed.", ("state",)),
    )
}


LABEL_CHARS_MAX: Final = 100
SERIES_MAX: Final = 1_000
"""Of one metric; what comes beyond is counted together, under labels that say `other`."""
Labels = tuple[str, ...]


class Histogram:
    """How often values fell into each bucket, and their sum."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self.buckets[bisect_left(BUCKETS_S, value)] += 1
        self.sum += value


class Counters:
    """Counts of one process, or of one worker; only ever raised. Safe to use from any thread."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[Labels]] = {}
        self._measured: dict[str, dict[Labels, Histogram]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, *labels: str) -> None:
        """One more. `labels` in the order in which names.py declares them; left out, they are ''."""
        with self._lock:
            series = self._counts.setdefault(name, Counter())
            series[_known(name, labels, series)] += 1

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """A duration, in seconds."""
        with self._lock:
            series = self._measured.setdefault(name, {})
            series.setdefault(_known(name, labels, series), Histogram()).observe(max(seconds, 0.0))

    def __getitem__(self, name: str) -> int:
        return self._counts.get(name, Counter()).total()

    def all(self) -> dict[str, int]:
        """Every counter that was ever raised, over all labels."""
        return {name: series.total() for name, series in self._counts.items()}

    def series(self, name: str) -> dict[Labels, int]:
        """A counter by its labels."""
        with self._lock:
            return dict(self._counts.get(name, {}))

    def measured(self, name: str) -> dict[Labels, tuple[list[int], float]]:
        """A histogram by its labels: how many fell into each bucket of SECONDS and beyond, and their sum."""
        with self._lock:
            return {labels: (list(h.buckets), h.sum) for labels, h in self._measured.get(name, {}).items()}


def _known(name: str, labels: Labels, series: "dict[Labels, int] | dict[Labels, Histogram]") -> Labels:
    meter = METRICS.get(name)
    width = len(meter.labels) if meter else 0
    key = (*(label[:LABEL_CHARS_MAX] for label in labels[:width]), *[""] * (width - len(labels)))
    return key if key in series or len(series) < SERIES_MAX else ("other",) * width
