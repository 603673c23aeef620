"""Conditional requests: `If-Match` names the version that the caller has seen, as `ETag` gave it."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Header
from starlette.responses import Response

from outlast.errors import BadRequest, Conflict, OutlastError, Precondition
from outlast.insight.shown_rows import after_commit
from outlast.models.approvals import ApprovalDetail
from outlast.models.effects import EffectRecord
from outlast.models.runs import RequestRecorded, RunSummary
from outlast.runtime.operations import Operations
from outlast.service.problems import ProblemError
from outlast.service.request_parts import IdempotencyKey, RunId
from outlast.service.service_state import Ops

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


@dataclass(frozen=True)
class RunAction:
    """Request of the caller to change one run."""

    ops: Operations
    run: str
    key: str
    """The Idempotency-Key, or ''."""
    _if_match: str | None
    _response: Response

    async def apply(self, act: Callable[[int], Awaitable[object]]) -> RequestRecorded:
        """Call `act` with the version that the caller has seen, and return the run afterwards.

        Raises BadRequest, and ProblemError (412) if the run has changed.
        """
        async with self.unchanged() as seen:
            await act(seen)
        run = await after_commit(self.ops.run_summary(self.run))
        self._response.headers["ETag"] = etag(run.version)
        return RequestRecorded(run=run)

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[int]:
        """Provide the version that the caller has seen, 0 without `If-Match`.

        Turns a conflict about that version into a 412 that carries the current run. Raises BadRequest.
        """
        what = f"run {self.run}"
        try:
            yield expected_version(self._if_match, what=what)
        except Conflict as error:
            if error.refusal != "moved":
                raise
            raise stale(what, await self.ops.run_summary(self.run)) from None


async def _run_action(
    ops: Ops, run: RunId, response: Response, if_match: IfMatch = None, key: IdempotencyKey = None
) -> RunAction:
    return RunAction(ops, run, key or "", if_match, response)


OnRun = Annotated[RunAction, Depends(_run_action)]
"""Handler parameter: the action on the run in the path."""
