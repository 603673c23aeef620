"""Facts about a run that its start states. Each is declared once, for every place that takes, checks or shows it.

A new fact is a field of `StartDetails` here, a column of the same name in `Run`, a keyword of `Client.start` and a
field of `RunSummary`. The rest follows from its `DetailField`: the checks at a start and of rows, the body of a request
over HTTP, the option of `outlast run`, the line of `outlast runs show`, the form and the page of the web UI.

The value passes whole from a client through the request and the command to the row. No function in between names a
fact, so none can forget one.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, NamedTuple, get_args, get_type_hints

from outlast.core.events import trace_of
from outlast.core.keys import check_text
from outlast.core.limits import NAME_CHARS_MAX, OBJECTIVE_CHARS_MAX
from outlast.errors import InvalidInput

Place = Literal["request", "option", "terminal", "form", "page"]
"""Place of a fact: a start by a client or over HTTP, `outlast run`, `runs show`, form and page of the web UI."""


class DetailField(NamedTuple):
    """Declaration of one fact that a start states. All are text."""

    noun: str
    """Its name in errors and beside its value: `correlation id`."""
    chars_max: int
    meaning: str = ""
    """Its text in the OpenAPI document and as help of the option, as a sentence."""
    example: str = ""
    places: tuple[Place, ...] = get_args(Place)
    heading: str = ""
    """Its name on the page of a run, if not the noun."""
    shown: Callable[[str], str] | None = None
    """Function that returns the text for people and programs. None: the stored text."""
    stored_longer: bool = False
    """True if earlier versions stored longer texts. Their rows stay valid."""

    @property
    def title(self) -> str:
        """Return its name on the page of a run."""
        return self.heading or self.noun.capitalize()


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


DETAILS: Final[Mapping[str, DetailField]] = MappingProxyType(
    {name: hint.__metadata__[0] for name, hint in get_type_hints(StartDetails, include_extras=True).items()}
)
"""Declaration of each fact, by its name."""
BY_PLACE: Final[Mapping[Place, Mapping[str, DetailField]]] = MappingProxyType(
    {place: {name: each for name, each in DETAILS.items() if place in each.places} for place in get_args(Place)}
)
"""Declarations of the facts of each place, in the order in which it shows them."""
_BOUNDS: Final = tuple((each.noun, each.chars_max) for each in DETAILS.values())
STORED_BOUNDS: Final = tuple(
    (name, each.noun, each.chars_max) for name, each in DETAILS.items() if not each.stored_longer
)
"""Name, noun and greatest length of each fact whose length every row keeps."""


def stated(given: Mapping[str, str]) -> StartDetails:
    """Return the facts that a caller gives as keywords. Raises TypeError for any other keyword."""
    for name in given:
        if name not in BY_PLACE["request"]:
            raise TypeError(f"start() got an unexpected keyword argument {name!r}")
    return StartDetails(**given)


def check_details(details: StartDetails) -> None:
    """Raise InvalidInput for a fact that is too long, or no text that can be stored."""
    for text, (noun, chars_max) in zip(details, _BOUNDS, strict=True):
        if text == "":
            continue  # most facts; a call would cost more than the comparison
        check_text(f"the {noun}", text)
        if len(text) > chars_max:
            raise InvalidInput(
                f"the {noun} is too long", f"it has {len(text)} characters, the limit is {chars_max}", "shorten it"
            )
