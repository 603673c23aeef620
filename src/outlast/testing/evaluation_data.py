"""Data sets of recorded runs for pydantic-evals, and the evaluator that compares a fork with its recorded run.

Needs an extra: `pip install 'outlast[evals]'`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_evals import Dataset
from pydantic_evals.evaluators import EvaluationReason, Evaluator, EvaluatorContext
from typing_extensions import override

from outlast.errors import InvalidInput
from outlast.testing.recorded_calls import differences
from outlast.testing.run_evaluation import EvaluatedRun, EvaluationInputs
from outlast.upkeep.stand_ins import StandIns

EvaluationData: TypeAlias = Dataset[EvaluationInputs, EvaluatedRun, dict[str, Any]]


@dataclass(repr=False)
class AsRecorded(Evaluator[EvaluationInputs, EvaluatedRun, dict[str, Any]]):
    """Evaluator of three facts: the same status, the same outcome, and no write that is not recorded.

    Each is an assertion with the reason if it does not hold.
    """

    @override
    def evaluate(
        self, ctx: EvaluatorContext[EvaluationInputs, EvaluatedRun, dict[str, Any]]
    ) -> dict[str, EvaluationReason]:
        found, recorded = ctx.output, ctx.expected_output or EvaluatedRun(status="")
        unmade = "; ".join(f"would have called {call}" for call in found.would_have_called)
        status = "" if found.status == recorded.status else _text(found, recorded)
        outcome = next(differences(recorded.outcome, found.outcome, "outcome", StandIns()), "")
        return {
            "same_status": EvaluationReason(not status, status or None),
            "same_outcome": EvaluationReason(not outcome, outcome or None),
            "no_other_write": EvaluationReason(not unmade, unmade or None),
        }


def _text(found: EvaluatedRun, recorded: EvaluatedRun) -> str:
    return f"{found.status} ({found.reason}) instead of {recorded.status} as recorded"


def evaluation_cases(file: str | Path) -> EvaluationData:
    """Return the data set in `file`, to be evaluated with `RunEvaluation.run`. Raises InvalidInput if there is none."""
    file = Path(file)
    fix = f"write it again: outlast runs test RUN --evals {file}"
    try:
        data: EvaluationData = Dataset[EvaluationInputs, EvaluatedRun, dict[str, Any]].from_file(
            file, custom_evaluator_types=[AsRecorded]
        )
    except (OSError, ValueError, ValidationError, ExceptionGroup) as error:
        raise InvalidInput(f"{file} is not a data set of recorded runs", str(error), fix) from error
    return data
