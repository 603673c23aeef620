"""Bulk answers: one answer for every flagged run of a filter, given by a job in pages (GATE-5, S-21).

A job is a run of the built-in workflow `outlast.bulk`. Its state has the filter, the choice and the instant of its
start. A run that was flagged later, or for another reason, is left alone. A job without a reason cancels the unfinished
runs that a query finds and that were started before it.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from outlast.core.attention import ENDS, check_for_all
from outlast.core.lanes import BUILT_IN, is_built_in, version_in
from outlast.core.machine import Choice, Reason, RunStatus
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import Run, is_over
from outlast.errors import Conflict, InvalidInput, NotFound

BULK: Final = f"{BUILT_IN}bulk"
OF_CAUSE: Final = "of_cause"
"""Attribute of a job by which the jobs of a cause are listed."""
PAGE: Final = 40
"""Items that a job answers between two checkpoints."""
CONFIRM_ABOVE: Final = 100
"""Number of runs above which a choice that ends runs needs their number."""
REFUSED_MAX: Final = 100
"""Refused items that a job keeps with their errors. It counts the others."""


RESULT_MAX: Final = 5_000
"""Answers of a job whose runs are read for its result. It says "or more" if there are others."""


class AfterAnswer(Enum):
    """State of a run that a job has answered, as the result of the job counts it."""

    RECOVERED = auto()
    """It has ended as the answer wanted: completed, or ended in any way if the choice ends runs."""
    FAILED = auto()
    """It was to continue, and has failed or was cancelled."""
    SAME = auto()
    """It needs a person again, for a reason that fits the filter of the job."""
    OTHER = auto()
    """It needs a person for another reason."""
    UNFINISHED = auto()
    """It runs or waits, or has not read the answer yet."""


class BulkFilter(NamedTuple):
    """Flagged runs of one reason that get one answer; '' and 0 are any. Without a reason: unfinished runs.

    `activity`: runs whose missing calls are all of it (node_diverged). `text`: part of the error, in any case of
    letters.
    """

    reason: Reason | None
    cause: str = ""
    workflow: str = ""
    node: str = ""
    activity: str = ""
    version: int = 0
    text: str = ""

    def fits(self, run: Run) -> bool:
        """Return True if a run has entries that get the answer; without a reason, if it may be cancelled."""
        if self.reason is None:
            return self._has_place(run) and not is_over(run) and not is_built_in(run.workflow)
        return bool(self.entries(run))

    def entries(self, run: Run) -> list[Attention]:
        """Return the entries of a flagged run that fit.

        Only uncertain effects are answered one by one. Otherwise the answer is for all entries of the reason, so there
        is none unless all of them fit.
        """
        if not self._has_place(run):
            return []
        entries = [entry for entry in run.attention if entry.reason is self.reason]
        fitting = [entry for entry in entries if self._fits(entry)]
        return fitting if self.reason is Reason.EFFECT_UNCERTAIN or len(fitting) == len(entries) else []

    def has(self, entry: Attention) -> bool:
        """Return True if an entry has the reason of the filter and fits it."""
        return entry.reason is self.reason and self._fits(entry)

    def is_answered(self, entry: Attention) -> bool:
        """Return True if an entry goes when its run reads the answer. A cancel leaves uncertain effects."""
        if self.reason is None:
            return entry.reason is not Reason.EFFECT_UNCERTAIN
        return entry.reason is self.reason

    def _has_place(self, run: Run) -> bool:
        return (
            self.workflow in ("", run.workflow)
            and self.node in ("", run.node)
            and self.version in (0, version_in(run.lane))
        )

    def _fits(self, entry: Attention) -> bool:
        names = {name.partition("?")[0] for name in entry.missing}
        if self.cause not in ("", entry.cause or entry.reason.value):
            return False
        return (not self.activity or names == {self.activity}) and self.text.casefold() in entry.detail.casefold()


def bulk_keys(given: BulkFilter, run: Run, *, before: int) -> tuple[str, ...]:
    """Return the keys under which a run gets the answer of a job: '' for all entries of the reason.

    Uncertain effects have a key each. `before`: the business instant of the job. () if the run has been flagged or
    started since, or no longer fits.
    """
    if given.reason is None:
        return ("",) if given.fits(run) and run.created_at <= before else ()
    entries = given.entries(run)
    if given.reason is Reason.EFFECT_UNCERTAIN:
        return tuple(dict.fromkeys(entry.key for entry in entries if entry.since <= before))
    return ("",) if entries and all(entry.since <= before for entry in entries) else ()


def after_answer(given: BulkFilter, choice: Choice, run: Run, *, before: int) -> AfterAnswer:
    """Return what has become of a run that a job has answered. `before`: the business instant of the job."""
    if is_over(run):
        as_wanted = choice in ENDS or run.status is RunStatus.COMPLETED
        return AfterAnswer.RECOVERED if as_wanted else AfterAnswer.FAILED
    left = [entry for entry in run.attention if entry.since > before or not given.is_answered(entry)]
    if not left:
        return AfterAnswer.UNFINISHED
    return AfterAnswer.SAME if any(given.has(entry) for entry in left) else AfterAnswer.OTHER


def check_query(given: BulkFilter, query: str) -> None:
    """Raise InvalidInput unless a filter has a reason, or a query and no part of an entry."""
    if given.reason is None and (not query or given.cause or given.activity or given.text):
        raise InvalidInput(
            "no reason is named",
            "without one, a query names the runs to cancel, and an error, a cause or an activity is not looked at",
            "name a reason, or write a query: outlast runs cancel --all QUERY",
        )


def check_bulk(reason: Reason | None, choice: Choice) -> None:
    """Raise Conflict unless a job may give this answer.

    A job records nothing about uncertain effects: over a filter, `did_not_happen` would send each call again.
    """
    if reason is None:
        if choice is not Choice.CANCEL:
            raise Conflict(
                f"{choice.value} answers a reason, and none is named",
                "runs that need no person can only be cancelled",
                "name a reason",
            )
        return
    if reason is Reason.EFFECT_UNCERTAIN and choice is Choice.DID_NOT_HAPPEN:
        raise Conflict(
            "«did not happen» cannot be recorded for all uncertain effects of a filter",
            "each call would be sent again",
            "settle them one by one, or tick at most 100 of them on the page of the reason",
        )
    check_for_all(reason, choice)


def must_confirm(runs: int, choice: Choice) -> bool:
    """Return True if a choice ends more than CONFIRM_ABOVE runs."""
    return choice in ENDS and runs > CONFIRM_ABOVE


def check_confirmed(runs: int, choice: Choice, confirm: int) -> None:
    """Raise Conflict (`unconfirmed`) unless `confirm` is the number of runs, or 0 if it need not be given."""
    if confirm and confirm != runs:
        raise Conflict(
            f"{runs} runs would get this answer, and {confirm} were confirmed",
            "the number has changed since it was shown",
            f"look at them again, then confirm {runs}",
            refusal="unconfirmed",
        )
    if must_confirm(runs, choice) and not confirm:
        raise Conflict(
            f"{choice.value} would end {runs} runs",
            f"above {CONFIRM_ABOVE} runs, their number must be given",
            f"give it: confirm={runs}",
            refusal="unconfirmed",
        )


def check_found(runs: int, reason: Reason | None) -> None:
    """Raise NotFound if no run fits."""
    if not runs and reason is None:
        raise NotFound("no unfinished run fits", "those that match have ended", "list them: outlast runs ls")
    if not runs and reason is not None:
        raise NotFound(f"no run that fits is flagged {reason.value}", "", "list them: outlast attention ls")


def left_alone(given: BulkFilter, run: Run) -> Conflict:
    """Return the error for a run that no longer fits the job, or was flagged again after its start."""
    why = "not unfinished, or not found by the query," if given.reason is None else f"not flagged {given.reason.value}"
    return Conflict(
        f"run {run.run} no longer fits",
        f"it is {why} as it was at the start of the job",
        f"outlast explain {run.run}",
        refusal="moved",
    )
