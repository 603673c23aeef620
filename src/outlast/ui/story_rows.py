"""Rows of a run's story as a page shows them: pure functions from entries to words, times and kinds."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple
from urllib.parse import unquote

from markupsafe import escape

from outlast.core.budget import SHOWN, amount_text, shares
from outlast.core.durations import DAY, HOUR, MINUTE, SECOND, measured_span
from outlast.core.machine import EffectStatus
from outlast.core.usage import Amounts, Limits, micros, money_text
from outlast.insight.run_story import StoryEntry, has_failed
from outlast.insight.step_names import UNKNOWN
from outlast.models.runs import AllowedAmounts, UsedAmounts
from outlast.models.steps import Step, StepKind
from outlast.ui.run_words import FOLDED, FoldedValue
from outlast.ui.shown_text import isolated

HTML_MAX: Final = 42_000
"""Characters of HTML for the entries of a page. Those that do not fit are on the next page."""
ROWS_MAX: Final = 60
FRAME: Final = 440
"""Characters of HTML of an entry without its texts."""
STATE_LINK: Final = 120
"""Characters of HTML of the link to the state of a checkpoint, without the id of its run."""
PROPOSALS_MAX: Final = 6
PAIRS_MAX: Final = 12
STORY_WORDS: Final[Mapping[StepKind, str]] = {
    "start": "started", "model_decision": "model", "tool_call": "call", "approval_request": "asked",
    "approval_response": "decided", "wait": "waited", "signal": "signal", "attention": "needs a person",
    "answer": "answered", "takeover": "takeover", "log": "log", "change": "change", "checkpoint": "checkpoint",
}  # fmt: skip
_PERSON: Final = frozenset({"attention", "approval_request"})


class StoryRow(NamedTuple):
    """An entry of the story. `given`: arguments as names and texts; `left_out`: proposed calls that are not shown."""

    entry: StoryEntry
    step: Step
    kind: str
    elapsed: str
    gap: str
    key: str
    given: list[tuple[str, str]]
    left_out: int
    totals: str
    first: str
    """First line of its detail."""
    rest: str
    """Further lines of it, for instance a traceback."""

    @property
    def size(self) -> int:
        """Return about the number of characters of its HTML."""
        step = self.step
        calls = [t for call in step.proposals[:PROPOSALS_MAX] for t in (call.tool, call.reason, call.arguments)]
        texts = (step.what, step.detail, step.by, self.key, step.said.text, step.output.text, step.allowed_by, *calls)
        pairs = [text for pair in self.given for text in pair]
        frame = FRAME + (STATE_LINK if step.kind == "checkpoint" else 0)
        return frame + len(escape(step.id)) + sum(len(escape(isolated(text))) + 30 for text in (*texts, *pairs) if text)


def fitting(entries: Sequence[StoryEntry], *, backwards: bool = False) -> list[StoryRow]:
    """Return the first entries, or the last ones, whose HTML fits a page: at least one."""
    left, found = HTML_MAX, list[StoryRow]()
    for entry in reversed(entries) if backwards else entries:
        row = row_of(entry)
        left -= row.size
        if found and (left < 0 or len(found) == ROWS_MAX):
            break
        found.append(row)
    return found[::-1] if backwards else found


def row_of(entry: StoryEntry) -> StoryRow:
    """Return an entry with its words."""
    step = entry.placed.step
    first, _, rest = step.detail.partition("\n")
    return StoryRow(
        entry,
        step,
        kind_of_step(step),
        elapsed(entry.elapsed_ms),
        "" if entry.gap_ms is None else measured_span(entry.gap_ms),
        unquote(step.key),
        pairs_of(step.input.text) if not step.input.cut else [("", step.input.text)],
        max(0, len(step.proposals) - PROPOSALS_MAX),
        totals(entry) if entry.placed.used or step.kind == "tool_call" else "",
        first,
        rest.strip("\n"),
    )


def kind_of_step(step: Step) -> str:
    """Return the kind of a step's state, which decides its form and its colour."""
    if step.status in (EffectStatus.UNCERTAIN, UNKNOWN) or step.kind in _PERSON:
        return "person"
    if has_failed(step):
        return "bad"
    if step.kind == "wait":
        return "wait"
    return "good" if step.kind in ("tool_call", "approval_response") else "plain"


def totals(entry: StoryEntry) -> str:
    """Return the usage that calls reported from the start up to an entry, and the time without waits."""
    tokens = f"{entry.spent.tokens:,} tokens" if entry.spent.tokens else ""
    money = f"{money_text(entry.spent.money)} paid" if entry.spent.money else ""
    return " · ".join(filter(None, (tokens, money, f"{measured_span(entry.busy_ms)} busy")))


def pairs_of(text: str) -> list[tuple[str, str]]:
    """Return the members of a JSON object as names and texts; another text under the name ''."""
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return [("", text)]
    if not isinstance(found, dict) or len(found) > PAIRS_MAX:
        return [("", text)]
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in found.items()
    ]


def elapsed(ms: int) -> str:
    """Return the time since the start: `+0.041 s`, `+3m 04.2s`, `+20h 05m`, `+3d 08h`."""
    if ms < MINUTE:
        return f"+{ms / SECOND:.3f} s"
    if ms < HOUR:
        return f"+{ms // MINUTE}m {ms % MINUTE / SECOND:04.1f}s"
    if ms < DAY:
        return f"+{ms // HOUR}h {ms % HOUR // MINUTE:02}m"
    return f"+{ms // DAY}d {ms % DAY // HOUR:02}h"


def shown_text(text: str) -> FoldedValue:
    """Return a text of a step for a page, JSON with its levels; '' and its size if it is too long."""
    try:
        shown = json.dumps(json.loads(text), ensure_ascii=False, indent=1) if text else ""
    except (ValueError, RecursionError):
        shown = text
    return FoldedValue(shown if len(shown) <= FOLDED else "", len(shown))


def took_ms(step: Step) -> int | None:
    """Return how long a step took in milliseconds; None if it is unknown, lasts, or is an instant."""
    if step.kind not in ("tool_call", "model_decision", "approval_request", "wait") or step.ended is None:
        return None
    if step.began is None:
        return step.ms or None
    return max(0, (step.ended - step.began) // timedelta(milliseconds=1))


class BudgetBar(NamedTuple):
    """The limit of a budget that is used most, in words and in percent."""

    text: str
    percent: float


def budget_bar(used: UsedAmounts, allowed: AllowedAmounts) -> BudgetBar | None:
    """Return the limit of a budget with the least left; None without a limit."""
    money = None if allowed.money is None else micros(allowed.money)
    of_time = None if allowed.minutes is None else round(allowed.minutes * MINUTE)
    limits = Limits(allowed.tokens, money, allowed.calls, of_time, allowed.children)
    amounts = Amounts(used.tokens, micros(used.money), used.calls, round(used.minutes * MINUTE), used.children)
    if not (found := shares(amounts, limits)):
        return None
    first = found[0]
    noun = "" if first.name == "money" else f" {SHOWN[first.name]}"
    text = f"{amount_text(first.name, first.used)} of {amount_text(first.name, first.limit)}{noun}"
    return BudgetBar(text, min(100.0, first.percent))
