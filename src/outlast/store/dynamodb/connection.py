"""Addresses of DynamoDB stores, and the client whose errors say whether a request may have landed."""

import re
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from outlast.core.limits import NAME
from outlast.errors import StoreUnusable

SCHEME: Final = "dynamodb"
CHECKPOINTS: Final = "checkpoints"
IDEMPOTENCY: Final = "idempotency"
RECOVERY_LOCKS: Final = "recovery-locks"
RUNS: Final = "runs"
ENVIRONMENT_CHARS_MAX: Final = 60
REGION: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
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
            raise _bad_address(f"the region is {parts.netloc!r}")
        if not NAME.fullmatch(environment) or len(environment) > ENVIRONMENT_CHARS_MAX:
            raise _bad_address(
                f"the environment is {environment!r}; it has 1 to {ENVIRONMENT_CHARS_MAX} letters, digits, dots, "
                "dashes or underscores"
            )
        if unknown := {*query} - {"endpoint", "pitr"} or parts.fragment or len(query) < len(given):
            raise _bad_address(f"the parameters are endpoint and pitr, each at most once, not {unknown!r}")
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


class Connection:
    """Client of DynamoDB. Each request is sent once; the caller decides about repetition.

    Opened in the event loop that uses it.
    """

    def __init__(self, address: DynamoAddress) -> None:
        self.address = address

    async def open(self) -> None:
        """Find credentials and create the client.

        Raises StoreUnusable.
        """
        raise NotImplementedError

    async def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Send one request, for example `call("PutItem", TableName=…, Item=…)`, and return the answer.

        Raises ConditionRefused, Conflicted, Throttled, Away, Unusable, Rejected.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connections at once."""
        raise NotImplementedError

    def clock_difference(self) -> tuple[int, int] | None:
        """Return the bounds in ms of the service's clock minus the clock of this machine, or None without an answer."""
        raise NotImplementedError
