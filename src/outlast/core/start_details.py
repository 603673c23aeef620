"""Facts about a run that its start states. Each is declared once, for every place that takes, checks or shows it.

A new fact is a field of `StartDetails` here, a column of the same name in `Run`, a keyword of `Client.start` and a
field of `RunSummary`. The rest follows from its `DetailField`: the checks at a start and of rows, the body of a request
over HTTP, the option of `outlast run`, the line of `outlast runs show`, the form and the page of the web UI.

The value passes whole from a client through the request and the command to the row. No function in between names a
fact, so none can forget one.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Final, NamedTuple

from outlast.core.detail_fields import DetailField, check_facts, declared_facts
from outlast.core.events import trace_of
from outlast.core.limits import NAME_CHARS_MAX, OBJECTIVE_CHARS_MAX


class StartDetails(NamedTuple):
    """Facts about a run that its start states. '' is no fact."""

    correlation_id: Annotated[
        str,
        DetailField(
            "correlation id",
            NAME_CHARS_MAX,
            places=("request", "form", "page"),
            heading="Correlation",
            stored_longer=True,
        ),
    ] = ""
    trace_id: Annotated[
        str,
        DetailField(
            "trace id",
            NAME_CHARS_MAX,
            places=("request", "page"),
            heading="Trace",
            shown=trace_of,
            stored_longer=True,
        ),
    ] = ""
    objective: Annotated[str, DetailField("objective", OBJECTIVE_CHARS_MAX, places=("terminal",))] = ""
    """Its purpose for people. The workflow derives it from the input, so no caller states it."""


NO_DETAILS: Final = StartDetails()


class StartOptions(NamedTuple):
    """Everything that a caller says about a new run, beside its workflow and its input."""

    run_id: str = ""
    """Its id. '': a new one."""
    key: str = ""
    """Its start key: the same key is the same run. '': the one that the workflow derives, if it declares one."""
    scheduler: str = ""
    """Engine that schedules it. '': that of the client or the service."""
    details: StartDetails = NO_DETAILS


DECLARED: Final = declared_facts(StartDetails)
BY_PLACE: Final = DECLARED.by_place
check_details: Final = partial(check_facts, DECLARED.bounds)
"""Raise InvalidInput for a fact that is too long, or no text that can be stored."""


def stated(given: Mapping[str, str]) -> StartDetails:
    """Return the facts that a caller gives as keywords. Raises TypeError for any other keyword."""
    for name in given:
        if name not in BY_PLACE["request"]:
            raise TypeError(f"start() got an unexpected keyword argument {name!r}")
    return StartDetails(**given)
