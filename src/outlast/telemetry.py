"""Counters under the names that operators alarm on; exporters read them."""

from collections import Counter
from typing import Final

DLQ_PUBLISH_FAILED: Final = "dlq_publish_failed"  # source A, REQ-G306
WORKFLOW_COMPENSATIONS: Final = "workflow_compensations_total"  # source B; one for each effect undone
RECOVERY_LOCK_ACQUISITION_FAILURES: Final = "recovery_lock_acquisition_failures"  # source A, REQ-R502


class Counters:
    """Counts of one worker since it started; only ever raised."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str) -> None:
        """One more."""
        self._counts[name] += 1

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def all(self) -> dict[str, int]:
        """Every counter that was ever raised."""
        return dict(self._counts)
