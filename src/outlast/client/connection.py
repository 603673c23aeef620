"""The HTTP connection to a service; its problem answers become members of OutlastError.

A write whose bytes may have left this process is `Uncertain` unless an answer of Outlast says how it ended. A proxy,
a gateway or a sign-in page may answer after it has forwarded the request, so their status proves nothing. `Attempts`
holds this rule for all writes (decision 0103).
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain, repeat
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import BaseModel, Field, ValidationError

from outlast import errors
from outlast.core.acts import check_idempotency_key
from outlast.core.durations import SECOND, Duration, asked_wait, timedelta_of
from outlast.models.runs import RunDelta
from outlast.runtime.clocks import SystemClock, new_id
from outlast.runtime.settings import DEFAULT_PORT

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0
"""Maximum time of one request with its repetitions, unless the caller sets another."""
STREAM_S: Final = 60.0
"""Maximum silence of a stream. The service sends a comment every 15 s."""
REPEATS_S: Final = (0.0, 0.2, 1.0, 2.0)
"""Waits before a request whose answer was lost is repeated. The first is 0: an idle connection may be closed."""
API: Final = "/v1"
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
STREAM: Final = "text/event-stream"
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


def iso(span: Duration | None) -> str | None:
    """Return a duration in ISO 8601."""
    return f"PT{timedelta_of('the duration', span).total_seconds():.3f}S" if span is not None else None


def tag(version: int) -> str:
    """Return the ETag of a version; '' for 0 (not checked)."""
    return f'"v{version}"' if version else ""


class ServiceConnection:
    """Requests to one service. Redirects are not followed, so the token reaches no other host."""

    def __init__(self, base: str, token: str, *, timeout_s: float = ANSWER_S, unsent_s: float | None = None) -> None:
        """`base`: as `base_of` returns it. `timeout_s`: maximum time of a request with its repetitions.

        `unsent_s`: how long a request that could not be sent is repeated (default: `timeout_s`).
        """
        self.base = base
        self._timeout_s = timeout_s
        self._unsent_s = timeout_s if unsent_s is None else unsent_s
        self._clock = SystemClock()
        headers = {"Accept": "application/json", "User-Agent": "outlast"}
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
        )

    async def close(self) -> None:
        """Close the HTTP client with its connections."""
        await self._client.aclose()

    async def get(self, kind: type[M], path: str, /, **params: Any) -> M:
        """Return the answer of a path; empty parameters are left out. Raises the error that the service answers."""
        said = {name: value for name, value in params.items() if value not in ("", None, False)}
        return await self._ask(kind, "GET", path, params=said)

    async def post(
        self,
        kind: type[M],
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        etag: str = "",
        method: str = "POST",
        key: str = "",
    ) -> M:
        """Send a request that takes effect once: if the answer is lost, it is repeated with the same key [a new one].

        Raises the error that the service answers, Unavailable if nothing was sent, Uncertain otherwise.
        """
        if key:
            check_idempotency_key(key)
        headers = {"Idempotency-Key": key or new_id("key_")}
        if etag:
            headers["If-Match"] = etag
        return await self._ask(kind, method, path, json=dict(body or {}), headers=headers)

    async def _ask(self, kind: type[M], method: str, path: str, **more: Any) -> M:
        """Return the value in the answer to a request. Raises the error that it describes or that its loss means."""
        attempts = Attempts(method)
        response = await self._send(attempts, method, path, **more)
        if response.is_success:
            try:
                return kind.model_validate_json(response.content)
            except ValidationError:
                pass
        raise self._error_in(response, attempts)

    async def _send(self, attempts: "Attempts", method: str, path: str, **more: Any) -> httpx2.Response:
        """Return the answer to a request, after the repetitions that lost answers and `Retry-After` allow."""
        begun = self._clock.mono()
        give_up = begun + round(self._timeout_s * SECOND)
        repeats, unsent = iter(REPEATS_S), chain(REPEATS_S, repeat(REPEATS_S[-1]))
        extensions = {"trace": attempts.trace}
        while True:
            left_s = max(give_up - self._clock.mono(), 1) / SECOND
            timeout = httpx2.Timeout(left_s, connect=min(left_s, CONNECT_S))
            try:
                async with asyncio.timeout(left_s):
                    response = await self._client.request(method, path, timeout=timeout, extensions=extensions, **more)
            except (httpx2.HTTPError, TimeoutError) as error:
                was_sent = attempts.failed(error)
                wait_s = next(repeats if was_sent else unsent, None) if isinstance(error, LOST + UNSENT) else None
                if wait_s is None or self._clock.mono() + wait_s * SECOND >= (
                    give_up if attempts.sent else begun + self._unsent_s * SECOND
                ):
                    raise self._unanswered(attempts, error) from error
            else:
                wait_s = self._wait_before_repeating(response)
                if wait_s is None or self._clock.mono() + wait_s * SECOND >= give_up:
                    return response
                attempts.repeated(response)
            await asyncio.sleep(wait_s)

    def _wait_before_repeating(self, response: httpx2.Response) -> float | None:
        """Return the wait (s) that the answer asks for; None if it is final.

        The lock of an address after wrong tokens is final: a repetition would have the same token.
        """
        after = response.headers.get("retry-after", "")
        if response.status_code not in BUSY or not after:
            return None
        if (problem := _problem_of(response)) and problem.code == errors.TooManyFailures.code:
            return None
        most = round(self._timeout_s * SECOND) + 1
        asked = asked_wait(after, response.headers.get("date", ""), self._clock.wall(), most) / SECOND
        return max(asked, REPEATS_S[1])

    def _unanswered(self, attempts: "Attempts", error: Exception) -> errors.OutlastError:
        if attempts.lost:
            return errors.Uncertain(f"{self.base} did not answer", str(error) or type(error).__name__)
        return self.away(error)

    @asynccontextmanager
    async def stream(self, path: str, after: int) -> AsyncIterator[AsyncIterator[str]]:
        """Open the stream of events after a number and give its lines. Raises as `get`, and httpx2's errors later."""
        headers = {"Accept": STREAM, "Last-Event-ID": str(after), "Cache-Control": "no-store"}
        timeout = httpx2.Timeout(STREAM_S, connect=CONNECT_S)
        async with self._client.stream("GET", path, headers=headers, timeout=timeout) as response:
            flows = response.status_code == 200 and STREAM in response.headers.get("content-type", "")
            if not flows and response.status_code != 204:  # 204: no further event will come
                await response.aread()
                raise self._error_in(response)
            yield response.aiter_lines()

    async def updates(self, path: str, after: int) -> AsyncIterator[tuple[int, str | RunDelta]]:
        """Yield (0, '') once the stream is open, then number and text of each event; a delta has the number 0."""
        async with self.stream(path, after) as lines:
            yield 0, ""
            async for number, type_, text in frames(lines):
                if number:
                    yield int(number), text
                elif type_ == "delta" and (delta := _delta_of(text)) is not None:
                    yield 0, delta

    def away(self, error: Exception) -> errors.Unavailable:
        """Return the error for a service that cannot be reached."""
        return errors.Unavailable(
            f"{self.base} cannot be reached",
            str(error) or type(error).__name__,
            "is it running? outlast serve MODULE; or name another with --url or OUTLAST_URL",
        )

    def _error_in(self, response: httpx2.Response, attempts: "Attempts | None" = None) -> errors.OutlastError:
        problem = _problem_of(response)
        error = self._strange(response) if problem is None else error_of(problem, response.headers)
        if attempts is None or attempts.settled_by(response, error if problem is not None else None):
            return error
        if problem is None:
            return errors.Uncertain(f"{self.base} did not answer", error.why, UNSURE)
        why = f"an earlier attempt got no answer; the repetition was answered: {error.code} {error.what}"
        return errors.Uncertain(f"{self.base} did not answer", why)

    def _strange(self, response: httpx2.Response) -> errors.Unavailable:
        """Return the error for an answer that is not Outlast's, to a request that changed nothing."""
        why = f"it answered {response.status_code} {response.reason_phrase}, which is not an answer of Outlast"
        if response.is_redirect:
            why = f"it redirects to {response.headers.get('location', 'another URL')}; redirects are not followed"
        if response.status_code in (502, 503, 504):
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

    def repeated(self, response: httpx2.Response) -> None:
        """Note an attempt whose answer asks for a repetition."""
        self._sending = False
        problem = _problem_of(response)
        executing = problem is not None and problem.refusal == IN_FLIGHT
        unknown = problem is None or problem.code == errors.Uncertain.code
        self._in_flight = self._in_flight or executing
        self.lost = self.lost or (self._writes and (unknown or executing))

    def settled_by(self, response: httpx2.Response, error: errors.OutlastError | None) -> bool:
        """Return True if the last answer tells how the request ended. `error`: that of a problem of Outlast.

        A request whose key was in flight may have been executed, and executed again after its process died. So a
        refusal that follows may be caused by the request itself.
        """
        if not self._writes:
            return True
        if error is None:
            return not self.lost and response.status_code in NOT_FORWARDED
        if self._in_flight or error.refusal == IN_FLIGHT:
            return False
        return not self.lost or (type(error) is not errors.OutlastError and not isinstance(error, BEFORE_THE_KEY))


def _problem_of(response: httpx2.Response) -> ProblemAnswer | None:
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
        error = kind(problem.title, why, fix, retry_after_s=int(wait) if wait.isdecimal() else 1)
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


def _delta_of(text: str) -> RunDelta | None:
    """Return a delta of a stream, or None if it is not one, because a text may be lost and an event may not."""
    try:
        return RunDelta.model_validate_json(text)
    except ValidationError:
        return None


async def frames(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str, str]]:
    """Yield (id, type, data) of each server-sent event, '' for a missing id or type; skip comments."""
    number, type_, data = "", "", list[str]()
    async for line in lines:
        if not line:
            if data:
                yield number, type_, "\n".join(data)
            number, type_, data = "", "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            number = value
        elif name == "event":
            type_ = value
        elif name == "data":
            data.append(value)
