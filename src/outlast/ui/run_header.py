"""Header of each page of a run: its state, times, budget, worker, sentence, and the action that it waits for."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from outlast.core.bulk_answers import BULK
from outlast.core.machine import TERMINAL
from outlast.core.rows.run_rows import Run
from outlast.insight.labels import nth_of, visit_text
from outlast.models.approvals import ApprovalDetail
from outlast.models.attention import RunAttention
from outlast.models.runs import RunDetail, RunExplanation
from outlast.runtime.operations import Operations
from outlast.service.identity import is_permitted
from outlast.ui.rendering import stamp
from outlast.ui.run_words import ShownWait, folded, kind_of, waits_shown
from outlast.ui.story_rows import budget_bar

DECIDABLE_MAX: Final = 3
"""Approvals that the page of a run shows whole."""


class RunHeader(NamedTuple):
    """A run as the header of its pages shows it, all of one state of the run.

    `decidable`: the approvals that the caller may decide on the page of the run, by id.
    """

    run: RunDetail
    explained: RunExplanation
    items: Sequence[RunAttention]
    waits: Sequence[ShownWait]
    decidable: Mapping[str, ApprovalDetail]

    @property
    def over(self) -> bool:
        """True if the run has ended."""
        return self.run.status in TERMINAL

    @property
    def live(self) -> str:
        """Return the name of the stream that its pages listen to; '' if nothing can change."""
        return "" if self.over else f"run:{self.run.run}"

    @property
    def version(self) -> str:
        """Return the version of the header."""
        run = self.run
        assigned = [(each.assigned_to, each.assigned_at, each.assigned_note) for each in self.items]
        return stamp(run.version, run.shown, run.served, run.due, run.owner, run.asked, run.used, assigned)

    def shown(self) -> dict[str, Any]:
        """Return the values that the templates of its pages use."""
        run, nth = self.run, nth_of(self.run.visits)
        return {
            "run": run,
            "kind": kind_of(run),
            "explained": self.explained,
            "items": self.items,
            "waits": self.waits,
            "decidable": self.decidable,
            "over": self.over,
            "is_job": run.workflow == BULK,
            "budget": budget_bar(run.used_by_tree or run.used, run.budget),
            "visit_text": lambda node, visit: visit_text(node, nth.get(visit, 0), visit),
        }


async def header_of(ops: Operations, request: Request, run: str) -> RunHeader:
    """Read the header of a run. Raises NotFound."""
    row, detail, explained, items = await ops.overview(run)
    return await header_from(ops, request, row, detail, explained, items)


async def header_from(
    ops: Operations,
    request: Request,
    row: Run,
    detail: RunDetail,
    explained: RunExplanation,
    items: Sequence[RunAttention],
) -> RunHeader:
    """Return the header of a run that was read before."""
    waits = [each for each in waits_shown(detail) if each.wait.kind != "child"]
    return RunHeader(detail, explained, items, waits, await _decidable(ops, request, row, waits))


async def _decidable(
    ops: Operations, request: Request, run: Run, waits: Sequence[ShownWait]
) -> dict[str, ApprovalDetail]:
    """Return the approvals that the caller may decide on the page of the run: those of one call that fits it, by id."""
    ids = [each.approval for each in waits if each.approval][:DECIDABLE_MAX]
    if not is_permitted(request.state.principal, "decide_approval"):
        return {}
    found = [await ops.approval_in(each, run) for each in ids]
    return {
        each.approval: each
        for each in found
        if not each.you_may_not and len(each.plans) == 1 and folded(each.plans[0].arguments).text
    }
