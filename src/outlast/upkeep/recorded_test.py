"""The test that plays a recorded run, and the case of an evaluation data set: their texts and their files."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from outlast.errors import InvalidInput
from outlast.upkeep.recording import Recording

CASES: Final = 20
"""Crash cases that a written test draws; `--crash-all` plays all."""


EVALUATOR: Final = "AsRecorded"
"""Name of the evaluator in a data set: `outlast.testing.AsRecorded`."""


class TestFiles(NamedTuple):
    """The two files of a test: its code, and the recording beside it."""

    code: Path
    recording: Path


def files_of(to: Path, *, force: bool) -> TestFiles:
    """Return the files that a test is written to. Raises InvalidInput if pytest would not find it, or if one exists."""
    if to.suffix != ".py" or not to.stem.startswith("test_") or not to.stem.isidentifier():
        raise InvalidInput(
            f"{to} cannot be the file of a test", "pytest collects files named test_….py", "--to tests/test_run_17.py"
        )
    return check_new(TestFiles(to, to.with_suffix(".json")), force=force)


def check_new(files: TestFiles, *, force: bool) -> TestFiles:
    """Return the files. Raises InvalidInput if one exists and `force` is not set, or if their folder is missing."""
    if not files.code.parent.is_dir():
        raise InvalidInput(f"there is no folder {files.code.parent}", "", "make it, or name another file")
    there = [str(file) for file in files if file.exists()]
    if there and not force:
        raise InvalidInput(f"{there[0]} exists", "it may have been edited", "name another file, or replace it: --force")
    return files


def code_of_test(recording: Recording, module: str, variable: str, file: Path, why_calm: str = "") -> str:
    """Return the code of the test. `why_calm` says why the run is not played with crashes; '' if it is."""
    name = re.sub(r"\W", "_", file.stem)
    text = (
        f'"""Run {recording.run} of {recording.workflow}@{recording.version}, recorded by `outlast runs test`."""\n\n'
        f"from {module} import {variable}\n\nfrom outlast.testing import {'' if why_calm else 'RunEnd, '}recorded\n\n"
        f"run = recorded({variable}, __file__)\n\n\n"
        f"def {name}() -> None:\n    run.play()\n"
    )
    if why_calm:
        return f"{text}\n\n# Not played with crashes: {why_calm}.\n"
    return (
        f"{text}\n\n@run.every_crash(cases={CASES})\n"
        f"def {name}_survives_each_crash(end: RunEnd) -> None:\n    run.check(end)\n"
    )


def why_not_crashed(recording: Recording) -> str:
    """Return why the run cannot be played with crashes; '' if it can."""
    for act in recording.acts:
        if act.kind == "cancel":
            return f"{act.by or 'a program'} cancelled it at an instant that a crash moves"
        if act.changes:
            return f"{act.by} changed a plan before approving it"
    return ""


class EvaluationFiles(NamedTuple):
    """The data set of an evaluation, and the folder of its recordings."""

    data: Path
    folder: Path

    def recording(self, run: str) -> Path:
        """Return the file of the recording of a run. Runs of different names have different files."""
        return self.folder / f"{quote(run, safe='')}.json"


def evaluation_files(to: Path, runs: Sequence[str], *, force: bool) -> EvaluationFiles:
    """Return the files that a data set is written to. Raises InvalidInput as `check_new`, and for another ending."""
    if to.suffix != ".json":
        raise InvalidInput(f"{to} cannot be a data set", "it is written as JSON", "--evals evals/orders.json")
    files = EvaluationFiles(to, to.with_suffix(""))
    for run in runs:
        check_new(TestFiles(to, files.recording(run)), force=force)
    return files


def evaluation_case(recording: Recording, file: Path) -> dict[str, Any]:
    """Return the case of a run: its recording and first state, and the end that is expected."""
    end = recording.end
    return {
        "name": recording.run,
        "inputs": {"run": recording.run, "recording": file.as_posix(), "state": recording.state},
        "expected_output": {"status": end.status, "outcome": end.outcome, "reason": end.reason, "nodes": end.nodes},
        "metadata": {"workflow": recording.workflow, "version": recording.version},
    }


def evaluation_set(name: str, cases: list[dict[str, Any]]) -> str:
    """Return a data set for `pydantic_evals.Dataset.from_file` as JSON text."""
    found = {"name": name, "cases": cases, "evaluators": [EVALUATOR]}
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"
