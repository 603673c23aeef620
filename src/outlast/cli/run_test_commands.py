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
    TestFiles,
    check_new,
    code_of_test,
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
@click.argument("run", metavar="RUN")
@click.option("--to", "file", type=click.Path(path_type=Path), required=True, metavar="FILE", help="File of the test.")
@click.option("--module", default="", metavar="MODULE", help="Module of the workflow, MODULE[:NAME].")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--evals", is_flag=True, help="Write a data set for pydantic-evals to FILE instead of a test.")
@reads_store
async def test_command(
    ops: Operations, screen: Screen, run: str, file: Path, module: str, force: bool, evals: bool
) -> int:
    """Write a test that plays RUN again, and its recording beside it.

    The test needs neither receivers nor models: it has their answers, the signals, and the decisions of people. It
    fails where the present code does something else, and names the node, the call and the value. Then it plays the run
    with crashes. Values that look like secrets are replaced by stand-ins.
    """
    if evals:
        return await _write_evals(ops, screen, run, check_new(TestFiles(file, file), force=force).code)
    files = files_of(file, force=force)
    workflow_module = _module_of(module)
    recording = await recording_of(ops, run)
    name, variable = _import_of(workflow_module, recording)
    played = await asyncio.to_thread(_play, name, variable, recording)
    recording = without_secrets(recording.with_arguments(played.arguments))
    calm = why_not_crashed(recording)
    await asyncio.to_thread(_write, files.recording, recording.dump())
    await asyncio.to_thread(_write, files.code, code_of_test(recording, name, variable, files.code, calm))
    _show(screen, files, recording, played, calm)
    return OK


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


async def _write_evals(ops: Operations, screen: Screen, run: str, file: Path) -> int:
    recording = without_secrets(await recording_of(ops, run))
    await asyncio.to_thread(_write, file, evaluation_set(recording.workflow, [recording]))
    if not screen.data({"evals": str(file), "run": recording.run, "replaced": recording.replaced}):
        screen.line(f"{file}: a data set for pydantic-evals with one case, {recording.run}")
        _show_replaced(screen, recording)
    return OK
