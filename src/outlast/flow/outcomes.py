"""How a call can end, in words an author may return, raise or catch."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from outlast.errors import DefinitionError
from outlast.flow.registry import CLASSIFIED

R_co = TypeVar("R_co", covariant=True)


# --- what a reconcile function answers -----------------------------------------------------
@dataclass(frozen=True)
class Happened(Generic[R_co]):
    """The receiver has it: this is the response the call would have given, and the receiver's own id of it."""

    response: R_co
    external_id: str | None = None


@dataclass(frozen=True)
class DidNotHappen:
    """The receiver does not have it. Counts as proof only after the settle time (S-17)."""


@dataclass(frozen=True)
class Unknown:
    """The receiver cannot say; what follows is the activity's `if_uncertain`."""

    why: str


# --- what a node sees of a refused call ----------------------------------------------------
@dataclass(frozen=True)
class Refusal:
    """An activity's definite no, after its retries. The same on every later walk."""

    code: str
    detail: str = ""


# --- how a node ends its run ---------------------------------------------------------------
class Fail(Exception):
    """Raise it in a node to end the run as failed; what was done is undone in reverse order."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Cancel(Exception):
    """Raise it in a node to end the run as cancelled; what was done is undone in reverse order."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# --- what an activity may declare of its own call ------------------------------------------
class Declared(Exception):
    """What an activity raises to say how its call ended, where no client's exception says it (S-17)."""


class Refused(Declared):
    """A definite no: nothing happened and asking again is useless. Recorded as the answer, never retried."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail

    def __reduce__(self) -> tuple[type["Refused"], tuple[str, str]]:
        return (type(self), (self.code, self.detail))


class RetryLater(Declared):
    """Nothing happened and asking later may work: retried, not before `after`."""

    def __init__(self, detail: str = "", *, after: timedelta | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.after = after


class NotSent(Declared):
    """The request did not leave this process: retried in every mode."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail)
        self.detail = detail


class Perhaps(Declared):
    """Sent, and nobody can say whether it happened: the activity's `if_uncertain` decides."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail)
        self.detail = detail


def classify(errors: Mapping[type[BaseException], type[Declared]]) -> None:
    """Say of exceptions of a client that Outlast does not know how a call ends that raises them.

    `NotSent`, `Refused`, `RetryLater` or `Perhaps`, for each class and its subclasses, in all activities and lookups of
    this process. It comes before what Outlast knows by itself. Raises DefinitionError.
    """
    for cls, said in errors.items():
        if not issubclass(cls, Exception) or said not in (NotSent, Refused, RetryLater, Perhaps):
            raise DefinitionError(
                f"classify({{{cls!r}: {said!r}}})",
                "it takes classes of exceptions, and one of NotSent, Refused, RetryLater and Perhaps for each",
                "classify({stripe.CardError: Refused, stripe.APIConnectionError: Perhaps})",
            )
        CLASSIFIED[cls] = said
