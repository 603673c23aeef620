"""Safeguards of the testing kit: evaluations of recorded runs, and stories that `any_story` makes up."""

from importlib import import_module
from typing import Any

from outlast.engine.attempts import ActivityCaller
from tests.removals import Patch, replace

EVALUATION = "outlast.testing.run_evaluation"
STORIES = "outlast.testing.story_search"
"""Loaded by the removals only: they import the plugin of pytest, which fails if that was imported before pytest."""


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


def uncertain_undo_unanswered(patch: Patch) -> None:
    driver = import_module("outlast.testing.driver")
    patch.setattr(driver.Driver, "_from_record", lambda self, undo: None)


def stories_without_signals(patch: Patch) -> None:
    patch.setattr(import_module(STORIES), "signals_of", lambda workflow: {})


def stories_without_refusals(patch: Patch) -> None:
    patch.setattr(import_module(STORIES), "MOODS", {"fair": 0})


def stories_without_time(patch: Patch) -> None:
    any_story = import_module(STORIES)
    acts = any_story._acts

    def all_but_waits(story: Any, sources: Any, mood: str) -> Any:
        return [act for act in acts(story, sources, mood) if act is not any_story._wait]

    replace(patch, any_story._acts, all_but_waits)
