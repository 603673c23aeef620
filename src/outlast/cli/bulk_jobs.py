"""Jobs that answer or cancel many runs: start one after a confirmation, follow it, print it (S-21)."""

import asyncio
from datetime import timedelta
from typing import Final, NamedTuple

from outlast.cli.command_session import says, unsure, warn_unserved
from outlast.cli.exit_codes import CONFLICT, OK
from outlast.cli.screen import Screen
from outlast.core.bulk_answers import BULK
from outlast.core.machine import Choice, Reason, RunStatus
from outlast.insight.job_words import result_of
from outlast.models.bulk import BulkAnswer, BulkPreview
from outlast.operations.run_query import beyond_flagged
from outlast.runtime.client import Client

FAILURES_SHOWN: Final = 50
JOB_POLL_S: Final = 1.0


class Selection(NamedTuple):
    """Runs that get one answer; '' and 0 are any."""

    cause: str = ""
    workflow: str = ""
    node: str = ""
    activity: str = ""
    version: int = 0
    contains: str = ""
    query: str = ""

    def __str__(self) -> str:
        parts = (
            ("of cause", self.cause), ("of", self.workflow), ("at", self.node), ("without", self.activity),
            ("of version", str(self.version or "")), ("with", self.contains), ("found by", self.query),
        )  # fmt: skip
        return "".join(f" {word} {name}" for word, name in parts if name)


async def answer_many(
    client: Client,
    screen: Screen,
    reason: Reason | None,
    choice: Choice,
    *,
    text: str,
    of: Selection,
    by: timedelta | None,
    yes: bool,
    confirm: int,
    wait: bool,
) -> int:
    """Start a job that answers each run of a reason once, after a confirmation unless `yes`.

    Without a reason, the unfinished runs of the query are cancelled.
    """
    is_flagged = f"flagged {reason.value}" if reason is not None else "unfinished"
    found = await client.preview_bulk_answer(reason, choice, **of._asdict())
    if not found.runs:
        if not screen.data({"run": "", "total": 0}):
            screen.line(f"no run{of} is {is_flagged}")
        return OK
    runs = "1 run" if found.runs == 1 else f"{found.runs:,} runs"
    question = f"{choice.value} for {runs}{of} {is_flagged}?"
    if not yes and (code := await _unsure(screen, question, found, confirm)) is not None:
        return code
    job = await client.start_bulk_answer(
        reason,
        choice,
        text=text,
        by=by,
        confirm=confirm or (found.runs if found.confirm and not yes else 0),
        **of._asdict(),
    )
    if wait:
        return await followed(client, screen, job)
    if not screen.data(job):
        screen.line(f"job {job.run} gives {runs} the answer {choice.value.replace('_', ' ')}{await says(client)}")
        screen.advice(f"  outlast attention job {job.run} --wait")
    await warn_unserved(client, screen, job.run)
    return OK


async def _unsure(screen: Screen, question: str, found: BulkPreview, confirm: int) -> int | None:
    """Ask the user. If the number must be confirmed and was not given, ask for the number."""
    if not found.confirm or confirm:
        return await unsure(screen, question)
    return await unsure(screen, question, typed=str(found.runs))


async def followed(client: Client, screen: Screen, job: BulkAnswer) -> int:
    """Print the progress of a job until it ends or needs a person. Exit code 4 if an answer was refused."""
    shown = -1
    while not job.ended:
        if (n := job.answered + job.refused) != shown:
            screen.advice(f"{n:,} of {job.total:,}")
            shown = n
        if await client.attention_of(job.run):
            break
        await asyncio.sleep(JOB_POLL_S)
        job = await client.bulk_answer(job.run)
    print_job(screen, job)
    if job.ended:
        screen.advice(await _left(client, job))
    return OK if job.ended and not job.refused and job.status == RunStatus.COMPLETED.value else CONFLICT


async def _left(client: Client, job: BulkAnswer) -> str:
    """Return how many runs fit the filter of a job after it, because they were flagged again or have not ended."""
    reason = Reason(job.reason) if job.reason else None
    of = Selection(job.cause, job.workflow, job.node, job.activity, job.version, job.contains, job.query)
    found = await client.preview_bulk_answer(reason, Choice(job.choice), **of._asdict())
    now = f"flagged {job.reason}" if reason is not None else "unfinished"
    others = ""
    if reason is None and (wider := beyond_flagged(job.query)):
        every = await client.preview_bulk_answer(None, Choice.CANCEL, query=wider)
        if (n := every.runs - found.runs) > 0:
            others = f"; {n:,} other run{'' if n == 1 else 's'} of {wider} {'is' if n == 1 else 'are'} unfinished"
    return (
        f"now {found.runs:,} run{'' if found.runs == 1 else 's'}{of} {'is' if found.runs == 1 else 'are'} {now}{others}"
    )


def print_job(screen: Screen, job: BulkAnswer) -> None:
    """Print how many runs a job has answered, and those that were refused."""
    if screen.data(job):
        return
    many = "1 run is" if job.total == 1 else f"{job.total:,} runs are"
    head = f"{job.answered:,} of {many} answered: {job.choice.replace('_', ' ')}, says {job.by}"
    screen.line(f"{job.run} {job.status} · {head}")
    if job.result.runs:
        screen.line(f"  now: {result_of(job).text}")
    for each in job.failures[:FAILURES_SHOWN]:
        screen.line(f"  not {each.run}{f' {each.key}' if each.key else ''}: {each.error}")
    if job.refused > min(len(job.failures), FAILURES_SHOWN):
        screen.line(f"  {job.refused:,} in all; -o json lists the first {len(job.failures)}")
    if job.moved_on:
        screen.line(f"  {job.moved_on:,} no longer fitted when their turn came")
    if not job.ended:
        screen.advice(f"  outlast runs cancel {job.run} --reason …;  outlast pause workflow {BULK} --reason …")
