"""Writes of several requests: parts that were done before a request failed are reported, not denied."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from outlast.core.limits import ANSWERS_MAX
from outlast.core.version_move import UNSERVED
from outlast.errors import OutlastError, Unavailable
from outlast.models.attention import AnsweredRuns, AnswerFor, AnswerOutcome, why_not


async def answer_parts(
    answer: Callable[[Sequence[AnswerFor]], Awaitable[Sequence[AnswerOutcome]]], given: Sequence[AnswerFor]
) -> list[AnswerOutcome]:
    """Send answers in requests of ANSWERS_MAX, and return an outcome for each.

    Raises the error of the first request only, because later ones follow answers that are recorded.
    """
    outcomes: list[AnswerOutcome] = []
    for i in range(0, len(given), ANSWERS_MAX):
        sent, rest = given[i : i + ANSWERS_MAX], given[i + ANSWERS_MAX :]
        try:
            outcomes += await answer(sent)
        except OutlastError as error:
            if not i:
                raise
            outcomes += [_failed(each, why_not(error), error) for each in sent]
            return outcomes + [_failed(each, "it was not asked", error) for each in rest]
    return outcomes


def _failed(given: AnswerFor, why: str, error: OutlastError) -> AnswerOutcome:
    return AnswerOutcome(
        run=given.run, key=given.key, answered=False, error=why, code=error.code, refusal=error.refusal
    )


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
