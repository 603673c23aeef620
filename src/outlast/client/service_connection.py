"""The HTTP connection to a service; its problem answers become members of OutlastError.

A write whose bytes may have left this process is `Uncertain` unless an answer of Outlast says how it ended. A proxy,
a gateway or a sign-in page may answer after it has forwarded the request, so their status proves nothing. `Attempts`
holds this rule for all writes (decision 0103).

What arrives on a connection may be the answer to another request: a proxy that repeats answers leaves the second one to
the next request. Each request has an id that the service returns, and each object its own id (decision 0125).
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from itertools import chain, count, repeat
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit

import httpx2
from pydantic import BaseModel, Field, ValidationError

from outlast import errors
from outlast.client.event_frames import BrokenStream, Frame, frames
from outlast.clocks import SystemClock, new_id
from outlast.core.acts import check_idempotency_key
from outlast.core.argument_checks import client_is_closed
from outlast.core.codec import canonical
from outlast.core.durations import SECOND, asked_wait
from outlast.models.runs import CloudEvent, RunDelta
from outlast.operations import operation_of
from outlast.operations.declaration import Operation, OperationRequest, sent
from outlast.runtime.settings import DEFAULT_PORT

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0
"""Maximum time of one request with its repetitions, unless the caller sets another."""
STREAM_S: Final = 60.0
"""Maximum silence of a stream. The service sends a comment every 15 s."""
REQUESTS_MAX: Final = 100
"""Maximum of concurrent requests. Streams do not count, because each is open for as long as its caller wants."""
KEPT_ALIVE: Final = 20
REPEATS_S: Final = (0.0, 0.2, 1.0, 2.0)
"""Waits before a request whose answer was lost is repeated. The first is 0: an idle connection may be closed."""
API: Final = "/v1"
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
STREAM: Final = "text/event-stream"
REQUEST_ID: Final = "X-Request-ID"
"""Header with the id of a request, which the service returns. A proxy may put its own id there."""
OF_A_CLIENT: Final = re.compile(r"req_[0-9a-z]{12}\.[0-9]+")
"""Id of a request as each client of Outlast makes it. Ids of services and proxies have another form."""
ENCODINGS: Final = ("", "identity", "gzip", "deflate")
"""Encodings that are read although none was asked for. A peer that chooses another is not understood."""
ANSWER_BYTES_MAX: Final = 512 * 1024 * 1024
INFLATED_BYTES_MAX: Final = 16 * 1024 * 1024
INFLATED_MAX: Final = 100
"""Maximum size of an answer in relation to its compressed bytes, above INFLATED_BYTES_MAX."""
NAMED: Final = {
    "runs": "run",
    "attention": "run",
    "bulk-answers": "run",
    "approvals": "approval",
    "effects": "id",
    "workers": "worker",
    "workflows": "workflow",
    "webhooks": "webhook",
    "deliveries": "delivery",
}
"""Collection in a path → field of an answer that has the id which follows it in the path."""
OVER_ALL: Final = ("/attention/assign", "/attention/resolve")
"""Paths whose last part is no id."""
UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
LOST: Final = (httpx2.ReadError, httpx2.RemoteProtocolError, httpx2.WriteError)
BUSY: Final = (409, 429, 503)
"""Statuses after which a request is repeated if the answer has a `Retry-After`."""
NOT_FORWARDED: Final = frozenset({407, 413, 414, 431})
"""Statuses that a gateway gives only to a request that it does not forward."""
PROBLEM: Final = "application/problem+json"
IN_FLIGHT: Final = "in_flight"
"""Refusal of a request whose Idempotency-Key another request holds, which is still executed."""
READS: Final = ("GET", "HEAD")
UNSURE: Final = (
    "check whether it was done before you repeat it, because a proxy may have forwarded it; "
    "and check that --url or OUTLAST_URL is the URL of the service"
)
SENDING: Final = "http11.send_request_headers.started"
"""Event of the transport: from here on, bytes of the request may leave."""
BEFORE_THE_KEY: Final = (
    errors.Unauthenticated,
    errors.TooManyFailures,
    errors.Unverifiable,
    errors.Forbidden,
    errors.Busy,
    errors.StoreError,
    errors.Fault,
    errors.KeyRefused,
)
"""Errors of a service that has not looked up the Idempotency-Key, or could not."""
M = TypeVar("M", bound=BaseModel)
R = TypeVar("R")


class FieldProblem(BaseModel):
    """One invalid field in a problem answer."""

    path: str = ""
    text: str = ""


class ProblemAnswer(BaseModel):
    """An answer of the type application/problem+json."""

    code: str
    title: str = ""
    detail: str = ""
    hint: str = ""
    status: int = 0
    refusal: str = ""
    request_id: str = ""
    problems: list[FieldProblem] = Field(default_factory=list)


def base_of(url: str) -> str:
    """Return the URL of a service without /v1 and a final slash. Raises InvalidInput."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.username or parts.password or parts.query or parts.fragment:
        raise errors.InvalidInput(
            "this is not the URL of a service",
            "it needs http:// or https:// and a host; a port and a path are optional; credentials go to OUTLAST_TOKEN",
            f"e.g. --url http://127.0.0.1:{DEFAULT_PORT}",
        )
    return url.rstrip("/").removesuffix(API).rstrip("/")


def is_here(base: str) -> bool:
    """True if the address is on loopback."""
    return urlsplit(base).hostname in LOOPBACK


def part(name: str) -> str:
    """Return a name quoted as one path segment."""
    return quote(name, safe="")


def check_path(path: str) -> None:
    """Raise NotFound for a name that a URL leaves out, because another path would be asked."""
    for name in path.split("/")[1:]:
        if name in ("", ".", ".."):
            raise errors.NotFound(f"nothing has the id {name!r}", "a URL leaves it out", "use an id that a list shows")


def json_of(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON. Raises NotStorable for what is no JSON, as an action on the store does."""
    try:
        return json.dumps(dict(body), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        canonical(dict(body))  # names the value
        raise errors.NotStorable("a value cannot be sent", str(error), "send plain data") from error


class OtherAnswer(httpx2.RemoteProtocolError):
    """The answer to another request. Its connection is closed, because the answers on it are displaced."""


class HttpAnswer(NamedTuple):
    """A complete answer. `stream` closes its connection."""

    status: int
    reason: str
    headers: httpx2.Headers
    content: bytes

    @property
    def is_success(self) -> bool:
        """True for a status of 200 to 299."""
        return 200 <= self.status < 300


def is_answer_to(given: str, asked: str) -> bool:
    """False if the answer has the id of another request, of this client or of another one.

    A proxy may replace the id with its own, which says nothing, or add it to the one that is there.
    """
    ids = [each.strip() for each in given.split(",")]
    return asked in ids or not any(map(OF_A_CLIENT.fullmatch, ids))


def is_of(answer: BaseModel, path: str) -> bool:
    """False if an answer names another object than the path that was asked."""
    _, _, rest = path.partition("/")
    collection, _, rest = rest.partition("/")
    asked, field = unquote(rest.partition("/")[0]), NAMED.get(collection, "")
    if not asked or path in OVER_ALL:
        return True
    value = getattr(answer, field, asked)
    if isinstance(value, BaseModel):
        value = getattr(value, field, asked)
    return not isinstance(value, str) or value == asked


class ServiceConnection:
    """Requests to one service. Redirects are not followed, so the token reaches no other host."""

    def __init__(self, base: str, token: str, *, timeout_s: float = ANSWER_S, unsent_s: float | None = None) -> None:
        """`base`: as `base_of` returns it. `timeout_s`: maximum time of a request with its repetitions.

        `unsent_s`: how long a request that could not be sent is repeated (default: `timeout_s`).
        """
        self.base = base
        self.timeout_s = timeout_s
        self.unsent_s = timeout_s if unsent_s is None else unsent_s
        self._id, self._number = new_id("req_"), count()
        self._clock = SystemClock()
        self._free = asyncio.Semaphore(REQUESTS_MAX)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "outlast"}
        if token:
            if not token.isascii() or not token.isprintable() or " " in token:
                raise errors.InvalidInput(
                    "OUTLAST_TOKEN is not a token", "it contains characters that tokens never have"
                )
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx2.AsyncClient(
            base_url=base + API,
            headers=headers,
            trust_env=not is_here(base),  # a proxy does not reach this machine's loopback
            # Plain HTTP to loopback has no certificate, and loading the authorities takes 25 ms. `HTTPS:` is TLS.
            verify=not (is_here(base) and urlsplit(base).scheme == "http"),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT_ALIVE),
        )

    async def close(self) -> None:
        """Close the HTTP client with its connections."""
        await self._client.aclose()

    async def call(self, request: OperationRequest[R]) -> R:
        """Send the request of an operation and return its answer. Raises as `get` and `post`."""
        operation = operation_of(request)
        return operation.answer_in(await self.respond(operation, request))

    async def respond(self, operation: Operation[Any, Any], request: OperationRequest[Any]) -> Any:
        """Send the request of an operation and return the response, of which the answer may be a part."""
        parts = sent(operation, request)
        if not operation.changes:
            return await self.get(operation.response, parts.path, **parts.query)
        return await self.post(
            operation.response,
            parts.path,
            parts.body,
            version=parts.version,
            method=operation.method,
            key=parts.key,
        )

    async def get(self, kind: type[M], path: str, /, **params: Any) -> M:
        """Return the answer of a path. Raises the error that the service answers."""
        return await self._ask(kind, "GET", path, params=params)

    async def post(
        self,
        kind: type[M],
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        version: int = 0,
        method: str = "POST",
        key: str = "",
    ) -> M:
        """Send a request that takes effect once: if the answer is lost, it is repeated with the same key [a new one].

        Raises the error that the service answers, Unavailable if nothing was sent, Uncertain otherwise.
        """
        if key:
            check_idempotency_key(key)
        headers = {"Idempotency-Key": key or new_id("key_"), "Content-Type": "application/json"}
        if version:
            headers["If-Match"] = f'"v{version}"'
        return await self._ask(kind, method, path, content=json_of(body or {}), headers=headers)

    async def _ask(self, kind: type[M], method: str, path: str, **more: Any) -> M:
        """Return the value in the answer to a request. Raises the error that it describes or that its loss means."""
        attempts = Attempts(method)
        started = self._clock.mono()
        give_up = started + round(self.timeout_s * SECOND)
        repeats, unsent = iter(REPEATS_S), chain(REPEATS_S, repeat(REPEATS_S[-1]))
        while True:
            try:
                left_s = max(give_up - self._clock.mono(), 1) / SECOND
                answer = await self._send(attempts, left_s, method, path, **more)
                found = _value_in(answer, kind, path)
            except (httpx2.HTTPError, TimeoutError) as error:
                was_sent = attempts.failed(error)
                wait_s = next(repeats if was_sent else unsent, None) if isinstance(error, LOST + UNSENT) else None
                if wait_s is None or self._clock.mono() + wait_s * SECOND >= (
                    give_up if attempts.sent else started + self.unsent_s * SECOND
                ):
                    raise self._unanswered(attempts, error) from error
            else:
                if found is not None:
                    return found
                wait_s = self._wait_before_repeating(answer)
                if wait_s is None or self._clock.mono() + wait_s * SECOND >= give_up:
                    raise self._error_in(answer, attempts)
                attempts.repeated(answer)
            await asyncio.sleep(wait_s)

    async def _send(self, attempts: "Attempts", within_s: float, method: str, path: str, **more: Any) -> HttpAnswer:
        """Send a request once and return its answer. `within_s` bounds connection, request and answer together."""
        timeout = httpx2.Timeout(within_s, connect=min(within_s, CONNECT_S))
        async with asyncio.timeout(within_s), self._free:
            self._check_open(attempts)
            async with self._opened(method, path, timeout, trace=attempts.trace, **more) as response:
                answer = HttpAnswer(
                    response.status_code, response.reason_phrase, response.headers, await _body(response)
                )
        return answer

    @asynccontextmanager
    async def _opened(
        self, method: str, path: str, timeout: httpx2.Timeout, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and give the head of its answer. Raises OtherAnswer."""
        check_path(path)
        trace = more.pop("trace", None)
        extensions = {"trace": trace} if trace is not None else {}
        id_ = f"{self._id}.{next(self._number)}"
        asked = {**(headers or {}), REQUEST_ID: id_}
        async with self._client.stream(
            method, path, headers=asked, timeout=timeout, extensions=extensions, **more
        ) as response:
            if not is_answer_to(response.headers.get(REQUEST_ID, ""), id_):
                raise OtherAnswer("the answer to another request came")  # unread, so its connection is closed
            yield response

    def _check_open(self, attempts: "Attempts | None" = None) -> None:
        if not self._client.is_closed:
            return
        if attempts is not None and attempts.lost:
            raise errors.Uncertain(f"{self.base} did not answer", "the client was closed during the call")
        raise client_is_closed()

    def _wait_before_repeating(self, response: HttpAnswer) -> float | None:
        """Return the wait (s) that the answer asks for; None if it is final.

        The lock of an address after wrong tokens is final: a repetition would have the same token.
        """
        after = response.headers.get("retry-after", "")
        if response.status not in BUSY or not after:
            return None
        if (problem := _problem_of(response)) and problem.code == errors.TooManyFailures.code:
            return None
        most = round(self.timeout_s * SECOND) + 1
        asked = asked_wait(after, response.headers.get("date", ""), self._clock.wall(), most) / SECOND
        return max(asked, REPEATS_S[1])

    def _unanswered(self, attempts: "Attempts", error: Exception) -> errors.OutlastError:
        if attempts.lost:
            return errors.Uncertain(f"{self.base} did not answer", str(error) or type(error).__name__)
        return self.away(error)

    @asynccontextmanager
    async def stream(self, path: str, after: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the stream of events after a number and give its bytes. Raises as `get`, and httpx2's errors later."""
        self._check_open()
        headers = {"Accept": STREAM, "Last-Event-ID": str(after), "Cache-Control": "no-store"}
        timeout = httpx2.Timeout(STREAM_S, connect=CONNECT_S)
        async with asyncio.timeout(self.timeout_s) as opening:
            async with self._opened("GET", path, timeout, headers=headers) as response:
                if response.status_code == 204:  # no further event will come
                    yield _nothing()
                    return
                encoded = response.headers.get("content-encoding", "") not in ENCODINGS
                if response.status_code != 200 or STREAM not in response.headers.get("content-type", "") or encoded:
                    body = await _body(response)
                    raise self._error_in(
                        HttpAnswer(response.status_code, response.reason_phrase, response.headers, body)
                    )
                opening.reschedule(None)
                yield response.aiter_bytes()

    async def updates(self, run: str, after: int) -> AsyncGenerator[tuple[int, str | RunDelta | None]]:
        """Yield number and text of each event of a run after a number; a delta has the number 0.

        (0, None) says that the stream is open, (0, '') that the service has sent a comment. Raises BrokenStream for a
        frame that is not Outlast's. A frame that comes twice is left out.
        """
        async with self.stream(f"/runs/{part(run)}/events", after) as chunks:
            yield 0, None
            async with aclosing(_updates_in(chunks, run, after)) as updates:
                async for each in updates:
                    yield each

    def away(self, error: Exception) -> errors.Unavailable:
        """Return the error for a service that cannot be reached."""
        return errors.Unavailable(
            f"{self.base} cannot be reached",
            str(error) or type(error).__name__,
            "is it running? outlast serve MODULE; or name another with --url or OUTLAST_URL",
        )

    def _error_in(self, response: HttpAnswer, attempts: "Attempts | None" = None) -> errors.OutlastError:
        problem = _problem_of(response)
        error = self._strange(response) if problem is None else error_of(problem, response.headers)
        if attempts is None or attempts.settled_by(response, error if problem is not None else None):
            return error
        if problem is None:
            return errors.Uncertain(f"{self.base} did not answer", error.why, UNSURE)
        why = f"an earlier attempt got no answer; the repetition was answered: {error.code} {error.what}"
        return errors.Uncertain(f"{self.base} did not answer", why)

    def _strange(self, response: HttpAnswer) -> errors.Unavailable:
        """Return the error for an answer that is not Outlast's, to a request that changed nothing."""
        why = f"it answered {response.status} {response.reason}, which is not an answer of Outlast"
        if 300 <= response.status < 400:
            why = f"it redirects to {response.headers.get('location', 'another URL')}; redirects are not followed"
        if response.status in (502, 503, 504):
            return errors.Unavailable(f"{self.base} cannot be reached", why, "try again")
        return errors.Unavailable(
            f"{self.base} is not an Outlast service",
            why,
            "set --url or OUTLAST_URL to the URL of the service",
        )


class Attempts:
    """Attempts of one request, and whether one of them may have been carried out without an answer of Outlast.

    A read changes nothing, so none of its attempts counts as lost.
    """

    def __init__(self, method: str) -> None:
        self.lost = False
        """True if bytes of a write may have left, and no answer says how it ended."""
        self.sent = False
        """True if bytes of an attempt may have left."""
        self._writes = method not in READS
        self._sending = False
        self._in_flight = False

    async def trace(self, event: str, details: Mapping[str, Any]) -> None:
        """Note that bytes of the request may leave. CONNECT asks a proxy for a tunnel and carries no request."""
        if event == SENDING and details["request"].method != b"CONNECT":
            self._sending = True

    def failed(self, error: Exception) -> bool:
        """Note an attempt without an answer. Return True if bytes of it may have left."""
        sent = self._sending or not isinstance(error, (*UNSENT, TimeoutError))
        self._sending = False
        self.sent = self.sent or sent
        self.lost = self.lost or (self._writes and sent)
        return sent

    def repeated(self, response: HttpAnswer) -> None:
        """Note an attempt whose answer asks for a repetition."""
        self._sending = False
        problem = _problem_of(response)
        executing = problem is not None and problem.refusal == IN_FLIGHT
        unknown = problem is None or problem.code == errors.Uncertain.code
        self._in_flight = self._in_flight or executing
        self.lost = self.lost or (self._writes and (unknown or executing))

    def settled_by(self, response: HttpAnswer, error: errors.OutlastError | None) -> bool:
        """Return True if the last answer tells how the request ended. `error`: that of a problem of Outlast.

        A request whose key was in flight may have been executed, and executed again after its process died. So a
        refusal that follows may be caused by the request itself.
        """
        if not self._writes:
            return True
        if error is None:
            return not self.lost and response.status in NOT_FORWARDED
        if self._in_flight or error.refusal == IN_FLIGHT:
            return False
        return not self.lost or (type(error) is not errors.OutlastError and not isinstance(error, BEFORE_THE_KEY))


def _value_in(answer: HttpAnswer, kind: type[M], path: str) -> M | None:
    """Return the value in an answer, or None if it has another form. Raises OtherAnswer if it is of another object."""
    if not answer.is_success:
        return None
    try:
        found = kind.model_validate_json(answer.content)
    except ValidationError:
        return None
    if not is_of(found, path):
        raise OtherAnswer(f"the answer is not about {unquote(path)}")
    return found


async def _body(response: httpx2.Response) -> bytes:
    """Return the body of an answer; b'' if it is encoded in a way that was not asked for, or too large."""
    encoded = response.headers.get("content-encoding", "").strip().lower()
    if encoded not in ENCODINGS:
        return b""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        compressed = response.num_bytes_downloaded if encoded not in ENCODINGS[:2] else len(body)
        if len(body) > max(INFLATED_BYTES_MAX, INFLATED_MAX * compressed) or len(body) > ANSWER_BYTES_MAX:
            return b""
    return bytes(body)


def _problem_of(response: HttpAnswer) -> ProblemAnswer | None:
    """Return the problem of Outlast in an answer, or None if it has another form."""
    if response.is_success or response.headers.get("content-type", "").partition(";")[0].strip().lower() != PROBLEM:
        return None
    try:
        return ProblemAnswer.model_validate_json(response.content)
    except ValidationError:
        return None


def error_of(problem: ProblemAnswer, headers: Mapping[str, str]) -> errors.OutlastError:
    """Return the error of a problem answer: the class by its code, the three lines unchanged."""
    kind = _by_code().get(problem.code, errors.OutlastError)
    why, fix, refusal = problem.detail, problem.hint, problem.refusal
    if kind is errors.Unauthenticated:
        fix = "set OUTLAST_TOKEN, or OUTLAST_TOKEN_FILE to the file that holds it"
    if kind is errors.Precondition and refusal == "stale":  # as an action on the store itself raises it
        kind, refusal = errors.Conflict, "moved"
    if problem.status >= 500 and problem.request_id:
        why = f"{why}\nrequest_id {problem.request_id}".strip()
    error: errors.OutlastError
    if issubclass(kind, errors.TooManyFailures | errors.Busy):
        wait = str(headers.get("Retry-After", ""))
        error = kind(problem.title, why, fix, retry_after_s=int(wait) if wait.isdecimal() and len(wait) < 10 else 1)
    elif issubclass(kind, errors.InvalidInput):
        error = kind(problem.title, why, fix, problems=[(each.path, each.text) for each in problem.problems])
    else:
        error = kind(problem.title, why, fix)
    error.refusal = refusal
    return error


def _by_code() -> dict[str, type[errors.OutlastError]]:
    """Return the public error class of each code; subclasses of other packages are never in an answer."""
    return {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.OutlastError)
    }


async def _updates_in(
    chunks: AsyncIterator[bytes], run: str, after: int
) -> AsyncGenerator[tuple[int, str | RunDelta | None]]:
    skips = False  # the run keeps a window of its history, and the events that follow were purged
    async with aclosing(frames(chunks)) as all_frames:
        async for frame in all_frames:
            if frame.comment:
                yield 0, ""
            elif frame.id and (number := _number_of(frame, run)) > after:
                if number != after + 1 and not skips:
                    raise BrokenStream(f"the stream left out event {after + 1}")
                after, skips = number, False
                yield number, frame.data
            elif frame.type == "gap":
                skips = True
            elif frame.type == "delta" and (delta := _delta_of(frame.data, run)) is not None:
                yield 0, delta


async def _nothing() -> AsyncGenerator[bytes]:
    """Yield nothing."""
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk


def _number_of(frame: Frame, run: str) -> int:
    """Return the number of an event. Raises BrokenStream if the frame is not an event of the run."""
    try:
        event = CloudEvent.model_validate_json(frame.data)
    except ValidationError as error:
        raise BrokenStream("a frame of the stream is no event of Outlast") from error
    if f"{run}/{frame.id}" != event.id or not (frame.id.isascii() and frame.id.isdecimal() and len(frame.id) < 19):
        raise BrokenStream("a frame of the stream is not an event of this run")
    return int(frame.id)


def _delta_of(text: str, run: str) -> RunDelta | None:
    """Return a delta of a stream, or None if it is not one, because a text may be lost and an event may not."""
    try:
        delta = RunDelta.model_validate_json(text)
    except ValidationError:
        return None
    return delta if delta.run == run else None
