"""The HTTP connection to a service; its problem answers become members of OutlastError."""

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


class ServiceConnection:
    """Requests to one service. Redirects are not followed, so the token reaches no other host."""

    def __init__(self, base: str, token: str) -> None:
        self.base = base
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
            timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
            trust_env=not is_here(base),  # a proxy does not reach this machine's loopback
        )

    async def close(self) -> None:
        """Close the HTTP client with its connections."""
        await self._client.aclose()

    async def get(self, path: str, **params: Any) -> Any:
        """Return the JSON of a path; empty parameters are left out. Raises the error that the service answers."""
        said = {name: value for name, value in params.items() if value not in ("", None, False)}
        return (await self._answer("GET", path, params=said))[0]

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = "",
        etag: str = "",
        method: str = "POST",
    ) -> Any:
        """Send a request that takes effect once: if the answer is lost, it is repeated with the same key.

        With None, no key is sent, because the body itself identifies the request.
        """
        headers = {"Idempotency-Key": key or new_id("cli_")} if key is not None else {}
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
                    continue  # the service had closed the connection, or the answer was lost
                if sent and method != "GET":
                    raise errors.Uncertain(f"{self.base} did not answer", str(error) or type(error).__name__) from error
                raise self.away(error) from error
            return self.read(response), response
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def stream(self, path: str, after: int) -> AsyncIterator[AsyncIterator[str]]:
        """Open the stream of events after a number and give its lines. Raises as `get`, and httpx2's errors later."""
        headers = {"Accept": STREAM, "Last-Event-ID": str(after), "Cache-Control": "no-store"}
        timeout = httpx2.Timeout(ANSWER_S, connect=CONNECT_S)  # the service sends a comment every 15 s
        async with self._client.stream("GET", path, headers=headers, timeout=timeout) as response:
            flows = response.status_code == 200 and STREAM in response.headers.get("content-type", "")
            if not flows and response.status_code != 204:  # 204: no further event will come
                await response.aread()
                self.read(response)
                raise self._strange(response)
            yield response.aiter_lines()

    def away(self, error: Exception) -> errors.Unavailable:
        """Return the error for a service that cannot be reached."""
        return errors.Unavailable(
            f"{self.base} cannot be reached",
            str(error) or type(error).__name__,
            "is it running? outlast serve MODULE; or name another with --url or OUTLAST_URL",
        )

    def read(self, response: httpx2.Response) -> Any:
        """Return the JSON of an answer. Raises the error it describes, or Unavailable if it is not Outlast's."""
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
        why = f"it answered {response.status_code} {response.reason_phrase}, which is not an answer of Outlast"
        if response.is_redirect:
            why = f"it redirects to {response.headers.get('location', 'another URL')}; redirects are not followed"
        if response.status_code in (502, 503, 504):  # from a gateway, which may have forwarded the request
            if response.request.method != "GET":
                return errors.Uncertain(f"{self.base} did not answer", why)
            return errors.Unavailable(f"{self.base} cannot be reached", why, "try again")
        return errors.Unavailable(
            f"{self.base} is not an Outlast service",
            why,
            "set --url or OUTLAST_URL to the URL of the service",
        )


def error_of(body: Mapping[str, Any], headers: Mapping[str, str]) -> errors.OutlastError:
    """Return the error of a problem answer: the class by its code, the three lines unchanged."""
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
    """Return the public error class of each code; subclasses of other packages are never in an answer."""
    return {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.OutlastError)
    }


async def frames(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    """Yield (id, data) of each server-sent event; skip comments and events without an id."""
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
