"""Page of two runs side by side: the form that chooses the other run, where they part, and their differences."""

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outlast.core.machine import RunStatus
from outlast.insight.difference_words import equal_text, facets_text, parting_text, side_text, title_of, took_text
from outlast.models.comparison import ComparedRun, ComparedSide, DifferenceKind, RunDifference, ValueChange
from outlast.models.effects import effect_id
from outlast.operations.field_types import Name
from outlast.service.request_parts import RunId
from outlast.service.service_state import Ops, root_of
from outlast.ui.page_route import PageRoute
from outlast.ui.routes.run_pages import After, tab
from outlast.ui.run_header import header_of
from outlast.ui.shown_text import isolated

router = APIRouter(prefix="/ui/runs/{run}", route_class=PageRoute)
ROWS: Final = 20
ALL_ROWS: Final = 40
"""Rows of two runs side by side, most of which are short."""
CHANGES: Final = 8
"""Changed places of one difference that the page shows."""
NAMES: Final = ("this run", "the other run")
OFFERED: Final = 10
"""Newest runs of the workflow that the page offers."""
CALL_STEP: Final = re.compile(r"call/(\d+)/(.+)")
APPROVAL_STEP: Final = re.compile(r"([^/]+)/request")
HTML_MAX: Final = 24_000
"""Characters of HTML for all differences of a page. Those that do not fit are on the next page."""


class ShownDifference(NamedTuple):
    """A difference as the page shows it. `left_out`: number of its changed places that are not shown."""

    each: RunDifference
    title: str
    words: str
    run: str
    other: str
    run_at: str
    """Path of the page of its step in the run; '' if it has none."""
    other_at: str
    changes: Sequence[ValueChange]
    left_out: int
    equal: str

    @property
    def size(self) -> int:
        """Return the number of characters of its HTML, without that of its changes."""
        return sum(_size(text) for text in (self.title, self.words, self.run, self.other, self.run_at, self.other_at))


@router.get("/compare", operation_id="ui:compare_runs")
async def show_comparison(
    ops: Ops,
    request: Request,
    run: RunId,
    other: Name | Literal[""] = "",
    after: After = 0,
    every: Literal["", "yes"] = "",
    last_completed: Literal["", "yes"] = "",
) -> Response:
    """Show where the run and another one part. Without the other one, offer runs of the same workflow.

    `every`: both runs side by side, with what is equal. `last_completed`: lead to the
    comparison with the newest completed run.
    """
    head = await header_of(ops, request, run)
    if last_completed and not other:
        newest = (await ops.runs(workflow=head.run.workflow, status=RunStatus.COMPLETED.value, limit=1)).runs
        if newest:
            query = urlencode({"other": newest[0].run})
            return RedirectResponse(f"{root_of(request)}/ui/runs/{run}/compare?{query}", 303)
    if not other:
        offered = (await ops.runs(workflow=head.run.workflow, limit=OFFERED)).runs
        return await tab(
            request,
            "compare",
            head=head,
            versions=[(each.run, each.shown) for each in offered],
            other="",
            offered=offered,
            none_completed=bool(last_completed),
        )
    found = await ops.compare(run, other, after=after, limit=ALL_ROWS if every else ROWS, every=bool(every))
    rows = fitting(found.differences, (run, other), under_visits=bool(every))
    last = rows[-1].each.n if rows else after
    took = [_ms(found.run), _ms(found.other)]
    return await tab(
        request,
        "compare",
        head=head,
        versions=[found.run, found.other, found.rows, after],
        other=other,
        found=found,
        every=every,
        rows=rows,
        after=after,
        last=last,
        sides=[("This run", found.run, took_text(*took)), ("Other run", found.other, took_text(*reversed(took)))],
        sentence=parting_text(found, *NAMES),
        equal=equal_text(found.equal_visits, found.equal_calls),
    )


def fitting(
    differences: Iterable[RunDifference], runs: tuple[str, str], *, under_visits: bool = False
) -> list[ShownDifference]:
    """Return the first differences of two runs, with their first changes, whose HTML fits a page: at least one.

    `under_visits`: calls follow the row of their visit, so they do not name it.
    """
    left, found = HTML_MAX, list[ShownDifference]()
    for each in differences:
        shown = _shown(each, runs, left, with_visit=not under_visits or each.kind == "visit")
        left -= shown.size + sum(map(_size_of, shown.changes))
        if found and left < 0:
            break
        found.append(shown)
    return found


def _shown(each: RunDifference, runs: tuple[str, str], left: int, *, with_visit: bool) -> ShownDifference:
    changes = list[ValueChange]()
    for change in each.changes[:CHANGES]:
        left -= _size_of(change)
        if left < 0:
            break
        changes.append(change)
    return ShownDifference(
        each,
        title_of(each),
        facets_text(each, *NAMES),
        side_text(each.run, each.other, with_visit=with_visit),
        side_text(each.other, each.run, with_visit=with_visit),
        step_path(runs[0], each.kind, each.run),
        step_path(runs[1], each.kind, each.other),
        changes,
        len(each.changes) - len(changes) + each.more_changes,
        equal_text(each.equal_visits, each.equal_calls) if each.equal_visits or each.equal_calls else "",
    )


def step_path(run: str, kind: DifferenceKind, side: ComparedSide | None) -> str:
    """Return the path below `/ui` of the page that shows how a run has it: an effect, an approval, a visit, its end."""
    if side is None or kind == "input":
        return ""
    if kind in ("call", "undo") and (found := CALL_STEP.fullmatch(side.step)) is not None:
        return f"/effects/{effect_id(run, int(found[1]), found[2])}"
    if kind == "approval" and (found := APPROVAL_STEP.fullmatch(side.step)) is not None:
        return f"/approvals/{found[1]}"
    if kind == "error":
        return f"/runs/{run}/steps?step={quote(side.step)}"
    return f"/runs/{run}" if kind == "end" else f"/runs/{run}/visits/{side.visit}" if side.visit else ""


def _size_of(change: ValueChange) -> int:
    return sum(_size(text) for text in (change.path, change.run or "", change.other or ""))


def _size(text: str) -> int:
    return len(escape(isolated(text)))


def _ms(run: ComparedRun) -> int | None:
    return (run.ended - run.began) // timedelta(milliseconds=1) if run.ended is not None else None
