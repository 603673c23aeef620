"""How one attempt of a call ended, and what an exception or an HTTP status says of that (S-17)."""

from typing import Any, Final, NamedTuple, TypeAlias

from outlast.core.backoff import asked_wait
from outlast.core.budget import RETRY_AFTER_MAX, SECOND
from outlast.core.limits import NAME_CHARS_MAX, TEXT_CHARS_MAX
from outlast.engine.client_errors import Classification, Meaning, read
from outlast.engine.user_code import text_of
from outlast.flow.outcomes import Declared, NotSent, Refused, RetryLater


class Answered(NamedTuple):
    """It was done, and this is what the function returned."""

    value: Any
    external_id: str = ""


class No(NamedTuple):
    """A definite no: nothing happened, and asking again is useless."""

    code: str
    detail: str


class Unsent(NamedTuple):
    """Nothing left this process, or the receiver said not now: nothing happened, another attempt is safe."""

    code: str
    detail: str
    after_ms: int = 0


class Maybe(NamedTuple):
    """Sent, and nobody can say. `abandoned`: a thread outlived its timeout and may still send. `external_id`: the
    activity had learnt it before it failed."""

    code: str
    detail: str
    abandoned: bool = False
    after_ms: int = 0
    external_id: str = ""


Outcome: TypeAlias = Answered | No | Unsent | Maybe

# The one table of HTTP statuses. Every other one, 409 and 5xx included, may have happened: with a reconcile the
# receiver is asked before anything else, and else the activity's `on_doubt` decides.
DEFINITE: Final = frozenset({400, 401, 403, 404, 422})
NOT_NOW: Final = frozenset({425, 429})
TIMED_OUT: Final = 408
HONOURS_RETRY_AFTER: Final = NOT_NOW | {TIMED_OUT}


def judge(error: BaseException, wall_ms: int = 0) -> No | Unsent | Maybe:
    """What an exception that left an activity says of the call. Anything unknown may have happened.

    `wall_ms`: this machine's clock, for a Retry-After that names an instant where the answer has no Date.
    """
    detail = text_of(error)[:TEXT_CHARS_MAX]
    if isinstance(error, Declared):
        return _declared(error)
    found = read(error)
    match found.meaning:
        case Meaning.ANSWERED:
            return _status(found, detail, asked_to_wait(error, wall_ms))
        case Meaning.NEVER_SENT:
            return Unsent("not_sent", detail)
        case Meaning.REFUSED:
            return No(found.code[:NAME_CHARS_MAX], detail)
        case Meaning.RETRY_LATER:
            wait = asked_to_wait(error, wall_ms)
            return Unsent("not_now", detail, wait) if found.sure else Maybe("error", detail, after_ms=wait)
        case Meaning.TIMED_OUT:
            return Maybe("timeout", detail)
    return Maybe("error", detail)


def _status(found: Classification, detail: str, after_ms: int) -> No | Unsent | Maybe:
    code = f"http_{found.status}" if found.status else "error"
    if found.sure and found.status in DEFINITE:
        return No(code, detail)
    if found.sure and found.status in NOT_NOW:
        return Unsent(code, detail, after_ms)
    return Maybe(code, detail, after_ms=after_ms)


def asked_to_wait(error: BaseException, wall_ms: int) -> int:
    """How long the receiver asks to be left alone, in ms: RetryLater's `after`, or the header where it counts."""
    if isinstance(error, RetryLater):
        return _bounded(error.after.total_seconds()) if error.after else 0
    found = read(error)
    if found.status not in HONOURS_RETRY_AFTER and found.meaning is not Meaning.RETRY_LATER:
        return 0
    headers = found.headers
    return asked_wait(headers.get("Retry-After", ""), headers.get("Date", ""), wall_ms, RETRY_AFTER_MAX)


def _bounded(seconds: float) -> int:
    return int(min(max(seconds, 0) * SECOND, RETRY_AFTER_MAX))


def _declared(error: Declared) -> No | Unsent | Maybe:
    detail = getattr(error, "detail", "")[:TEXT_CHARS_MAX]
    if isinstance(error, Refused):
        return No(error.code[:NAME_CHARS_MAX], detail)
    if isinstance(error, RetryLater):
        return Unsent("not_now", detail, asked_to_wait(error, 0))
    if isinstance(error, NotSent):
        return Unsent("not_sent", detail)
    return Maybe("perhaps", detail)


def is_transient(error: BaseException) -> bool:
    """For lookups, which change nothing: is it worth another attempt? Bugs are not."""
    if isinstance(error, Declared):
        return not isinstance(error, Refused)
    found = read(error)
    if found.meaning in (Meaning.REFUSED, Meaning.UNKNOWN):
        return False
    if found.meaning is Meaning.ANSWERED:
        return found.status in HONOURS_RETRY_AFTER or found.status == 409 or found.status >= 500
    return True
