"""Slices of calls of a client run against a store and a service, and count the calls of Python functions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import pairs, slices
from tests.slices import params

ROOT = Path(__file__).parents[2]


def test_pairs_offers_every_slice() -> None:
    assert {*pairs.METRICS} == {*slices.METRICS}
    assert {*pairs.ACTS, *pairs.ACTS_OVER_HTTP} == {*slices.ACTS}
    assert {name for name, what in slices.ACTS.items() if what.over_http} == {*pairs.ACTS_OVER_HTTP}


@pytest.mark.parametrize("metric", params([*slices.ACTS], 2, "slices of calls"))
def test_a_slice_of_calls_has_a_cost(metric: str, tmp_path: Path) -> None:
    command = [sys.executable, "-P", str(ROOT / "bench" / "slices.py"), metric, f"sqlite:{tmp_path}/a.db", "count"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    done = subprocess.run(command, env=env, input="slice\nslice\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    package, *found = done.stdout.splitlines()
    assert Path(package).is_relative_to(ROOT)
    for costs in map(json.loads, found):
        assert costs["steps"] == slices.ACTS[metric].calls and costs["wall_us"] > 0
        assert costs["calls"] > 10
        assert (costs["service_us"] > 0) == metric.endswith("_http")
    assert len(found) == 2
