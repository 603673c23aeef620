"""The one tree of Outlast's errors: every public error has a code, a sentence, a reason and a fix.

::

    OutlastError                    code, what, why, fix; str() is the three-line form
    ├─ DefinitionError    OUT-101   a mistake in a workflow, node, activity or key template
    ├─ Misplaced          OUT-102   a call in the wrong place (an activity called inside a node, …)
    ├─ InvalidInput       OUT-103   bad input; `problems` names all of them at once
    ├─ NotStorable        OUT-104   a value that is neither JSON nor what was declared
    ├─ LimitExceeded      OUT-105   a value beyond a limit of core/limits.py
    ├─ WillNotContinue    OUT-210   runs in flight that the code at hand would not carry on
    ├─ NotFound           OUT-401   no such run, approval, workflow, activity, …
    ├─ Conflict           OUT-402   start key with another input, approval decided, run ended, …
    ├─ Forbidden          OUT-403   the caller lacks the role
    ├─ Unauthenticated    OUT-411   no credential, or one that proves nothing
    ├─ TooManyFailures    OUT-412   too many failed credentials from there; `retry_after_s`
    ├─ Unverifiable       OUT-413   the issuer's keys cannot be had now, so no credential can be checked
    ├─ Busy               OUT-414   HTTP: too many requests of the tenant are under way; `retry_after_s`
    ├─ BadRequest         OUT-421   HTTP: a request that is not looked at (too large, too slow, not JSON, …)
    ├─ Precondition       OUT-423   HTTP: If-Match is missing, or names a version that has passed
    ├─ KeyRefused         OUT-424   HTTP: an Idempotency-Key of another request, or of one under way
    ├─ StoreError                   `landed`: did the commit land? None = perhaps
    │  ├─ Stale           OUT-501   landed = False: a row moved on; reload and decide anew
    │  │  └─ Ended        OUT-502   landed = False: the run has ended
    │  ├─ Rejected        OUT-503   landed = False: never retry (bounds, encoding)
    │  ├─ Unavailable     OUT-504   landed = False: try again later
    │  │  └─ StoreReplaced OUT-506  landed = False: the store opened here is gone; this process must end
    │  └─ Uncertain       OUT-505   landed = None: perhaps; ask the receipt first
    ├─ StoreUnusable      OUT-510   the store cannot be opened (missing, read only, newer, locked, full)
    ├─ Corrupt            OUT-511   a stored row breaks an invariant: nothing is done with it
    ├─ Fault              OUT-900   HTTP: Outlast itself failed; the log has the rest under the request's id
    └─ IllegalMove        OUT-901   a verb the table of core/machine.py does not allow: our own bug

Authors raise and catch other exceptions, which `outlast.flow` defines: `Refused` (the receiver refused a call),
`Fail(reason)` and `Cancel(reason)` (end the run), and `RetryLater`, `NotSent` and `Perhaps`, by which an activity
states how its own call ended.
"""

from collections.abc import Sequence
from typing import ClassVar

DOCS = "https://outlast.dev/e/"


def to_install(extra: str) -> str:
    """What to do where the libraries of an extra are not installed: the `fix` of every error that says so."""
    return f"pip install 'outlast[{extra}]'; in a checkout: pip install '.[{extra}]'"


class OutlastError(Exception):
    """Every error Outlast raises on purpose. `str(e)` is the same text in CLI, log and problem+json.

    `what` says it in the reader's words, `why` gives the reason, `fix` is what to do (copyable). `code` never
    changes its meaning between versions.
    """

    code: ClassVar[str] = "OUT-100"

    refusal: str = ""
    """One stable word for the rule that refused, where a program may want to tell several of one code apart."""

    def __init__(self, what: str, why: str = "", fix: str = "", *, refusal: str = "") -> None:
        self.what = what
        self.why = why
        self.fix = fix
        self.refusal = refusal

    @property
    def url(self) -> str:
        """Where the documentation explains this code."""
        return DOCS + self.code

    def __str__(self) -> str:
        indent = " " * (len(self.code) + 2)
        lines = [f"{self.code}  {self.what}"]
        lines += [indent + line for line in self.why.splitlines()]
        last = f"→ {self.fix}            {self.url}" if self.fix else self.url
        return "\n".join([*lines, indent + last])


class DefinitionError(OutlastError):
    """A mistake of definition, found when decorated or when the workflow is loaded, never within a run.

    `where` is "file:line" of the node, activity or workflow that has to change.
    """

    code = "OUT-101"

    def __init__(self, what: str, why: str = "", fix: str = "", *, where: str = "") -> None:
        told = not where or where in what or where in why
        super().__init__(what if told else f"{what} ({where})", why, fix)
        self.where = where


class Misplaced(OutlastError):
    """Something was called where it means nothing: an activity inside a node, `this_call()` outside a call."""

    code = "OUT-102"


class InvalidInput(OutlastError):
    """Bad input. `problems` holds every problem as (path, sentence), all at once."""

    code = "OUT-103"

    def __init__(self, what: str, why: str = "", fix: str = "", *, problems: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(what, why or "\n".join(f"{path}: {text}" for path, text in problems), fix)
        self.problems = tuple(problems)


class NotStorable(OutlastError):
    """A value that cannot be stored, or stored bytes that are no longer a value of the declared type."""

    code = "OUT-104"


class LimitExceeded(OutlastError):
    """A value beyond a limit; all limits stand in core/limits.py."""

    code = "OUT-105"


class WillNotContinue(OutlastError):
    """Unfinished runs stand on something that the code at hand does not have; `outlast check` says which and why."""

    code = "OUT-210"


class NotFound(OutlastError):
    """What was named does not exist for this tenant."""

    code = "OUT-401"


class Conflict(OutlastError):
    """The request contradicts what is recorded: another input under the same key, a decision already made, …"""

    code = "OUT-402"


class Forbidden(OutlastError):
    """The caller does not hold a role that may do this."""

    code = "OUT-403"


class Unauthenticated(OutlastError):
    """The request carries no credential, or one that proves nothing. Nothing was done."""

    code = "OUT-411"


class TooManyFailures(OutlastError):
    """Too many guesses came from this address; it is locked out for `retry_after_s` seconds."""

    code = "OUT-412"

    def __init__(self, what: str, why: str = "", fix: str = "", *, retry_after_s: int) -> None:
        super().__init__(what, why, fix)
        self.retry_after_s = retry_after_s


class Unverifiable(OutlastError):
    """The keys that prove credentials cannot be had now; nobody was let in and nobody was refused for good."""

    code = "OUT-413"


class Busy(OutlastError):
    """Too many requests of this tenant are under way; this one was not begun. It may come again in `retry_after_s`."""

    code = "OUT-414"

    def __init__(self, what: str, why: str = "", fix: str = "", *, retry_after_s: int) -> None:
        super().__init__(what, why, fix)
        self.retry_after_s = retry_after_s


class BadRequest(OutlastError):
    """A request that is not looked at any further: `refusal` says which rule of HTTP or which limit it breaks."""

    code = "OUT-421"


class Precondition(OutlastError):
    """What the caller has seen is missing (`if_match_missing`) or has passed (`stale`). Nothing was done."""

    code = "OUT-423"


class KeyRefused(OutlastError):
    """An Idempotency-Key that stands for another request, or for one that is still under way. Nothing was done."""

    code = "OUT-424"


class StoreError(OutlastError):
    """A commit that was not acknowledged. `landed` answers whether it is in the store: False, or None = perhaps."""

    code = "OUT-500"
    landed: ClassVar[bool | None] = None

    def __init__(self, reason: str, why: str = "", fix: str = "") -> None:
        self.what = reason
        self.why = why
        self.fix = fix

    @property
    def reason(self) -> str:
        """Why the commit was not made, in one line."""
        return self.what


class Stale(StoreError):
    """A row named by the commit has moved on. Nothing was written; reload and decide anew."""

    code = "OUT-501"
    landed = False


class Ended(Stale):
    """The run has ended; it takes no note and makes no move any more. Nothing was written."""

    code = "OUT-502"


class Rejected(StoreError):
    """The store can never accept this commit (bounds, encoding). Nothing was written; never retry it."""

    code = "OUT-503"
    landed = False


class Unavailable(StoreError):
    """The store could not be reached or is busy. Nothing was written; trying again may work."""

    code = "OUT-504"
    landed = False


class StoreReplaced(Unavailable):
    """The store that this process opened is gone: its file was deleted or replaced, or a backup was restored.

    Nothing was written. No later commit of this process lands either, so the process must end.
    """

    code = "OUT-506"


def restored() -> StoreReplaced:
    """Return the error of a process that finds another generation of the store than it began with."""
    return StoreReplaced(
        "the store was restored, or is another one",
        "its generation is not the one that this process began with; its runs are safe",
        "look at what was restored, then start this process again",
    )


class Uncertain(StoreError):
    """The store's answer was lost. Perhaps it was written; the batch's receipt decides before anything else."""

    code = "OUT-505"
    landed = None

    def __init__(self, reason: str, why: str = "", fix: str = "") -> None:
        super().__init__(
            reason, why, fix or "look whether it was done before you repeat it; under the same key it is done once"
        )


class StoreUnusable(OutlastError):
    """The store cannot be opened or has become unusable: missing folder, read only, newer schema, locked, disk full."""

    code = "OUT-510"


def no_store(url: str) -> StoreUnusable:
    """What is said to who only reads, where there is no store yet: reading makes none, so a mistyped name is told."""
    return StoreUnusable(
        f"there is no store at {url}",
        "it is made by the first run or worker, and none was started here yet",
        "start a run: outlast run MODULE:NAME; or name another store with --store or OUTLAST_STORE",
    )


class Corrupt(OutlastError):
    """A row that breaks an invariant, before it is written or after it is read. Nothing is done with it.

    `row` is its kind and key where a store read it: what `outlast fsck` goes on after.
    """

    code = "OUT-511"
    row: tuple[str, tuple[str | int, ...]] | None = None


class Fault(OutlastError):
    """Outlast itself failed while it answered a request. What was acknowledged is safe in the store."""

    code = "OUT-900"


class IllegalMove(OutlastError):
    """A verb that the table of core/machine.py does not allow here: a mistake of the engine, not of its user."""

    code = "OUT-901"
