"""Addresses of DynamoDB stores, and the client whose errors say whether a request may have landed."""

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from functools import cache
from io import BytesIO
from ipaddress import ip_address
from itertools import count
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit
from zlib import crc32

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    ProxyConnectionError,
)
from botocore.loaders import Loader, create_loader

from outlast.core.limits import KIB, NAME
from outlast.errors import Rejected, StoreUnusable

SCHEME: Final = "dynamodb"
CHECKPOINTS: Final = "checkpoints"
IDEMPOTENCY: Final = "idempotency"
RECOVERY_LOCKS: Final = "recovery-locks"
RUNS: Final = "runs"
ENVIRONMENT_CHARS_MAX: Final = 60
REGION: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
JSON: Final = "application/x-amz-json"
ATTEMPTS: Final = 1  # the SDK repeats nothing: a repetition of a write that landed would say that it did not
CONNECT_S: Final = 3.0
ANSWER_S: Final = 10.0  # a request unanswered for longer may have landed
CONNECTIONS: Final = 32
URGENT_CONNECTIONS: Final = 4  # … of which lease renewals have these, so that they wait behind no other request
PIECES_BYTES: Final = 256 * KIB  # a larger request is written in pieces, between which other tasks run
KEPT_S: Final = 10.0  # an idle connection is closed before the service closes it, which would look like a lost answer
WINDOW_MS: Final = 60_000  # two windows of answers bound the difference of the clocks
UNCHECKED: Final = "unchecked"  # credentials for a server on this machine
EXAMPLE: Final = "dynamodb://eu-west-1/prod, or dynamodb://local/test?endpoint=http://127.0.0.1:8000"


class DynamoAddress(NamedTuple):
    """Address of a store: a region, the environment that begins the names of its tables, and perhaps an endpoint."""

    region: str
    environment: str
    endpoint: str | None
    recovery: bool  # point-in-time recovery of the tables
    shown: str

    @classmethod
    def parse(cls, url: str) -> "DynamoAddress":
        """Parse `dynamodb://REGION/ENV?endpoint=http://127.0.0.1:8000&pitr=on`.

        Raises StoreUnusable.
        """
        try:
            parts = urlsplit(url)
            given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError as error:
            raise _bad_address(f"it cannot be parsed: {error}") from None
        query = dict(given)
        environment = parts.path.removeprefix("/")
        if parts.scheme != SCHEME or not REGION.fullmatch(parts.netloc):
            raise _bad_address(
                "a region is named by small letters, digits and dashes; credentials and ports have no place here"
            )
        if not NAME.fullmatch(environment) or len(environment) > ENVIRONMENT_CHARS_MAX:
            raise _bad_address(
                f"the environment is {environment!r}; it has 1 to {ENVIRONMENT_CHARS_MAX} letters, digits, dots, "
                "dashes or underscores"
            )
        if {*query} - {"endpoint", "pitr"} or parts.fragment or len(query) < len(given):
            raise _bad_address(f"the parameters are endpoint and pitr, each at most once, not {', '.join(query)}")
        recovery = query.get("pitr", "off")
        if recovery not in ("on", "off"):
            raise _bad_address(f"pitr is {recovery!r}; it is on or off")
        endpoint = query.get("endpoint")
        if endpoint is not None:
            _check_endpoint(endpoint)
        shown = urlencode({"endpoint": endpoint} if endpoint else {}, safe="/:")
        return cls(
            parts.netloc,
            environment,
            endpoint,
            recovery == "on",
            f"{SCHEME}://{parts.netloc}/{environment}{'?' * bool(shown)}{shown}",
        )

    def table(self, name: str) -> str:
        """Return the name of a table in DynamoDB, for example that of RUNS."""
        return f"{self.environment}-{name}"


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.username is not None or parts.path.strip("/") or parts.query:
        raise _bad_address("the endpoint is not http://HOST:PORT or https://HOST:PORT")


def environment_keys() -> dict[str, str | None]:
    """Return the credentials of the environment, or some for a server that checks none."""
    environ = os.environ.get
    return {
        "aws_access_key_id": environ("AWS_ACCESS_KEY_ID") or UNCHECKED,
        "aws_secret_access_key": environ("AWS_SECRET_ACCESS_KEY") or UNCHECKED,
        "aws_session_token": environ("AWS_SESSION_TOKEN"),
    }


@cache
def _loader() -> Loader:
    """Return the reader of the SDK's model of the service, which takes 50 ms of CPU and is kept."""
    return create_loader()


def _is_on_this_machine(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _bad_address(why: str) -> StoreUnusable:
    return StoreUnusable("this URL names no DynamoDB store", why, f"e.g. {EXAMPLE}")


class ConditionRefused(Exception):
    """A condition of the request did not hold. It did not land.

    `reasons` has the code of each action of a transaction ("None", "ConditionalCheckFailed", "TransactionConflict", …),
    and of a single write one code.
    """

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__(", ".join(reasons))
        self.reasons = reasons


class Conflicted(Exception):
    """Another transaction had an item of the request at that moment. It did not land; send it again soon."""


class Throttled(Exception):
    """The table or the account has no capacity now. The request did not land; send it again later."""


class Away(Exception):
    """No usable answer: no connection, a timeout, an error of the server. `sent=False`: it was certainly never sent."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class Unusable(Exception):
    """The service refuses this client or does not know the table. The request did not land.

    `code` is the error code of DynamoDB.
    """

    def __init__(self, code: str, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code = code


CHECK: Final = "ConditionalCheckFailed"
CONFLICTS: Final = frozenset({
    "TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException",
})  # fmt: skip
NO_CAPACITY: Final = frozenset({
    "ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException", "Throttling",
    "LimitExceededException", "ThrottlingError", "SlowDown", "TooManyRequestsException",
})  # fmt: skip
INVALID: Final = frozenset({
    "ValidationException", "ItemCollectionSizeLimitExceededException", "SerializationException",
    "IdempotentParameterMismatchException", "ValidationError", "ItemCollectionSizeLimitExceeded",
})  # fmt: skip


def refused(code: str, words: str, reasons: tuple[tuple[str, str], ...]) -> Exception:
    """Return the exception for an answer that refuses a request, so that it has not landed.

    `reasons` has the code and the words for each action of a cancelled transaction.
    """
    if code == "ConditionalCheckFailedException":
        return ConditionRefused((CHECK,))
    if code in CONFLICTS:
        return Conflicted(f"{code}: {words}")
    if code in NO_CAPACITY:
        return Throttled(f"{code}: {words}")
    if code in INVALID:
        return Rejected(f"DynamoDB refuses the request: {words or code}", code)
    if code != "TransactionCanceledException":
        return Unusable(code, words)
    codes = tuple(each for each, _ in reasons)
    if CHECK in codes:
        return ConditionRefused(codes)
    if invalid := [f"{each}: {why}" for each, why in reasons if each in INVALID]:
        return Rejected(f"DynamoDB refuses the transaction: {invalid[0]}", words)
    if denied := [f"{each}: {why}" for each, why in reasons if each.startswith("AccessDenied")]:
        return Unusable("AccessDeniedException", denied[0])
    if codes and all(each == "None" or each.endswith("Conflict") for each in codes):
        return Conflicted(words)
    return Throttled(words)  # no capacity, or a code unknown today: it did not land


def _meaning(error: ClientError) -> Exception:
    """Return the exception for an answer that is an error."""
    answer: dict[str, Any] = dict(error.response)
    code = str(answer["Error"].get("Code", "")).partition(":")[0]
    words = str(answer["Error"].get("Message", ""))
    status = int(answer["ResponseMetadata"]["HTTPStatusCode"])
    if status >= 500:  # "the request may have succeeded", says the documentation
        return Away(f"HTTP {status}: {code}: {words}", sent=True)
    if not code or code.isdigit():  # the SDK takes the status as the code of an answer without one
        return Away(f"HTTP {status}, and not an answer of DynamoDB: {words[:200]!r}", sent=True)
    given = answer.get("CancellationReasons") or ()
    reasons = tuple((str(each.get("Code") or "None"), str(each.get("Message") or "")) for each in given)
    return refused(code, words, reasons)


NEVER_SENT: Final = (ConnectTimeoutError, ProxyConnectionError, NoCredentialsError, CredentialRetrievalError)


BROKEN: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError, AttributeError, KeyError)
"""Errors of the SDK about an answer that it cannot read, beside its own."""


def _was_sent(error: BotoCoreError) -> bool:
    """Return False if the request was certainly never sent."""
    if isinstance(error, EndpointConnectionError):  # also the error of a connection that breaks during a request
        return not isinstance(error.kwargs.get("error"), aiohttp.ClientConnectorError)
    return not isinstance(error, NEVER_SENT)


def _in_pieces(request: Any, **_: Any) -> None:
    """Have a large body written in pieces: aiohttp warns of one that would stop the event loop."""
    if isinstance(request.body, bytes) and len(request.body) >= PIECES_BYTES:
        request.body = BytesIO(request.body)


urgent: Final = ContextVar("urgent", default=False)
"""True in a task whose requests use a connection that other requests leave free."""


class Connection:
    """Client of DynamoDB. Each request is sent once; the caller decides about repetition.

    Values have DynamoDB's own form: `{"S": "text"}`, `{"N": "1"}`, `{"B": b"bytes"}`. Used in the event loop that
    opened it. `requests` counts by operation.
    """

    def __init__(
        self,
        address: DynamoAddress,
        *,
        answer_s: float = ANSWER_S,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`wall_ms` is the clock that `clock_difference` compares with the service's."""
        self.address = address
        self.requests: Counter[str] = Counter()
        self._wall_ms = wall_ms
        self._answer_s = answer_s
        self._difference = ClockDifference()
        self._opened = AsyncExitStack()
        self._operations: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {}
        self._ordinary = asyncio.Semaphore(CONNECTIONS - URGENT_CONNECTIONS)

    async def open(self) -> None:
        """Find the endpoint and the credentials. Nothing is sent to DynamoDB yet.

        A server on this machine gets the credentials of the environment, if there are any, and none of a file or a
        role. Raises StoreUnusable.
        """
        endpoint = self.address.endpoint
        keys = environment_keys() if endpoint is not None and _is_on_this_machine(endpoint) else {}
        config = AioConfig(
            retries={"total_max_attempts": ATTEMPTS},
            parameter_validation=False,
            max_pool_connections=CONNECTIONS,
            connect_timeout=CONNECT_S,
            read_timeout=self._answer_s,
            connector_args={"keepalive_timeout": KEPT_S},
        )
        session = get_session()
        session.register_component("data_loader", _loader())
        try:
            if not keys and await session.get_credentials() is None:
                raise StoreUnusable(
                    "there are no credentials for DynamoDB",
                    "the environment, the files of AWS and the role of this machine have none",
                    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or attach a role",
                )
            made = session.create_client(
                SCHEME, region_name=self.address.region, endpoint_url=endpoint, config=config, **keys
            )
            client = await self._opened.enter_async_context(made)
        except (BotoCoreError, ValueError, OSError) as error:
            raise StoreUnusable(
                "the settings for AWS cannot be used",
                f"{type(error).__name__}: {error}",
                "check them: aws configure list",
            ) from error
        client.meta.events.register(f"before-send.{SCHEME}", _in_pieces)
        names: dict[str, str] = client.meta.method_to_api_mapping
        self._operations = {operation: getattr(client, name) for name, operation in names.items()}

    async def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Send one request, for example `call("PutItem", TableName=…, Item=…)`, and return the answer.

        Raises ConditionRefused, Conflicted, Throttled, Away, Unusable, Rejected. If the caller is cancelled, the
        request may have landed.
        """
        if urgent.get():
            return await self._call(operation, request)
        async with self._ordinary:
            return await self._call(operation, request)

    async def insist(self, operation: str, within_s: float, **request: Any) -> dict[str, Any]:
        """Send a request whose repetition is harmless until it is answered.

        Raises ConditionRefused, also if an earlier attempt landed, and after `within_s` the last error of `call`.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        for turn in count():
            try:
                return await self.call(operation, **request)
            except (Away, Conflicted, Throttled):
                if loop.time() >= until:
                    raise
            await pause(turn)
        raise AssertionError("it ends by returning")

    async def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        self.requests[operation] += 1
        sent_at = self._wall_ms()
        try:
            found = await self._operations[operation](**request)
        except ClientError as error:
            meant = _meaning(error)
            self._hear(sent_at, dict(error.response))
            raise meant from error
        except BotoCoreError as error:
            raise Away(f"{type(error).__name__}: {error}", sent=_was_sent(error)) from error
        except BROKEN as error:
            raise Away(f"a broken answer: {type(error).__name__}: {error}", sent=True) from error
        headers = self._hear(sent_at, found)
        if not headers.get("content-type", "").startswith(JSON):  # the SDK takes any page for an empty answer
            raise Away("the answer is not one of DynamoDB", sent=True)
        return found

    def _hear(self, sent_at: int, answer: dict[str, Any]) -> dict[str, str]:
        """Take the headers from an answer and compare the clocks by their date."""
        headers: dict[str, str] = answer.pop("ResponseMetadata")["HTTPHeaders"]
        self._difference.add(sent_at, self._wall_ms(), headers.get("date"))
        return headers

    def clock_difference(self) -> tuple[int, int] | None:
        """Return bounds in ms of the service's clock minus the clock of this machine, or None without an answer.

        They follow from the last minute or two of answers. One answer bounds it within a second and the time it took;
        many answers narrow that.
        """
        return self._difference.bounds()

    async def close(self) -> None:
        """Close the connections at once."""
        await self._opened.aclose()


async def pause(turn: int, first_s: float = 0.02, most_s: float = 0.5) -> None:
    """Wait up to a time that doubles with each turn, so that requests that collided do not collide again.

    The share of it differs by process and instant, as a random one would.
    """
    share = crc32(f"{os.getpid()}/{asyncio.get_running_loop().time()}".encode()) / 2**32
    await asyncio.sleep(share * min(most_s, first_s * 2 ** min(turn, 20)))


class ClockDifference:
    """Bounds of the service's clock minus this machine's, by the `Date` of answers, which has whole seconds.

    An answer was dated between its request and its arrival. So the difference is above the date minus the arrival, and
    below the end of that second minus the request. Bounds of two windows are combined, so that a step of a clock is
    forgotten after the second.
    """

    def __init__(self) -> None:
        self._windows: list[tuple[int, int]] = []
        self._began = 0
        self._text, self._date = "", 0

    def add(self, sent: int, arrived: int, date: str | None) -> None:
        """Use one answer. One without a date, or with a wrong one, says nothing."""
        if date is None:
            return
        if date != self._text:
            try:
                self._text, self._date = date, int(parsedate_to_datetime(date).timestamp()) * 1000
            except ValueError:
                return
        bounds = self._date - arrived, self._date + 1000 - sent
        if not self._windows or not 0 <= arrived - self._began < WINDOW_MS:
            self._windows, self._began = [bounds, *self._windows[:1]], arrived
        else:
            self._windows[0] = _both(self._windows[0], bounds) or bounds

    def bounds(self) -> tuple[int, int] | None:
        """Return the lowest and the highest difference in ms, or None before the first answer."""
        if not self._windows:
            return None
        return _both(self._windows[0], self._windows[-1]) or self._windows[0]


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int] | None:
    """Return the intersection of two intervals, or None if a clock was set between them."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else None
