"""Conditional requests: `If-Match` names the version that the caller has seen, as `ETag` gave it."""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeVar

from fastapi import Header

from outlast.core.machine import ApprovalStatus
from outlast.core.rows.run_rows import is_over
from outlast.errors import BadRequest, Conflict, OutlastError, Precondition
from outlast.models.approvals import ApprovalDetail
from outlast.models.effects import EffectRecord
from outlast.models.runs import RunSummary
from outlast.runtime.operations import Operations
from outlast.service.problems import ProblemError

T = TypeVar("T")
_TAG: Final = re.compile(r'\s*(?:W/)?"(v[1-9][0-9]{0,14})"\s*')
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match", max_length=200, description="The ETag of the version that you have seen.", examples=['"v9"']
    ),
]


def etag(version: int) -> str:
    """Return the ETag of a row version."""
    return f'"v{version}"'


def required_version(if_match: str | None, *, what: str) -> int:
    """Return the version in `If-Match`. Raises Precondition (428) if it is missing, BadRequest if it is malformed."""
    if if_match is None:
        raise Precondition(
            f"If-Match is required for {what}",
            "a decision applies to exactly the version that was shown",
            f'read {what}, then send its ETag, e.g. If-Match: "v9"',
            refusal="if_match_missing",
        )
    match = _TAG.fullmatch(if_match)
    if match is None:
        raise BadRequest(
            "If-Match is not a version",
            "it takes one ETag of this service",
            'e.g. If-Match: "v9"',
            refusal="bad_header",
        )
    return int(match.group(1)[1:])


def expected_version(if_match: str | None, *, what: str) -> int:
    """Return the version in `If-Match`, or 0 if the header is missing. Raises BadRequest if it is malformed."""
    return 0 if if_match is None else required_version(if_match, what=what)


def stale_version(what: str, version: int) -> Precondition:
    """Return the error (412) for a request about an older version."""
    return Precondition(
        f"{what} has changed since you saw it",
        f"its version is now {version}; `current` has its present state",
        "read it again, then decide",
        refusal="stale",
    )


def stale(what: str, current: RunSummary | ApprovalDetail | EffectRecord) -> ProblemError:
    """Return the error (412) for a request about an older version, with the current state."""
    return conflict_with(stale_version(what, current.version), current)


def conflict_with(error: OutlastError, current: RunSummary | ApprovalDetail | EffectRecord) -> ProblemError:
    """Return an error with the current state and its ETag."""
    now = current.model_dump(mode="json", by_alias=True)
    return ProblemError(error, more={"current": now}, headers={"ETag": etag(current.version)})


async def on_run(ops: Operations, run: str, act: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `act`. A conflict about the version becomes a 412 that carries the current run."""
    try:
        return await act()
    except Conflict as error:
        if error.refusal != "moved":
            raise
        raise stale(f"run {run}", await ops.run_summary(run)) from None


async def on_approval(ops: Operations, approval: str, act: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `act`. Add the current approval to a conflict, which shows the other decision."""
    try:
        return await act()
    except Conflict as error:
        now = await ops.approval(approval)
        if error.refusal == "moved":
            raise stale(f"approval {approval}", now) from None
        refused: OutlastError = error
        if error.refusal == ApprovalStatus.WITHDRAWN and is_over(await ops.run_row(now.run)):
            refused = Conflict(error.what, f"its run {now.run} has ended", error.fix, refusal="ended")
        raise conflict_with(refused, now) from None
