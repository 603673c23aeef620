"""Comparison of two runs: where they part, and each further difference, in the order of the first run."""

from typing import Literal, TypeAlias

from pydantic import Field

from outlast.models import Count, Instant, Model, PagedList

DifferenceKind: TypeAlias = Literal[
    "input", "visit", "model", "lookup", "call", "policy", "approval", "wait", "undo", "error", "end"
]
"""Kinds of differences: the row or the part of a run that is not the same in both."""
Facet: TypeAlias = Literal[
    "input", "node", "call", "arguments", "answer", "decision", "message", "error", "end", "cost", "time"
]
"""Aspects in which two runs can differ."""


class ComparedRun(Model):
    """One of the two runs."""

    run: str
    workflow: str
    workflow_version: Count
    status: str
    node: str = Field(description="Its present node, or its last one.")
    visits: Count
    calls: Count = Field(description="Number of its compared rows: calls, lookups, decisions, waits and errors.")
    began: Instant
    ended: Instant | None
    tokens: Count
    money: str = Field(description="Reported price of its calls as a decimal number. '' if none was reported.")


class ComparedSide(Model):
    """How one of the two runs has it. Fields that do not apply are empty."""

    visit: Count
    nth: Count = Field(0, description="Number of the visit among those of its node. 0: it is unknown.")
    node: str
    status: str
    detail: str = Field(description="Error, reason, or number of calls of a visit. Redacted and cut.")
    by: str = Field(description="Who decided or sent it.")
    ms: Count | None = Field(description="Time that it took in business time. None: it is unknown or lasts.")
    tokens: Count
    money: str
    step: str = Field(description="Id of the step, which `steps` shows whole. '' if it is no step.")


class ValueChange(Model):
    """One place in which two JSON values differ. Values are JSON text, redacted and cut around the difference."""

    of: Facet
    path: str = Field(description="Place in the value, for example `items.3.price`. '' is the whole value.")
    run: str | None = Field(description="Value of the first run. None: it has none there.")
    other: str | None = Field(description="Value of the other run. None: it has none there.")


class RunDifference(Model):
    """One thing that is not the same in both runs. With `every`, also a visit or a call that is."""

    n: Count = Field(description="Its number, from 1.")
    kind: DifferenceKind
    what: str = Field(description="The activity, the node, the kind of the wait, the reason of an error, or `run`.")
    key: str
    differs: list[Facet] = Field(
        description="Aspects in which it differs. `call`: only one of the runs has this call. Empty: it is equal."
    )
    run: ComparedSide | None = Field(description="None: only the other run has it.")
    other: ComparedSide | None = Field(description="None: only the first run has it.")
    changes: list[ValueChange] = Field(description="At most 20, in the order of the values.")
    more_changes: Count = Field(description="Number of further changed places.")
    equal_visits: Count = Field(description="Visits that are equal as a whole, since the difference before.")
    equal_calls: Count = Field(description="Equal calls, lookups, decisions, waits, errors since the one before.")


class RunComparison(PagedList):
    """Comparison of two runs of one workflow, with a page of their differences."""

    run: ComparedRun
    other: ComparedRun
    first: RunDifference | None = Field(
        description="Where the runs part: the first difference beyond input, cost and time. None: they do not."
    )
    error: RunDifference | None = Field(
        None, description="First difference of kind `error`: an exception, or why a run needed a person."
    )
    differences: list[RunDifference]
    total: Count = Field(description="Number of all differences.")
    rows: Count = Field(0, description="Number of all rows: differences, with `every` also what is equal.")
    equal_visits: Count
    equal_calls: Count
    not_compared: list[str] = Field(description="Sentences about parts that were deleted or have no counterpart.")
