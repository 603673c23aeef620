"""Moves of several runs: those that were requested before a request failed are reported, not denied."""

from collections.abc import Awaitable, Callable, Iterable

from outlast.core.version_move import UNSERVED
from outlast.errors import OutlastError, Unavailable
from outlast.models.attention import AnsweredRuns, why_not


async def move_each(move: Callable[[str], Awaitable[None]], runs: Iterable[str]) -> AnsweredRuns:
    """Move each run by one request. Stops when the service is away, because each further run would wait as long."""
    asked, done, failed = list(dict.fromkeys(runs)), list[str](), list[tuple[str, str]]()
    for i, run in enumerate(asked):
        try:
            await move(run)
            done.append(run)
        except Unavailable as error:
            failed += [(each, why_not(error)) for each in asked[i:]]
            break
        except OutlastError as error:
            if error.refusal == UNSERVED:
                raise
            failed.append((run, why_not(error)))
    return AnsweredRuns(tuple(done), tuple(failed), "")
