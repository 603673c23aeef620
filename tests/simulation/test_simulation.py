"""A sample of the simulated seeds: no findings, repeatable, and each removed safeguard is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import SIMULATION, of
from tests.simulation.__main__ import CORPUS, corpus
from tests.simulation.dice import FAULTS
from tests.slices import drawn

ROOT = Path(__file__).resolve().parents[2]
SLICES = ("0-37", "38-74", "75-112", "113-149")
QUICK = (
    *("no_fence", "no_last_check", "intent_never_stored", "no_ledger_hit", "no_inbox_check", "same_epoch"),
    "undo_forwards",
)
"""Safeguards that are missed within the first seeds; all of them: scripts/simulate --mutants."""


def simulate(*args: str, hash_seed: str = "0", module: str = "tests.simulation") -> subprocess.CompletedProcess[str]:
    """Run in a separate process, because it takes the clock, the logs and the garbage collector."""
    return subprocess.run(
        [sys.executable, "-m", module, *args],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )  # fmt: skip


@pytest.mark.req("EFF-1", "EFF-2", "EFF-3", "REC-1", "REC-3", "RUN-3", "GATE-1", "FAIL-10", "FAIL-12")
def test_nothing_is_found_in_a_slice() -> None:
    for seeds in drawn(SLICES, 1, "simulation"):
        done = simulate("--seeds", seeds)
        assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]


def test_seeds_that_ever_failed_pass() -> None:
    assert corpus() and CORPUS.exists()
    done = simulate("--corpus")
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]


def test_a_seed_goes_the_same_way_whatever_the_hash_seed_is() -> None:
    first, second = (simulate("--seed", "3", hash_seed=seed).stdout for seed in ("1", "2"))
    assert first == second and "trace" in first


def test_safeguards_removed_are_missed() -> None:
    known = {mutant.id for mutant in of(SIMULATION)}
    assert len(known) >= 12 and set(QUICK) <= known
    done = simulate("--mutants", *(part for name in QUICK for part in ("--only", name)))
    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]


@pytest.mark.req("REC-6", "REC-1", "EFF-1")
def test_workers_whose_clocks_differ_break_nothing_if_what_others_judge_is_widened() -> None:
    """Not widened, a worker closes the row of one in good health."""
    done = simulate("60-99", module="tests.simulation.skewed")
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr[-2_000:]
    found = simulate("90-90", "--not-widened", module="tests.simulation.skewed")
    assert found.returncode == 1 and "I12" in found.stdout, found.stdout + found.stderr[-2_000:]


def test_every_fault_has_a_description() -> None:
    assert all(FAULTS.values()) and len(FAULTS) >= 30
