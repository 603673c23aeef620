"""The story of a run: its steps with the time since its start, the gap to the step before, and the running totals.

A pure function of the rows that its steps are made from. A filter leaves steps out; it changes no time and no total.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from outlast.core.machine import ApprovalStatus, EffectStatus, RunStatus
from outlast.core.rows.run_rows import Run
from outlast.core.usage import NOTHING_USED, Amounts
from outlast.insight.agent_steps import DENIED, NOT_ANSWERED, Placed, StepRows, steps_of
from outlast.insight.run_timeline import DEADLINE
from outlast.models.attention import RunAttention
from outlast.models.runs import RunDetail, RunExplanation
from outlast.models.steps import Step

SEARCHED_CHARS: Final = 1_000
"""Characters at the beginning of a text in which a search looks."""
NOT_ADMITTED: Final = "not_admitted"
FAILURES: Final = frozenset(
    {
        EffectStatus.REFUSED.value,
        EffectStatus.UNCERTAIN.value,
        NOT_ANSWERED,
        DENIED,
        DEADLINE,
        ApprovalStatus.REJECTED.value,
        ApprovalStatus.AGAIN.value,
        RunStatus.FAILED.value,
        RunStatus.CANCELLED.value,
    }
)
"""Statuses of steps that went otherwise than planned."""
_ALWAYS: Final = frozenset({"attention", "takeover"})


class StoryEntry(NamedTuple):
    """A step in the story. `n`: its number, from 1; `spent`: usage up to it.

    `gap_ms`: time since the step before began; None for the first.
    """

    n: int
    placed: Placed
    elapsed_ms: int
    gap_ms: int | None
    spent: Amounts

    @property
    def at(self) -> int:
        """Return the business instant at which it began, or was recorded."""
        return self.placed.place[0]


class RunStory(NamedTuple):
    """A run with its story, all of one state of the run. `total`: its steps before the filter."""

    row: Run
    detail: RunDetail
    explained: RunExplanation
    attention: Sequence[RunAttention]
    entries: Sequence[StoryEntry]
    total: int
    nth: int
    """Number of the present visit among those of its node; 0 if it is unknown."""


def story_of(rows: StepRows) -> list[StoryEntry]:
    """Return every step of a run in the order in which they began."""
    found, spent = list[StoryEntry](), NOTHING_USED
    before: int | None = None
    began = rows.history.run.created_at
    for n, placed in enumerate(steps_of(rows), 1):
        at = placed.place[0]
        for used in placed.used:
            spent = spent.plus(used.amounts)
        gap = None if before is None else max(0, at - before)
        found.append(StoryEntry(n, placed, max(0, at - began), gap, spent))
        before = at
    return found


def chosen(rows: StepRows, entries: Sequence[StoryEntry], *, failed: bool, text: str) -> list[StoryEntry]:
    """Return the entries that a filter keeps. `text` occurs in the beginning of one of their texts, in any case."""
    if not failed and not text:
        return list(entries)
    heads = steps_of(rows, head=SEARCHED_CHARS) if text else [each.placed for each in entries]
    return [
        entry
        for entry, placed in zip(entries, heads, strict=True)
        if _is_kept(placed.step, failed=failed, text=text.casefold())
    ]


def _is_kept(step: Step, *, failed: bool, text: str) -> bool:
    return (not failed or has_failed(step)) and (not text or any(text in each.casefold() for each in _texts(step)))


def has_failed(step: Step) -> bool:
    """Return True if a step went otherwise than planned: refused, uncertain, lost, or a request to a person."""
    refused = any(call.outcome == NOT_ADMITTED for call in step.proposals)
    return refused or step.kind in _ALWAYS or step.status in FAILURES


def _texts(step: Step) -> Sequence[str]:
    calls = [text for call in step.proposals for text in (call.tool, call.reason, call.arguments)]
    about = (step.what, step.key, step.detail, step.by, step.node, step.model, step.external_id, step.approval)
    return (*about, step.said.text, step.input.text, step.output.text, *calls)
