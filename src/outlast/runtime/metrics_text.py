"""Metrics of a process and its store in Prometheus' text format: counted here, or computed from rows on demand."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from outlast.clocks import SystemClock
from outlast.core.durations import SECOND
from outlast.core.machine import ApprovalStatus
from outlast.core.row_checks import listed_attention, listed_rule
from outlast.core.rows.effect_rows import APPROVAL
from outlast.core.rows.limit_rows import SLOT
from outlast.core.rows.run_rows import RUN
from outlast.core.rows.store_rows import WORKER
from outlast.errors import InvalidInput, StoreError, to_install
from outlast.runtime.webhooks import lag_of
from outlast.store.port import Store
from outlast.store.queries import Census
from outlast.telemetry import Counters
from outlast.telemetry.metrics import (
    APPROVALS_PENDING,
    BUCKETS_S,
    DUE,
    METRICS,
    OUTBOX_LAG,
    OWED,
    PREFIX,
    RUNS,
    RUNS_ATTENTION,
    SLOTS,
    WORKERS,
    Metric,
)

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of the exposition."""
FRESH: Final = 5 * SECOND
"""Maximum age of gauges. If counting is slow, they are kept for twenty times its duration."""
COUNTING_SHARE: Final = 20
Gauges = dict[str, dict[tuple[str, ...], float]]


class Metrics:
    """Metrics of a process, as `/metrics` shows them."""

    def __init__(self, store: Store, counters: Sequence[Counters], *, tenants: bool = False) -> None:
        """`tenants`: also label the gauges of runs by tenant, which is sensible for few tenants.

        Raises InvalidInput without the extra that provides prometheus-client.
        """
        if find_spec("prometheus_client") is None:
            raise InvalidInput("metrics need the extra `service`", "it brings prometheus-client", to_install("service"))
        self._clock = SystemClock()
        self._store = store
        self._counters = counters
        self._tenants = tenants
        self._gauges: Gauges = {}
        self._until = 0
        self._up = 1.0

    async def text(self) -> str:
        """Return the exposition. If the store is unavailable, `outlast_store_up` is 0 and no gauge is shown."""
        now = self._clock.mono()
        if now >= self._until:
            try:
                self._gauges, self._up = await self._computed(), 1.0
            except StoreError:
                self._gauges, self._up = {}, 0.0  # old values would hide the outage
            done = self._clock.mono()
            self._until = done + max(FRESH, COUNTING_SHARE * (done - now))
        return exposition(self._counters, {**self._gauges, "store_up": {(): self._up}}, tenants=self._tenants)

    async def _computed(self) -> Gauges:
        """Compute every gauge from the rows at this moment (OUT-5)."""
        store = self._store
        first = ("tenant",) if self._tenants else ()
        runs = await store.query(Census(RUN, (*first, "workflow", "status")))
        flagged: Counter[tuple[str, ...]] = Counter()
        columns = (*first, "workflow", "attention")
        for (*of, attention), n in (await store.query(Census(RUN, columns, filled="attention"))).items():
            for entry in listed_attention(attention):
                flagged[*of, entry.reason.value] += n
        asked = await store.query(Census(APPROVAL, ("who", "status")))
        now = await store.now()
        workers = await store.rows(WORKER, ("*",))
        serving = sum(worker.is_alive(now.real) for worker in workers)
        slots = await store.rows(SLOT, ())
        used = sum(bool(slot.holder) for slot in slots)
        lag = await lag_of(store)
        pending: Counter[tuple[str, ...]] = Counter()
        for (who, status), n in asked.items():
            if status == ApprovalStatus.PENDING:
                pending[(listed_rule(who).without_names,)] += n
        return {
            RUNS: {labels: float(n) for labels, n in runs.items()},
            RUNS_ATTENTION: {labels: float(n) for labels, n in flagged.items()},
            APPROVALS_PENDING: {labels: float(n) for labels, n in pending.items()},
            SLOTS: {("used",): float(used), ("free",): float(len(slots) - used)},
            WORKERS: {("serving",): float(serving), ("gone",): float(len(workers) - serving)},
            OUTBOX_LAG: {(DUE,): lag.due_ms / SECOND, (OWED,): lag.owed_ms / SECOND},
        }


def exposition(counters: Iterable[Counters], gauges: Gauges, *, tenants: bool = False) -> str:
    """Format counts of a process and gauges as Prometheus' text."""
    client = import_module("prometheus_client")
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(_Collected(list(counters), gauges, tenants))
    text: str = client.generate_latest(registry).decode()
    return text


class _Collected:
    """Collector of metric families for prometheus-client."""

    def __init__(self, counters: Sequence[Counters], gauges: Gauges, tenants: bool) -> None:
        self._counters = counters
        self._gauges = gauges
        self._tenants = tenants

    def collect(self) -> Iterator[Any]:
        """Yield every metric family. Counters that were never raised are 0, so that alerts see the first rise."""
        core = import_module("prometheus_client.core")
        for meter in (*METRICS.values(), STORE_UP):
            name = PREFIX + meter.name.removesuffix("_total")
            if meter.kind == "gauge":
                yield self._gauge(core, name, meter)
            elif meter.kind == "counter":
                family = core.CounterMetricFamily(name, meter.help, labels=meter.labels)
                for labels, n in self._counted(meter).items():
                    family.add_metric(labels, n)
                yield family
            else:
                yield self._histogram(core, name, meter)

    def _gauge(self, core: Any, name: str, meter: Metric) -> Any:
        labels = ("tenant", *meter.labels) if self._tenants and meter.name in (RUNS, RUNS_ATTENTION) else meter.labels
        family = core.GaugeMetricFamily(name, meter.help, labels=labels)
        for values, n in self._gauges.get(meter.name, {}).items():
            family.add_metric(values, n)
        return family

    def _counted(self, meter: Metric) -> dict[tuple[str, ...], int]:
        found: Counter[tuple[str, ...]] = Counter()
        for counters in self._counters:
            found.update(counters.series(meter.name))
        known = meter.known if meter.labels else ((),)
        return {**dict.fromkeys(known, 0), **found}

    def _histogram(self, core: Any, name: str, meter: Metric) -> Any:
        family = core.HistogramMetricFamily(name, meter.help, labels=meter.labels)
        found: dict[tuple[str, ...], tuple[list[int], float]] = {}
        for counters in self._counters:
            for labels, (buckets, total) in counters.measured(meter.name).items():
                before, seconds = found.get(labels, ([0] * len(buckets), 0.0))
                found[labels] = [a + b for a, b in zip(before, buckets, strict=True)], seconds + total
        for labels, (buckets, total) in found.items():
            steps, rising = 0, []
            for bound, n in zip((*BUCKETS_S, float("inf")), buckets, strict=True):
                steps += n
                rising.append(("+Inf" if bound == float("inf") else str(bound), steps))
            family.add_metric(labels, rising, total)
        return family


STORE_UP: Final = Metric("store_up", "gauge", "1 while the store answers.")
