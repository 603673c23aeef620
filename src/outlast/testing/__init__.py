"""Testing kit for authors of workflows: crash tests, fake receivers, virtual time, single nodes, faulty stores.

Each name loads its modules when it is first used. `every_crash` and `any_story` need an extra:
`pip install 'outlast[testing]'`. Evaluations of recorded runs need `pip install 'outlast[evals]'`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from outlast.errors import InvalidInput, to_install

if TYPE_CHECKING:
    from outlast.testing.answers import (
        PendingQuestion,
        approve,
        approve_all,
        choose,
        did_not_happen,
        happened,
        reject,
        send,
    )
    from outlast.testing.campaign import RunEnd
    from outlast.testing.decorator import every_crash
    from outlast.testing.evaluation_data import AsRecorded, evaluation_cases
    from outlast.testing.fake_receivers import (
        FakeReceivers,
        cuts,
        garbage,
        huge,
        ok,
        resets,
        slow,
        status,
        times_out,
        too_many,
    )
    from outlast.testing.faults import FaultKind, FaultyStore
    from outlast.testing.model_server import ModelServer, completions
    from outlast.testing.recorded_runs import RecordedRun, RunDiffers, recorded
    from outlast.testing.run_evaluation import (
        EvaluatedRun,
        EvaluationInputs,
        RunEvaluation,
        UnmadeCall,
        evaluation,
    )
    from outlast.testing.single_node import NodeResult, node
    from outlast.testing.story import Story, StoryApproval, StoryCall, StoryEffect, StorySignal
    from outlast.testing.story_search import any_story, retell
    from outlast.testing.virtual_runtime import App, AppFactory, skip

_HOMES: Final = {
    "outlast.testing.story_search": ("any_story", "retell"),
    "outlast.testing.story": ("Story", "StoryApproval", "StoryCall", "StoryEffect", "StorySignal"),
    "outlast.testing.faults": ("FaultKind", "FaultyStore"),
    "outlast.testing.single_node": ("NodeResult", "node"),
    "outlast.testing.virtual_runtime": ("App", "AppFactory", "skip"),
    "outlast.testing.fake_receivers": (
        *("FakeReceivers", "cuts", "garbage", "huge", "ok"),
        *("resets", "slow", "status", "times_out", "too_many"),
    ),
    "outlast.testing.campaign": ("RunEnd",),
    "outlast.testing.model_server": ("ModelServer", "completions"),
    "outlast.testing.decorator": ("every_crash",),
    "outlast.testing.recorded_runs": ("RecordedRun", "RunDiffers", "recorded"),
    "outlast.testing.run_evaluation": (
        *("EvaluatedRun", "EvaluationInputs", "RunEvaluation", "UnmadeCall", "evaluation"),
    ),
    "outlast.testing.evaluation_data": ("AsRecorded", "evaluation_cases"),
    "outlast.testing.answers": (
        *("PendingQuestion", "approve", "approve_all", "choose", "did_not_happen", "happened", "reject", "send"),
    ),
}

_EXTRAS: Final = {"h11": "testing", "hypothesis": "testing", "pytest": "testing", "pydantic_evals": "evals"}
"""Extras of the packages that some names need."""

__all__ = [
    "App",
    "AppFactory",
    "AsRecorded",
    "EvaluatedRun",
    "EvaluationInputs",
    "FakeReceivers",
    "FaultKind",
    "FaultyStore",
    "ModelServer",
    "NodeResult",
    "PendingQuestion",
    "RecordedRun",
    "RunDiffers",
    "RunEnd",
    "RunEvaluation",
    "Story",
    "StoryApproval",
    "StoryCall",
    "StoryEffect",
    "StorySignal",
    "UnmadeCall",
    "any_story",
    "approve",
    "approve_all",
    "choose",
    "completions",
    "cuts",
    "did_not_happen",
    "evaluation",
    "evaluation_cases",
    "every_crash",
    "garbage",
    "happened",
    "huge",
    "node",
    "ok",
    "recorded",
    "reject",
    "resets",
    "retell",
    "send",
    "skip",
    "slow",
    "status",
    "times_out",
    "too_many",
]


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names), "")
    if not home:
        raise AttributeError(f"module 'outlast.testing' has no attribute {name!r}")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise InvalidInput(
            f"outlast.testing.{name} needs {error.name}",
            "it is not installed, because only tests need it",
            to_install(extra),
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
