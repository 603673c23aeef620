"""Bulk answers: jobs that give one answer to every flagged run of a filter."""

from pydantic import Field

from outlast.models import Count, Instant, Model


class RefusedAnswer(Model):
    """Run of a job that did not get the answer, with the error."""

    run: str
    key: str = Field(description="Key of the effect, if the answer concerns one.")
    error: str
    code: str = Field(description="Its stable code.", examples=["OUT-402"])


class BulkPreview(Model):
    """Flagged runs that a job would answer, if it were started now."""

    runs: Count
    confirm: bool = Field(description="True if the choice ends so many runs that their number must be given.")


class BulkResult(Model):
    """State now of the runs that a job has answered. Each is in one of the numbers, but `same` is a part of `again`."""

    runs: Count = Field(description="Runs that the job has answered.")
    recovered: Count = Field(
        description="Runs that have ended as the answer wanted: completed, or in any way after `cancel` or `fail`."
    )
    again: Count = Field(description="Runs that need a person.")
    same: Count = Field(description="Of these, runs that need it for the reason, and the cause, of the job again.")
    failed: Count = Field(description="Runs that were to continue, and have failed or were cancelled.")
    unfinished: Count = Field(description="Runs that run or wait and need no person, or have not read the answer yet.")
    at_least: bool = Field(description="True if the numbers are lower bounds.")


class BulkAnswer(Model):
    """Job that gives one answer to every flagged run of a filter, and its progress.

    `total` is `answered`, `refused` and `moved_on` together, once it has completed.
    """

    run: str = Field(description="Id of the job: it is a run of outlast.bulk, which can be cancelled.")
    status: str = Field(description="Status of that run.")
    ended: bool
    total: Count = Field(description="Number of runs that fitted at the start; of uncertain effects, their number.")
    answered: Count
    refused: Count
    moved_on: Count = Field(description="Once it has ended: those that no longer fitted when their turn came.")
    result: BulkResult
    failures: list[RefusedAnswer] = Field(description="The first 100 refused runs.")
    reason: str = Field(description="Reason why the runs require a person. Empty: unfinished runs are cancelled.")
    query: str = Field(description="Text that finds the runs. Empty: none was given.")
    choice: str
    text: str = Field(description="Reason of the answer, as the history of each run shows it.")
    by: str = Field(description="Person who gave the answer.")
    before: Instant = Field(description="Runs that were flagged later are left alone.")
    cause: str
    workflow: str
    node: str
    activity: str
    version: Count
    contains: str = Field(description="Part of the error.")
