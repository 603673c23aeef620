"""Addresses of DynamoDB stores, and the client whose errors say whether a request may have landed."""

import json
import re
import time
from binascii import a2b_base64, b2a_base64
from collections import Counter
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from io import BytesIO
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit
from zlib import crc32

import aiohttp

from outlast.core.limits import KIB, NAME
from outlast.errors import Rejected, StoreUnusable
from outlast.store.dynamodb.signing import Endpoint, Signer, find_endpoint

SCHEME: Final = "dynamodb"
CHECKPOINTS: Final = "checkpoints"
IDEMPOTENCY: Final = "idempotency"
RECOVERY_LOCKS: Final = "recovery-locks"
RUNS: Final = "runs"
ENVIRONMENT_CHARS_MAX: Final = 60
REGION: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
CONNECT_S: Final = 3.0
ANSWER_S: Final = 10.0  # a request unanswered for longer may have landed
CONNECTIONS: Final = 32
PIECES_BYTES: Final = 256 * KIB  # a larger request is written in pieces, between which other tasks run
KEPT_S: Final = 10.0  # an idle connection is closed before the service closes it, which would look like a lost answer
WINDOW_MS: Final = 60_000  # two windows of answers bound the difference of the clocks
EXAMPLE: Final = "dynamodb://eu-west-1/prod, or dynamodb://local/test?endpoint=http://127.0.0.1:8000"


class DynamoAddress(NamedTuple):
    """Where the store is: a region, the environment that begins the names of its tables, and perhaps an endpoint."""

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
            parts.netloc, environment, endpoint, recovery == "on",
            f"{SCHEME}://{parts.netloc}/{environment}{'?' * bool(shown)}{shown}",
        )  # fmt: skip

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
COUNTED: Final = frozenset({
    "BatchGetItem", "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "TransactGetItems",
    "TransactWriteItems", "UpdateItem",
})  # fmt: skip
NEVER_SENT: Final = (
    aiohttp.ClientConnectorError,  # includes names that are not found and certificates that are not accepted
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
)


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


def _error(status: int, body: bytes) -> Exception:
    """Return the exception for an answer with another status than 200."""
    try:
        said = json.loads(body)
        code = str(said["__type"]).rpartition("#")[2].partition(":")[0]
        words = str(said.get("message") or said.get("Message") or "")
        given = said.get("CancellationReasons") or ()
        reasons = tuple((str(each.get("Code") or "None"), str(each.get("Message") or "")) for each in given)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Away(f"HTTP {status}, and not an answer of DynamoDB: {body[:200]!r}", sent=True)
    if status >= 500:  # "the request may have succeeded", says the documentation
        return Away(f"HTTP {status}: {code}: {words}", sent=True)
    return refused(code, words, reasons)


def _binary(value: Any) -> str:
    if isinstance(value, bytes):
        return b2a_base64(value, newline=False).decode()
    raise TypeError(f"{type(value).__name__} is not a value of DynamoDB")


def _decoded(found: dict[str, Any]) -> dict[str, Any]:
    value = found.get("B")
    return {"B": a2b_base64(value)} if isinstance(value, str) and len(found) == 1 else found


_dump: Final = json.JSONEncoder(separators=(",", ":"), default=_binary).encode


class Connection:
    """Client of DynamoDB. Each request is sent once; the caller decides about repetition.

    Values have DynamoDB's own form: `{"S": "text"}`, `{"N": "1"}`, `{"B": b"bytes"}`. Used in the event loop that
    opened it. `requests` counts by operation. With `count_units`, `units` sums the consumed capacity by operation.
    """

    def __init__(
        self,
        address: DynamoAddress,
        *,
        answer_s: float = ANSWER_S,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`wall_ms` is the machine's clock, which signs and which `clock_difference` compares with the service's."""
        self.address = address
        self._wall_ms = wall_ms
        self.requests: Counter[str] = Counter()
        self.units: Counter[str] = Counter()
        self.count_units = False
        self._answer_s = answer_s
        self._difference = ClockDifference()
        self._endpoint: Endpoint | None = None
        self._signer = Signer("", "")
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Find the endpoint and the credentials. Nothing is sent to DynamoDB yet.

        Raises StoreUnusable.
        """
        self._endpoint = endpoint = await find_endpoint(self.address.region, self.address.endpoint)
        self._signer = Signer(self.address.region, endpoint.host)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS, keepalive_timeout=KEPT_S, ssl=True if endpoint.tls is None else endpoint.tls
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=self._answer_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        )

    async def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Send one request, for example `call("PutItem", TableName=…, Item=…)`, and return the answer.

        Raises ConditionRefused, Conflicted, Throttled, Away, Unusable, Rejected. If the caller is cancelled, the
        request may have landed.
        """
        assert self._session is not None and self._endpoint is not None, "open() comes first"
        if self.count_units and operation in COUNTED:
            request["ReturnConsumedCapacity"] = "TOTAL"
        body = _dump(request).encode()
        try:
            keys = await self._endpoint.keys()
        except Exception as error:  # any provider of credentials may fail, and each in its own way
            raise Away(f"no credentials: {type(error).__name__}: {error}", sent=False) from error
        headers = self._signer.headers(operation, body, keys, self._wall_ms() // 1000)
        self.requests[operation] += 1
        sent_at = self._wall_ms()
        try:
            async with self._session.post(
                self._endpoint.url,
                data=body if len(body) < PIECES_BYTES else BytesIO(body),
                headers=headers,
                proxy=self._endpoint.proxy,
                allow_redirects=False,
            ) as response:
                answer = await response.read()
        except NEVER_SENT as error:
            raise Away(_words(error), sent=False) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Away(_words(error), sent=True) from error
        self._difference.add(sent_at, self._wall_ms(), response.headers.get("date"))
        if response.status != 200:
            raise _error(response.status, answer)
        checksum = response.headers.get("x-amz-crc32")
        try:
            if checksum is not None and int(checksum) != crc32(answer):
                raise ValueError("the checksum of the answer is wrong")
            found: dict[str, Any] = json.loads(answer, object_hook=_decoded if b'"B"' in answer else None)
        except ValueError as error:
            raise Away(f"a broken answer: {error}", sent=True) from error
        if self.count_units:
            self._count(operation, found)
        return found

    def _count(self, operation: str, found: dict[str, Any]) -> None:
        consumed = found.get("ConsumedCapacity") or ()
        for each in [consumed] if isinstance(consumed, dict) else consumed:
            self.units[operation] += each.get("CapacityUnits", 0)

    def clock_difference(self) -> tuple[int, int] | None:
        """Return bounds in ms of the service's clock minus the clock of this machine, or None without an answer.

        They follow from the last minute or two of answers. One answer bounds it within a second and the time it took;
        many answers narrow that.
        """
        return self._difference.bounds()

    async def close(self) -> None:
        """Close the connections at once."""
        if self._session is not None:
            await self._session.close()


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


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
