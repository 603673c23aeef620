"""Safeguards of the testing kit: evaluations of recorded runs."""

from importlib import import_module
from typing import Any

from outlast.engine.attempts import ActivityCaller
from tests.removals import Patch, replace

EVALUATION = "outlast.testing.run_evaluation"
"""Loaded by the removals only: it imports the plugin of pytest, which fails if that was imported before pytest."""


def evaluations_write(patch: Patch) -> None:
    run_evaluation = import_module(EVALUATION)
    patch.setattr(run_evaluation._ReadingCaller, "_run", ActivityCaller._run)


def evaluations_decide(patch: Patch) -> None:
    run_evaluation = import_module(EVALUATION)
    move = run_evaluation.next_move

    def waits(rows: Any, recording: Any, signals: Any) -> Any:
        found = move(rows, recording, signals)
        return run_evaluation.Stop("") if isinstance(found, run_evaluation.Stop) else found

    replace(patch, run_evaluation.next_move, waits)
