"""The page of a cause: its message once, the differences among its runs, and its runs."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.bulk_answers import BULK, OF_CAUSE
from outlast.core.machine import Reason
from outlast.core.run_filters import Interval, interval_text
from outlast.insight.job_words import result_of
from outlast.models import checked_instant
from outlast.models.bulk import BulkAnswer
from outlast.models.causes import Cause
from outlast.operations.run_query import QueryTerm, query_text
from outlast.runtime.operations import Operations
from outlast.service.request_parts import CauseId
from outlast.service.service_state import Ops, Pages
from outlast.ui.page_route import PageRoute
from outlast.ui.rendering import render
from outlast.ui.routes.bulk_pages import ShownFilter, address, offered, runs_in

router = APIRouter(prefix="/ui/causes", route_class=PageRoute)
JOBS: Final = 3
"""Jobs of a cause that a page lists."""
RUNS: Final = 40
"""Runs with a cause that a page lists."""
HEIGHT: Final = 20
"""Height of a sparkline in units of its drawing, in which a part of time is one unit wide."""


def sparkline(numbers: Sequence[int]) -> str:
    """Return the path of one column for each number that is not 0; the greatest number is HEIGHT units high."""
    most = max(numbers, default=0)
    columns = ((at, -(-number * HEIGHT // most)) for at, number in enumerate(numbers) if number)
    return "".join(f"M{at} {HEIGHT}v-{height}h.8v{height}z" for at, height in columns)


def answers_for(cause: Cause) -> list[tuple[str, str]]:
    """Return the choices that a job can give all runs of a cause, each with the address of its page."""
    reason = Reason(cause.reason)
    return [(choice.value, address(ShownFilter(reason, choice, cause.cause))) for choice in offered(reason)]


async def jobs_of(ops: Operations, cause: str) -> list[BulkAnswer]:
    """Return the newest jobs that answer runs of a cause, also those that have ended."""
    found = await ops.runs(workflow=BULK, where=[f"{OF_CAUSE}={cause}"], limit=JOBS)
    return await asyncio.gather(*(ops.bulk_answer(each.run) for each in found.runs))


def _time_of(cause: Cause) -> Interval:
    """Return the time from the first to the last flagging with a cause."""
    return Interval(checked_instant("since", cause.since), checked_instant("last", cause.last) + 1)


def _runs_with(cause: str, name: str, value: str) -> str:
    """Return the query of the runs that need a person for a cause, and have this value."""
    return query_text((QueryTerm("cause", cause), QueryTerm("is", "flagged"), QueryTerm(name, value)))


@router.get("/{cause}", operation_id="ui:get_cause")
async def show_cause(ops: Ops, pages: Pages, request: Request, cause: CauseId) -> Response:
    """Show one cause with a page of its runs."""
    found = await ops.cause(cause)
    listed = await ops.attention(cause=cause, limit=RUNS, cursor=pages.after)
    return await render(
        request,
        "cause.html",
        title=f"{found.reason.replace('_', ' ').capitalize()} in {found.workflow}",
        live="",
        cause=found,
        runs_with=partial(_runs_with, cause),
        spark=sparkline(found.bars),
        flagged=sum(found.bars),
        jobs=await jobs_of(ops, cause),
        jobs_max=JOBS,
        result_of=result_of,
        bulk=BULK,
        of_cause=OF_CAUSE,
        answers=answers_for(found) if found.runs else (),
        past=urlencode({"q": f"cause:{cause} flagged:{interval_text(_time_of(found))}"}),
        items=list({each.run: each for each in runs_in(listed)}.values()),
        next_cursor=(await pages.sealed(listed)).next_cursor,
        paged=bool(pages.after),
    )
