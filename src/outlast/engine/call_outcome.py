"""Outcome of one attempt of a call, judged from the exception or the HTTP status (S-17).

Exceptions of HTTP, AWS and gRPC clients are known by qualified name, so no client is imported. A call counts as never
sent only if the exception proves it: a client that retries or follows redirects may have sent an earlier attempt. In
all other cases the call may have happened (decision 0055).

The errors of Outlast's own client say how a request ended (docs/client.md), so their class decides. `Conflict` is a
refusal, unless an earlier attempt of the call may have made the record that it contradicts (`core/effect_steps.py`).
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from traceback import walk_tb
from types import FrameType, MappingProxyType
from typing import Any, Final, NamedTuple

from outlast.core.durations import RETRY_AFTER_MAX, SECOND, asked_wait
from outlast.core.effect_steps import LOCAL_LIMIT, Maybe, No, Unsent
from outlast.core.limits import NAME_CHARS_MAX, TEXT_CHARS_MAX
from outlast.engine.local_limits import NoPlace, is_local, proves_unsent
from outlast.engine.user_code import text_of
from outlast.errors import Busy, OutlastError, TooManyFailures
from outlast.flow.outcomes import Declared, NotSent, Perhaps, Refused, RetryLater
from outlast.flow.registry import CLASSIFIED

Locals = Mapping[str, Any]


class Meaning(Enum):
    """Meaning of an exception's class."""

    NEVER_SENT = auto()
    LOCAL_LIMIT = auto()
    """Never sent, because of a limit of this process."""
    REFUSED = auto()
    CONFLICT = auto()
    """Refused, because it contradicts a record of the receiver."""
    RETRY_LATER = auto()
    PERHAPS = auto()
    TIMED_OUT = auto()
    """It may have happened; the client timed out."""
    ANSWERED = auto()
    """The receiver answered; the status decides."""
    GRPC = auto()
    """The gRPC status code decides."""
    BY_CAUSE = auto()
    """The wrapped exception decides."""
    UNKNOWN = auto()
    """No class of it is known, so it may mean anything."""


def _named(module: str, meaning: Meaning, names: str) -> dict[str, Meaning]:
    return {f"{module}.{name}": meaning for name in names.split()}


def _of_httpx(module: str) -> dict[str, Meaning]:
    unsent = "ConnectError ConnectTimeout ProxyError UnsupportedProtocol InvalidURL"
    return {
        **_named(module, Meaning.NEVER_SENT, unsent),
        **_named(module, Meaning.LOCAL_LIMIT, "PoolTimeout"),
        **_named(module, Meaning.TIMED_OUT, "TimeoutException"),
        **_named(module, Meaning.ANSWERED, "HTTPStatusError"),
        **_named(module, Meaning.PERHAPS, "TransportError DecodingError TooManyRedirects"),
    }


def _of_sdk(module: str) -> dict[str, Meaning]:
    return {
        **_named(module, Meaning.ANSWERED, "APIStatusError"),
        **_named(module, Meaning.BY_CAUSE, "APIConnectionError"),
        **_named(module, Meaning.PERHAPS, "APIError"),
    }


_URLLIB3_UNSENT: Final = "ConnectTimeoutError ClosedPoolError LocationValueError"
_REQUESTS_UNSENT: Final = "InvalidHeader InvalidSchema InvalidURL MissingSchema URLRequired"
_AIOHTTP_UNSENT: Final = (
    "ClientConnectorError ClientConnectorCertificateError ClientConnectorSSLError ClientHttpProxyError "
    "ConnectionTimeoutError InvalidURL NonHttpUrlClientError ServerFingerprintMismatch"
)
_BOTOCORE_UNSENT: Final = (
    "EndpointConnectionError ConnectTimeoutError NoCredentialsError PartialCredentialsError NoRegionError "
    "ParamValidationError"
)
_OWN_REFUSED: Final = "InvalidInput LimitExceeded NotFound Forbidden Unauthenticated BadRequest Rejected"
_OWN_CONFLICT: Final = "Conflict Precondition KeyRefused Stale Ended"
# Mistakes in code, ends of another run that was started before, and values that a read could not load.
_OWN_UNKNOWN: Final = (
    "OutlastError DefinitionError Misplaced WillNotContinue IllegalMove RunFailed RunCancelled NotStorable Corrupt "
    "AnswerNotStored"
)
# Class → meaning. The nearest listed class in an exception's MRO counts.
TABLE: Final[Mapping[str, Meaning]] = {
    "builtins.ConnectionRefusedError": Meaning.NEVER_SENT,
    "socket.gaierror": Meaning.NEVER_SENT,
    "ssl.SSLCertVerificationError": Meaning.NEVER_SENT,  # raised in the handshake, before any byte of a request
    "builtins.TimeoutError": Meaning.TIMED_OUT,
    "builtins.ConnectionError": Meaning.PERHAPS,
    "http.client.HTTPException": Meaning.PERHAPS,
    **_of_httpx("httpx"),
    **_of_httpx("httpx2"),
    **_of_sdk("openai"),
    **_of_sdk("anthropic"),
    **_named("pydantic_ai.exceptions", Meaning.ANSWERED, "ModelHTTPError"),
    **_named("pydantic_ai.exceptions", Meaning.BY_CAUSE, "ModelAPIError"),
    **_named("urllib.error", Meaning.BY_CAUSE, "URLError"),
    **_named("urllib.error", Meaning.ANSWERED, "HTTPError"),
    **_named("urllib3.exceptions", Meaning.NEVER_SENT, _URLLIB3_UNSENT),
    **_named("urllib3.exceptions", Meaning.LOCAL_LIMIT, "EmptyPoolError FullPoolError"),
    **_named("urllib3.exceptions", Meaning.TIMED_OUT, "TimeoutError"),
    **_named("urllib3.exceptions", Meaning.BY_CAUSE, "MaxRetryError SSLError"),
    **_named("urllib3.exceptions", Meaning.PERHAPS, "HTTPError"),
    **_named("requests.exceptions", Meaning.BY_CAUSE, "ConnectionError ConnectTimeout SSLError"),
    **_named("requests.exceptions", Meaning.NEVER_SENT, _REQUESTS_UNSENT),
    **_named("requests.exceptions", Meaning.TIMED_OUT, "Timeout"),
    **_named("requests.exceptions", Meaning.ANSWERED, "HTTPError"),
    **_named("requests.exceptions", Meaning.PERHAPS, "RequestException ProxyError"),
    **_named("aiohttp.client_exceptions", Meaning.NEVER_SENT, _AIOHTTP_UNSENT),
    **_named("aiohttp.client_exceptions", Meaning.TIMED_OUT, "ServerTimeoutError"),
    **_named("aiohttp.client_exceptions", Meaning.ANSWERED, "ClientResponseError"),
    **_named("aiohttp.client_exceptions", Meaning.PERHAPS, "ClientError RedirectClientError"),
    **_named("botocore.exceptions", Meaning.NEVER_SENT, _BOTOCORE_UNSENT),
    **_named("botocore.exceptions", Meaning.BY_CAUSE, "SSLError"),
    **_named("botocore.exceptions", Meaning.TIMED_OUT, "ReadTimeoutError"),
    **_named("botocore.exceptions", Meaning.ANSWERED, "ClientError"),
    **_named("botocore.exceptions", Meaning.PERHAPS, "ConnectionError HTTPClientError"),
    "grpc.RpcError": Meaning.GRPC,
    **_named("sqlalchemy.exc", Meaning.LOCAL_LIMIT, "TimeoutError"),  # its pool of connections is used up
    **_named("psycopg_pool", Meaning.LOCAL_LIMIT, "PoolTimeout TooManyRequests"),
    **_named("redis.exceptions", Meaning.LOCAL_LIMIT, "MaxConnectionsError"),
    **_named("outlast.errors", Meaning.REFUSED, _OWN_REFUSED),
    **_named("outlast.errors", Meaning.CONFLICT, _OWN_CONFLICT),
    **_named("outlast.errors", Meaning.NEVER_SENT, "Unavailable StoreReplaced StoreUnusable Unverifiable"),
    **_named("outlast.errors", Meaning.RETRY_LATER, "Busy TooManyFailures"),
    **_named("outlast.errors", Meaning.PERHAPS, "Uncertain StoreError Fault WaitTimeout"),
    **_named("outlast.errors", Meaning.UNKNOWN, _OWN_UNKNOWN),
}
BY_AUTHOR: Final[Mapping[type[Declared], Meaning]] = {
    NotSent: Meaning.NEVER_SENT,
    Refused: Meaning.REFUSED,
    RetryLater: Meaning.RETRY_LATER,
    Perhaps: Meaning.PERHAPS,
}
CHAIN_MAX: Final = 20


class Classification(NamedTuple):
    """Meaning of an exception, and whether it is sure.

    `sure`: no attempt before the last one was sent. `status`: of the answer, 0 without an answer. `code`: of a refusal.
    """

    meaning: Meaning
    sure: bool = True
    status: int = 0
    headers: Mapping[str, str] = MappingProxyType({})
    code: str = ""


def classify(error: BaseException) -> Classification:
    """Return the classification of a known client's exception; UNKNOWN for any other."""
    classified = next((CLASSIFIED[cls] for cls in type(error).__mro__ if cls in CLASSIFIED), None)
    if classified is not None:
        return Classification(BY_AUTHOR[classified], code=type(error).__name__)
    if isinstance(error, OutlastError):
        return _of_own(error)
    meaning = _meaning(error)
    if meaning is None and proves_unsent(error):
        meaning = Meaning.NEVER_SENT
    if meaning is Meaning.GRPC:
        return _of_grpc(error)
    if meaning is Meaning.ANSWERED:
        status, headers = _answer(error)
        throttled = _error_of_aws(error).get("Code") in THROTTLED
        return Classification(Meaning.RETRY_LATER if throttled else meaning, not _sent_before(error), status, headers)
    if meaning is Meaning.BY_CAUSE:
        meaning = _of_cause(error)
    if meaning in _UNSENT and _sent_before(error):
        return Classification(Meaning.PERHAPS, sure=False)
    if meaning is Meaning.NEVER_SENT and is_local(_chain(error)):
        meaning = Meaning.LOCAL_LIMIT
    return Classification(meaning or Meaning.UNKNOWN)


_UNSENT: Final = (Meaning.NEVER_SENT, Meaning.LOCAL_LIMIT)
IN_FLIGHT: Final = "in_flight"
"""Refusal of a request that is still executed under its key."""


def _of_own(error: OutlastError) -> Classification:
    """Classify an error of Outlast's own client by its class.

    It proves nothing if the author's code has caught, before it, an error of a request that was sent, or if another
    part of the package raised it: a value that this part refused says nothing of the call.
    """
    if not _is_of_client(error):
        return Classification(Meaning.UNKNOWN, code=error.code)
    frames = {id(f) for f, _ in walk_tb(error.__traceback__) if not _module_of(f).startswith("outlast.")}
    for each in _chain(error):
        by_author = any(id(f) in frames for f, _ in walk_tb(each.__traceback__))
        if each is not error and by_author and _shows_sending(each, error):
            return Classification(Meaning.PERHAPS, sure=False)
    meaning = Meaning.PERHAPS if error.refusal == IN_FLIGHT else _meaning(error)
    return Classification(meaning or Meaning.UNKNOWN, code=error.code)


_CLIENT: Final = ("outlast.client", "outlast.runtime", "outlast.service")
"""Parts of the package that make requests to a service or a store."""


def _is_of_client(error: OutlastError) -> bool:
    """Return True if the client raised an error, or the author's code did in its place."""
    modules = [_module_of(frame) for frame, _ in walk_tb(error.__traceback__)]
    at = next((n for n, module in enumerate(modules) if not module.startswith("outlast.engine.")), len(modules))
    inside = [module for module in modules[at:] if module.startswith("outlast.")]
    return not inside or any(module.startswith(_CLIENT) for module in inside)


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _meaning(error: BaseException) -> Meaning | None:
    names = (f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__)
    return next((TABLE[name] for name in names if name in TABLE), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and those that it wraps or was raised from, outermost first."""
    seen: dict[int, BaseException] = {}
    queue: list[Any] = [error]
    while queue and len(seen) < CHAIN_MAX:
        each = queue.pop(0)
        if not isinstance(each, BaseException) or id(each) in seen:
            continue
        seen[id(each)] = each
        yield each
        queue += [each.__cause__, each.__context__, getattr(each, "reason", None), *each.args[:1]]


def _of_cause(error: BaseException) -> Meaning:
    for each in _chain(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return Meaning.NEVER_SENT
        meaning = _meaning(each)
        if meaning is not None and meaning is not Meaning.BY_CAUSE:
            return Meaning.PERHAPS if meaning is Meaning.ANSWERED else meaning
    return Meaning.PERHAPS


# --- earlier attempts of a client ---------------------------------------------------------------------------
def _hops(found: Locals) -> bool:
    return bool(found.get("history"))


def _attempts_of_aiohttp(found: Locals) -> bool:
    """Return True after a redirect, or if the client repeated a request on a closed connection."""
    repeated = found.get("method") not in ("POST", "PATCH", "CONNECT") and not found.get("retry_persistent_connection")
    return bool(found.get("history")) or repeated


def _attempts_of_urllib3(found: Locals) -> bool:
    """Return True if an attempt did not fail to connect. Without a history there was one attempt."""
    past = [getattr(each, "error", None) for each in found.get("history", ())]
    return any(each is None or _of_cause(each) not in _UNSENT for each in past)


# (module, function) of a frame → function that returns True if its variables show an earlier attempt that was sent.
EARLIER: Final[Mapping[tuple[str, str], Callable[[Locals], bool]]] = {
    ("httpx._client", "_send_handling_redirects"): _hops,
    ("httpx2._client", "_send_handling_redirects"): _hops,
    ("aiohttp.client", "_request"): _attempts_of_aiohttp,
    ("requests.sessions", "resolve_redirects"): lambda found: True,
    ("urllib.request", "http_error_302"): lambda found: True,
    ("urllib3.util.retry", "increment"): _attempts_of_urllib3,
    ("botocore.endpoint", "_send_request"): lambda found: found.get("attempts") != 1,
}
# Clients that retry. Without this frame nothing proves that they did not.
PROOF: Final[Mapping[str, tuple[str, str]]] = {
    "urllib3.exceptions.MaxRetryError": ("urllib3.util.retry", "increment"),
    "botocore.exceptions.ConnectionError": ("botocore.endpoint", "_send_request"),
}
RETRY_COUNT: Final = "x-stainless-retry-count"  # header of each request of openai and anthropic


def _sent_before(error: BaseException) -> bool:
    """Return True unless the exception proves that no attempt before the last one was sent."""
    needed: set[tuple[str, str]] = set()
    found: set[tuple[str, str]] = set()
    for each in _chain(error):
        if each is not error and _shows_sending(each, error):
            return True
        names = [f"{cls.__module__}.{cls.__qualname__}" for cls in type(each).__mro__]
        needed |= {PROOF[name] for name in names if name in PROOF}
        if _is_sdk(each) and not _first_of_sdk(each):
            return True
        for frame, _ in walk_tb(each.__traceback__):
            name = (_module_of(frame), frame.f_code.co_name)
            if (shows := EARLIER.get(name)) is not None:
                found.add(name)
                if shows(frame.f_locals):
                    return True
    return not needed <= found or _answered_before(error)


def _shows_sending(earlier: BaseException, error: BaseException) -> bool:
    """Return True if a chained exception of the client shows that something was sent."""
    if type(earlier).__module__ in ("builtins", "socket", "ssl"):  # because a ConnectTimeout chains a TimeoutError too
        return False
    if _meaning(earlier) is Meaning.ANSWERED:  # a client wraps the exception of its transport
        return getattr(earlier, "response", None) is not getattr(error, "response", earlier)
    return _meaning(earlier) in (Meaning.PERHAPS, Meaning.TIMED_OUT)


def _is_sdk(error: BaseException) -> bool:
    return _meaning(error) is not None and type(error).__module__.partition(".")[0] in ("openai", "anthropic")


def _first_of_sdk(error: BaseException) -> bool:
    """Return True if this was the first attempt of the client of openai or anthropic."""
    request = getattr(error, "request", None)
    return request is not None and request.headers.get(RETRY_COUNT) == "0"


def _answered_before(error: BaseException) -> bool:
    """Return True if the response shows redirects or retries of the client."""
    if (metadata := _metadata_of_aws(error)) is not None:
        return metadata.get("RetryAttempts") != 0
    response = getattr(error, "response", None)
    if getattr(response, "history", None) or getattr(error, "history", None):
        return True
    past = getattr(getattr(getattr(response, "raw", None), "retries", None), "history", ())  # attribute of requests
    return bool(past) and _attempts_of_urllib3({"history": past})


# --- answers --------------------------------------------------------------------------------------------
# AWS throttles with 400 too: the codes that botocore itself retries.
_THROTTLED: Final = (
    "BandwidthLimitExceeded EC2ThrottledException LimitExceededException ProvisionedThroughputExceededException "
    "RequestLimitExceeded RequestThrottled RequestThrottledException SlowDown ThrottledException Throttling "
    "ThrottlingException TooManyRequestsException"
)
THROTTLED: Final = frozenset(_THROTTLED.split())
UNREADABLE: Final = 0


def _metadata_of_aws(error: BaseException) -> Mapping[str, Any] | None:
    response = getattr(error, "response", None)
    found = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
    return found if isinstance(found, Mapping) else ({} if isinstance(response, Mapping) else None)


def _error_of_aws(error: BaseException) -> Mapping[str, Any]:
    response = getattr(error, "response", None)
    found = response.get("Error") if isinstance(response, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _answer(error: BaseException) -> tuple[int, Mapping[str, str]]:
    """Return status and headers of the answer, from the attributes that clients use."""
    metadata = _metadata_of_aws(error)
    if metadata is not None:
        if str(_error_of_aws(error).get("Code")).startswith("RequestTimeout"):  # S3 answers 400
            return UNREADABLE, {}
        headers = {str(name).title(): str(value) for name, value in (metadata.get("HTTPHeaders") or {}).items()}
        return _number(metadata.get("HTTPStatusCode")), headers
    holder = getattr(error, "response", None)
    for of in (holder, error):
        status = next((n for name in ("status_code", "status", "code") if (n := _number(getattr(of, name, None)))), 0)
        if status:
            return status, getattr(of, "headers", None) or {}
    return UNREADABLE, {}


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else UNREADABLE


# --- gRPC -----------------------------------------------------------------------------------------------
_GRPC_NO: Final = (
    "INVALID_ARGUMENT NOT_FOUND PERMISSION_DENIED UNAUTHENTICATED UNIMPLEMENTED FAILED_PRECONDITION OUT_OF_RANGE"
)
_GRPC_REFUSED: Final = frozenset(_GRPC_NO.split())
_GRPC_NO_LINE: Final = ("failed to connect to all addresses", "errors resolving ", "DNS resolution failed")
_GRPC_NOT_CONNECTED: Final = (1, 3)  # CONNECTING, TRANSIENT_FAILURE


def _of_grpc(error: BaseException) -> Classification:
    """Classify by status code. UNAVAILABLE is never sent only if no connection was made."""
    try:
        code, details = error.code().name, str(error.details() or "")  # type: ignore[attr-defined]
    except Exception:  # a subclass of an author, or an error without a call
        return Classification(Meaning.PERHAPS)
    if code == "UNAVAILABLE" and details.startswith(_GRPC_NO_LINE) and _has_no_connection(error):
        return Classification(Meaning.NEVER_SENT)
    if code == "RESOURCE_EXHAUSTED" and "message larger than max" not in details:  # may be the size of the answer
        return Classification(Meaning.RETRY_LATER)
    if code in _GRPC_REFUSED:
        return Classification(Meaning.REFUSED, code=f"grpc_{code.lower()}")
    return Classification(Meaning.TIMED_OUT if code == "DEADLINE_EXCEEDED" else Meaning.PERHAPS)


def _has_no_connection(error: BaseException) -> bool:
    """Return True if the channel of the call has no connection now.

    The details prove nothing: a server that forwards the error of its backend sends the same words.
    """
    for frame, _ in walk_tb(error.__traceback__):
        channel: Any = getattr(frame.f_locals.get("self"), "_channel", None)
        if frame.f_globals.get("__name__") == "grpc._channel" and hasattr(channel, "check_connectivity_state"):
            try:
                return bool(channel.check_connectivity_state(False) in _GRPC_NOT_CONNECTED)
            except ValueError:  # the channel is closed
                return False
    return False


# The only table of HTTP statuses. After any other status, 409 and 5xx included, the call may have happened: the
# activity's `if_uncertain` decides.
DEFINITE: Final = frozenset({400, 401, 403, 404, 422})
NOT_NOW: Final = frozenset({425, 429})
TIMED_OUT: Final = 408
HONOURS_RETRY_AFTER: Final = NOT_NOW | {TIMED_OUT}


def judge(error: BaseException, wall_ms: int = 0) -> No | Unsent | Maybe:
    """Return the outcome that an activity's exception means.

    After an unknown one the call may have happened.

    `wall_ms`: this machine's clock, for a Retry-After with an instant if the answer has no Date.
    """
    detail = text_of(error)[:TEXT_CHARS_MAX]
    if isinstance(error, Declared):
        return _declared(error)
    found = classify(error)
    match found.meaning:
        case Meaning.ANSWERED:
            return _status(found, detail, asked_to_wait(error, wall_ms))
        case Meaning.NEVER_SENT:
            return Unsent("not_sent", detail)
        case Meaning.LOCAL_LIMIT:
            return Unsent(LOCAL_LIMIT, detail)
        case Meaning.REFUSED | Meaning.CONFLICT:
            return No(found.code[:NAME_CHARS_MAX], detail, conflicts=found.meaning is Meaning.CONFLICT)
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
    """Return how many ms the receiver asks to wait: `retry_after` of RetryLater, or the header."""
    if isinstance(error, RetryLater):
        return _bounded(error.after.total_seconds()) if error.after else 0
    if isinstance(error, Busy | TooManyFailures):
        return _bounded(error.retry_after_s)
    found = classify(error)
    if found.status not in HONOURS_RETRY_AFTER and found.meaning is not Meaning.RETRY_LATER:
        return 0
    headers = found.headers
    after, date = (headers.get(name) or headers.get(name.lower(), "") for name in ("Retry-After", "Date"))
    return asked_wait(after, date, wall_ms, RETRY_AFTER_MAX)


def _bounded(seconds: float) -> int:
    return int(min(max(seconds, 0) * SECOND, RETRY_AFTER_MAX))


def _declared(error: Declared) -> No | Unsent | Maybe:
    detail = getattr(error, "detail", "")[:TEXT_CHARS_MAX]
    if isinstance(error, Refused):
        return No(error.code[:NAME_CHARS_MAX], detail)
    if isinstance(error, RetryLater):
        return Unsent("not_now", detail, asked_to_wait(error, 0))
    if isinstance(error, NotSent):
        return Unsent(LOCAL_LIMIT if isinstance(error, NoPlace) else "not_sent", detail)
    return Maybe("perhaps", detail)


OVERLOADED: Final = frozenset({503, 529})


def may_be_paid(error: BaseException) -> bool:
    """Return True if a receiver that charges for answers may have charged for this attempt.

    A receiver that reports an overload has not worked on the request.
    """
    return isinstance(judge(error), Maybe) and classify(error).status not in OVERLOADED


CLIENTS: Final = frozenset(
    {"outlast", "httpx2", "httpcore2", "httpx", "httpcore", "openai", "anthropic", "pydantic_ai", "pydantic_graph"}
    | {"anyio", "asyncio", "contextlib"}
)
"""Top-level packages between a request of Outlast itself, such as one to a model, and the node that asked for it."""


def is_fault_of_receiver(error: BaseException) -> bool:
    """Return True if a receiver or the network caused an error with a text, and no frame of it is the author's code.

    The text says all: a traceback names lines of Outlast and of a client, where the author has nothing to correct.
    """
    passed = (_module_of(frame).partition(".")[0] for frame, _ in walk_tb(error.__traceback__))
    known = classify(error).meaning is not Meaning.UNKNOWN
    return known and text_of(error) != type(error).__name__ and CLIENTS.issuperset(passed)


def is_transient(error: BaseException) -> bool:
    """Return True if another attempt of a lookup may help. Bugs in code are not transient."""
    if isinstance(error, Declared):
        return not isinstance(error, Refused)
    found = classify(error)
    if found.meaning in (Meaning.REFUSED, Meaning.CONFLICT, Meaning.UNKNOWN):
        return False
    if found.meaning is Meaning.ANSWERED:
        return found.status in HONOURS_RETRY_AFTER or found.status == 409 or found.status >= 500
    return True
