"""Counters are exported under their names, gauges count rows, and no label contains a run or a tenant."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from outlast.core.machine import EffectStatus, Reason, RunStatus
from outlast.engine import commands
from outlast.errors import Unavailable
from outlast.runtime.metrics_text import Metrics, exposition
from outlast.telemetry import RECOVERY_LOCK_ACQUISITION_FAILURES, Counters, Observer
from outlast.telemetry.metrics import (
    DUE,
    EFFECTS,
    METRICS,
    OUTCOMES,
    OWED,
    PREFIX,
    RECOVERY,
    SERIES_MAX,
    WORKFLOW_DURATION,
)
from tests.engine.process import Process
from tests.engine.world import QUIET, Receiver, World, one_node, write

pytestmark = pytest.mark.req("OBS-2")
OPS = Path(__file__).parents[2] / "ops"


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def watched(world: World, flow: Any, name: str) -> Process:
    process = world.worker(flow, name=name)
    worker = process.worker
    worker._executors.services = worker._claims._services = worker._services._replace(watch=Observer(worker.counters))
    return process


def test_a_run_is_counted_and_its_rows_are_gauges() -> None:
    async def body(world: World) -> None:
        receiver = Receiver()
        act = write(receiver)
        flow = one_node(lambda ctx: ctx.do(act, "a1"), name="counted")
        process = watched(world, flow, "wk-1")
        await world.start(flow)
        assert world.status() == "completed"
        metrics = Metrics(world.store, [process.worker.counters])
        found = samples(await metrics.text())
        ended = (("status", "completed"), ("workflow", "counted"))
        assert found["outlast_runs", ended] == 1
        assert found["outlast_workflow_duration_seconds_count", ended] == 1
        assert found["outlast_effects_total", (("activity", act.name), ("outcome", EffectStatus.DONE.value))] == 1
        assert found["outlast_workers", (("state", "serving"),)] == 1
        assert found["outlast_store_up", ()] == 1

    world = World()
    asyncio.run(world.live(lambda: body(world)))


@pytest.mark.req("REC-7", "REC-4")
def test_a_takeover_is_measured() -> None:
    async def body(world: World) -> None:
        receiver = Receiver(dedupes=True)
        act = write(receiver)
        flow = one_node(lambda ctx: ctx.do(act, "a1"), name="taken")
        first = watched(world, flow, "wk-1")
        first.wire.before("record", first.kill)
        await world.start(flow)
        second = watched(world, flow, "wk-2")
        await world.pass_(QUIET)
        ((buckets, seconds),) = second.worker.counters.measured(RECOVERY).values()
        assert sum(buckets) == 1 and 0 < seconds <= 30

    world = World()
    asyncio.run(world.live(lambda: body(world)))


@pytest.mark.req("REC-7")
def test_a_failed_takeover_is_exported_from_the_first_scrape() -> None:
    counters = Counters()
    name = f"outlast_{RECOVERY_LOCK_ACQUISITION_FAILURES}_total"
    assert samples(exposition([counters], {}))[name, ()] == 0, "an alert on its rise needs the zero before"
    counters.add(RECOVERY_LOCK_ACQUISITION_FAILURES)
    assert samples(exposition([counters], {}))[name, ()] == 1


def test_an_unavailable_store_is_exported_and_old_gauges_are_not() -> None:
    async def body(world: World) -> None:
        flow = one_node(lambda ctx: ctx.receive("go", flow_state), name="away")
        await commands.start(world.store, flow, {}, tenant="t", actor="me", run="r1")
        metrics = Metrics(world.store, [])
        assert ("outlast_runs", (("status", "queued"), ("workflow", "away"))) in samples(await metrics.text())
        metrics._until = 0

        async def away(*args: Any, **options: Any) -> Any:
            raise Unavailable("away")

        world.store.query = away  # type: ignore[method-assign]
        found = samples(await metrics.text())
        assert found["outlast_store_up", ()] == 0
        assert not [name for name, _ in found if name == "outlast_runs"]

    flow_state: Any = None
    world = World()
    asyncio.run(world.live(lambda: body(world)))


def test_labels_are_few_and_contain_no_run_and_no_tenant() -> None:
    assert not {label for meter in METRICS.values() for label in meter.labels} & {
        "run",
        "run_id",
        "tenant",
        "key",
        "id",
    }
    counters = Counters()
    for n in range(SERIES_MAX + 50):
        counters.add(EFFECTS, f"made-{n}", "done")
    assert len(counters.series(EFFECTS)) == SERIES_MAX + 1
    assert counters.series(EFFECTS)["other", "other"] == 50


def test_buckets_are_cumulative() -> None:
    counters = Counters()
    for seconds in (0.001, 0.3, 10_000_000.0, -5.0):
        counters.observe(WORKFLOW_DURATION, seconds, "w", "completed")
    found = samples(exposition([counters, Counters()], {}))
    rising = [v for (name, labels), v in found.items() if name.endswith("duration_seconds_bucket")]
    assert rising == sorted(rising) and rising[-1] == 4
    assert found["outlast_workflow_duration_seconds_count", (("status", "completed"), ("workflow", "w"))] == 4


# --- what the dashboard and the alerts ask for --------------------------------------------------------------
def expressions() -> list[tuple[str, str]]:
    rules = yaml.safe_load((OPS / "alerts.yaml").read_text())
    found = [(rule["alert"], rule["expr"]) for group in rules["groups"] for rule in group["rules"]]
    board = json.loads((OPS / "dashboard.json").read_text())
    return found + [(panel["title"], t["expr"]) for panel in board["panels"] for t in panel.get("targets", [])]


def exported() -> set[str]:
    names = {PREFIX + "store_up"}
    for meter in METRICS.values():
        name = PREFIX + meter.name.removesuffix("_total")
        ends = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}[meter.kind]
        names |= {name + end for end in ends}
    return names


@pytest.mark.parametrize(("what", "expression"), expressions(), ids=lambda value: str(value)[:40])
def test_each_expression_parses_and_uses_exported_metrics(what: str, expression: str) -> None:
    promql_parser.parse(expression.replace("$__rate_interval", "5m"))
    asked = set(re.findall(r"\boutlast_[a-z_]+", expression))
    assert asked and asked <= exported(), asked - exported()


VALUES = {
    ("webhook_deliveries_total", "outcome"): set(OUTCOMES),
    ("effects_total", "outcome"): {status.value for status in EffectStatus},
    ("outbox_lag_seconds", "state"): {DUE, OWED},
    ("workers", "state"): {"serving", "gone"},
    ("slots", "state"): {"used", "free"},
    ("runs", "status"): {status.value for status in RunStatus},
    ("runs_attention", "reason"): {reason.value for reason in Reason},
    ("workflow_duration_seconds_count", "status"): {status.value for status in RunStatus},
}


@pytest.mark.parametrize(("what", "expression"), expressions(), ids=lambda value: str(value)[:40])
def test_each_label_and_value_in_an_expression_is_exported(what: str, expression: str) -> None:
    """An alert on a value that is never written would never fire."""
    for name, matchers in re.findall(r"outlast_([a-z_]+)\{([^}]*)\}", expression):
        for label, _, asked in re.findall(r"([a-z_]+)(=~|=)\"([^\"]*)\"", matchers):
            assert set(asked.split("|")) <= VALUES[name, label], (name, label, asked)


@pytest.mark.req("REC-7")
def test_one_failed_takeover_in_five_minutes_is_an_alert() -> None:
    rules = yaml.safe_load((OPS / "alerts.yaml").read_text())
    ((group, rule),) = [
        (group, rule) for group in rules["groups"] for rule in group["rules"] if "recovery_lock" in rule["expr"]
    ]
    counted = f"{PREFIX}{RECOVERY_LOCK_ACQUISITION_FAILURES}_total"
    assert rule["expr"] == f"sum(increase({counted}[5m])) > 0" and "for" not in rule and group["name"] == "outlast"
    assert counted in exported()


def test_alerts_have_a_remedy() -> None:
    rules = yaml.safe_load((OPS / "alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert rule["annotations"].keys() >= {"summary", "description"}


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="no wheel carries promtool, Debian's package prometheus does; where it is installed it judges too",
)
def test_promtool_accepts_the_rules_and_the_exposition() -> None:
    subprocess.run(["promtool", "check", "rules", str(OPS / "alerts.yaml")], check=True)
    counters = Counters()
    counters.add(EFFECTS, "a", "done")
    counters.observe(WORKFLOW_DURATION, 1.0, "w", "completed")
    subprocess.run(["promtool", "check", "metrics"], input=exposition([counters], {}), text=True, check=True)
