"""Safeguards of the testing kit: evaluations of recorded runs."""

from typing import Any

from outlast.engine.attempts import ActivityCaller
from outlast.testing import run_evaluation
from tests.removals import Patch, replace


def evaluations_write(patch: Patch) -> None:
    patch.setattr(run_evaluation._ReadingCaller, "_run", ActivityCaller._run)


def evaluations_decide(patch: Patch) -> None:
    move = run_evaluation.next_move

    def waits(rows: Any, recording: Any, signals: Any) -> Any:
        found = move(rows, recording, signals)
        return run_evaluation.Stop("") if isinstance(found, run_evaluation.Stop) else found

    replace(patch, run_evaluation.next_move, waits)
