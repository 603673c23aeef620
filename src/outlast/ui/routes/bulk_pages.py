"""One answer for every run of a filter: its page with a preview, and the page of the job that gives it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.attention import ENDS
from outlast.core.bulk_answers import BULK
from outlast.core.limits import NAME_CHARS_MAX, QUERY_CHARS_MAX, TEXT_CHARS_MAX
from outlast.core.machine import CHOICES, Choice, Reason, RunStatus
from outlast.errors import Conflict, InvalidInput, NotFound
from outlast.insight.attention_reads import NOT_FOR_ALL
from outlast.insight.job_words import result_of
from outlast.insight.run_tally import APPROVAL
from outlast.models.attention import AttentionList, RunAttention
from outlast.models.bulk import BulkAnswer
from outlast.models.causes import Cause, CauseDetail
from outlast.operations.run_query import beyond_flagged, filters_of, merged, parse_query, query_terms, query_text
from outlast.runtime.operations import Operations
from outlast.service.problems import status_of
from outlast.service.request_parts import RunId
from outlast.service.service_state import Ops
from outlast.ui.page_route import Form, PageRoute, form_of, see_other
from outlast.ui.rendering import render, stamp
from outlast.ui.routes.run_actions import MORE_TIME, member
from outlast.ui.run_words import line_of

router = APIRouter(prefix="/ui/answers", route_class=PageRoute)
EXAMPLES: Final = 5
"""Runs that the preview shows."""
FIRST: Final = 5
"""Runs that a preview offers to try first."""
CODE_AGAIN: Final = frozenset({Choice.CONTINUE, Choice.RETRY})
"""Choices after which a run executes the code that has failed."""
ONE_BY_ONE: Final = frozenset({Choice.CONTINUE, Choice.EXTEND, Choice.CANCEL})
"""Choices that the list of runs gives to ticked runs."""
Filter = Annotated[str, Query(max_length=NAME_CHARS_MAX)]


class Example(NamedTuple):
    """Run that a job would answer, and why it needs a person or what it waits for.

    `undone`, `remain`: effects that are undone if it is cancelled, and that remain.
    """

    run: str
    workflow: str
    node: str
    line: str
    undone: Sequence[str] = ()
    remain: Sequence[str] = ()


class ShownFilter(NamedTuple):
    """Filter of a job as its pages show it and as their forms send it."""

    reason: Reason | None
    choice: Choice
    cause: str = ""
    workflow: str = ""
    node: str = ""
    version: int = 0
    contains: str = ""
    query: str = ""

    @property
    def terms(self) -> dict[str, Any]:
        """Return the parameters of a job beside reason and choice."""
        return {name: value for name, value in self._asdict().items() if name not in ("reason", "choice")}

    @property
    def flagged(self) -> str:
        """Return how the runs of the filter are called."""
        return f"flagged {self.reason.value.replace('_', ' ')}" if self.reason is not None else "not ended"

    @property
    def fields(self) -> dict[str, str]:
        """Return the fields of a form or an address, without those that are not set."""
        return {name: str(value) for name, value in self._asdict().items() if value}

    @property
    def command(self) -> list[str]:
        """Return the words of the command that starts the same job."""
        if self.reason is None:
            return ["outlast", "runs", "cancel", "--all", self.query, "--reason", "…"]
        words = ["outlast", "attention", "resolve", "--all", self.reason.value, self.choice.value]
        for name, value in self.terms.items():
            words += [f"--{name}", str(value)] if value else []
        return [*words, "--reason", "…"]


def offered(reason: Reason | None) -> list[Choice]:
    """Return the choices that a job can give for a reason, or without one."""
    if reason is None:
        return [Choice.CANCEL]
    return [choice for choice in CHOICES[reason] if choice not in NOT_FOR_ALL]


def address(given: ShownFilter) -> str:
    """Return the address of the page of an answer, below `/ui`."""
    return f"/ui/answers?{urlencode(given.fields)}"


@router.get("", operation_id="ui:preview_bulk_answer")
async def preview(
    ops: Ops,
    request: Request,
    reason: Reason | Literal[""] | None = None,
    choice: Choice | None = None,
    cause: Filter = "",
    workflow: Filter = "",
    node: Filter = "",
    version: Annotated[int, Query(ge=0, le=2**31)] = 0,
    contains: Annotated[str, Query(max_length=TEXT_CHARS_MAX)] = "",
    query: Annotated[str, Query(max_length=QUERY_CHARS_MAX)] = "",
) -> Response:
    """Show how many runs one answer would be for, some of them, and the form that gives it.

    `query` without a reason: the unfinished runs of a list are cancelled.
    """
    of = reason or (None if query else Reason.EXCEPTION)
    found = Choice.CANCEL if of is None else choice or offered(of)[0]
    return await _preview(ops, request, ShownFilter(of, found, cause, workflow, node, version, contains, query))


async def _preview(
    ops: Operations, request: Request, given: ShownFilter, *, status_code: int = 200, **refused: Any
) -> Response:
    found = await ops.preview_bulk_answer(given.reason, given.choice, **given.terms)
    causes = await _causes(ops, given)
    cause = await _cause_of(ops, given.cause)
    return await render(
        request,
        "bulk_answer.html",
        title=f"{given.choice.value.replace('_', ' ').capitalize()} all",
        given=given,
        found=found,
        cause=cause,
        deploy=deploy_text(cause) if cause is not None and given.choice in CODE_AGAIN else "",
        first=_first_of(given) if found.runs > FIRST else "",
        first_runs=FIRST,
        ends=given.choice in ENDS,
        items=[] if causes or not found.runs else await _examples(ops, given),
        causes=[(each, address(given._replace(cause=each.cause))) for each in causes],
        uncertain=await _uncertain(ops, given.query) if given.reason is None else 0,
        uncertain_runs=_runs_at(given.query, Reason.EFFECT_UNCERTAIN) if given.reason is None else "",
        reasons=[*Reason] if given.query else [],
        offered=offered(given.reason),
        more_time=MORE_TIME,
        refused=refused,
        status_code=status_code,
    )


def deploy_text(cause: CauseDetail) -> str:
    """Return whether a newer version was deployed since runs were flagged, and which one a continued run executes."""
    if not cause.deploys or not cause.runs:
        return ""
    mine = max(int(each.value) for each in cause.versions) if cause.versions else cause.version
    newest = max(cause.deploys, key=lambda each: each.version)
    if newest.version <= mine:
        return f"Version {mine} is still the newest: the code is the same as when they failed, and they may fail again."
    since = "since then" if newest.at > cause.last else "before the last of them failed"
    return (
        f"Version {newest.version} was deployed {since}, but a run stays at its version: this executes version {mine} "
        "again. Move the runs to execute the newer one."
    )


def _first_of(given: ShownFilter) -> str:
    """Return the address of the list of the same runs with the first ones ticked; '' if no list has them."""
    if given.reason is None or given.contains or given.choice not in ONE_BY_ONE:
        return ""
    of = merged(
        parse_query(given.query),
        reason="" if given.cause else given.reason.value,  # a cause is of one reason
        cause=given.cause,
        workflow=given.workflow,
        node=given.node,
        version=given.version,
        attention=True,
    )
    return f"/ui/runs?{urlencode({'q': query_text(query_terms(of)), 'ticked': FIRST})}"


async def _causes(ops: Operations, given: ShownFilter) -> Sequence[Cause]:
    """Return the causes of the runs of a filter, if its terms are those by which causes are counted."""
    if given.reason is None or given.cause or given.version or given.contains or given.query:
        return []
    found = await ops.causes(reason=given.reason.value, workflow=given.workflow, node=given.node)
    return found.causes if len(found.causes) > 1 else []


async def _examples(ops: Operations, given: ShownFilter) -> Sequence[Example]:
    """Return some of the runs of a filter. Of those that are ended by the choice, with their effects."""
    found = await _some(ops, given)
    if given.choice not in ENDS:
        return found
    return [each._replace(undone=await ops.to_undo(each.run), remain=await ops.not_undone(each.run)) for each in found]


async def _some(ops: Operations, given: ShownFilter) -> list[Example]:
    if given.contains:
        return []
    if given.query:
        of = merged(parse_query(given.query), reason=given.reason.value if given.reason else "")
        # Most unfinished runs wait: the list has no term for all that have not ended.
        unfinished = replace(of, status=of.status or RunStatus.WAITING.value)
        runs = (await ops.runs(**filters_of(unfinished), limit=EXAMPLES)).runs
        return [Example(each.run, each.workflow, each.node, line_of(each)) for each in runs]
    listed = await ops.attention(
        reason=given.reason,
        workflow=given.workflow,
        node=given.node,
        version=given.version or None,
        cause=given.cause,
        limit=EXAMPLES,
    )
    return [
        Example(each.run, each.workflow, each.node, (each.detail.strip().splitlines() or [""])[0])
        for each in runs_in(listed)[:EXAMPLES]
    ]


def runs_in(found: AttentionList) -> list[RunAttention]:
    """Return the items of runs."""
    return [each for each in found.attention if isinstance(each, RunAttention)]


def _typed(form: Form) -> ShownFilter:
    return ShownFilter(
        member(Reason, "reason", form.text("reason")) if form.text("reason") else None,
        member(Choice, "choice", form.text("choice")),
        form.text("cause"),
        form.text("workflow"),
        form.text("node"),
        form.number("version"),
        form.text("contains"),
        form.text("query"),
    )


@router.post("", operation_id="ui:start_bulk_answer")
async def start(ops: Ops, request: Request) -> Response:
    """Start the job, and lead to its page."""
    form = form_of(request)
    given = _typed(form)
    try:
        if not form.text("text"):
            raise InvalidInput("a reason is required", "it is shown in the history of each run", "write why")
        by = (form.text("by") or MORE_TIME) if given.choice is Choice.EXTEND else None
        job = await ops.start_bulk_answer(
            given.reason, given.choice, text=form.text("text"), by=by, confirm=form.number("confirm"), **given.terms
        )
    except (Conflict, InvalidInput, NotFound) as error:
        return await _preview(
            ops, request, given, status_code=status_of(error), error=error, text=form.text("text"), by=form.text("by")
        )
    runs = f"{job.total:,} run{'' if job.total == 1 else 's'}"
    done = f"Started: {given.choice.value.replace('_', ' ')} for {runs}, by {job.by}. A worker answers them."
    return see_other(request, f"/ui/answers/{job.run}", done)


class Others(NamedTuple):
    """Unfinished runs that match the query of a job without its terms about flagged runs, such as `is:flagged`."""

    runs: int
    query: str
    approvals: int
    approvals_address: str


class StillThere(NamedTuple):
    """Runs that fit the filter of a job now, whether the job reached them or not, and the address of their list."""

    runs: int
    address: str
    uncertain: int
    uncertain_address: str
    others: "Others | None" = None


async def _still_there(ops: Operations, job: BulkAnswer) -> StillThere:
    """Count the runs that fit the filter of a job now."""
    reason = Reason(job.reason) if job.reason else None
    given = ShownFilter(
        reason, Choice(job.choice), job.cause, job.workflow, job.node, job.version, job.contains, job.query
    )
    found = await ops.preview_bulk_answer(given.reason, given.choice, activity=job.activity, **given.terms)
    uncertain = await _uncertain(ops, job.query) if reason is None else 0
    others = await _others(ops, job.query, found.runs) if reason is None else None
    return StillThere(found.runs, _listed(given), uncertain, _runs_at(job.query, Reason.EFFECT_UNCERTAIN), others)


async def _others(ops: Operations, query: str, matching: int) -> Others | None:
    """Count unfinished runs beside those that match a query of flagged runs; None if there are none."""
    if not (wider := beyond_flagged(query)):
        return None
    waiting = query_text(query_terms(merged(parse_query(wider), waiting_for=APPROVAL)))
    every = await ops.preview_bulk_answer(None, Choice.CANCEL, query=wider)
    approvals = await ops.preview_bulk_answer(None, Choice.CANCEL, query=waiting)
    left = every.runs - matching
    return Others(left, wider, approvals.runs, f"/ui/runs?{urlencode({'q': waiting})}") if left > 0 else None


def _listed(given: ShownFilter) -> str:
    """Return the address of the list of the runs of a filter, below `/ui`."""
    if given.query:
        return _runs_at(given.query, given.reason)
    return f"/ui/causes/{given.cause}" if given.cause else address(given)


def _runs_at(query: str, reason: Reason | None) -> str:
    of = merged(parse_query(query), reason=reason.value if reason is not None else "")
    return f"/ui/runs?{urlencode({'q': query_text(query_terms(of))})}"


async def _uncertain(ops: Operations, query: str) -> int:
    """Return how many effects of the runs of a query are uncertain: each holds up the cancellation of its run."""
    return (await ops.preview_bulk_answer(Reason.EFFECT_UNCERTAIN, Choice.GIVE_UP, query=query)).runs


@router.get("/{run}", operation_id="ui:get_bulk_answer")
async def show(ops: Ops, request: Request, run: RunId) -> Response:
    """Show how many runs a job has answered, and those that were refused."""
    return await _job(ops, request, run)


async def _job(ops: Operations, request: Request, run: str, *, status_code: int = 200, **refused: Any) -> Response:
    job, summary = await ops.bulk_answer(run), await ops.run_summary(run)
    pauses = [] if job.ended else [each for each in await ops.pauses() if each.paused == f"workflow {BULK}"]
    left = await _still_there(ops, job) if job.ended else None
    result = result_of(job)
    if result.kind == "good" and left is not None and left.runs:
        result = result._replace(kind="wait")
    return await render(
        request,
        "bulk_job.html",
        title=f"{job.choice.replace('_', ' ').capitalize()} all",
        live="attention",
        versions={"job": stamp(job.answered, job.refused, job.result, summary.version, len(pauses), left)},
        job=job,
        cause=await _cause_of(ops, job.cause),
        result=result,
        left=left,
        summary=summary,
        bulk=BULK,
        stops=pauses,
        refused=refused,
        status_code=status_code,
    )


async def _cause_of(ops: Operations, cause: str) -> CauseDetail | None:
    """Return a cause, or None without one and for one whose runs were deleted."""
    try:
        return await ops.cause(cause) if cause else None
    except NotFound:
        return None


# No version: it holds every job of the tenant, and a second pause is refused.
@router.post("/{run}/pause", operation_id="ui:pause")
async def pause(ops: Ops, request: Request, run: RunId) -> Response:
    """Hold the jobs of the tenant, and lead to the page of this one."""
    await ops.bulk_answer(run)
    try:
        await ops.pause("workflow", BULK, reason=form_of(request).text("reason"))
    except (Conflict, InvalidInput) as error:
        return await _job(ops, request, run, status_code=status_of(error), error=error)
    return see_other(request, f"/ui/answers/{run}", "Paused: no job of this tenant answers further runs until resumed.")


# No version, like that of any run.
@router.post("/{run}/cancel", operation_id="ui:cancel_run")
async def cancel(ops: Ops, request: Request, run: RunId) -> Response:
    """Cancel the job, and lead to its page."""
    await ops.bulk_answer(run)
    try:
        await ops.cancel(run, reason=form_of(request).text("reason"))
    except (Conflict, InvalidInput) as error:
        return await _job(ops, request, run, status_code=status_of(error), error=error)
    return see_other(request, f"/ui/answers/{run}", "Cancelled: no further run is answered. Given answers stay.")
