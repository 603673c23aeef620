"""What is asked of a run: done only while it is as the caller has seen it; the answer is the run as it stands then."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends
from starlette.responses import Response

from outlast.core.rows import Run
from outlast.errors import Conflict
from outlast.runtime.operations import Operations
from outlast.runtime.whole import run_views
from outlast.service.asks import IdempotencyKey, RunId
from outlast.service.conditional import IfMatch, etag, named, stale
from outlast.service.house import Ops
from outlast.service.problems import Refused


@dataclass(frozen=True)
class Acting:
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
            raise Refused(stale(what, row.version), more=now, headers={"ETag": etag(row.version)}) from None

    async def _shown(self, row: Run) -> dict[str, Any]:
        return (await run_views(self.ops, [row], await self.ops.serving()))[0]


async def _acting(
    ops: Ops, run: RunId, response: Response, if_match: IfMatch = None, key: IdempotencyKey = None
) -> Acting:
    return Acting(ops, run, key or "", if_match, response)


On = Annotated[Acting, Depends(_acting)]
"""A parameter of a handler: the run of its address, of which something is asked."""
