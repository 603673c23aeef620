"""How one attempt of a call ended, and what an exception says of that (S-17)."""

import socket
import sys
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.core.limits import NAME_CHARS_MAX, TEXT_CHARS_MAX
from outlast.flow.outcomes import Declared, NotNow, NotSent, Perhaps, Refused


class Answered(NamedTuple):
    """It was done, and this is what the function returned."""

    value: Any


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
    """Sent, and nobody can say. `abandoned`: a thread outlived its timeout and may still send."""

    code: str
    detail: str
    abandoned: bool = False


Outcome: TypeAlias = Answered | No | Unsent | Maybe

DEFINITE: Final = frozenset({400, 401, 403, 404, 422})
NOT_NOW: Final = frozenset({425, 429})


def judge(error: BaseException) -> No | Unsent | Maybe:
    """What an exception that left an activity says of the call. Anything unknown may have happened."""
    detail = f"{type(error).__name__}: {error}"[:TEXT_CHARS_MAX]
    if isinstance(error, Declared):
        return _declared(error)
    if isinstance(error, ConnectionRefusedError | socket.gaierror):
        return Unsent("not_sent", detail)
    httpx = sys.modules.get("httpx")  # what was never imported cannot have raised this
    if httpx is not None:
        if isinstance(error, httpx.HTTPStatusError):
            return _status(error.response.status_code, detail)
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.UnsupportedProtocol):
            return Unsent("not_sent", detail)
        if isinstance(error, httpx.TimeoutException):
            return Maybe("timeout", detail)
    if isinstance(error, TimeoutError):
        return Maybe("timeout", detail)
    return Maybe("error", detail)


def _status(status: int, detail: str) -> No | Unsent | Maybe:
    if status in DEFINITE:
        return No(f"http_{status}", detail)
    if status in NOT_NOW:
        return Unsent(f"http_{status}", detail)
    return Maybe(f"http_{status}", detail)


def _declared(error: Declared) -> No | Unsent | Maybe:
    detail = getattr(error, "detail", "")[:TEXT_CHARS_MAX]
    if isinstance(error, Refused):
        return No(error.code[:NAME_CHARS_MAX], detail)
    if isinstance(error, NotNow):
        after = error.retry_after
        return Unsent("not_now", detail, int(after.total_seconds() * 1000) if after else 0)
    if isinstance(error, NotSent):
        return Unsent("not_sent", detail)
    return Maybe("perhaps", detail)


def is_transient(error: BaseException) -> bool:
    """For lookups, which change nothing: is it worth another attempt? Bugs are not."""
    httpx = sys.modules.get("httpx")
    if httpx is not None and isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        return status in NOT_NOW or status in (408, 409) or status >= 500
    if httpx is not None and isinstance(error, httpx.TransportError):
        return True
    return isinstance(error, NotNow | NotSent | Perhaps | TimeoutError | ConnectionError | socket.gaierror)
