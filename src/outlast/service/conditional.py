"""Versions over HTTP: `ETag` says what the caller has seen, `If-Match` that it has not changed since."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Header
from starlette.responses import Response

from outlast.core.rows import Run
from outlast.errors import BadRequest, Conflict, Precondition
from outlast.runtime.operations import Operations
from outlast.runtime.run_detail import run_views
from outlast.service.problems import ProblemResponse
from outlast.service.requests import IdempotencyKey, RunId
from outlast.service.service_state import Ops

_TAG: Final = re.compile(r'\s*(?:W/)?"(v[1-9][0-9]{0,14})"\s*')
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", max_length=200, description="The ETag of what you have seen.", examples=['"v9"']),
]


def etag(version: int) -> str:
    """The ETag of a version."""
    return f'"v{version}"'


def seen(if_match: str | None, *, what: str) -> int:
    """The version that the caller has seen. Raises Precondition (428: none is named), BadRequest."""
    if if_match is None:
        raise Precondition(
            f"say which version of {what} you have seen",
            "a decision is about exactly what was shown, so If-Match is required",
            f'read {what}, then send its ETag, e.g. If-Match: "v9"',
            refusal="if_match_missing",
        )
    match = _TAG.fullmatch(if_match)
    if match is None:
        raise BadRequest(
            "If-Match names no version", "it is one ETag as we give it", 'e.g. If-Match: "v9"', refusal="bad_header"
        )
    return int(match.group(1)[1:])


def named(if_match: str | None, *, what: str) -> int:
    """The version that the caller has seen, 0 where none is named. Raises BadRequest."""
    return 0 if if_match is None else seen(if_match, what=what)


def stale(what: str, version: int) -> Precondition:
    """The caller has seen something that is no longer so."""
    return Precondition(
        f"{what} has changed since you saw it",
        f"it is at version {version} now; `current` is what it says",
        "look again, then decide about that",
        refusal="stale",
    )


@dataclass(frozen=True)
class RunAction:
    """On one run, in the caller's name."""

    ops: Operations
    run: str
    key: str
    """The Idempotency-Key; '' without one."""
    _if_match: str | None
    _response: Response

    async def ask(self, act: Callable[[int], Awaitable[None]]) -> dict[str, Any]:
        """Have `act` done, which is given the version that the caller has seen; the answer is the run after it."""
        async with self.unmoved() as seen:
            await act(seen)
        row = await self.ops.run(self.run)
        self._response.headers["ETag"] = etag(row.version)
        return {"run": await self._shown(row)}

    @asynccontextmanager
    async def unmoved(self) -> AsyncIterator[int]:
        """The version that the caller has seen, 0 where it names none, for an act that is refused where the run has
        moved since: the answer to that is 412, with the run as it stands now. Raises BadRequest."""
        what = f"run {self.run}"
        try:
            yield named(self._if_match, what=what)
        except Conflict as error:
            if error.refusal != "moved":
                raise
            row = await self.ops.run(self.run)
            now = {"current": await self._shown(row)}
            raise ProblemResponse(stale(what, row.version), more=now, headers={"ETag": etag(row.version)}) from None

    async def _shown(self, row: Run) -> dict[str, Any]:
        return (await run_views(self.ops, [row], await self.ops.serving()))[0]


async def _acting(
    ops: Ops, run: RunId, response: Response, if_match: IfMatch = None, key: IdempotencyKey = None
) -> RunAction:
    return RunAction(ops, run, key or "", if_match, response)


On = Annotated[RunAction, Depends(_acting)]
"""A parameter of a handler: the run of its address, of which something is asked."""
