"""What one process counted and measured since it started; exporters read it."""

import threading
from bisect import bisect_left
from collections import Counter
from typing import Final

from outlast.telemetry.names import METERS, SECONDS

LABEL_CHARS_MAX: Final = 100
SERIES_MAX: Final = 1_000
"""Of one metric; what comes beyond is counted together, under labels that say `other`."""
Labels = tuple[str, ...]


class Histogram:
    """How often values fell into each bucket, and their sum."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(SECONDS) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self.buckets[bisect_left(SECONDS, value)] += 1
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
    meter = METERS.get(name)
    width = len(meter.labels) if meter else 0
    key = (*(label[:LABEL_CHARS_MAX] for label in labels[:width]), *[""] * (width - len(labels)))
    return key if key in series or len(series) < SERIES_MAX else ("other",) * width
