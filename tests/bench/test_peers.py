"""The comparison with other engines: its table, its place on the page, and Outlast's own adapter."""

import json
import os
import subprocess
import sys
from pathlib import Path

from bench import agent_alone, peers
from bench.peers.__main__ import BEGIN, END, HERE, page, table


def test_the_table_has_figures_or_the_reason_why_not() -> None:
    lines = list(table({"absurd": {"W2": {"per_s": 1234.5, "cpu_ms": 0.5}, "W5": "it did not start"}}))
    assert lines[0] == "| | W2 steps/s | W2 CPU ms/step | W5 ms/step, MB written |"
    assert lines[2] == "| absurd | 1,234 | 0.50 | – |"
    assert "absurd-sdk==" in lines[-1] and lines[-1].endswith("W5 was not measured: it did not start.")


def test_the_page_keeps_its_text_around_the_table() -> None:
    written = page(["one", "two"])
    head, _, rest = written.partition(BEGIN)
    middle, _, tail = rest.partition(END)
    assert middle.split() == ["one", "two"]
    assert head.startswith("# Performance") and tail.strip()


def test_every_package_has_a_version() -> None:
    for setup in peers.PEERS.values():
        assert all("==" in package for package in setup.packages)
        assert not setup.npm or setup.npm.count("@") == 2


def test_our_own_adapter_measures(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE / 'src'}", peers.FOLDER: str(tmp_path)}
    command = [sys.executable, "-P", "-m", "bench.peers.run", "outlast", "w1", "quick"]
    done = subprocess.run(command, env={**env, peers.SERVERS: ""}, stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout)["per_s"] > 0


def test_an_agent_without_durable_execution_repeats_all_of_its_first_life() -> None:
    """docs/comparison.md has these figures."""
    assert agent_alone.measure() == {"answer": 6, "order 0": 2, "order 1": 2, "order 2": 1}
