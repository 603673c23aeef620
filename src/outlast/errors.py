"""The error tree of Outlast. Every public error has a code, a sentence, a reason and a fix.

    OutlastError                    code, what, why, fix; str() is the three-line form
    ├─ DefinitionError    OUT-101   a mistake in a workflow, node, activity or key template
    ├─ Misplaced          OUT-102   a call in the wrong place (an activity called inside a node, …)
    ├─ InvalidInput       OUT-103   invalid input; `problems` lists all problems
    ├─ NotStorable        OUT-104   a value that is not JSON, or not of the declared type
    ├─ LimitExceeded      OUT-105   a value beyond a limit of core/limits.py
    ├─ AnswerNotStored    OUT-106   a call that was done, with an answer that cannot be stored; authors may catch it
    ├─ WillNotContinue    OUT-210   unfinished runs that the loaded code cannot continue
    ├─ NotFound           OUT-401   no such run, approval, workflow, activity, …
    ├─ Conflict           OUT-402   start key with another input, approval decided, run ended, …
    │  └─ KeyRefused      OUT-424   an idempotency key that another request uses
    ├─ Forbidden          OUT-403   the caller lacks the role
    ├─ Unauthenticated    OUT-411   no credential, or an invalid one
    ├─ TooManyFailures    OUT-412   too many failed credentials from one address; `retry_after_s`
    ├─ Unverifiable       OUT-413   the issuer's keys are unavailable, so no credential can be checked
    ├─ Busy               OUT-414   HTTP: too many concurrent requests of the tenant; `retry_after_s`
    ├─ BadRequest         OUT-421   HTTP: a malformed request (too large, too slow, not JSON, …)
    ├─ Precondition       OUT-423   HTTP: If-Match is missing, or names an old version
    ├─ RunFailed          OUT-431   the run whose result was awaited has failed
    │  └─ RunCancelled    OUT-432   it was cancelled
    ├─ WaitTimeout        OUT-433   a run has not ended in time; a TimeoutError, too
    ├─ StoreError                   `landed`: True if the commit is in the store; None if unknown
    │  ├─ Stale           OUT-501   landed = False: a row changed; reload and decide again
    │  │  └─ Ended        OUT-502   landed = False: the run has ended
    │  ├─ Rejected        OUT-503   landed = False: never retry (bounds, encoding)
    │  ├─ Unavailable     OUT-504   landed = False: try again later
    │  │  └─ StoreReplaced OUT-506  landed = False: the store opened here is gone; this process must end
    │  └─ Uncertain       OUT-505   landed = None: unknown; ask for the receipt first
    ├─ StoreUnusable      OUT-510   the store cannot be opened (missing, read only, newer, locked, full)
    ├─ Corrupt            OUT-511   a stored row breaks an invariant; it is not used
    ├─ Fault              OUT-900   HTTP: an internal error; the log has the details under the request's id
    └─ IllegalMove        OUT-901   a verb that the table of core/machine.py does not allow: a bug of Outlast

Authors raise and catch other exceptions, which `outlast.flow` defines: `Refused` (the receiver refused a call),
`Fail(reason)` and `Cancel(reason)` (end the run), and `RetryLater`, `NotSent` and `Perhaps`, by which an activity
states how its own call ended.
"""

from collections.abc import Sequence
from typing import ClassVar

DOCS = "https://outlast.dev/e/"


def to_install(extra: str) -> str:
    """Return the command that installs the libraries of an extra."""
    return f"pip install 'outlast[{extra}]'; in a checkout: pip install '.[{extra}]'"


class OutlastError(Exception):
    """Base of all errors that Outlast raises on purpose. CLI, log and problem+json show the same `str(e)`.

    `what` states the error, `why` the reason, `fix` the action (copyable). `code` keeps its meaning in every version.
    """

    code: ClassVar[str] = "OUT-100"

    refusal: str = ""
    """A stable word that tells errors of one code apart."""

    def __init__(self, what: str, why: str = "", fix: str = "", *, refusal: str = "") -> None:
        self.what = what
        self.why = why
        self.fix = fix
        self.refusal = refusal

    @property
    def url(self) -> str:
        """Address of the documentation of this code."""
        return DOCS + self.code

    def __str__(self) -> str:
        indent = " " * (len(self.code) + 2)
        lines = [f"{self.code}  {self.what}"]
        lines += [indent + line for line in self.why.splitlines()]
        last = f"→ {self.fix}            {self.url}" if self.fix else self.url
        return "\n".join([*lines, indent + last])


class DefinitionError(OutlastError):
    """A mistake in a definition, found when it is decorated or loaded, never within a run.

    `where` is "file:line" of the node, activity or workflow that has to change.
    """

    code = "OUT-101"

    def __init__(self, what: str, why: str = "", fix: str = "", *, where: str = "") -> None:
        known = not where or where in what or where in why
        super().__init__(what if known else f"{what} ({where})", why, fix)
        self.where = where


class Misplaced(OutlastError):
    """A call in the wrong place: an activity inside a node, `this_call()` outside a call."""

    code = "OUT-102"


class InvalidInput(OutlastError):
    """Invalid input. `problems` holds every problem as (path, sentence)."""

    code = "OUT-103"

    def __init__(self, what: str, why: str = "", fix: str = "", *, problems: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(what, why or "\n".join(f"{path}: {text}" for path, text in problems), fix)
        self.problems = tuple(problems)


class NotStorable(OutlastError):
    """A value that cannot be stored, or stored bytes that no longer fit the declared type."""

    code = "OUT-104"


class LimitExceeded(OutlastError):
    """A value beyond a limit; core/limits.py lists all limits."""

    code = "OUT-105"


class AnswerNotStored(OutlastError):
    """A call was done, and its answer cannot be stored. `ctx.do` raises it in each execution, and repeats nothing.

    - `key`: the key of the call.
    - `size`, `limit`: bytes of the answer as far as known (0 = unknown), and the most that is stored.
    - `head`: the first 1,000 characters of the answer.

    Authors may catch it. The undo of such a call gets no response, so a person undoes it (`undo_failed`).
    """

    code = "OUT-106"

    def __init__(
        self, what: str, why: str = "", fix: str = "", *, key: str = "", size: int = 0, limit: int = 0, head: str = ""
    ) -> None:
        super().__init__(what, why, fix)
        self.key = key
        self.size = size
        self.limit = limit
        self.head = head


class WillNotContinue(OutlastError):
    """Unfinished runs that the loaded code cannot continue; `outlast check` names them with reasons."""

    code = "OUT-210"


class NotFound(OutlastError):
    """A run, approval, workflow or other object that does not exist for this tenant."""

    code = "OUT-401"


class Conflict(OutlastError):
    """The request contradicts a record: another input under the same key, a decision already made, …"""

    code = "OUT-402"


class Forbidden(OutlastError):
    """The caller lacks a role that permits the operation."""

    code = "OUT-403"


class Unauthenticated(OutlastError):
    """The request has no credential or an invalid one. It had no effect."""

    code = "OUT-411"


class TooManyFailures(OutlastError):
    """Too many failed credentials came from this address; it is locked for `retry_after_s` seconds."""

    code = "OUT-412"

    def __init__(self, what: str, why: str = "", fix: str = "", *, retry_after_s: int) -> None:
        super().__init__(what, why, fix)
        self.retry_after_s = retry_after_s


class Unverifiable(OutlastError):
    """The keys that verify credentials are unavailable. The credential was neither accepted nor rejected."""

    code = "OUT-413"


class Busy(OutlastError):
    """Too many concurrent requests of this tenant; this one was not started. Retry after `retry_after_s` seconds."""

    code = "OUT-414"

    def __init__(self, what: str, why: str = "", fix: str = "", *, retry_after_s: int) -> None:
        super().__init__(what, why, fix)
        self.retry_after_s = retry_after_s


class BadRequest(OutlastError):
    """A malformed request. `refusal` names the rule of HTTP or the limit that it breaks."""

    code = "OUT-421"


class Precondition(OutlastError):
    """If-Match is missing (`if_match_missing`) or names an old version (`stale`). The request had no effect."""

    code = "OUT-423"


class KeyRefused(Conflict):
    """An idempotency key of another request, or of one that is still running. The request had no effect."""

    code = "OUT-424"


class RunFailed(OutlastError):
    """The run whose result was awaited has failed: `run` is its id, `reason` why.

    Its effects that can be undone are undone.
    """

    code = "OUT-431"

    def __init__(self, what: str, why: str = "", fix: str = "", *, run: str = "", reason: str = "") -> None:
        super().__init__(what, why, fix)
        self.run = run
        self.reason = reason


class RunCancelled(RunFailed):
    """The run whose result was awaited was cancelled, by its code or by a person."""

    code = "OUT-432"


class WaitTimeout(OutlastError, TimeoutError):
    """A run has not ended in time. The run itself continues; `why` names what it waits for."""

    code = "OUT-433"


class StoreError(OutlastError):
    """A commit without acknowledgement. `landed` is False if it is not in the store, None if that is unknown."""

    code = "OUT-500"
    landed: ClassVar[bool | None] = None

    def __init__(self, reason: str, why: str = "", fix: str = "") -> None:
        self.what = reason
        self.why = why
        self.fix = fix

    @property
    def reason(self) -> str:
        """The reason in one line."""
        return self.what


class Stale(StoreError):
    """A row that the commit names has changed. Nothing was written; reload and decide again."""

    code = "OUT-501"
    landed = False


class Ended(Stale):
    """The run has ended and accepts no message and no transition. Nothing was written."""

    code = "OUT-502"


class Rejected(StoreError):
    """The store can never accept this commit (bounds, encoding). Nothing was written; never retry it."""

    code = "OUT-503"
    landed = False


class Unavailable(StoreError):
    """The store is unreachable or busy. Nothing was written; a retry may succeed."""

    code = "OUT-504"
    landed = False


class StoreReplaced(Unavailable):
    """The store that this process opened is gone: its file was deleted or replaced, or a backup was restored.

    Nothing was written. No later commit of this process can land, so the process must end.
    """

    code = "OUT-506"


def restored() -> StoreReplaced:
    """Return the error of a process that finds another generation of the store than it started with."""
    return StoreReplaced(
        "the store was restored or replaced",
        "its generation differs from the one that this process opened; its runs are safe",
        "check the restored store, then start this process again",
    )


class Uncertain(StoreError):
    """The acknowledgement of the store was lost. The receipt of the batch tells whether the commit landed."""

    code = "OUT-505"
    landed: ClassVar[bool | None] = None

    def __init__(self, reason: str, why: str = "", fix: str = "") -> None:
        super().__init__(
            reason, why, fix or "check whether it was done before you repeat it; under the same key it is done once"
        )


class StoreUnusable(OutlastError):
    """The store cannot be opened: missing folder, read only, newer schema, locked, disk full."""

    code = "OUT-510"


def no_store(url: str) -> StoreUnusable:
    """Return the error of a read-only command for a store that does not exist. Only a run or a worker creates one."""
    return StoreUnusable(
        f"there is no store at {url}",
        "the first run or worker creates it",
        "start a run: outlast run MODULE:NAME; or name another store with --store or OUTLAST_STORE",
    )


class Corrupt(OutlastError):
    """A row that breaks an invariant, before it is written or after it is read. It is not used.

    `row` is its kind and key if a store read it, so that `outlast fsck` can continue after it.
    """

    code = "OUT-511"

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        why = why or "a stored value is not one that Outlast writes, so the row is not used"
        super().__init__(what[:1_000], why, fix or "find all such rows: outlast fsck")

    row: tuple[str, tuple[str | int, ...]] | None = None


class Fault(OutlastError):
    """An internal error while Outlast answered a request. Acknowledged work is safe in the store."""

    code = "OUT-900"


class IllegalMove(OutlastError):
    """A verb that the table of core/machine.py does not allow: a bug of the engine, not of its user."""

    code = "OUT-901"
