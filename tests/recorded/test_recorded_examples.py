"""Recorded runs of the examples play as they went, calm and crashed; a change is found in its call.

`python -m tests.recorded` records them. `TEST_SEED` draws the crashes that are played; `--crash-all` plays all.
"""

import copy
import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from outlast.testing import RecordedRun, RunDiffers, RunEnd, recorded
from outlast.upkeep.recording import AnsweredCall, Recording
from tests.mutants import remove
from tests.recorded.examples import FOLDER, WORKFLOWS, ready
from tests.slices import ALL, seed

CHANGES = 10
FILES = sorted(FOLDER.glob("*.json"))
CALM = [file for file in FILES if file.stem.endswith("-calm")]


@pytest.fixture(autouse=True)
def no_receivers(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let no example reach a receiver."""
    ready(monkeypatch.setenv, asks_model="researcher" in request.node.name)


def run_of(file: Path) -> RecordedRun[Any]:
    """Return the recorded run in a file."""
    return recorded(WORKFLOWS[file.stem.partition("-")[0]], file)


def test_each_example_has_a_calm_run_and_three_crashed_ones() -> None:
    for name in {file.stem.partition("-")[0] for file in FILES}:
        assert sum(file.stem.startswith(f"{name}-") for file in FILES) == 4, name
    assert {file.stem.partition("-")[0] for file in CALM} == set(WORKFLOWS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.req("TEST-2")
def test_a_recorded_run_of_an_example_plays_as_recorded(file: Path) -> None:
    run_of(file).play()


# --- changes ------------------------------------------------------------------------------------------
def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each text and number in plain data."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, f"{path}.{name}")
    elif isinstance(value, list):
        for n, item in enumerate(value):
            yield from leaves(item, f"{path}[{n}]")
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield path, value


def with_leaf(value: Any, path: str, at: str) -> Any:
    """Return plain data with another value at a path."""
    if isinstance(value, dict):
        return {name: with_leaf(item, f"{path}.{name}", at) for name, item in value.items()}
    if isinstance(value, list):
        return [with_leaf(item, f"{path}[{n}]", at) for n, item in enumerate(value)]
    if path != at:
        return value
    return value + 1 if isinstance(value, int) else f"another {value}"


def changed(recording: Recording, dice: random.Random) -> tuple[Recording, AnsweredCall, str]:
    """Return the recording as a run of other code would have left it, the call that differs, and the path in it.

    To change an argument of the recorded call is to change the code that makes the call, seen from the other side.
    """
    calls = list(recording.calls)
    n = dice.choice([n for n, call in enumerate(calls) if call.kind != "undo" and list(leaves(call.arguments, ""))])
    path = dice.choice([path for path, _ in leaves(calls[n].arguments, "arguments")])
    arguments = with_leaf(copy.deepcopy(calls[n].arguments), "arguments", path)
    key = f"{calls[n].key}0" if calls[n].kind == "lookup" else calls[n].key
    calls[n] = dataclasses.replace(calls[n], arguments=arguments, key=key)
    return dataclasses.replace(recording, calls=calls), calls[n], path


@pytest.mark.parametrize("file", CALM, ids=lambda file: file.stem)
def test_a_changed_prompt_argument_or_key_is_found_in_its_call(file: Path) -> None:
    run, dice = run_of(file), random.Random(file.stem)
    for _ in range(CHANGES):
        other, call, path = changed(run.recording, dice)
        with pytest.raises(RunDiffers) as differs:
            RecordedRun(run.workflow, other, file).play()
        found = differs.value.difference
        assert found.where.startswith(f"node {call.node}, visit {call.visit}, {call.kind} {call.activity} "), found
        assert found.what.startswith(f"{path}: "), found


WRITES = [file for file in CALM if not file.stem.startswith("researcher")]
"""Recordings with activities. The researcher has lookups alone."""


@pytest.mark.parametrize("file", WRITES, ids=lambda file: file.stem)
def test_a_call_that_the_code_no_longer_makes_and_a_further_one_are_found(file: Path) -> None:
    run, dice = run_of(file), random.Random(file.stem)
    writes = [call for call in run.recording.calls if call.kind == "activity"]
    gone = dice.choice(writes)
    without = dataclasses.replace(run.recording, calls=[call for call in run.recording.calls if call is not gone])
    with pytest.raises(RunDiffers) as differs:
        RecordedRun(run.workflow, without, file).play()
    assert f"node {gone.node}, visit {gone.visit}, activity {gone.activity} ({gone.key})" in str(differs.value)
    more = dataclasses.replace(gone, key=f"{gone.key}/2", arguments=None)
    with pytest.raises(RunDiffers, match="this one did not"):
        RecordedRun(run.workflow, dataclasses.replace(run.recording, calls=[*run.recording.calls, more]), file).play()


# --- with crashes -------------------------------------------------------------------------------------
CASES = 0 if seed() == ALL else 3
SEED = crc32(seed().encode())
TRIP, REFUND, NEGOTIATION, DESK, ACQUISITION, RESEARCHER = (
    run_of(FOLDER / f"{name}-calm.json")
    for name in ("trip", "refund", "negotiation", "desk", "acquisition", "researcher")
)


@TRIP.every_crash(cases=CASES, seed=SEED)
def test_a_recorded_trip_survives_crashes(end: RunEnd) -> None:
    TRIP.check(end)


@REFUND.every_crash(cases=CASES, seed=SEED)
def test_a_recorded_refund_survives_crashes(end: RunEnd) -> None:
    REFUND.check(end)


@NEGOTIATION.every_crash(cases=CASES, seed=SEED)
def test_a_recorded_negotiation_survives_crashes(end: RunEnd) -> None:
    NEGOTIATION.check(end)


@DESK.every_crash(cases=CASES, seed=SEED)
def test_a_recorded_desk_survives_crashes(end: RunEnd) -> None:
    DESK.check(end)


@ACQUISITION.every_crash(cases=CASES, seed=SEED)
def test_a_recorded_acquisition_survives_crashes(end: RunEnd) -> None:
    ACQUISITION.check(end)


@RESEARCHER.every_crash(cases=CASES, seed=SEED)
def test_a_recorded_researcher_survives_crashes(end: RunEnd) -> None:
    RESEARCHER.check(end)


UNSENT, EXECUTED = "r1 intend undo/hotel/ana store.batch:after", "r1 call undo/hotel/ana call:inside"


@pytest.mark.parametrize(("case", "answered"), [(UNSENT, True), (EXECUTED, True), (EXECUTED, False)])
def test_an_uncertain_undo_is_answered_from_the_receivers_record(
    case: str, answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recording has no decision about it, because the recorded undo was not uncertain."""
    if not answered:
        remove("uncertain_undo_unanswered", monkeypatch)
    report = TRIP._crash_options().run(__name__, TRIP.check, case)
    assert report.tally.run == 1
    assert [("undo_failed" in result.error) for result in report.failed()] == ([] if answered else [True])
