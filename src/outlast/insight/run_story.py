"""The story of a run: its steps with the time since its start, the gap to the step before, and the running totals.

A pure function of the rows that its steps are made from. A filter leaves steps out: a gap is then that to the step
before which is left, and no other time and no total changes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from outlast.core.machine import ApprovalStatus, EffectStatus, RunStatus
from outlast.core.rows.run_rows import Run
from outlast.core.usage import NOTHING_USED, Amounts
from outlast.insight.agent_steps import Placed, StepRows, steps_of
from outlast.insight.run_timeline import DEADLINE, wait_bars
from outlast.insight.step_names import DENIED, NOT_ANSWERED, UNKNOWN
from outlast.models import milliseconds
from outlast.models.attention import RunAttention
from outlast.models.runs import RunDetail, RunExplanation
from outlast.models.steps import Step, StepKind

SEARCHED_CHARS: Final = 1_000
"""Characters at the beginning of a text in which a search looks."""
NOT_ADMITTED: Final = "not_admitted"
FAILURES: Final = frozenset(
    {
        EffectStatus.REFUSED.value,
        EffectStatus.UNCERTAIN.value,
        NOT_ANSWERED,
        UNKNOWN,
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

    `gap_ms`: time since the step before in the list began; None for the first. `busy_ms`: since the start without
    waits.
    """

    n: int
    placed: Placed
    elapsed_ms: int
    gap_ms: int | None
    spent: Amounts
    busy_ms: int

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


def story_of(rows: StepRows) -> list[StoryEntry]:
    """Return every step of a run in the order in which they began."""
    found, spent = list[StoryEntry](), NOTHING_USED
    before: int | None = None
    began = rows.history.run.created_at
    waited = WaitedTime(_waits(rows))
    for n, placed in enumerate(steps_of(rows), 1):
        at = placed.place[0]
        for used in placed.used:
            spent = spent.plus(used.amounts)
        gap = None if before is None else max(0, at - before)
        elapsed = max(0, at - began)
        found.append(StoryEntry(n, placed, elapsed, gap, spent, max(0, elapsed - waited.until(at))))
        before = at
    return found


class TurnMessage(NamedTuple):
    """Message before a turn of a model. `role`: user, assistant, or tool, whose `name` it has."""

    role: str
    name: str
    text: str
    cut: bool
    step: str


class ModelTurn(NamedTuple):
    """Messages before a turn of a model, as far as rows have them. `instructions`: '' if they are not stored.

    `earlier`: number of messages before them that are left out.
    """

    instructions: str
    messages: Sequence[TurnMessage]
    earlier: int


def messages_before(steps: Sequence[Placed], step: str, limit: int) -> tuple[list[TurnMessage], int]:
    """Return the last messages before a turn of a model, and the number of those before them.

    A request to a model is stored as a digest. The steps before it have what was said: input of the run, signals,
    words of the model, answers of tools.
    """
    n = next((n for n, each in enumerate(steps) if each.place[-1] == step), 0)
    before = [each for each in steps[:n] if each.kind in _ROLES]
    return [_message(each.step) for each in before[-limit:]], max(0, len(before) - limit)


_ROLES: Final[dict[StepKind, str]] = {
    "start": "user", "signal": "user", "model_decision": "assistant", "tool_call": "tool",
}  # fmt: skip


def _message(step: Step) -> TurnMessage:
    name = "" if step.kind in ("start", "model_decision") else step.what
    found = step.said if step.kind == "model_decision" else step.output if step.kind == "tool_call" else step.input
    calls = ", ".join(f"{call.tool} {call.arguments}".strip() for call in step.proposals)
    text = found.text or (f"calls {calls}" if calls else step.detail)
    return TurnMessage(_ROLES[step.kind], name, text, found.cut, step.id)


class WaitedTime:
    """Time in which a run waited for anything, also for a worker or a person."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._begins, self._ends, self._sums = list[int](), list[int](), list[int]()
        total = reached = 0
        for begin, end in sorted(spans):
            if end > max(begin, reached):
                total += end - max(begin, reached)
                self._begins.append(max(begin, reached))
                self._ends.append(end)
                self._sums.append(total)
                reached = end

    def until(self, at: int) -> int:
        """Return the time that it had waited at an instant."""
        n = bisect_right(self._begins, at) - 1
        return self._sums[n] - max(0, self._ends[n] - at) if n >= 0 else 0


def _waits(rows: StepRows) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each wait of a run."""
    if rows.course is not None:
        timeline = rows.course.timeline
        for bar in wait_bars(timeline):
            yield milliseconds(bar.began), milliseconds(bar.ended) if bar.ended is not None else timeline.now.business


def chosen(rows: StepRows, entries: Sequence[StoryEntry], *, failed: bool, text: str) -> list[StoryEntry]:
    """Return the entries that a filter keeps. `text` occurs in the beginning of one of their texts, in any case."""
    if not failed and not text:
        return list(entries)
    heads = steps_of(rows, head=SEARCHED_CHARS) if text else [each.placed for each in entries]
    kept = [
        entry
        for entry, placed in zip(entries, heads, strict=True)
        if _is_kept(placed.step, failed=failed, text=text.casefold())
    ]
    gaps = [None, *(max(0, each.at - before.at) for before, each in pairwise(kept))]
    return [entry._replace(gap_ms=gap) for entry, gap in zip(kept, gaps, strict=False)]


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
