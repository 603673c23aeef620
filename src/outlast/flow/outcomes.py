"""Outcomes of a call or a run that authors return, raise or catch."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from outlast.core.argument_checks import Arguments, text_of
from outlast.core.durations import Duration, timedelta_of
from outlast.core.rows.effect_columns import DETACHED, FailedRun
from outlast.errors import DefinitionError, InvalidInput
from outlast.flow.registry import CLASSIFIED


# --- a refused call as a value -------------------------------------------------------------
@dataclass(frozen=True)
class Refusal:
    """The refusal of a call as a value, after its retries: a `code` for programs and a `detail` for people.

    Every re-run gets the same one.
    """

    code: str
    detail: str = ""


# --- how a node ends its run ---------------------------------------------------------------
class Fail(Exception):
    """Raise it in a node to end the run as failed, for this `reason`. Its calls are undone in reverse order."""

    def __init__(self, reason: str) -> None:
        reason = text_of(reason)
        super().__init__(reason)
        self.reason = reason


class Cancel(Exception):
    """Raise it in a node to end the run as cancelled, for this `reason`. Its calls are undone in reverse order."""

    def __init__(self, reason: str) -> None:
        reason = text_of(reason)
        super().__init__(reason)
        self.reason = reason


def _end_text(code: str) -> str:
    return "was detached and goes on alone" if code == DETACHED else f"ended as {code}"


class ChildFailed(Exception):
    """A child run has failed, was cancelled or was detached. If the node does not catch it, the run goes to attention.

    - `workflow` and `key`: the child as its parent asked for it; `run`: its id.
    - `code`: `failed`, `cancelled`, or `detached` by an operator; `detail`: the reason.
    - `path`: the child, then `below`: the runs below it whose failure ended it, the deepest last.
    - `cause`: the last of `path`: the run that failed by itself, with `code` and `detail`.
    - `place`: visit and key of its row in the ledger of the parent.
    """

    def __init__(
        self, workflow: str, key: str, run: str, code: str, detail: str, place: tuple[int, str], *below: FailedRun
    ) -> None:
        text = f"child {workflow} {key} (run {run}) {_end_text(code)}: {detail}"
        if below:
            runs, last = " → ".join([run, *(each.run for each in below)]), below[-1]
            text += f"; {runs}: {last.workflow} {last.key} {_end_text(last.code)}: {last.detail}"
        super().__init__(text)
        self.workflow = workflow
        self.key = key
        self.run = run
        self.code = code
        self.detail = detail
        self.place = place
        self.path = (FailedRun(workflow, key, run, code, detail), *below)
        self.cause = self.path[-1]


# --- how an activity states the outcome of its call ----------------------------------------
class Declared(Exception):
    """Base of the exceptions by which an activity states how its call ended (S-17)."""


class Refused(Declared):
    """The receiver refused the call: it had no effect, and a retry would be refused as well.

    `code` is for programs, `detail` for people. An activity raises it, the refusal is recorded, and `ctx.do` raises it
    in the node on every re-run. If the node does not catch it, the run goes to attention.
    """

    def __init__(self, code: str, detail: str = "") -> None:
        code, detail = text_of(code), text_of(detail)
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail

    def __reduce__(self) -> tuple[type["Refused"], tuple[str, str]]:
        return (type(self), (self.code, self.detail))


class RetryLater(Declared):
    """The call had no effect and may succeed later. Retried, not before `after`. `detail` says why.

    Raises InvalidInput if `after` is no duration, or a negative one.
    """

    def __init__(self, detail: str = "", *, after: Duration | None = None) -> None:
        wait = None if after is None else timedelta_of("after of RetryLater()", after)
        if wait is not None and wait < timedelta():
            raise InvalidInput(f"after of RetryLater() is {after!r}", "a wait is not below zero", 'after="30s"')
        super().__init__(detail := text_of(detail))
        self.detail = detail
        self.after = wait


class NotSent(Declared):
    """The request did not leave this process, and `detail` says why. Retried with every `if_uncertain`."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail := text_of(detail))
        self.detail = detail


class Perhaps(Declared):
    """The request was sent and its outcome is unknown; `detail` says why. The activity's `if_uncertain` decides."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail := text_of(detail))
        self.detail = detail


def classify(errors: Mapping[type[BaseException], type[Declared]]) -> None:
    """Map exceptions of a client library to outcomes, with their subclasses, for all calls of this process.

    `errors` maps exception classes to outcomes. The outcomes are `NotSent`, `Refused`, `RetryLater` and `Perhaps`. The
    mapping precedes the built-in one. Raises DefinitionError.
    """
    given: object = errors  # a caller without a type checker may pass anything
    if not isinstance(given, Mapping):
        fix = "classify({stripe.CardError: Refused})"
        raise Arguments("classify").wrong("errors", given, "it maps exception classes to outcomes", fix)
    for cls, outcome in errors.items():
        key: object = cls
        is_error = isinstance(key, type) and issubclass(key, Exception)
        if not is_error or outcome not in (NotSent, Refused, RetryLater, Perhaps):
            raise DefinitionError(
                f"classify({{{cls!r}: {outcome!r}}})",
                "each exception class maps to NotSent, Refused, RetryLater or Perhaps",
                "classify({stripe.CardError: Refused, stripe.APIConnectionError: Perhaps})",
            )
        CLASSIFIED[cls] = outcome
