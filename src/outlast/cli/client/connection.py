"""The line to a service: one HTTP client, whose every refusal is a member of our tree of errors."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from outlast import errors
from outlast.runtime.clocks import new_id
from outlast.runtime.settings import DEFAULT_PORT

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0
API: Final = "/v1"
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
STREAM: Final = "text/event-stream"
UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def base_of(url: str) -> str:
    """The address of a service without /v1 and without a slash at its end. Raises InvalidInput."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.username or parts.password or parts.query or parts.fragment:
        raise errors.InvalidInput(
            "this is no address of a service",
            "it is http:// or https://, a host, perhaps a port and a path; credentials go to OUTLAST_TOKEN",
            f"e.g. --url http://127.0.0.1:{DEFAULT_PORT}",
        )
    return url.rstrip("/").removesuffix(API).rstrip("/")


def is_here(base: str) -> bool:
    """Is it an address of this machine alone?"""
    return urlsplit(base).hostname in LOOPBACK


class ServiceConnection:
    """Requests to one service. The token is sent to it and to nobody else: redirects are not followed."""

    def __init__(self, base: str, token: str) -> None:
        self.base = base
        headers = {"Accept": "application/json", "User-Agent": "outlast"}
        if token:
            if not token.isascii() or not token.isprintable() or " " in token:
                raise errors.InvalidInput("OUTLAST_TOKEN is no token", "it has characters that no token has")
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx2.AsyncClient(
            base_url=base + API,
            headers=headers,
            timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
            trust_env=not is_here(base),  # a proxy does not reach this machine's loopback
        )

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()

    async def get(self, path: str, **params: Any) -> Any:
        """The JSON there; parameters that say nothing are left out. Raises the error that the service tells."""
        said = {name: value for name, value in params.items() if value not in ("", None, False)}
        return (await self._answer("GET", path, params=said))[0]

    async def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, key: str = "", etag: str = "", method: str = "POST"
    ) -> Any:
        """Ask for something once: where the answer is lost it is asked again under the same key."""
        headers = {"Idempotency-Key": key or new_id("cli_")}
        if etag:
            headers["If-Match"] = etag
        return (await self._answer(method, path, json=dict(body or {}), headers=headers))[0]

    async def _answer(self, method: str, path: str, **more: Any) -> tuple[Any, httpx2.Response]:
        sent = False
        for again in (True, False):
            try:
                response = await self._client.request(method, path, **more)
            except httpx2.HTTPError as error:
                sent = sent or not isinstance(error, UNSENT)
                if again and isinstance(error, httpx2.ReadError | httpx2.RemoteProtocolError | httpx2.WriteError):
                    continue  # a connection that the other side had closed, or an answer that was lost
                if sent and method != "GET":
                    raise errors.Uncertain(f"{self.base} did not answer", str(error) or type(error).__name__) from error
                raise self.away(error) from error
            return self.read(response), response
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def stream(self, path: str, after: int) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of a stream of events, those after a number. Raises as `get`; httpx2's errors once it flows."""
        headers = {"Accept": STREAM, "Last-Event-ID": str(after), "Cache-Control": "no-store"}
        timeout = httpx2.Timeout(ANSWER_S, connect=CONNECT_S)  # the service is heard from every 15 s
        async with self._client.stream("GET", path, headers=headers, timeout=timeout) as response:
            flows = response.status_code == 200 and STREAM in response.headers.get("content-type", "")
            if not flows and response.status_code != 204:  # 204: all was heard, and nothing will come
                await response.aread()
                self.read(response)
                raise self._strange(response)
            yield response.aiter_lines()

    def away(self, error: Exception) -> errors.Unavailable:
        """It cannot be reached."""
        return errors.Unavailable(
            f"{self.base} cannot be reached",
            str(error) or type(error).__name__,
            "is it running? outlast serve MODULE; or name another with --url or OUTLAST_URL",
        )

    def read(self, response: httpx2.Response) -> Any:
        """What an answer says. Raises the error that it tells, or Unavailable where it is not Outlast's."""
        try:
            body = response.json()
        except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
            raise self._strange(response) from None
        if response.is_success:
            return body
        if not isinstance(body, dict) or "code" not in body:
            raise self._strange(response)
        raise error_of(body, response.headers)

    def _strange(self, response: httpx2.Response) -> errors.OutlastError:
        why = f"it answered {response.status_code} {response.reason_phrase}, and not as Outlast does"
        if response.is_redirect:
            why = f"it sends to {response.headers.get('location', 'elsewhere')}, which is not followed"
        if response.status_code in (502, 503, 504):  # of a gateway, which may have passed the request on
            if response.request.method != "GET":
                return errors.Uncertain(f"{self.base} did not answer", why)
            return errors.Unavailable(f"{self.base} cannot be reached", why, "try again")
        return errors.Unavailable(
            f"{self.base} is no service of Outlast", why, "name the service's own address with --url or OUTLAST_URL"
        )


def error_of(body: Mapping[str, Any], headers: Mapping[str, str]) -> errors.OutlastError:
    """The error that a problem tells: its class by its code, its three lines as they are."""
    kind = _by_code().get(str(body["code"]), errors.OutlastError)
    what, why, fix = (str(body.get(name, "")) for name in ("title", "detail", "hint"))
    if kind is errors.Unauthenticated:
        fix = "set OUTLAST_TOKEN, or OUTLAST_TOKEN_FILE to the file that holds it"
    if int(body.get("status", 0)) >= 500 and body.get("request_id"):
        why = f"{why}\nrequest_id {body['request_id']}".strip()
    error: errors.OutlastError
    if issubclass(kind, errors.TooManyFailures | errors.Busy):
        wait = str(headers.get("Retry-After", ""))
        error = kind(what, why, fix, retry_after_s=int(wait) if wait.isdecimal() else 1)
    elif issubclass(kind, errors.InvalidInput):
        wrong = [(str(each.get("path", "")), str(each.get("text", ""))) for each in body.get("problems") or []]
        error = kind(what, why, fix, problems=wrong)
    else:
        error = kind(what, why, fix)
    error.refusal = str(body.get("refusal", ""))
    return error


def _by_code() -> dict[str, type[errors.OutlastError]]:
    """Return the public error of each code. A package may subclass one; an answer never names the subclass."""
    return {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.OutlastError)
    }


async def frames(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    """(id, data) of each event of a stream of server-sent events; comments and what has no id are passed over."""
    number, data = "", list[str]()
    async for line in lines:
        if not line:
            if number and data:
                yield number, "\n".join(data)
            number, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            number = value
        elif name == "data":
            data.append(value)
