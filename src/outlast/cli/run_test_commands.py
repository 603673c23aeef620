"""`outlast runs test`: write a test that plays a run of production again, with the recording beside it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from outlast.cli.command_session import reads_store
from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Command
from outlast.cli.modules import load_module, load_workflows, split
from outlast.cli.screen import Screen
from outlast.errors import InvalidInput, NotFound
from outlast.runtime.operations import Operations
from outlast.upkeep.recorded_test import (
    EvaluationFiles,
    TestFiles,
    code_of_test,
    evaluation_case,
    evaluation_files,
    evaluation_set,
    files_of,
    why_not_crashed,
)
from outlast.upkeep.recording import Recording, recording_of, without_secrets

PLAY_S: Final = 300
"""Time limit of the first play."""
UNNAMED: Final = "outlast_file_"


class FirstPlay(NamedTuple):
    """Result of the play of a new recording with the present code. `failed` says why there was none."""

    arguments: dict[int, Any]
    difference: str = ""
    failed: str = ""


@click.command("test", cls=Command)
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.option("--to", "file", type=click.Path(path_type=Path), metavar="FILE", help="File of the test of one run.")
@click.option(
    "--evals", type=click.Path(path_type=Path), metavar="FILE", help="File of a data set for pydantic-evals instead."
)
@click.option("--module", default="", metavar="MODULE", help="Module of the workflow, MODULE[:NAME].")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@reads_store
async def test_command(
    ops: Operations,
    screen: Screen,
    runs: tuple[str, ...],
    file: Path | None,
    evals: Path | None,
    module: str,
    force: bool,
) -> int:
    """Write a test that plays RUN again, and its recording beside it.

    The test needs neither receivers nor models: it has their answers, the signals, and the decisions of people. It
    fails where the present code does something else, and names the node, the call and the value. Then it plays the run
    with crashes. Values that look like secrets are replaced by stand-ins.

    With --evals it writes a data set of one or more runs of one workflow. A case forks its recorded run.
    """
    if evals is not None and file is None:
        return await _write_evals(ops, screen, runs, evaluation_files(evals, runs, force=force), _module_of(module))
    if file is None or evals is not None or len(runs) > 1:
        raise InvalidInput(
            "a test is of one run, and an evaluation of one or more",
            "" if file is None or evals is None else "--to and --evals are given",
            "give --to tests/test_run_17.py, or --evals evals/orders.json",
        )
    files = files_of(file, force=force)
    workflow_module = _module_of(module)
    recording, name, variable, played = await _recorded(ops, runs[0], workflow_module)
    calm = why_not_crashed(recording)
    await asyncio.to_thread(_write, files.recording, recording.dump())
    await asyncio.to_thread(_write, files.code, code_of_test(recording, name, variable, files.code, calm))
    _show(screen, files, recording, played, calm)
    return OK


async def _recorded(ops: Operations, run: str, module: str) -> tuple[Recording, str, str, FirstPlay]:
    """Return the recording of a run without its secrets, the module and variable to import, and its first play."""
    recording = await recording_of(ops, run)
    name, variable = _import_of(module, recording)
    played = await asyncio.to_thread(_play, name, variable, recording)
    return without_secrets(recording.with_arguments(played.arguments)), name, variable, played


def _module_of(module: str) -> str:
    if not module:
        raise InvalidInput(
            "the test has to import the workflow", "no module is named", "--module shop.orders, or set OUTLAST_MODULE"
        )
    return module


def _import_of(spec: str, recording: Recording) -> tuple[str, str]:
    """Return the module and the variable that a test imports. Raises NotFound, InvalidInput, DefinitionError."""
    found = [each for each in load_workflows(spec) if each.name == recording.workflow]
    module = load_module(split(spec)[0])
    same = [each for each in found if each.version == recording.version]
    chosen = next(iter((*same, *found)), None)
    variable = next((name for name, value in vars(module).items() if value is chosen), "")
    if chosen is None or not variable:
        raise NotFound(f"{spec} has no workflow {recording.workflow}", "", "name the module that declares it: --module")
    if module.__name__.startswith(UNNAMED):
        raise InvalidInput(
            f"{spec} cannot be imported by its name", "Python has another module of that name", "rename the file"
        )
    return module.__name__, variable


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written", error.strerror or str(error), "name another file") from error


def _play(module: str, variable: str, recording: Recording) -> FirstPlay:
    """Play a recording in another process, because it executes authors' code."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-m", "outlast.testing.first_play", module, variable]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path},
            input=recording.dump(),
            capture_output=True,
            text=True,
            timeout=PLAY_S,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    except (subprocess.TimeoutExpired, ValueError) as error:
        return FirstPlay({}, failed=str(error))
    if not found:
        return FirstPlay({}, failed=(done.stderr.strip().splitlines() or ["it ended without an answer"])[-1])
    return FirstPlay({int(n): given for n, given in found["arguments"].items()}, found["difference"])


def _show(screen: Screen, files: TestFiles, recording: Recording, played: FirstPlay, calm: str) -> None:
    facts = {
        "test": str(files.code),
        "recording": str(files.recording),
        "run": recording.run,
        "calls": len(recording.calls),
        "acts": len(recording.acts),
        "replaced": recording.replaced,
        "difference": played.difference,
        "not_played": played.failed,
        "not_crashed": calm,
    }
    if screen.data(facts):
        return
    counts = f"{len(recording.calls)} calls, {len(recording.acts)} acts of people and programs"
    screen.line(f"{files.code} and {files.recording}: {recording.run} of {recording.workflow}, {counts}")
    _show_replaced(screen, recording)
    if calm:
        screen.line(f"  not played with crashes: {calm}")
    if played.failed:
        screen.line(f"  not played yet: {played.failed}")
    elif played.difference:
        screen.line(f"  the present code differs: {played.difference}")
    else:
        screen.line("  the present code does as recorded")
    screen.advice(f"play it: pytest {files.code}")


def _show_replaced(screen: Screen, recording: Recording) -> None:
    for one in recording.replaced:
        screen.line(f"  {one['stand_in']} replaces a value that looks like a secret: {', '.join(one['places'])}")


async def _write_evals(
    ops: Operations, screen: Screen, runs: tuple[str, ...], files: EvaluationFiles, module: str
) -> int:
    """Write a data set and its recordings. Nothing is written unless all runs can be recorded."""
    written: dict[Path, Recording] = {}
    unknown: dict[str, str] = {}
    for run in dict.fromkeys(runs):
        recording, _, _, played = await _recorded(ops, run, module)
        written[files.recording(run)] = recording
        unknown |= {run: why} if (why := played.failed or played.difference) else {}
    workflows = sorted({recording.workflow for recording in written.values()})
    if len(workflows) > 1:
        raise InvalidInput(
            "an evaluation is of one workflow", f"these runs are of {', '.join(workflows)}", "write a data set for each"
        )
    relative = {file: file.relative_to(files.data.parent) for file in written}
    cases = [evaluation_case(recording, relative[file]) for file, recording in written.items()]
    await asyncio.to_thread(files.folder.mkdir, exist_ok=True)
    for file, recording in written.items():
        await asyncio.to_thread(_write, file, recording.dump())
    await asyncio.to_thread(_write, files.data, evaluation_set(workflows[0], cases))
    replaced = [{"run": each.run, **one} for each in written.values() for one in each.replaced]
    facts = {"evals": str(files.data), "runs": list(dict.fromkeys(runs)), "replaced": replaced, "differs": unknown}
    if not screen.data(facts):
        cases_of = f"{len(cases)} case{'' if len(cases) == 1 else 's'} of {workflows[0]}"
        screen.line(f"{files.data}: a data set for pydantic-evals with {cases_of}; recordings in {files.folder}")
        for recording in written.values():
            _show_replaced(screen, recording)
        for run, why in unknown.items():
            screen.line(f"  {run}: the present code differs, so lookups after that are made again: {why}")
    return OK
