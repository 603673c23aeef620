"""Words for the result of a job that answers runs."""

from typing import Literal, NamedTuple

from outlast.core.attention import ENDS
from outlast.core.machine import RunStatus
from outlast.models.bulk import BulkAnswer


class JobResult(NamedTuple):
    """Result of a job in one sentence. `kind`: `good` only if each of its runs has ended as the answer wanted."""

    kind: Literal["good", "bad", "wait"]
    text: str


def result_of(job: BulkAnswer) -> JobResult:
    """Return what has become of the runs that a job has answered, as it is now."""
    found = job.result
    wanted = "ended" if job.choice in ENDS else "recovered"
    parts: list[str] = []
    if found.again:
        again = "" if job.choice in ENDS else " again"
        parts.append(f"{_number(job, found.again)} need{'s' if found.again == 1 else ''} a person{again}")
        if found.same and job.reason:
            parts.append(f"{_number(job, found.same)} of them for the same {'cause' if job.cause else 'reason'}")
    if found.failed:
        parts.append(f"{_number(job, found.failed)} failed or {'was' if found.failed == 1 else 'were'} cancelled")
    if found.unfinished:
        still = "has not ended yet" if found.unfinished == 1 else "have not ended yet"
        if job.choice not in ENDS:
            still = "still runs or waits" if found.unfinished == 1 else "still run or wait"
        parts.append(f"{_number(job, found.unfinished)} {still}")
    if job.refused:
        parts.append(f"{job.refused:,} refused the answer")
    text = f"{_number(job, found.recovered)} of {found.runs:,} {wanted}{': ' if parts else ''}{', '.join(parts)}"
    if found.again or found.failed or job.refused or (job.ended and job.status != RunStatus.COMPLETED.value):
        return JobResult("bad", text)
    done = job.ended and not found.at_least and not found.unfinished
    return JobResult("good" if done else "wait", text)


def _number(job: BulkAnswer, number: int) -> str:
    return f"{number:,}{' or more' if job.result.at_least else ''}"
